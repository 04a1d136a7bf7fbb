//! The smallest values: numbers, names, words, brackets, and what commands stand for.

use super::Unread;
use super::expression::{Constant, Expr, Function};
use super::parser::{Parsed, Parser, letters, one_or, simple_name, times, variable};
use super::token::{Kind, tokens};
use super::units::Unit;
use super::vocabulary::{
    BIG, MARKS, NAMES, PLAIN, is_command, is_common, named_constant, starts_with_function,
};

impl Parser<'_> {
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
