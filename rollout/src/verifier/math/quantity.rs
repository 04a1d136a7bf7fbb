//! A value with its unit.

use super::Unread;
use super::expression::Expr;
use super::parser::{Parsed, Parser};
use super::token::Kind;
use super::units::{Unit, is_unit};
use super::vocabulary::{is_annotation, is_common, is_separator};

/// Words of a unit.
pub(super) const MAX_UNIT_WORDS: usize = 6;

impl Parser<'_> {
    /// A value with all its signs, and a unit after it where there is one.
    pub(super) fn quantity(&mut self) -> Parsed {
        let currency = self.currency();
        let value = self.sum()?;
        if let Some(unit) = currency {
            return Ok(Expr::Measured(Box::new(value), unit));
        }
        self.with_unit(value)
    }

    pub(super) fn currency(&mut self) -> Option<Unit> {
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
    pub(super) fn with_unit(&mut self, value: Expr) -> Parsed {
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

    pub(super) fn degrees(&mut self, value: Expr) -> Parsed {
        let is_word = matches!(self.peek(), Some(Kind::Text(_) | Kind::Word(_)));
        if is_word {
            // `90^\circ counter-clockwise` says more than an angle.
            return Err(Unread);
        }
        Ok(Expr::Measured(Box::new(value), Unit::named("°", 1)))
    }
}
