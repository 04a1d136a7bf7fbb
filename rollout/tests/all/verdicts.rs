//! Pairs of answers, many of them close to each other, and what the math verifier must say of them.

use rollout::verifier::Outcome;
use rollout::{PureVerifier, VerifierKind, verifier};

fn math() -> Box<dyn PureVerifier> {
    verifier::pure(&VerifierKind::Math).expect("a pure kind")
}

/// Pairs that should have another outcome, as they stand and as a whole response, with either side as
/// the gold answer.
fn wrong(pairs: &[(&str, &str)], is_equal: bool) -> Vec<String> {
    let math = math();
    let mut wrong = Vec::new();
    for (a, b) in pairs {
        for (gold, answer) in [(a, b), (b, a)] {
            let outcome = math.compare(gold, answer).expect("a gold answer").outcome;
            let verdict = math.verify(gold, &format!("So it is $\\boxed{{{answer}}}$."));
            if (outcome == Outcome::Equal) != is_equal || verdict.correct != is_equal {
                wrong.push(format!("{gold} | {answer}: {outcome:?}, {verdict:?}"));
            }
        }
    }
    wrong
}

/// Each group says one thing in several ways.
#[test]
fn one_value_in_many_spellings_is_one_answer() {
    let pairs = [
        // Decimals that go on.
        (r"0.\dot{3}", r"\frac13"),
        (r"0.\dot{1}4285\dot{7}", r"\frac{1}{7}"),
        (r"0.1\dot{6}", r"\frac{1}{6}"),
        (r"0.\overline 3", r"1/3"),
        (r"2.\overline{45}", r"\frac{27}{11}"),
        (r"0.(3)", r"\frac13"),
        (r"0.1(6)", r"\frac16"),
        (r"0.333...", r"1/3"),
        (r"0.1666\ldots", r"1/6"),
        ("0.1212…", r"\frac{4}{33}"),
        (r"33.\overline{3}\%", r"\frac13"),
        (r"0.\overline{9}", "1"),
        (r"\sqrt2", r"x=\sqrt2=1.414\ldots"),
        // Roots.
        (r"\sqrt[3]{8}", "2"),
        (r"\sqrt[3]{-27}", "-3"),
        (r"\sqrt[3]{54}", r"3\sqrt[3]{2}"),
        (r"\sqrt[4]{48}", r"2\sqrt[4]3"),
        (r"\root 3 \of {16}", r"2\sqrt[3]{2}"),
        ("∛16", r"2\cdot2^{1/3}"),
        ("³√5", r"\sqrt[3]{5}"),
        ("cbrt(27)", "3"),
        (r"\frac{1}{\sqrt[3]{4}}", r"\frac{\sqrt[3]{2}}{2}"),
        (r"\sqrt[n]{x}", r"x^{\frac{1}{n}}"),
        // Units.
        ("5 km", "5000 m"),
        (r"5\text{ km}", r"5000\text{ m}"),
        (r"2\text{ m}^2", r"20000\text{ cm}^2"),
        (r"2\text{ m²}", r"20000\text{ cm}^2"),
        (r"1\text{ liter}", r"1000\text{ cm}^3"),
        ("60 km/h", r"1 \text{ km per minute}"),
        ("10 m/s", r"36\text{ km/h}"),
        ("2 hours 30 minutes", "150 minutes"),
        ("2 hours and 30 minutes", "2.5 hours"),
        ("5 ft 6 in", "66 inches"),
        ("2 km 500 m", "2.5 km"),
        ("3 tablespoons", "9 teaspoons"),
        ("2 decades", "20 years"),
        (r"15\text{ cm}^2", "15"),
        ("3 dozen", "3"),
        (r"\$5 \text{ million}", r"\$5{,}000{,}000"),
        ("2.5 million", "2500000"),
        ("€20", r"20\text{ euros}"),
        (r"\$0.75", "75 cents"),
        ("USD 40", r"\$40"),
        (r"25^\circ\text{C}", "25 °C"),
        // Functions of several values.
        (r"\gcd(12,18)", "6"),
        ("gcd(84, 36)", "12"),
        (r"\operatorname{lcm}(4,6)", "12"),
        (r"\text{lcm}(4, 6, 10)", "60"),
        (r"\max\{3, 7\}", "7"),
        (r"\min(\sqrt2, \sqrt3)", r"\sqrt2"),
        (r"\max(x,y)", r"\max(y,x)"),
        (r"\max(a,b)", r"\frac{a+b+|a-b|}{2}"),
        (r"2\gcd(3,9)", "6"),
        (r"{10 \choose 3}", "120"),
        (r"10 \choose 3", r"\binom{10}{7}"),
        ("C(10, 3)", "120"),
        ("_{10}C_{3}", "120"),
        ("10C3", "120"),
        ("^{5}P_{2}", "20"),
        (r"{1 \over 2}", "0.5"),
        ("7!!", "105"),
        (r"\frac{8!}{5!\,3!}", r"\binom83"),
        (r"\log_2 8", "3"),
        (r"\log_{4}{8}", "1.5"),
        (r"\log_9 27", r"\frac32"),
        // No value, all values.
        ("DNE", "does not exist"),
        (r"\text{DNE}", "The limit does not exist."),
        (r"\text{undefined}", "undefined"),
        (r"\text{no solution}", "There are no solutions."),
        (r"\text{all real numbers}", r"(-\infty, \infty)"),
        // Sets and intervals.
        (r"\mathbb{R}\setminus\{0\}", r"(-\infty,0)\cup(0,\infty)"),
        (
            r"\mathbb{R} - \{-1, 2\}",
            r"(-\infty,-1)\cup(-1,2)\cup(2,\infty)",
        ),
        (r"\mathbb{R}\backslash\{1\}", r"x\ne1"),
        ("ℝ∖{0}", "x≠0"),
        (
            r"\{x \in \mathbb{R} : x \neq 0\}",
            r"\mathbb{R}\setminus\{0\}",
        ),
        (r"[0,5]\setminus(1,2)", r"[0,1]\cup[2,5]"),
        (r"(0,3)\cap[2,5]", "[2,3)"),
        ("]0,1[", "(0,1)"),
        ("[0,1[", "[0,1)"),
        (r"\left]-\infty, 2\right]", r"x\le2"),
        (r"]0,1[\cup]2,100[", r"(0,1)\cup(2,100)"),
        (r"x>1 \text{ and } x<5", "(1,5)"),
        (r"x<-1 \text{ or } x>1", r"(-\infty,-1)\cup(1,\infty)"),
        ("x < -1, x > 1", "|x|>1"),
        (r"x > 0 \land x \ne 2", r"(0,2)\cup(2,\infty)"),
        (r"\{x \mid x\ge 0, x\ne 1\}", r"[0,1)\cup(1,\infty)"),
        ("x≠1, -1", r"(-\infty,-1)\cup(-1,1)\cup(1,\infty)"),
        (r"\mathbb{R}^+", r"(0,\infty)"),
        (r"|x-1|<3", "(-2,4)"),
        (r"|2x+1|\ge5", r"(-\infty,-3]\cup[2,\infty)"),
        ("[2, inf)", r"x\ge2"),
        (r"x=\pm2", r"\{-2,2\}"),
        ("either 5 or 6", "5, 6"),
        ("exactly 5", "5"),
        (r"\pm\sqrt3", r"\sqrt3,-\sqrt3"),
        (r"\{\pm1,\pm2\}", r"\{-2,-1,1,2\}"),
        ("1, 2 and 3", r"\{3,1,2\}"),
        ("1, 2, and 3", "3; 2; 1"),
        (r"1 \& 2", "2, 1"),
        // Numbers.
        (r"3\times10^{5}", "300000"),
        ("3x10^5", "300000"),
        ("3 X 10^{-2}", "0.03"),
        ("6.02 × 10²³", r"6.02\cdot10^{23}"),
        ("10¹²", "1000000000000"),
        ("10⁻³", "0.001"),
        ("x²y³", "x^2y^3"),
        ("3⅝", r"\frac{29}{8}"),
        ("21st", "21"),
        (r"21^{\text{st}}", "21"),
        ("negative 5", "-5"),
        (r"\tfrac12", "½"),
        (r"\nicefrac{3}{4}", "0.75"),
        (r"\frac1{12}", r"\frac 1 {12}"),
        ("1010_2", "1010_{2}"),
        (r"1010_{\text{two}}", "1010_{(2)}"),
        ("90 degrees", r"90^{\circ}"),
        (r"45^\circ", r"\frac{\pi}{4}"),
        ("x=3", "3"),
        // Layout.
        (r"\textcolor{red}{5}", "5"),
        (r"\color{blue} 5", "5"),
        (r"\underline{42}", "42"),
        (r"x=5 \tag{1}", "5"),
        (r"7\hspace{2mm}", "7"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"\boxed{\text{7}}", "7"),
        (r"\text{The answer is } 7", "7"),
        (r"\text{Answer: } \frac12", "0.5"),
        (r"\text{The answer is }-7", "-7"),
        (r"\text{The answer is }\text{even}", "even"),
        (r"10,\\!080", "10080"),
        (r"\emph{even}", "even"),
        (
            r"\begin{bmatrix}1&2\\3&4\end{bmatrix}",
            r"\left(\begin{array}{cc}1&2\\3&4\end{array}\right)",
        ),
        (
            r"\begin{psmallmatrix}1\\2\end{psmallmatrix}",
            r"\begin{pmatrix}1\\2\end{pmatrix}",
        ),
        (r"1,2,\ldots,10", "1, 2, ..., 10"),
    ];
    let wrong = wrong(&pairs, true);
    assert!(
        wrong.is_empty(),
        "{} of {}: {wrong:#?}",
        wrong.len(),
        2 * pairs.len()
    );
}

