//! Brackets, matrices and cases.

use num_traits::Signed;

use super::Unread;
use super::expression::Expr;
use super::parser::{Parsed, Parser, one_or};
use super::token::Kind;

impl Parser<'_> {
    pub(super) fn bracket(&mut self) -> Parsed {
        let open = match self.peek() {
            Some(Kind::Sign(open @ ('(' | '['))) => *open,
            _ => return Err(Unread),
        };
        self.skip();
        self.bracket_after(open)
    }

    pub(super) fn bracket_after(&mut self, open: char) -> Parsed {
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

    pub(super) fn angled(&mut self) -> Parsed {
        let items = self.nested(Self::elements)?;
        if !self.take_command("rangle") {
            return Err(Unread);
        }
        Ok(Expr::Bracket('(', items, ')'))
    }

    /// The name of an environment in braces.
    pub(super) fn environment_name(&mut self) -> Result<String, Unread> {
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

    pub(super) fn environment(&mut self) -> Parsed {
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
}
