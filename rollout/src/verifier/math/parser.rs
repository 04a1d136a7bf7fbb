//! From tokens to an expression: sums, products, powers, functions and brackets.
//!
//! What can't be read whole isn't read at all: a part that was left out could change the value.

use super::Unread;
use super::expression::{Constant, Expr, Function};
use super::numerals;
use super::token::{Kind, Token, tokens};
use super::units::{Unit, is_unit};
use super::vocabulary::{
    BIG, MARKS, NAMES, PLAIN, is_command, is_common, is_percent, is_separator, named_constant,
    relation_sign, starts_with_function,
};

/// How deeply an answer may be nested.
const MAX_DEPTH: u32 = 48;
pub(super) type Parsed = Result<Expr, Unread>;

pub(super) struct Parser<'a> {
    pub(super) tokens: &'a [Token],
    pub(super) at: usize,
    pub(super) depth: u32,
    /// Open `|` that the next `|` closes.
    pub(super) bars: u32,
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

    pub(super) fn product(&mut self) -> Parsed {
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
    pub(super) fn is_at_factor(&self, value: &Expr) -> bool {
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

    pub(super) fn factor(&mut self) -> Parsed {
        self.nested(|parser| {
            let base = parser.postfix()?;
            parser.raised(base)
        })
    }

    /// Exponents and what may follow them.
    pub(super) fn raised(&mut self, base: Expr) -> Parsed {
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
    pub(super) fn script(&mut self) -> Parsed {
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
    pub(super) fn argument(&mut self) -> Parsed {
        match self.peek() {
            Some(Kind::Sign('{')) => self.group(),
            Some(Kind::Number(number)) => {
                self.skip();
                numerals::literal(number)
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

    pub(super) fn postfixed(&mut self, mut value: Expr) -> Parsed {
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

    pub(super) fn primary(&mut self) -> Parsed {
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

    /// A name with its index, its arguments where it is called, or the constant it stands for.
    pub(super) fn named(&mut self, name: &str) -> Parsed {
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
}

/// A single item as itself.
pub(super) fn one_or(mut items: Vec<Expr>, several: impl FnOnce(Vec<Expr>) -> Expr) -> Expr {
    if items.len() == 1 {
        items.remove(0)
    } else {
        several(items)
    }
}

pub(super) fn times(left: Expr, right: Expr) -> Expr {
    match left {
        Expr::Product(mut factors) => {
            factors.push(right);
            Expr::Product(factors)
        }
        left => Expr::Product(vec![left, right]),
    }
}

/// A letter or name as a constant or a variable.
pub(super) fn variable(name: &str) -> Expr {
    match name {
        "e" => Expr::Constant(Constant::Euler),
        "i" => Expr::Constant(Constant::Imaginary),
        _ => Expr::Variable(name.to_owned()),
    }
}

/// A run of letters as a product.
pub(super) fn letters(run: &str) -> Expr {
    one_or(
        run.chars().map(|c| variable(&c.to_string())).collect(),
        Expr::Product,
    )
}

/// The text of an index or of a marked name that is a plain name or number.
pub(super) fn simple_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Variable(name) | Expr::Text(name) => Some(name.clone()),
        Expr::Constant(Constant::Euler) => Some("e".into()),
        Expr::Constant(Constant::Imaginary) => Some("i".into()),
        Expr::Rational(value) => Some(value.to_string()),
        Expr::Product(factors) => factors.iter().map(simple_name).collect(),
        _ => None,
    }
}
