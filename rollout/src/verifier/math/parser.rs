//! From tokens to an expression: sums, products, powers, functions and brackets.
//!
//! What can't be read whole isn't read at all: a part that was left out could change the value.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, Zero};

use super::Unread;
use super::expression::{Constant, Decimal, Expr, Function, Sign};
use super::token::{Kind, Number, Token, tokens};
use super::units::{Unit, is_unit};

/// How deeply an answer may be nested.
const MAX_DEPTH: u32 = 48;
/// Words of a unit.
const MAX_UNIT_WORDS: usize = 6;

pub(super) type Parsed = Result<Expr, Unread>;

pub(super) struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: u32,
    /// Open `|` that the next `|` closes.
    bars: u32,
}

/// Greek letters and other names that stand for themselves.
const NAMES: &[&str] = &[
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
const MARKS: &[&str] = &[
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
const PLAIN: &[&str] = &[
    "boxed",
    "mathbf",
    "boldsymbol",
    "bm",
    "mathit",
    "fbox",
    "textcolor",
];

const BIG: &[&str] = &[
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

impl<'a> Parser<'a> {
    pub(super) fn new(tokens: &'a [Token]) -> Self {
        Self {
            tokens,
            at: 0,
            depth: 0,
            bars: 0,
        }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    pub(super) fn peek(&self) -> Option<&'a Kind> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<&'a Kind> {
        self.tokens.get(self.at + ahead).map(|token| &token.kind)
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn go_to(&mut self, position: usize) {
        self.at = position;
    }

    /// A parser of the next so many tokens alone.
    pub(super) fn part(&self, length: usize) -> Parser<'a> {
        let end = (self.at + length).min(self.tokens.len());
        Parser {
            tokens: &self.tokens[self.at..end],
            at: 0,
            depth: self.depth,
            bars: 0,
        }
    }

    pub(super) fn skip(&mut self) {
        self.at += 1;
    }

    pub(super) fn take_sign(&mut self, sign: char) -> bool {
        let is_there = self.peek() == Some(&Kind::Sign(sign));
        self.at += usize::from(is_there);
        is_there
    }

    pub(super) fn take_command(&mut self, name: &str) -> bool {
        let is_there = matches!(self.peek(), Some(Kind::Command(command)) if command == name);
        self.at += usize::from(is_there);
        is_there
    }

    pub(super) fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Unread>,
    ) -> Result<T, Unread> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Unread);
        }
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// A value with all its signs, and a unit after it where there is one.
    pub(super) fn quantity(&mut self) -> Parsed {
        let currency = self.currency();
        let value = self.sum()?;
        if let Some(unit) = currency {
            return Ok(Expr::Measured(Box::new(value), unit));
        }
        self.with_unit(value)
    }

    /// `a + b − c ± d`
    pub(super) fn sum(&mut self) -> Parsed {
        self.nested(|parser| {
            let mut terms = Vec::new();
            loop {
                let sign = match parser.peek() {
                    Some(Kind::Sign('+')) => '+',
                    Some(Kind::Sign('-')) => '-',
                    Some(Kind::Command(name)) if name == "pm" => '±',
                    Some(Kind::Command(name)) if name == "mp" => '∓',
                    _ if terms.is_empty() => ' ',
                    _ => break,
                };
                if sign != ' ' {
                    parser.skip();
                }
                let term = parser.signed_product()?;
                terms.push(match sign {
                    '-' => term.negative(),
                    '±' => Expr::PlusMinus(true, Box::new(term)),
                    '∓' => Expr::PlusMinus(false, Box::new(term)),
                    _ => term,
                });
            }
            Ok(one_or(terms, Expr::Sum))
        })
    }

    /// A term that may have signs of its own: `a + -b`.
    fn signed_product(&mut self) -> Parsed {
        if self.take_sign('-') {
            return Ok(self.nested(Self::signed_product)?.negative());
        }
        if self.take_sign('+') {
            return self.nested(Self::signed_product);
        }
        if self.take_sign('¤') {
            // The currency of a later term; the first one's counts.
            return self.product();
        }
        self.product()
    }

    fn product(&mut self) -> Parsed {
        let mut value = self.factor()?;
        loop {
            match self.peek() {
                Some(Kind::Sign('*')) => self.skip(),
                Some(Kind::Command(name))
                    if matches!(name.as_str(), "cdot" | "times" | "ast" | "bullet") =>
                {
                    self.skip();
                }
                Some(Kind::Sign('/')) => {
                    self.skip();
                    value = Expr::quotient(value, self.signed_factor()?);
                    continue;
                }
                Some(Kind::Command(name)) if name == "div" => {
                    self.skip();
                    value = Expr::quotient(value, self.signed_factor()?);
                    continue;
                }
                // `1.2 x 10^{-3}`
                Some(Kind::Letter('x')) if self.is_at_power_of_ten(&value) => self.skip(),
                _ if self.is_at_factor(&value) => {
                    let factor = self.factor()?;
                    value = times(value, factor);
                    continue;
                }
                _ => return Ok(value),
            }
            let factor = self.signed_factor()?;
            value = times(value, factor);
        }
    }

    fn signed_factor(&mut self) -> Parsed {
        if self.take_sign('-') {
            return Ok(self.nested(Self::signed_factor)?.negative());
        }
        if self.take_sign('+') {
            return self.nested(Self::signed_factor);
        }
        self.factor()
    }

    /// Whether a letter x between two numbers is a multiplication sign.
    fn is_at_power_of_ten(&self, value: &Expr) -> bool {
        let is_ten = matches!(self.peek_at(1), Some(Kind::Number(number)) if number.whole == "10");
        let is_spaced = self
            .tokens
            .get(self.at)
            .is_some_and(|token| token.is_spaced);
        value.literal().is_some()
            && is_spaced
            && is_ten
            && self.peek_at(2) == Some(&Kind::Sign('^'))
    }

    /// Whether what follows is multiplied with what was read, without a sign between them.
    fn is_at_factor(&self, value: &Expr) -> bool {
        let is_number = matches!(value, Expr::Rational(_) | Expr::Decimal(_));
        match self.peek() {
            Some(Kind::Number(_)) => !is_number,
            Some(Kind::Letter(letter)) => !self.is_separating_letter(*letter),
            Some(Kind::Word(word)) => self.is_factor_word(word, is_number),
            Some(Kind::Text(text)) => {
                text.trim().chars().count() == 1 && !is_number
                    || Function::named(text.trim()).is_some()
                    || matches!(text.trim(), "e" | "i" | "cis")
            }
            Some(Kind::Sign('|')) => self.bars == 0,
            Some(Kind::Sign(sign)) => matches!(sign, '(' | '{' | '['),
            Some(Kind::Command(name)) => {
                !matches!(
                    name.as_str(),
                    "cup"
                        | "cap"
                        | "setminus"
                        | "pm"
                        | "mp"
                        | "}"
                        | "%"
                        | "rfloor"
                        | "rceil"
                        | "rangle"
                        | "rvert"
                        | "rbrace"
                        | "end"
                        | "land"
                        | "lor"
                        | "wedge"
                        | "vee"
                        | "colon"
                        | "circ"
                        | "degree"
                        | "rbrack"
                        | "prime"
                        | ";"
                        | "&"
                        | "_"
                        | "#"
                        | "|"
                ) && relation_sign(name).is_none()
            }
            Some(Kind::Row) | None => false,
        }
    }

    /// `[0,1] U [2,3]`.
    fn is_separating_letter(&self, letter: char) -> bool {
        letter == 'U'
            && matches!(
                self.at
                    .checked_sub(1)
                    .and_then(|at| self.tokens.get(at))
                    .map(|t| &t.kind),
                Some(Kind::Sign(')' | ']'))
            )
            && matches!(self.peek_at(1), Some(Kind::Sign('(' | '[')))
    }

    fn is_factor_word(&self, word: &str, follows_number: bool) -> bool {
        if is_separator(word) || is_common(word) || word.chars().any(|c| !c.is_ascii_alphabetic()) {
            return false;
        }
        if Function::named(word).is_some() || named_constant(word).is_some() || word == "sqrt" {
            return true;
        }
        let is_spaced = self
            .tokens
            .get(self.at)
            .is_some_and(|token| token.is_spaced);
        if follows_number && (is_spaced || word.len() > 2) && is_unit(word) {
            return false;
        }
        word.len() <= 3 || starts_with_function(word).is_some()
    }

    fn factor(&mut self) -> Parsed {
        self.nested(|parser| {
            let base = parser.postfix()?;
            parser.raised(base)
        })
    }

    /// Exponents and what may follow them.
    fn raised(&mut self, base: Expr) -> Parsed {
        if self.peek() != Some(&Kind::Sign('^')) {
            return Ok(base);
        }
        self.skip();
        if let Some(marked) = self.marked(&base)? {
            let marked = self.postfixed(marked)?;
            return self.nested(|parser| parser.raised(marked));
        }
        let exponent = self.script()?;
        // Powers of powers without brackets bind to the right.
        let exponent = self.nested(|parser| parser.raised(exponent))?;
        let power = match (&base, &exponent) {
            (Expr::Opaque(..), Expr::Negative(one)) if **one == Expr::integer(1) => {
                Expr::Opaque("inverse".into(), vec![base])
            }
            _ => Expr::power(base, exponent),
        };
        let power = self.postfixed(power)?;
        if self.peek() == Some(&Kind::Sign('^')) {
            return self.nested(|parser| parser.raised(power));
        }
        Ok(power)
    }

    /// Superscripts that are no exponents: a degree sign, a prime, an ordinal's ending.
    fn marked(&mut self, base: &Expr) -> Result<Option<Expr>, Unread> {
        let start = self.at;
        let is_braced = self.take_sign('{');
        let result = match self.peek() {
            Some(Kind::Command(name)) if name == "circ" || name == "degree" => {
                Expr::Degrees(Box::new(base.clone()))
            }
            Some(Kind::Sign('°')) => Expr::Degrees(Box::new(base.clone())),
            Some(Kind::Command(name)) if name == "prime" => {
                Expr::Opaque("prime".into(), vec![base.clone()])
            }
            Some(Kind::Sign('*')) => Expr::Opaque("star".into(), vec![base.clone()]),
            Some(Kind::Text(text) | Kind::Word(text))
                if matches!(text.trim(), "th" | "st" | "nd" | "rd") =>
            {
                base.clone()
            }
            Some(Kind::Text(text)) if text.trim() == "o" => Expr::Degrees(Box::new(base.clone())),
            _ => {
                self.at = start;
                return Ok(None);
            }
        };
        self.skip();
        if is_braced && !self.take_sign('}') {
            self.at = start;
            return Ok(None);
        }
        Ok(Some(result))
    }

    /// An exponent or an index: a group, a bracket, a number with its sign, or one thing.
    fn script(&mut self) -> Parsed {
        if self.take_sign('-') {
            return Ok(self.nested(Self::script)?.negative());
        }
        if self.take_sign('+') {
            return self.nested(Self::script);
        }
        match self.peek() {
            Some(Kind::Word(word)) if named_constant(word).is_none() => {
                // In LaTeX only the first letter is raised, in plain text the whole word: not
                // known.
                Err(Unread)
            }
            Some(Kind::Sign('{')) => self.group(),
            _ => self.nested(Self::primary),
        }
    }

    /// `{…}` with one value.
    pub(super) fn group(&mut self) -> Parsed {
        if !self.take_sign('{') {
            return Err(Unread);
        }
        let bars = std::mem::take(&mut self.bars);
        let value = self.nested(Self::elements)?;
        self.bars = bars;
        if !self.take_sign('}') {
            return Err(Unread);
        }
        Ok(one_or(value, Expr::Set))
    }

    /// The argument of a command: a group, or one token.
    fn argument(&mut self) -> Parsed {
        match self.peek() {
            Some(Kind::Sign('{')) => self.group(),
            Some(Kind::Number(number)) => {
                self.skip();
                literal(number)
            }
            Some(Kind::Letter(letter)) => {
                self.skip();
                Ok(variable(&letter.to_string()))
            }
            Some(Kind::Command(_)) => self.nested(Self::primary),
            Some(Kind::Sign('(')) => self.nested(Self::primary),
            _ => Err(Unread),
        }
    }

    fn postfix(&mut self) -> Parsed {
        let value = self.nested(Self::primary)?;
        self.postfixed(value)
    }

    fn postfixed(&mut self, mut value: Expr) -> Parsed {
        loop {
            match self.peek() {
                Some(Kind::Sign('!')) => {
                    self.skip();
                    value = if self.take_sign('!') {
                        Expr::Opaque("double factorial".into(), vec![value])
                    } else {
                        Expr::Factorial(Box::new(value))
                    };
                }
                Some(Kind::Sign('%')) => {
                    self.skip();
                    value = Expr::Percent(Box::new(value));
                }
                Some(Kind::Command(name)) if name == "%" => {
                    self.skip();
                    value = Expr::Percent(Box::new(value));
                }
                Some(Kind::Word(word) | Kind::Text(word)) if is_percent(word) => {
                    self.skip();
                    value = Expr::Percent(Box::new(value));
                }
                Some(Kind::Sign('°')) => {
                    self.skip();
                    let scale = match self.peek() {
                        Some(Kind::Letter(c @ ('C' | 'F'))) => Some(*c),
                        _ => None,
                    };
                    value = match scale {
                        Some(scale) => {
                            self.skip();
                            let unit = Unit::named(&format!("°{scale}"), 1);
                            return Ok(Expr::Measured(Box::new(value), unit));
                        }
                        None => Expr::Degrees(Box::new(value)),
                    };
                }
                Some(Kind::Command(name)) if name == "degree" => {
                    self.skip();
                    value = Expr::Degrees(Box::new(value));
                }
                Some(Kind::Sign('\'')) => {
                    self.skip();
                    value = Expr::Opaque("prime".into(), vec![value]);
                }
                _ => return Ok(value),
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        let Some(kind) = self.peek() else {
            return Err(Unread);
        };
        match kind {
            Kind::Number(number) => {
                self.skip();
                self.number(number)
            }
            Kind::Letter(letter) => {
                self.skip();
                self.named(&letter.to_string())
            }
            Kind::Word(word) => {
                self.skip();
                self.word(word)
            }
            Kind::Text(text) => {
                self.skip();
                self.text(text)
            }
            Kind::Sign('(' | '[') => self.bracket(),
            Kind::Sign('{') => self.group(),
            Kind::Sign('|') => {
                self.skip();
                self.bars += 1;
                let inner = self.nested(Self::sum)?;
                self.bars -= 1;
                if !self.take_sign('|') {
                    return Err(Unread);
                }
                Ok(Expr::Function(Function::Abs, Box::new(inner)))
            }
            Kind::Sign('¤') => {
                self.skip();
                let value = self.nested(Self::primary)?;
                Ok(Expr::Measured(Box::new(value), Unit::named("$", 1)))
            }
            Kind::Command(name) => {
                self.skip();
                self.command(name)
            }
            Kind::Sign(_) | Kind::Row => Err(Unread),
        }
    }

    fn number(&mut self, number: &Number) -> Parsed {
        let value = literal(number)?;
        let is_whole = !number.has_point && number.exponent == 0;
        if !is_whole {
            return Ok(value);
        }
        if self.peek() == Some(&Kind::Sign('_')) {
            return self.numeral(&number.whole);
        }
        match self.fraction_ahead() {
            Some((share, length)) => {
                self.at += length;
                Ok(Expr::Sum(vec![value, share]))
            }
            None => Ok(value),
        }
    }

    /// `204_5`, `204_{5}`, `(204)_5` hasn't this form.
    fn numeral(&mut self, digits: &str) -> Parsed {
        self.skip();
        let is_braced = self.take_sign('{');
        let base = match self.peek() {
            Some(Kind::Number(number)) if !number.has_point && number.exponent == 0 => {
                number.whole.parse::<u32>().map_err(|_| Unread)?
            }
            Some(Kind::Text(text) | Kind::Word(text)) => match text.trim() {
                "two" => 2,
                "three" => 3,
                "four" => 4,
                "five" => 5,
                "six" => 6,
                "seven" => 7,
                "eight" => 8,
                "nine" => 9,
                "ten" => 10,
                _ => return Err(Unread),
            },
            _ => return Err(Unread),
        };
        self.skip();
        if is_braced && !self.take_sign('}') {
            return Err(Unread);
        }
        let fits = |c: char| c.to_digit(10).is_some_and(|digit| digit < base);
        if base < 2 || !digits.chars().all(fits) {
            return Err(Unread);
        }
        let digits = digits.trim_start_matches('0');
        Ok(Expr::Numeral(digits.to_owned(), base))
    }

    /// The proper fraction that makes a mixed number of a whole one, and its tokens.
    fn fraction_ahead(&self) -> Option<(Expr, usize)> {
        let whole = |kind: Option<&Kind>| match kind {
            Some(Kind::Number(number)) if !number.has_point && number.exponent == 0 => {
                Some(number.whole.clone())
            }
            _ => None,
        };
        let proper = |upper: &str, lower: &str| {
            let parse = |text: &str| text.parse::<BigInt>().ok();
            let (upper, lower) = (parse(upper)?, parse(lower)?);
            let is_proper = upper < lower && upper.is_positive();
            is_proper.then(|| Expr::Rational(BigRational::new(upper, lower)))
        };
        match self.peek()? {
            Kind::Command(name)
                if matches!(name.as_str(), "frac" | "dfrac" | "tfrac" | "cfrac") =>
            {
                // Each argument is a group of one number, or one digit.
                let mut parts: Vec<String> = Vec::new();
                let mut ahead = 1;
                let mut digits: Vec<String> = Vec::new();
                while parts.len() < 2 {
                    if let Some(digit) = digits.pop() {
                        parts.push(digit);
                        continue;
                    }
                    if self.peek_at(ahead) == Some(&Kind::Sign('{')) {
                        parts.push(whole(self.peek_at(ahead + 1))?);
                        if self.peek_at(ahead + 2) != Some(&Kind::Sign('}')) {
                            return None;
                        }
                        ahead += 3;
                    } else {
                        let run = whole(self.peek_at(ahead))?;
                        // More digits than arguments: no mixed number.
                        if parts.len() + run.len() > 2 {
                            return None;
                        }
                        digits = run.chars().rev().map(String::from).collect();
                        ahead += 1;
                    }
                }
                Some((proper(&parts[0], &parts[1])?, ahead))
            }
            Kind::Number(_) => {
                let (upper, lower) = (whole(self.peek())?, whole(self.peek_at(2))?);
                let is_fraction = self.peek_at(1) == Some(&Kind::Sign('/'));
                (is_fraction.then(|| proper(&upper, &lower))?).map(|share| (share, 3))
            }
            _ => None,
        }
    }

    /// A name with its index, its arguments where it is called, or the constant it stands for.
    fn named(&mut self, name: &str) -> Parsed {
        let mut name = name.to_owned();
        let mut index = None;
        if self.take_sign('_') {
            let script = self.script()?;
            match simple_name(&script) {
                Some(simple) => name = format!("{name}_{simple}"),
                None => index = Some(script),
            }
        }
        if let Some(index) = index {
            return Ok(Expr::Opaque(format!("{name}_"), vec![index]));
        }
        if self.is_call(&name) {
            let arguments = self.nested(Self::bracket)?;
            return Ok(Expr::Opaque(name, vec![arguments]));
        }
        Ok(variable(&name))
    }

    /// Whether a bracket after a name holds the arguments of a function: after f and g, and where
    /// a relation defines it, as in `W(n) = 1`.
    fn is_call(&self, name: &str) -> bool {
        if self.peek() != Some(&Kind::Sign('(')) {
            return false;
        }
        if matches!(name, "f" | "g" | "F" | "G") {
            return true;
        }
        let mut depth = 0_u32;
        for (ahead, token) in self.tokens[self.at..].iter().enumerate() {
            match token.kind {
                Kind::Sign('(') => depth += 1,
                Kind::Sign(')') => depth -= 1,
                // Arguments are names and numbers.
                Kind::Letter(_) | Kind::Number(_) | Kind::Sign(',') => {}
                _ => return false,
            }
            if depth == 0 {
                return self.peek_at(ahead + 1) == Some(&Kind::Sign('='));
            }
        }
        false
    }

    fn word(&mut self, word: &str) -> Parsed {
        if let Some(constant) = named_constant(word) {
            return Ok(constant);
        }
        if word == "sqrt" {
            return self.square_root();
        }
        if let Some(function) = Function::named(word) {
            return self.function(function, word);
        }
        if let Some((function, rest)) = starts_with_function(word) {
            let argument = letters(rest);
            return Ok(Expr::Function(function, Box::new(argument)));
        }
        let is_long = word.len() > 5 || word.len() > 3 && !word.chars().all(char::is_uppercase);
        if is_long || is_common(word) || word.chars().any(|c| !c.is_ascii_alphabetic()) {
            return Ok(Expr::Text(word.to_lowercase()));
        }
        // An index, an exponent and a prime belong to the last letter.
        let (head, last) = word.split_at(word.len() - 1);
        let last = self.named(last)?;
        let last = self.postfixed(last)?;
        let last = self.nested(|parser| parser.raised(last))?;
        Ok(times(letters(head), last))
    }

    fn text(&mut self, text: &str) -> Parsed {
        let text = text.trim();
        if let Some(function) = Function::named(text) {
            return self.function(function, text);
        }
        if text.chars().count() == 1 {
            return self.named(text);
        }
        if let Some(constant) = named_constant(text) {
            return Ok(constant);
        }
        if text.is_empty() {
            // Only space; what it stood beside comes next.
            return self.nested(Self::primary);
        }
        let has_value = text.chars().any(|c| c.is_ascii_digit())
            || text.chars().filter(|c| c.is_alphabetic()).count() == 1
            || text.contains('\\');
        if has_value {
            let inner = tokens(text)?;
            let mut parser = Parser {
                tokens: &inner,
                at: 0,
                depth: self.depth,
                bars: 0,
            };
            let value = parser.nested(Parser::elements)?;
            if !parser.is_at_end() {
                return Err(Unread);
            }
            return Ok(one_or(value, Expr::List));
        }
        Ok(Expr::Text(text.to_lowercase()))
    }

    fn command(&mut self, name: &str) -> Parsed {
        match name {
            "frac" | "dfrac" | "tfrac" | "cfrac" => self.fraction(),
            "sqrt" => self.square_root(),
            "binom" | "dbinom" | "tbinom" => {
                let upper = self.argument()?;
                Ok(Expr::Binomial(Box::new((upper, self.argument()?))))
            }
            "pi" => Ok(Expr::Constant(Constant::Pi)),
            "infty" => Ok(Expr::Constant(Constant::Infinity)),
            "emptyset" | "varnothing" => Ok(Expr::Constant(Constant::EmptySet)),
            "{" | "lbrace" => self.set(),
            "langle" => self.angled(),
            "lbrack" => self.bracket_after('['),
            "lfloor" => self.between(Function::Floor, "rfloor"),
            "lceil" => self.between(Function::Ceil, "rceil"),
            "lvert" => self.between(Function::Abs, "rvert"),
            "|" | "vert" => {
                let inner = self.nested(Self::sum)?;
                if !self.take_command(name) {
                    return Err(Unread);
                }
                Ok(Expr::Function(Function::Abs, Box::new(inner)))
            }
            "begin" => self.environment(),
            "angle" | "triangle" => {
                let inner = self.nested(Self::factor)?;
                Ok(Expr::Opaque(name.into(), vec![inner]))
            }
            "dots" | "ldots" | "cdots" | "dotsc" | "dotsb" | "dotsm" => {
                Ok(Expr::Opaque("…".into(), Vec::new()))
            }
            "mathrm" | "not" => Err(Unread),
            "pounds" | "euro" => {
                let value = self.nested(Self::primary)?;
                let unit = Unit::named(if name == "euro" { "€" } else { "£" }, 1);
                Ok(Expr::Measured(Box::new(value), unit))
            }
            "mathbb" => {
                let set = self.argument()?;
                Ok(Expr::Opaque("mathbb".into(), vec![set]))
            }
            _ if PLAIN.contains(&name) => self.argument(),
            _ if MARKS.contains(&name) => {
                let inner = self.argument()?;
                match simple_name(&inner) {
                    Some(simple) => self.named(&format!("{name} {simple}")),
                    None => Ok(Expr::Opaque(name.into(), vec![inner])),
                }
            }
            _ if BIG.contains(&name) => self.big(name),
            _ if NAMES.contains(&name) => self.named(name),
            _ => {
                if let Some(function) = Function::named(name) {
                    return self.function(function, name);
                }
                if is_command(name) {
                    // A sign between values, where a value should be.
                    return Err(Unread);
                }
                // Unknown, and so equal to itself alone, with all that belongs to it.
                let mut parts = Vec::new();
                while self.peek() == Some(&Kind::Sign('{')) {
                    parts.push(self.group()?);
                }
                Ok(Expr::Opaque(format!("\\{name}"), parts))
            }
        }
    }

    fn fraction(&mut self) -> Parsed {
        // `\frac43`: one digit each.
        let mut digits: Vec<Expr> = Vec::new();
        let mut parts = Vec::new();
        while parts.len() < 2 {
            if !digits.is_empty() {
                parts.push(digits.remove(0));
                continue;
            }
            match self.peek() {
                Some(Kind::Number(number)) if !number.has_point && number.exponent == 0 => {
                    self.skip();
                    let run = &number.whole;
                    let needed = 2 - parts.len();
                    if run.len() > needed && needed == 2 {
                        // `\frac123` is 1/2 times 3, or a slip: not known.
                        return Err(Unread);
                    }
                    if needed == 1 {
                        parts.push(Expr::integer(run.parse::<BigInt>().map_err(|_| Unread)?));
                        continue;
                    }
                    digits = run
                        .chars()
                        .filter_map(|c| c.to_digit(10))
                        .map(Expr::integer)
                        .collect();
                }
                _ => parts.push(self.argument()?),
            }
        }
        let mut parts = parts.into_iter();
        let (upper, lower) = (parts.next().ok_or(Unread)?, parts.next().ok_or(Unread)?);
        Ok(Expr::quotient(upper, lower))
    }

    fn square_root(&mut self) -> Parsed {
        let mut degree = Expr::integer(2);
        if self.take_sign('[') {
            degree = self.nested(Self::sum)?;
            if !self.take_sign(']') {
                return Err(Unread);
            }
        }
        let radicand = self.argument()?;
        match degree.literal().filter(BigRational::is_integer) {
            Some(number) => {
                let degree = u32::try_from(number.to_integer()).ok().filter(|d| *d > 0);
                Ok(Expr::Root(Box::new((radicand, degree.ok_or(Unread)?))))
            }
            None => Ok(Expr::power(
                radicand,
                Expr::quotient(Expr::integer(1), degree),
            )),
        }
    }

    /// A function with its power, its base and its argument.
    fn function(&mut self, function: Function, name: &str) -> Parsed {
        let mut base = None;
        let mut exponent = None;
        loop {
            if base.is_none() && self.take_sign('_') {
                base = Some(self.script()?);
            } else if exponent.is_none() && self.take_sign('^') {
                exponent = Some(self.script()?);
            } else {
                break;
            }
        }
        let argument = self.nested(Self::function_argument)?;
        let is_logarithm = matches!(function, Function::Ln | Function::Log10);
        let mut function = function;
        if let (Some(Expr::Negative(one)), Some(inverse)) = (&exponent, function.inverse())
            && **one == Expr::integer(1)
        {
            function = inverse;
            exponent = None;
        }
        let value = match base {
            Some(base) if is_logarithm => Expr::quotient(
                Expr::Function(Function::Ln, Box::new(argument)),
                Expr::Function(Function::Ln, Box::new(base)),
            ),
            Some(base) => Expr::Opaque(name.into(), vec![base, argument]),
            None => Expr::Function(function, Box::new(argument)),
        };
        Ok(match exponent {
            Some(exponent) => Expr::power(value, exponent),
            None => value,
        })
    }

    /// `\sin 2x`, `\sin(x)`, `\sin \frac{x}{2}`: a bracket, or factors up to the next function.
    fn function_argument(&mut self) -> Parsed {
        if matches!(self.peek(), Some(Kind::Sign('(' | '['))) {
            let argument = self.nested(Self::bracket)?;
            return self.postfixed(argument);
        }
        if self.peek() == Some(&Kind::Sign('{')) {
            return self.group();
        }
        let is_negative = self.take_sign('-');
        let mut value = self.nested(Self::factor)?;
        loop {
            let is_simple = match self.peek() {
                Some(Kind::Letter(_) | Kind::Number(_)) => self.is_at_factor(&value),
                Some(Kind::Command(name)) => {
                    NAMES.contains(&name.as_str())
                        || matches!(name.as_str(), "pi" | "frac" | "dfrac" | "tfrac" | "sqrt")
                }
                Some(Kind::Sign('/')) => matches!(self.peek_at(1), Some(Kind::Number(_))),
                _ => false,
            };
            if !is_simple {
                break;
            }
            if self.take_sign('/') {
                value = Expr::quotient(value, self.nested(Self::factor)?);
            } else {
                value = times(value, self.nested(Self::factor)?);
            }
        }
        Ok(if is_negative { value.negative() } else { value })
    }

    fn between(&mut self, function: Function, end: &str) -> Parsed {
        let inner = self.nested(Self::sum)?;
        if !self.take_command(end) {
            return Err(Unread);
        }
        Ok(Expr::Function(function, Box::new(inner)))
    }

    fn bracket(&mut self) -> Parsed {
        let open = match self.peek() {
            Some(Kind::Sign(open @ ('(' | '['))) => *open,
            _ => return Err(Unread),
        };
        self.skip();
        self.bracket_after(open)
    }

    fn bracket_after(&mut self, open: char) -> Parsed {
        let bars = std::mem::take(&mut self.bars);
        let mut items = self.nested(Self::elements)?;
        self.bars = bars;
        let close = match self.peek() {
            Some(Kind::Sign(close @ (')' | ']'))) => *close,
            Some(Kind::Command(name)) if name == "rbrack" => ']',
            _ => return Err(Unread),
        };
        self.skip();
        let is_matched = matches!((open, close), ('(', ')') | ('[', ']'));
        match items.len() {
            1 if is_matched => {
                // `(204)_5`
                let inner = items.remove(0);
                if let (Expr::Rational(value), Some(Kind::Sign('_'))) = (&inner, self.peek())
                    && value.is_integer()
                    && !value.is_negative()
                {
                    return self.numeral(&value.to_string());
                }
                Ok(inner)
            }
            0 | 1 => Err(Unread),
            _ => Ok(Expr::Bracket(open, items, close)),
        }
    }

    fn angled(&mut self) -> Parsed {
        let items = self.nested(Self::elements)?;
        if !self.take_command("rangle") {
            return Err(Unread);
        }
        Ok(Expr::Bracket('(', items, ')'))
    }

    /// The name of an environment in braces.
    fn environment_name(&mut self) -> Result<String, Unread> {
        if !self.take_sign('{') {
            return Err(Unread);
        }
        let mut name = String::new();
        loop {
            match self.peek() {
                Some(Kind::Word(word)) => name.push_str(word),
                Some(Kind::Letter(letter)) => name.push(*letter),
                Some(Kind::Sign('*')) => {}
                Some(Kind::Sign('}')) => break,
                _ => return Err(Unread),
            }
            self.skip();
        }
        self.skip();
        Ok(name)
    }

    fn environment(&mut self) -> Parsed {
        let name = self.environment_name()?;
        if name == "array" {
            // The columns' alignment.
            if !self.take_sign('{') {
                return Err(Unread);
            }
            while let Some(kind) = self.peek() {
                self.skip();
                if *kind == Kind::Sign('}') {
                    break;
                }
            }
        }
        let mut rows: Vec<Vec<Expr>> = vec![Vec::new()];
        loop {
            if self.take_command("end") {
                break;
            }
            match self.peek() {
                Some(Kind::Row) => {
                    self.skip();
                    rows.push(Vec::new());
                }
                Some(Kind::Sign('&' | ',')) => self.skip(),
                Some(_) => {
                    let cell = self.nested(Self::statement)?;
                    rows.last_mut().ok_or(Unread)?.push(cell);
                }
                None => return Err(Unread),
            }
        }
        if self.environment_name()? != name {
            return Err(Unread);
        }
        rows.retain(|row| !row.is_empty());
        if rows.is_empty() {
            return Err(Unread);
        }
        match name.as_str() {
            "matrix" | "pmatrix" | "bmatrix" | "smallmatrix" | "array" | "Bmatrix" => {
                let columns = rows[0].len();
                if rows.iter().any(|row| row.len() != columns) {
                    return Err(Unread);
                }
                Ok(Expr::Matrix(rows))
            }
            "vmatrix" | "Vmatrix" => Ok(Expr::Opaque(name, vec![Expr::Matrix(rows)])),
            "cases" if rows.iter().all(|row| row.len() == 1) => {
                Ok(one_or(rows.into_iter().flatten().collect(), Expr::List))
            }
            "aligned" | "align" | "gathered" if rows.iter().all(|row| row.len() == 1) => {
                Ok(one_or(rows.into_iter().flatten().collect(), Expr::List))
            }
            "cases" => {
                let rows = rows.into_iter().map(|row| Expr::Opaque("case".into(), row));
                Ok(Expr::Opaque("cases".into(), rows.collect()))
            }
            _ => Err(Unread),
        }
    }

    /// Sums, integrals and limits, with their bounds and all that follows.
    fn big(&mut self, name: &str) -> Parsed {
        let mut parts = Vec::new();
        let mut name = name.to_owned();
        loop {
            if self.take_sign('_') {
                name.push('_');
                parts.push(if self.peek() == Some(&Kind::Sign('{')) {
                    self.group()?
                } else {
                    self.script()?
                });
            } else if self.take_sign('^') {
                name.push('^');
                parts.push(self.script()?);
            } else {
                break;
            }
        }
        parts.push(self.nested(Self::product)?);
        Ok(Expr::Opaque(name, parts))
    }

    fn currency(&mut self) -> Option<Unit> {
        let name = match self.peek()? {
            Kind::Sign('¤') => "$",
            Kind::Sign('€') => "€",
            Kind::Sign('£') => "£",
            _ => return None,
        };
        self.skip();
        Some(Unit::named(name, 1))
    }

    /// The unit after a value, up to the end of the statement.
    fn with_unit(&mut self, value: Expr) -> Parsed {
        let value = match value {
            // An angle is measured in degrees where it stands alone.
            Expr::Degrees(inner) => return self.degrees(*inner),
            Expr::Negative(inner) => match *inner {
                Expr::Degrees(inner) => return self.degrees(inner.negative()),
                other => other.negative(),
            },
            other => other,
        };
        // Upright letters are no variables.
        let is_attached = self
            .tokens
            .get(self.at)
            .is_some_and(|token| !token.is_spaced && matches!(token.kind, Kind::Word(_)));
        let mut words: Vec<String> = Vec::new();
        let mut power = 1;
        while words.len() < MAX_UNIT_WORDS {
            match self.peek() {
                Some(Kind::Text(text)) if is_annotation(text) => {
                    words.push(text.trim().to_owned());
                    self.skip();
                }
                Some(Kind::Word(word))
                    if !is_separator(word) && (is_unit(word) || !is_common(word)) =>
                {
                    words.push(word.clone());
                    self.skip();
                }
                Some(Kind::Sign('/')) if !words.is_empty() => {
                    self.skip();
                    words.push("/".into());
                }
                Some(Kind::Letter(letter)) if words.last().is_some_and(|w| w == "/") => {
                    words.push(letter.to_string());
                    self.skip();
                }
                Some(Kind::Sign('^')) if !words.is_empty() => {
                    self.skip();
                    let exponent = self.script()?.literal().ok_or(Unread)?;
                    power = u32::try_from(exponent.to_integer()).map_err(|_| Unread)?;
                    if power == 0 || power > 9 {
                        return Err(Unread);
                    }
                }
                Some(Kind::Sign('¤')) if words.is_empty() => {
                    self.skip();
                    words.push("$".into());
                    break;
                }
                Some(Kind::Sign('.')) if !words.is_empty() => self.skip(),
                _ => break,
            }
        }
        words.retain(|word| !word.is_empty());
        if words.is_empty() {
            return Ok(value);
        }
        let name = words.join(" ").replace(" / ", "/");
        let unit = Unit::named(&name, power);
        let unit = if is_attached { unit.attached() } else { unit };
        Ok(Expr::Measured(Box::new(value), unit))
    }

    fn degrees(&mut self, value: Expr) -> Parsed {
        let is_word = matches!(self.peek(), Some(Kind::Text(_) | Kind::Word(_)));
        if is_word {
            // `90^\circ counter-clockwise` says more than an angle.
            return Err(Unread);
        }
        Ok(Expr::Measured(Box::new(value), Unit::named("°", 1)))
    }
}

/// A single item as itself.
pub(super) fn one_or(mut items: Vec<Expr>, several: impl FnOnce(Vec<Expr>) -> Expr) -> Expr {
    if items.len() == 1 {
        items.remove(0)
    } else {
        several(items)
    }
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
fn is_annotation(text: &str) -> bool {
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

fn is_percent(word: &str) -> bool {
    matches!(
        word.trim().to_ascii_lowercase().as_str(),
        "percent" | "pct" | "percentage" | "per cent"
    )
}

fn times(left: Expr, right: Expr) -> Expr {
    match left {
        Expr::Product(mut factors) => {
            factors.push(right);
            Expr::Product(factors)
        }
        left => Expr::Product(vec![left, right]),
    }
}

/// A letter or name as a constant or a variable.
fn variable(name: &str) -> Expr {
    match name {
        "e" => Expr::Constant(Constant::Euler),
        "i" => Expr::Constant(Constant::Imaginary),
        _ => Expr::Variable(name.to_owned()),
    }
}

/// A run of letters as a product.
fn letters(run: &str) -> Expr {
    one_or(
        run.chars().map(|c| variable(&c.to_string())).collect(),
        Expr::Product,
    )
}

fn named_constant(word: &str) -> Option<Expr> {
    Some(Expr::Constant(match word {
        "pi" | "Pi" => Constant::Pi,
        "infinity" | "infty" | "Infinity" | "oo" => Constant::Infinity,
        _ => return None,
    }))
}

/// `sinx`, `lnx`.
fn starts_with_function(word: &str) -> Option<(Function, &str)> {
    let function = [
        "arcsin", "arccos", "arctan", "sin", "cos", "tan", "ln", "log",
    ]
    .into_iter()
    .find(|name| word.starts_with(name) && word.len() == name.len() + 1)?;
    Some((Function::named(function)?, &word[function.len()..]))
}

/// The text of an index or of a marked name that is a plain name or number.
fn simple_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Variable(name) | Expr::Text(name) => Some(name.clone()),
        Expr::Constant(Constant::Euler) => Some("e".into()),
        Expr::Constant(Constant::Imaginary) => Some("i".into()),
        Expr::Rational(value) => Some(value.to_string()),
        Expr::Product(factors) => factors.iter().map(simple_name).collect(),
        _ => None,
    }
}

/// The value of a number as it is written.
fn literal(number: &Number) -> Parsed {
    let digits = format!("{}{}", number.whole, number.fraction);
    let parse = |digits: &str| digits.parse::<BigInt>().map_err(|_| Unread);
    let mut value = BigRational::from_integer(if digits.is_empty() {
        BigInt::zero()
    } else {
        parse(&digits)?
    });
    let ten = BigInt::from(10);
    let places = u32::try_from(number.fraction.len()).map_err(|_| Unread)?;
    value /= ten.pow(places);
    if !number.repeating.is_empty() {
        let length = u32::try_from(number.repeating.len()).map_err(|_| Unread)?;
        let period = ten.pow(length) - BigInt::one();
        value += BigRational::new(parse(&number.repeating)?, period * ten.pow(places));
        return Ok(Expr::Rational(value));
    }
    let scale = ten.pow(number.exponent.unsigned_abs());
    if number.exponent < 0 {
        value /= scale;
    } else {
        value *= scale;
    }
    if !number.has_point {
        return Ok(Expr::Rational(value));
    }
    let significant = digits.trim_start_matches('0').len();
    Ok(Expr::Decimal(Decimal {
        value,
        places: places.saturating_add_signed(-number.exponent),
        significant: u32::try_from(significant).map_err(|_| Unread)?,
    }))
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
fn is_common(word: &str) -> bool {
    const WORDS: [&str; 42] = [
        "is", "it", "so", "to", "of", "in", "we", "be", "by", "at", "as", "an", "if", "on", "no",
        "he", "me", "my", "up", "us", "do", "go", "hi", "ok", "am", "yes", "odd", "one", "two",
        "six", "ten", "any", "the", "for", "not", "but", "get", "has", "had", "are", "was", "out",
    ];
    // Capitals alone are points.
    word.chars().skip(1).all(|c| c.is_ascii_lowercase())
        && WORDS.contains(&word.to_ascii_lowercase().as_str())
}
