//! From tokens to an expression: the parser's place in the tokens, sums and products. The rest of the
//! grammar is in files of its own.
//!
//! What can't be read whole isn't read at all: a part that was left out could change the value.

use super::Unread;
use super::expression::{Constant, Expr};
use super::token::{Kind, Token};

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
        if self.is_at_spoken_minus() {
            self.skip();
            return Ok(self.nested(Self::signed_product)?.negative());
        }
        if self.take_sign('¤') {
            // The currency of a later term; the first one's counts.
            return self.product();
        }
        self.product()
    }

    /// "negative 5"
    fn is_at_spoken_minus(&self) -> bool {
        matches!(self.peek(), Some(Kind::Word(word)) if word.eq_ignore_ascii_case("negative"))
            && matches!(self.peek_at(1), Some(Kind::Number(_) | Kind::Command(_)))
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
                Some(Kind::Letter('x' | 'X')) if self.is_at_power_of_ten(&value) => self.skip(),
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

    pub(super) fn factor(&mut self) -> Parsed {
        self.nested(|parser| {
            let base = parser.postfix()?;
            parser.raised(base)
        })
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
