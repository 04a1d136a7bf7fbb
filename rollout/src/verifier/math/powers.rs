//! What stands behind a value or belongs to a command: exponents, indices, factorials, percent and
//! degree signs, groups.

use super::Unread;
use super::evaluate::DOUBLE_FACTORIAL;
use super::expression::Expr;
use super::numerals;
use super::parser::{Parsed, Parser, one_or, variable};
use super::token::Kind;
use super::units::Unit;
use super::vocabulary::{is_percent, named_constant};

impl Parser<'_> {
    /// Exponents and what may follow them.
    pub(super) fn raised(&mut self, base: Expr) -> Parsed {
        if self.peek() != Some(&Kind::Sign('^')) {
            return Ok(base);
        }
        self.skip();
        if let Some(marked) = self.marked(&base)? {
            let marked = self.with_scale(marked);
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
            // The positive or negative numbers of a set.
            Some(Kind::Sign(sign @ ('+' | '-'))) if is_set_of_numbers(base) => {
                Expr::Opaque(sign.to_string(), vec![base.clone()])
            }
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
        let value = self.infix(value)?;
        self.bars = bars;
        if !self.take_sign('}') {
            return Err(Unread);
        }
        Ok(one_or(value, Expr::Set))
    }

    /// `n \choose k`, `a \over b`: all of a group before the sign, and all after it.
    pub(super) fn infix(&mut self, mut left: Vec<Expr>) -> Result<Vec<Expr>, Unread> {
        let is_choice = match self.peek() {
            Some(Kind::Command(name)) if name == "choose" => true,
            Some(Kind::Command(name)) if name == "over" => false,
            _ => return Ok(left),
        };
        self.skip();
        let mut right = self.nested(Self::elements)?;
        let (Some(lower), Some(upper)) = (right.pop(), left.pop()) else {
            return Err(Unread);
        };
        if !left.is_empty() || !right.is_empty() {
            return Err(Unread);
        }
        let parts = Box::new((upper, lower));
        Ok(vec![if is_choice {
            Expr::Binomial(parts)
        } else {
            Expr::Quotient(parts)
        }])
    }

    /// Degrees of Celsius or Fahrenheit, where a letter says so.
    fn with_scale(&mut self, value: Expr) -> Expr {
        let scale = match self.peek() {
            Some(Kind::Letter(c @ ('C' | 'F'))) => c.to_string(),
            Some(Kind::Text(text)) if matches!(text.trim(), "C" | "F") => text.trim().to_owned(),
            _ => return value,
        };
        match value {
            Expr::Degrees(inner) => {
                self.skip();
                Expr::Measured(inner, Unit::named(&format!("°{scale}")))
            }
            other => other,
        }
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

    pub(super) fn postfix(&mut self) -> Parsed {
        let value = self.nested(Self::primary)?;
        self.postfixed(value)
    }

    pub(super) fn postfixed(&mut self, mut value: Expr) -> Parsed {
        loop {
            match self.peek() {
                Some(Kind::Sign('!')) => {
                    self.skip();
                    value = if self.take_sign('!') {
                        Expr::Opaque(DOUBLE_FACTORIAL.into(), vec![value])
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
                    value = self.with_scale(Expr::Degrees(Box::new(value)));
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
}

/// `\mathbb{R}` and the like.
fn is_set_of_numbers(expr: &Expr) -> bool {
    matches!(expr, Expr::Opaque(name, _) if name == "mathbb")
}