/// Close to each other, and yet two answers.
#[test]
fn what_only_looks_alike_is_different() {
    let pairs = [
        (r"\frac13", "0.33"),
        (r"\frac13", "0.3333"),
        (r"0.\overline{3}", "0.3"),
        (r"0.\dot{3}", "0.33"),
        ("0.333", "0.333..."),
        ("0.333...", "0.3333"),
        ("0.(3)", "0"),
        ("0.1(6)", "0.6"),
        (r"0.1\overline{6}", r"0.\overline{16}"),
        (r"1.414\ldots", r"\sqrt2"),
        (r"1.414\ldots", "1.414"),
        (r"0.\overline{9}", "0.9"),
        (r"\sqrt[3]{8}", "4"),
        (r"\sqrt[3]{9}", "3"),
        (r"\sqrt[3]{9}", r"\sqrt[3]{3}"),
        (r"\sqrt[3]{2}", "1.26"),
        (r"\sqrt[4]{4}", "2"),
        ("³√8", "8√8"),
        ("5 km", "5 m"),
        ("5 km", "500 m"),
        (r"5\text{ m}^2", r"500\text{ cm}^2"),
        (r"5\text{ m}^2", r"5\text{ m}"),
        (r"5\text{ m/s}", r"5\text{ km/h}"),
        (r"5\text{ m/s}", r"5\text{ m/s}^2"),
        ("10 cm tall", "10 m tall"),
        ("5 kg", "5 km"),
        ("1 acre", "1 hectare"),
        ("2 decades", "2 years"),
        ("2 km 500 m", "500 m"),
        ("5 miles per hour", "5 km per hour"),
        ("2 hours 30 minutes", "2.3 hours"),
        ("5 million", "5"),
        ("5 million", "5 billion"),
        (r"\$5", "€5"),
        (r"\$5", "5 cents"),
        ("5 squared", "5"),
        ("5 factorial", "5"),
        (r"5 \text{ degrees below zero}", "5"),
        ("2 thirds", "2"),
        ("negative 5", "5"),
        (r"\gcd(12,18)", r"\operatorname{lcm}(12,18)"),
        (r"\max(3,7)", "3"),
        (r"\max(x,y)", r"\min(x,y)"),
        (r"\max(x,y)", "x"),
        (r"(0,3)\cap[2,5]", "2"),
        (r"\int_0^1 f(x)\,dx", "2"),
        (r"\binom{10}{3}", "30"),
        (r"{10 \choose 3}", r"{10 \over 3}"),
        ("7!!", "5040"),
        ("5!", "5"),
        (r"\log_2 8", r"\log_8 2"),
        (r"\log 8", "3"),
        ("DNE", "0"),
        ("undefined", "no solution"),
        (r"\text{DNE}", r"\infty"),
        (r"\mathbb{R}\setminus\{0\}", r"\mathbb{R}"),
        (r"\mathbb{R}\setminus\{0\}", r"(-\infty,0]\cup(0,\infty)"),
        (r"\mathbb{R}\setminus\{0,1\}", r"\mathbb{R}\setminus\{0\}"),
        (r"\mathbb{Z}\setminus\{0\}", r"\mathbb{R}\setminus\{0\}"),
        (r"\{x\in\mathbb{Z} : x>2\}", r"(2,\infty)"),
        (r"x>1 \text{ and } x<5", r"\mathbb{R}"),
        (r"x>1 \text{ or } x<5", "(1,5)"),
        ("x>3", "y>3"),
        ("0<f(x)<1", "0<x<1"),
        ("x>0, y<5", "(0,5)"),
        ("]0,1[", "[0,1]"),
        ("[0,1[", "(0,1]"),
        ("]0,100[", "0100"),
        ("x≠1, -1", "x≠1"),
        (r"\mathbb{R}^+", r"[0,\infty)"),
        (r"\mathbb{Z}^+", r"\mathbb{R}^+"),
        (r"\mathbb{Z}^+", r"\mathbb{Z}"),
        (r"|x-1|<3", "[-2,4]"),
        (r"|x-1|<3", "(-4,2)"),
        ("10C3", "10C4"),
        (r"x=\pm2", "2"),
        (r"x=\pm2", r"\{2\}"),
        (r"1\pm\sqrt2", r"1+\sqrt2"),
        ("1, 2 and 3", "1, 2"),
        ("1, 2, 3", "(1,2,3)"),
        (r"\{1,2\}", "12"),
        ("1, 2, 3, ...", "1, 2, 3"),
        (r"1,2,\ldots,10", "1,2,10"),
        ("10¹²", "10"),
        ("10⁻³", "10^3"),
        (r"3\times10^{5}", "30000"),
        (r"3\times10^{5}", r"3\times10^{-5}"),
        ("2½", "1"),
        (r"2\frac12", "1"),
        ("1010_2", "1010"),
        ("1010_2", "1010_3"),
        ("90^\\circ", "90 radians"),
        (r"\frac{\pi}{2}", "90"),
        (r"25^\circ\text{C}", r"25^\circ\text{F}"),
        (
            r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
            r"\begin{pmatrix}1&3\\2&4\end{pmatrix}",
        ),
        (
            r"\begin{pmatrix}1&&2\end{pmatrix}",
            r"\begin{pmatrix}1&2\end{pmatrix}",
        ),
        (r"\textcolor{red}{5}", "red"),
        (r"\phantom{5}", "5"),
        ("20%", "20% or 30%"),
        ("1/2", "1:2:3"),
        ("e", "2.718"),
        ("2^{10}", "2^{1}0"),
        ("-2^2", "4"),
        ("(-8)^{1/3}", "2"),
        ("|x|", "x"),
        ("x^{2}", "x_{2}"),
        ("a+b", "ab"),
    ];
    let wrong = wrong(&pairs, false);
    assert!(
        wrong.is_empty(),
        "{} of {}: {wrong:#?}",
        wrong.len(),
        2 * pairs.len()
    );
}

/// What the comparison passed over is said.
#[test]
fn a_verdict_says_what_was_passed_over() {
    let math = math();
    for (gold, answer, rule) in [
        ("15", r"15\text{ cm}^2", "boxed+units"),
        ("5 km", "5000 m", "boxed"),
        (r"\frac13", r"33.\overline{3}\%", "boxed"),
        (r"\frac13", "0.333333333333", "boxed+rounding"),
        (r"\frac13", "0.333...", "boxed"),
        ("20%", "20", "boxed+percent"),
    ] {
        let verdict = math.verify(gold, &format!("\\boxed{{{answer}}}"));
        assert_eq!(
            (verdict.correct, verdict.rule.as_str()),
            (true, rule),
            "{gold} {answer}"
        );
    }
}
