//! Roots, functions, sums and integrals.

use num_rational::BigRational;

use super::Unread;
use super::expression::{Expr, Fold, Function};
use super::parser::{Parsed, Parser, times};
use super::token::Kind;
use super::vocabulary::{NAMES, is_fraction};

impl Parser<'_> {
    pub(super) fn square_root(&mut self) -> Parsed {
        let mut degree = Expr::integer(2);
        if self.take_sign('[') {
            degree = self.nested(Self::sum)?;
            if !self.take_sign(']') {
                return Err(Unread);
            }
        }
        let radicand = self.argument()?;
        root_of(radicand, degree)
    }

    /// `\root 3 \of 8`
    pub(super) fn named_root(&mut self) -> Parsed {
        let degree = self.argument()?;
        if !self.take_command("of") {
            return Err(Unread);
        }
        let radicand = self.argument()?;
        root_of(radicand, degree)
    }

    /// `cbrt(8)`
    pub(super) fn cube_root(&mut self) -> Parsed {
        let radicand = self.argument()?;
        root_of(radicand, Expr::integer(3))
    }

    /// A function with its power, its base and its argument.
    pub(super) fn function(&mut self, function: Function, name: &str) -> Parsed {
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
    pub(super) fn function_argument(&mut self) -> Parsed {
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
                        || is_fraction(name)
                        || matches!(name.as_str(), "pi" | "sqrt")
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

    pub(super) fn between(&mut self, function: Function, end: &str) -> Parsed {
        let inner = self.nested(Self::sum)?;
        if !self.take_command(end) {
            return Err(Unread);
        }
        Ok(Expr::Function(function, Box::new(inner)))
    }

    /// `\gcd(12, 18)`, `\max\{1, 2\}`: one of several values. With a bound, as in `\max_x`, it is any other
    /// name.
    pub(super) fn fold(&mut self, fold: Fold, name: &str) -> Parsed {
        let is_list = match self.peek() {
            Some(Kind::Sign('(' | '[' | '{')) => true,
            Some(Kind::Command(name)) => name == "{" || name == "lbrace",
            _ => false,
        };
        if !is_list {
            return self.big(name);
        }
        let items = match self.nested(Self::primary)? {
            Expr::Bracket(_, items, _) | Expr::Set(items) | Expr::List(items) => items,
            single => vec![single],
        };
        if items.len() > 1 && items.iter().all(Expr::is_scalar) {
            return Ok(Expr::Fold(fold, items));
        }
        Ok(Expr::Opaque(name.into(), items))
    }

    /// Sums, integrals and limits, with their bounds and all that follows.
    pub(super) fn big(&mut self, name: &str) -> Parsed {
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
}

/// The root of a degree: whole, or any other value.
fn root_of(radicand: Expr, degree: Expr) -> Parsed {
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
