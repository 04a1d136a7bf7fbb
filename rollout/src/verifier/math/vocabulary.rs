//! Words and commands that have a meaning.

use super::expression::{Constant, Expr, Function, Sign};

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
    "underline",
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
    "mathit",
    "fbox",
    "textcolor",
];

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
        || matches!(
            name,
            "frac"
                | "dfrac"
                | "tfrac"
                | "cfrac"
                | "sqrt"
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

/// Whether a text after a value only says what it is of. One with a number or an "or" in it may be
/// a second answer.
pub(super) fn is_annotation(text: &str) -> bool {
    let has_doubt = text.split(|c: char| !c.is_alphabetic()).any(|word| {
        matches!(
            word.to_lowercase().as_str(),
            "or" | "not" | "maybe" | "perhaps"
        )
    });
    !is_separator(text)
        && !is_percent(text)
        && !has_doubt
        && !text.chars().any(|c| c.is_ascii_digit() || c == '\\')
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
        "infinity" | "infty" | "Infinity" | "oo" => Constant::Infinity,
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
            "sqrt" | "approximately" | "about" | "approx" | "union"
        )
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
