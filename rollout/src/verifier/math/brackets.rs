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

    /// What follows an opening bracket, with the closing one. `]0, 1[` is French for (0, 1).
    pub(super) fn bracket_after(&mut self, open: char) -> Parsed {
        let bars = std::mem::take(&mut self.bars);
        let items = self.nested(Self::elements)?;
        let mut items = self.infix(items)?;
        self.bars = bars;
        let is_pair = items.len() == 2;
        let close = match self.peek() {
            Some(Kind::Sign(close @ (')' | ']'))) => *close,
            Some(Kind::Sign('[')) if is_pair && open != '(' => ')',
            Some(Kind::Command(name)) if name == "rbrack" => ']',
            _ => return Err(Unread),
        };
        let open = match open {
            ']' if is_pair => '(',
            ']' => return Err(Unread),
            open => open,
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
        let rows = self.rows()?;
        if self.environment_name()? != name {
            return Err(Unread);
        }
        let is_grid = rows.iter().all(Row::is_full);
        let rows: Vec<Vec<Expr>> = rows.into_iter().map(|row| row.cells).collect();
        match name.as_str() {
            "matrix" | "pmatrix" | "bmatrix" | "smallmatrix" | "psmallmatrix" | "bsmallmatrix"
            | "array" | "Bmatrix" => {
                let columns = rows[0].len();
                if !is_grid || rows.iter().any(|row| row.len() != columns) {
                    return Err(Unread);
                }
                Ok(Expr::Matrix(rows))
            }
            "vmatrix" | "Vmatrix" => Ok(Expr::Opaque(name, vec![Expr::Matrix(rows)])),
            "cases" | "dcases" | "aligned" | "align" | "gathered"
                if rows.iter().all(|row| row.len() == 1) =>
            {
                Ok(one_or(rows.into_iter().flatten().collect(), Expr::List))
            }
            "cases" | "dcases" => {
                let rows = rows.into_iter().map(|row| Expr::Opaque("case".into(), row));
                Ok(Expr::Opaque("cases".into(), rows.collect()))
            }
            _ => Err(Unread),
        }
    }

    /// Rows up to and with `\end`; empty ones are left out.
    fn rows(&mut self) -> Result<Vec<Row>, Unread> {
        let mut rows = vec![Row::default()];
        while !self.take_command("end") {
            let row = rows.last_mut().ok_or(Unread)?;
            match self.peek() {
                Some(Kind::Row) => {
                    self.skip();
                    rows.push(Row::default());
                }
                Some(Kind::Sign('&')) => {
                    self.skip();
                    row.marks += 1;
                }
                Some(Kind::Sign(',')) => {
                    self.skip();
                    row.commas += 1;
                }
                Some(_) => row.cells.push(self.nested(Self::statement)?),
                None => return Err(Unread),
            }
        }
        rows.retain(|row| !row.cells.is_empty() || row.marks > 0);
        if rows.is_empty() {
            return Err(Unread);
        }
        Ok(rows)
    }
}

/// A row of an environment, with the signs between its cells.
#[derive(Default)]
struct Row {
    cells: Vec<Expr>,
    marks: usize,
    commas: usize,
}

impl Row {
    /// Whether there is a cell on either side of every sign.
    fn is_full(&self) -> bool {
        let signs = match self.marks {
            0 => self.commas,
            marks => marks,
        };
        self.cells.len() == signs + 1
    }
}
