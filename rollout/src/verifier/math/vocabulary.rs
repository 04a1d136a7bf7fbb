//! Words and commands that have a meaning.

use super::expression::{Constant, Expr, Fold, Function, Sign};

/// Greek letters and other names that stand for themselves.
pub(super) const NAMES: &[&str] = &[
    "alpha",
    "beta",
    "gamma",
    "delta",
    "epsilon",
    "varepsilon",
    "zeta",
    "eta",
    "theta",
    "vartheta",
    "iota",
    "kappa",
    "lambda",
    "mu",
    "nu",
    "xi",
    "rho",
    "sigma",
    "tau",
    "upsilon",
    "phi",
    "varphi",
    "chi",
    "psi",
    "omega",
    "Gamma",
    "Delta",
    "Theta",
    "Lambda",
    "Xi",
    "Pi",
    "Sigma",
    "Phi",
    "Psi",
    "Omega",
    "ell",
    "hbar",
    "partial",
    "nabla",
    "aleph",
];

/// Commands that put a mark on their argument and so make a name of it.
pub(super) const MARKS: &[&str] = &[
    "overline",
    "vec",
    "hat",
    "bar",
    "widehat",
    "tilde",
    "overrightarrow",
    "dot",
    "overarc",
    "wideparen",
    "mathcal",
    "mathscr",
    "mathfrak",
    "mathbb",
];

/// Commands whose argument is read as if they weren't there.
pub(super) const PLAIN: &[&str] = &[
    "boxed",
    "mathbf",
    "boldsymbol",
    "bm",
    "pmb",
    "mathit",
    "fbox",
    "framebox",
    "underline",
    "ensuremath",
];

/// Commands of a fraction with an argument each for its two parts.
pub(super) fn is_fraction(name: &str) -> bool {
    matches!(
        name,
        "frac" | "dfrac" | "tfrac" | "cfrac" | "nicefrac" | "sfrac"
    )
}

pub(super) const BIG: &[&str] = &[
    "sum", "prod", "int", "iint", "oint", "lim", "max", "min", "gcd", "lcm", "sup", "inf", "det",
    "bigcup", "bigcap", "deg", "dim", "arg", "Re", "Im", "limsup", "liminf",
];

pub(super) fn is_command(name: &str) -> bool {
    NAMES.contains(&name)
        || MARKS.contains(&name)
        || PLAIN.contains(&name)
        || BIG.contains(&name)
        || Function::named(name).is_some()
        || relation_sign(name).is_some()
        || is_fraction(name)
        || matches!(
            name,
            "sqrt"
                | "binom"
                | "dbinom"
                | "tbinom"
                | "pi"
                | "infty"
                | "cdot"
                | "times"
                | "div"
                | "ast"
                | "bullet"
                | "pm"
                | "mp"
                | "cup"
                | "cap"
                | "setminus"
                | "smallsetminus"
                | "backslash"
                | "emptyset"
                | "varnothing"
                | "circ"
                | "degree"
                | "begin"
                | "end"
                | "lfloor"
                | "rfloor"
                | "lceil"
                | "rceil"
                | "langle"
                | "rangle"
                | "lvert"
                | "rvert"
                | "lbrace"
                | "rbrace"
                | "vert"
                | "angle"
                | "triangle"
                | "prime"
                | "dots"
                | "ldots"
                | "cdots"
                | "dotsc"
                | "dotsb"
                | "pounds"
                | "euro"
                | "land"
                | "lor"
                | "wedge"
                | "vee"
                | "mid"
                | "colon"
                | "not"
                | "parallel"
                | "perp"
                | "ni"
                | "lbrack"
                | "rbrack"
                | "mathrm"
                | "dotsm"
        )
}

pub(super) fn relation_sign(name: &str) -> Option<Sign> {
    Some(match name {
        "le" | "leq" | "leqslant" => Sign::AtMost,
        "ge" | "geq" | "geqslant" => Sign::AtLeast,
        "lt" => Sign::Less,
        "gt" => Sign::Greater,
        "ne" | "neq" => Sign::NotEqual,
        "in" => Sign::In,
        "approx" | "simeq" | "doteq" => Sign::Near,
        "equiv" | "sim" | "cong" | "to" | "rightarrow" | "mapsto" | "Rightarrow" | "implies"
        | "iff" | "Leftrightarrow" | "propto" | "parallel" | "perp" | "mid" | "subset"
        | "subseteq" | "notin" => Sign::Other,
        _ => return None,
    })
}

/// Words between answers.
pub(super) fn is_separator(word: &str) -> bool {
    let word = word
        .trim()
        .trim_matches(|c: char| c == ',' || c.is_whitespace());
    matches!(word.to_ascii_lowercase().as_str(), "and" | "or" | "")
}

