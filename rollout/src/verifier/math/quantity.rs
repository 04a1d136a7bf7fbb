//! A value with its unit.

use num_rational::BigRational;
use num_traits::One;

use super::Unread;
use super::expression::Expr;
use super::measured::with_letters;
use super::parser::{Parsed, Parser};
use super::token::Kind;
use super::units::{Unit, currency_sign, is_unit};
use super::vocabulary::{annotation, is_common, is_separator};
use crate::verifier::words::{changes_value, scale};

/// Words of a unit.
const MAX_UNIT_WORDS: usize = 6;
/// Largest exponent of a unit.
const MAX_EXPONENT: i32 = 9;

impl Parser<'_> {
    /// A value with all its signs, and a unit after it where there is one.
    pub(super) fn quantity(&mut self) -> Parsed {
        if let Some(currency) = self.currency() {
            let value = self.sum()?;
            return Ok(match self.with_unit(value)? {
                Expr::Measured(value, unit) => Expr::Measured(value, currency.with_words(&unit)),
                value => Expr::Measured(Box::new(value), currency),
            });
        }
        let value = self.sum()?;
        let value = self.with_unit(value)?;
        self.with_smaller_units(value)
    }

    fn currency(&mut self) -> Option<Unit> {
        let name = match self.peek()? {
            Kind::Sign(sign) => currency_sign(*sign)?,
            // `USD 5`, `US$5`
            Kind::Word(word) if matches!(word.as_str(), "US" | "USD" | "EUR" | "GBP") => {
                let next = self.peek_at(1)?;
                let is_sign = *next == Kind::Sign('¤');
                let is_amount = word != "US" && matches!(next, Kind::Number(_));
                if !is_sign && !is_amount {
                    return None;
                }
                self.at += usize::from(is_sign);
                if word == "US" { "$" } else { word.as_str() }
            }
            _ => return None,
        };
        self.skip();
        Some(Unit::named(name))
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
        while words.len() < MAX_UNIT_WORDS {
            match self.peek() {
                Some(Kind::Text(text)) => match annotation(text) {
                    Some(text) => words.push(text),
                    None => break,
                },
                Some(Kind::Word(word))
                    if !is_separator(word) && (is_unit(word) || !is_common(word)) =>
                {
                    words.push(word.clone());
                }
                Some(Kind::Sign('/')) if !words.is_empty() => words.push("/".into()),
                Some(Kind::Letter(letter)) if words.last().is_some_and(|w| w == "/") => {
                    words.push(letter.to_string());
                }
                Some(Kind::Sign('^')) if !words.is_empty() => {
                    self.skip();
                    let exponent = self.script()?.literal();
                    let exponent = exponent.filter(BigRational::is_integer).ok_or(Unread)?;
                    let exponent = i32::try_from(exponent.to_integer()).map_err(|_| Unread)?;
                    if exponent == 0 || !(-MAX_EXPONENT..=MAX_EXPONENT).contains(&exponent) {
                        return Err(Unread);
                    }
                    if let Some(last) = words.last_mut() {
                        last.push_str(&format!("^{exponent}"));
                    }
                    continue;
                }
                Some(Kind::Sign(sign)) if words.is_empty() => match currency_sign(*sign) {
                    Some(name) => {
                        words.push(name.into());
                        self.skip();
                        break;
                    }
                    None => break,
                },
                Some(Kind::Sign('.')) => {}
                _ => break,
            }
            self.skip();
        }
        measured(value, &words, is_attached)
    }

    /// `5 feet 3 inches`: what follows in a smaller unit of the same kind is added.
    fn with_smaller_units(&mut self, mut total: Expr) -> Parsed {
        while let (Expr::Measured(_, unit), Some(Kind::Number(_))) = (&total, self.peek())
            && unit.is_known()
        {
            let part = self.sum()?;
            let part = self.with_unit(part)?;
            total = joined(&total, &part).ok_or(Unread)?;
        }
        Ok(total)
    }

    fn degrees(&mut self, value: Expr) -> Parsed {
        let is_word = matches!(self.peek(), Some(Kind::Text(_) | Kind::Word(_)));
        if is_word {
            // `90^\circ counter-clockwise` says more than an angle.
            return Err(Unread);
        }
        Ok(Expr::Measured(Box::new(value), Unit::named("°")))
    }
}

/// A value with the words behind it, of which the first may multiply it: "5 million dollars".
fn measured(mut value: Expr, words: &[String], is_attached: bool) -> Parsed {
    let name = words.join(" ").replace(" / ", "/");
    let mut rest: Vec<&str> = name.split_whitespace().collect();
    while let Some(factor) = rest.first().and_then(|word| scale(word)) {
        if !value.is_scalar() || !value.variables().is_empty() {
            return Err(Unread);
        }
        value = Expr::Product(vec![value, Expr::integer(factor)]);
        rest.remove(0);
    }
    if rest.is_empty() {
        return Ok(value);
    }
    let is_unit_power = |at: usize| {
        matches!(rest[at], "squared" | "cubed") && Unit::named(&rest[..at].join(" ")).is_known()
    };
    if (0..rest.len()).any(|at| changes_value(rest[at]) && !is_unit_power(at)) {
        return Err(Unread);
    }
    let unit = Unit::named(&rest.join(" "));
    let unit = if is_attached { unit.attached() } else { unit };
    Ok(Expr::Measured(Box::new(value), unit))
}

/// The sum of two quantities where the second is in a smaller unit of the same kind: 2 hours and 30
/// minutes.
pub(super) fn joined(first: &Expr, second: &Expr) -> Option<Expr> {
    let Expr::Measured(value, unit) = first else {
        return None;
    };
    let (more, smaller) = match second {
        Expr::Measured(more, smaller) => ((**more).clone(), smaller.clone()),
        other => with_letters(other, unit)?,
    };
    let factor = unit.factor_from(&smaller)?;
    let is_smaller = unit.is_known() && smaller.is_known() && factor < BigRational::one();
    if !is_smaller || matches!(**value, Expr::Negative(_)) {
        return None;
    }
    let more = Expr::Product(vec![Expr::Rational(factor), more]);
    let sum = Expr::Sum(vec![(**value).clone(), more]);
    Some(Expr::Measured(Box::new(sum), unit.clone()))
}
