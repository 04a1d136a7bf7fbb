//! Numbers: decimals, fractions, mixed numbers, numerals of other bases.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, Zero};

use super::Unread;
use super::compare::ROUNDED_DIGITS;
use super::expression::{Decimal, Expr};
use super::parser::{Parsed, Parser, variable};
use super::token::{Kind, Number};
use super::vocabulary::is_fraction;

impl Parser<'_> {
    pub(super) fn number(&mut self, number: &Number) -> Parsed {
        let value = literal(number)?;
        let is_whole = !number.has_point && number.exponent == 0;
        if !is_whole {
            return Ok(value);
        }
        if self.peek() == Some(&Kind::Sign('_')) {
            return self.numeral(&number.whole);
        }
        if let Some(chosen) = self.chosen_ahead() {
            self.at += 2;
            return Ok(Expr::Binomial(Box::new((value, chosen))));
        }
        if self.is_at_ordinal() {
            self.skip();
            return Ok(value);
        }
        match self.fraction_ahead() {
            Some((share, length)) => {
                self.at += length;
                Ok(Expr::Sum(vec![value, share]))
            }
            None => Ok(value),
        }
    }

    /// The second number of `10C3`.
    fn chosen_ahead(&self) -> Option<Expr> {
        let near = |ahead: usize| {
            let token = self.tokens.get(self.at + ahead)?;
            (!token.is_spaced).then_some(&token.kind)
        };
        match (near(0)?, near(1)?) {
            (Kind::Letter('C'), Kind::Number(number))
                if !number.has_point && number.exponent == 0 =>
            {
                literal(number).ok()
            }
            _ => None,
        }
    }

    /// The ending of `21st`.
    fn is_at_ordinal(&self) -> bool {
        let token = self.tokens.get(self.at).filter(|token| !token.is_spaced);
        let is_ending = |word: &String| matches!(word.as_str(), "st" | "nd" | "rd" | "th");
        token.is_some_and(|token| matches!(&token.kind, Kind::Word(word) if is_ending(word)))
    }

    /// `204_5`, `204_{5}`, `(204)_5` hasn't this form.
    pub(super) fn numeral(&mut self, digits: &str) -> Parsed {
        self.skip();
        let is_braced = self.take_sign('{');
        let is_bracketed = self.take_sign('(');
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
        if is_bracketed && !self.take_sign(')') || is_braced && !self.take_sign('}') {
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
    pub(super) fn fraction_ahead(&self) -> Option<(Expr, usize)> {
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
            Kind::Command(name) if is_fraction(name) => {
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

    /// The two arguments of a fraction or a binomial.
    pub(super) fn two_arguments(&mut self) -> Result<(Expr, Expr), Unread> {
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
                // `\frac ab`: one letter each.
                Some(Kind::Word(word)) if word.len() == 2 && parts.is_empty() => {
                    self.skip();
                    parts.extend(word.chars().map(|letter| variable(&letter.to_string())));
                }
                _ => parts.push(self.argument()?),
            }
        }
        let mut parts = parts.into_iter();
        Ok((parts.next().ok_or(Unread)?, parts.next().ok_or(Unread)?))
    }
}

/// The value of a number as it is written.
pub(super) fn literal(number: &Number) -> Parsed {
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
    // One that goes on after many digits is compared as any other that was cut off.
    if number.is_unending && significant < ROUNDED_DIGITS as usize {
        let written = format!("{}.{}", number.whole, number.fraction);
        return Ok(Expr::unending(&written));
    }
    Ok(Expr::Decimal(Decimal {
        value,
        places: places.saturating_add_signed(-number.exponent),
        significant: u32::try_from(significant).map_err(|_| Unread)?,
    }))
}