/// A text after a value that only says what it is of, with exponents as in `cm^2`. One with a number
/// or an "or" in it may be a second answer.
pub(super) fn annotation(text: &str) -> Option<String> {
    let text = text.replace(['{', '}', '$'], "");
    let has_doubt = text.split(|c: char| !c.is_alphabetic()).any(|word| {
        matches!(
            word.to_lowercase().as_str(),
            "or" | "not" | "maybe" | "perhaps"
        )
    });
    let mut before = ' ';
    let has_value = text.chars().any(|c| {
        let is_exponent = before == '^' && matches!(c, '2' | '3');
        before = c;
        c.is_ascii_digit() && !is_exponent || c == '\\'
    });
    let is_other = is_separator(&text) || is_percent(&text) || has_doubt || has_value;
    (!is_other).then(|| text.trim().to_owned())
}

/// The text behind what only announces an answer: "The answer is 5" says 5.
pub(super) fn without_lead(text: &str) -> &str {
    const LEADS: [&str; 7] = [
        "the final answer is",
        "the answer is",
        "final answer is",
        "answer is",
        "final answer:",
        "the answer:",
        "answer:",
    ];
    let start = text.trim_start();
    let is_lead = |lead: &&&str| {
        let head = start.get(..lead.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(lead))
    };
    match LEADS.iter().find(is_lead) {
        Some(lead) => {
            let rest = &start[lead.len()..];
            rest.strip_prefix(':').unwrap_or(rest).trim_start()
        }
        None => text,
    }
}

/// Words as an answer. Ways to say the same come out the same.
pub(super) fn phrase(words: &str) -> Expr {
    let words = words.to_lowercase();
    let plain = words.strip_prefix("the ").unwrap_or(&words);
    let plain = ["limit ", "value ", "it "]
        .iter()
        .find_map(|subject| plain.strip_prefix(subject))
        .unwrap_or(plain);
    Expr::Text(match plain {
        "dne" | "does not exist" | "do not exist" | "doesn't exist" | "undefined"
        | "is undefined" | "not defined" | "is not defined" => "does not exist".into(),
        "no solution" | "no solutions" | "there is no solution" | "there are no solutions" => {
            "no solution".into()
        }
        "all real numbers" | "all reals" | "all real values" | "any real number" => {
            return Expr::Opaque("mathbb".into(), vec![Expr::Variable("R".into())]);
        }
        _ => words,
    })
}

pub(super) fn is_percent(word: &str) -> bool {
    matches!(
        word.trim().to_ascii_lowercase().as_str(),
        "percent" | "pct" | "percentage" | "per cent"
    )
}

pub(super) fn named_constant(word: &str) -> Option<Expr> {
    Some(Expr::Constant(match word {
        "pi" | "Pi" => Constant::Pi,
        "infinity" | "infty" | "Infinity" | "inf" | "oo" => Constant::Infinity,
        _ => return None,
    }))
}

/// `sinx`, `lnx`.
pub(super) fn starts_with_function(word: &str) -> Option<(Function, &str)> {
    let function = [
        "arcsin", "arccos", "arctan", "sin", "cos", "tan", "ln", "log",
    ]
    .into_iter()
    .find(|name| word.starts_with(name) && word.len() == name.len() + 1)?;
    Some((Function::named(function)?, &word[function.len()..]))
}

/// Whether a word has a meaning in a formula.
pub(super) fn is_known_word(word: &str) -> bool {
    Function::named(word).is_some()
        || named_constant(word).is_some()
        || starts_with_function(word).is_some()
        || is_separator(word)
        || is_percent(word)
        || matches!(
            word,
            "sqrt" | "cbrt" | "approximately" | "about" | "approx" | "union" | "negative"
        )
        || Fold::named(word).is_some()
        || word.len() == 2 && word.chars().all(char::is_alphabetic) && !is_common(word)
        || word.len() <= 4 && word.chars().all(|c| c.is_ascii_uppercase())
        || word.len() == 3
            && !is_common(word)
            && word.chars().all(|c| "abcxyzmnpqrstuvw".contains(c))
}

/// Short words of English, which are no products.
pub(super) fn is_common(word: &str) -> bool {
    const WORDS: [&str; 42] = [
        "is", "it", "so", "to", "of", "in", "we", "be", "by", "at", "as", "an", "if", "on", "no",
        "he", "me", "my", "up", "us", "do", "go", "hi", "ok", "am", "yes", "odd", "one", "two",
        "six", "ten", "any", "the", "for", "not", "but", "get", "has", "had", "are", "was", "out",
    ];
    // Capitals alone are points.
    word.chars().skip(1).all(|c| c.is_ascii_lowercase())
        && WORDS.contains(&word.to_ascii_lowercase().as_str())
}
