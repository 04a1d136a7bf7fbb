//! Where a product goes on without a sign: `3x`, `2\sqrt3`, `(a)(b)`.

use super::expression::{Expr, Fold, Function};
use super::parser::Parser;
use super::token::Kind;
use super::units::is_unit;
use super::vocabulary::{
    is_common, is_separator, named_constant, relation_sign, starts_with_function,
};

impl Parser<'_> {
    /// Whether a letter x between two numbers is a multiplication sign.
    pub(super) fn is_at_power_of_ten(&self, value: &Expr) -> bool {
        let is_ten = matches!(self.peek_at(1), Some(Kind::Number(number)) if number.whole == "10");
        value.literal().is_some() && is_ten && self.peek_at(2) == Some(&Kind::Sign('^'))
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
                    || Fold::named(text.trim()).is_some() && self.is_before_list()
                    || matches!(text.trim(), "e" | "i" | "cis")
            }
            Some(Kind::Sign('|')) => self.bars == 0,
            Some(Kind::Sign('[')) => !self.is_at_outward_end(),
            Some(Kind::Sign(sign)) => matches!(sign, '(' | '{'),
            Some(Kind::Command(name)) => {
                !matches!(
                    name.as_str(),
                    "cup"
                        | "cap"
                        | "setminus"
                        | "smallsetminus"
                        | "backslash"
                        | "choose"
                        | "over"
                        | "of"
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

    /// Whether the `[` here closes an interval, as in `]0, 1[`: no value follows it.
    fn is_at_outward_end(&self) -> bool {
        match self.peek_at(1) {
            None => true,
            Some(Kind::Sign(sign)) => matches!(sign, ',' | ';' | '.' | ')' | '}' | ']'),
            Some(Kind::Command(name)) => {
                matches!(
                    name.as_str(),
                    "cup"
                        | "cap"
                        | "setminus"
                        | "smallsetminus"
                        | "backslash"
                        | "land"
                        | "lor"
                        | "}"
                )
            }
            Some(Kind::Word(word) | Kind::Text(word)) => is_separator(word),
            Some(_) => false,
        }
    }

    /// Whether the token after this one opens a list of values.
    fn is_before_list(&self) -> bool {
        match self.peek_at(1) {
            Some(Kind::Sign(sign)) => matches!(sign, '(' | '[' | '{'),
            Some(Kind::Command(name)) => name == "{",
            _ => false,
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
            return Fold::named(word).is_some() && self.is_before_list();
        }
        word.len() <= 3 || starts_with_function(word).is_some()
    }
}
