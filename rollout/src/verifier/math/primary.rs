//! The smallest values: numbers, names, words, brackets, and what commands stand for.

use super::Unread;
use super::expression::{Constant, Expr, Fold, Function};
use super::parser::{Parsed, Parser, letters, one_or, simple_name, times, variable};
use super::token::{Kind, tokens};
use super::units::Unit;
use super::vocabulary::{
    BIG, MARKS, NAMES, PLAIN, is_command, is_common, is_fraction, named_constant, phrase,
    starts_with_function, without_lead,
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
            Kind::Sign(']') => {
                self.skip();
                self.bracket_after(']')
            }
            Kind::Sign('{') => self.group(),
            Kind::Sign('^' | '_') => self.count_of_choices(),
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
                Ok(Expr::Measured(Box::new(value), Unit::named("$")))
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
        if name == "C" && self.is_at_whole_pair() {
            return match self.nested(Self::bracket)? {
                Expr::Bracket(_, items, _) => choices(items),
                _ => Err(Unread),
            };
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

    /// `(10, 3)`
    fn is_at_whole_pair(&self) -> bool {
        let is_whole = |ahead: usize| {
            matches!(self.peek_at(ahead), Some(Kind::Number(number))
                if !number.has_point && number.exponent == 0)
        };
        let is_sign = |ahead: usize, sign: char| self.peek_at(ahead) == Some(&Kind::Sign(sign));
        is_sign(0, '(') && is_whole(1) && is_sign(2, ',') && is_whole(3) && is_sign(4, ')')
    }

    /// `_{10}C_3` and `^{10}P_3`, with or without order.
    fn count_of_choices(&mut self) -> Parsed {
        self.skip();
        let from = self.script()?;
        let is_ordered = match self.peek() {
            Some(Kind::Letter('C')) => false,
            Some(Kind::Letter('P')) => true,
            Some(Kind::Text(text)) if text.trim() == "C" => false,
            Some(Kind::Text(text)) if text.trim() == "P" => true,
            _ => return Err(Unread),
        };
        self.skip();
        if !self.take_sign('_') {
            return Err(Unread);
        }
        let chosen = self.script()?;
        if !is_ordered {
            return choices(vec![from, chosen]);
        }
        let factorial = |of: Expr| Expr::Factorial(Box::new(of));
        let left = from.clone().minus(chosen);
        Ok(Expr::quotient(factorial(from), factorial(left)))
    }

    fn word(&mut self, word: &str) -> Parsed {
        if let Some(constant) = named_constant(word) {
            return Ok(constant);
        }
        match word {
            "sqrt" => return self.square_root(),
            "cbrt" => return self.cube_root(),
            "DNE" => return Ok(phrase(word)),
            _ => {}
        }
        if let Some(fold) = Fold::named(word) {
            return self.fold(fold, word);
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
            return Ok(phrase(word));
        }
        // An index, an exponent and a prime belong to the last letter.
        let (head, last) = word.split_at(word.len() - 1);
        let last = self.named(last)?;
        let last = self.postfixed(last)?;
        let last = self.nested(|parser| parser.raised(last))?;
        Ok(times(letters(head), last))
    }

    fn text(&mut self, text: &str) -> Parsed {
        let text = without_lead(text).trim();
        if let Some(function) = Function::named(text) {
            return self.function(function, text);
        }
        if let Some(fold) = Fold::named(text) {
            return self.fold(fold, text);
        }
        if text.chars().count() == 1 && text.chars().all(char::is_alphabetic) {
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
            while parser.take_sign('.') || parser.take_sign(',') {}
            if !parser.is_at_end() {
                return Err(Unread);
            }
            return Ok(one_or(value, Expr::List));
        }
        Ok(phrase(text))
    }

    fn command(&mut self, name: &str) -> Parsed {
        match name {
            _ if is_fraction(name) => {
                let (upper, lower) = self.two_arguments()?;
                Ok(Expr::quotient(upper, lower))
            }
            "sqrt" => self.square_root(),
            "root" => self.named_root(),
            "binom" | "dbinom" | "tbinom" => Ok(Expr::Binomial(Box::new(self.two_arguments()?))),
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
            // Signs between two values.
            "mathrm" | "not" | "choose" | "over" | "of" => Err(Unread),
            "pounds" | "euro" => {
                let value = self.nested(Self::primary)?;
                let unit = Unit::named(if name == "euro" { "€" } else { "£" });
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
            _ if BIG.contains(&name) => match Fold::named(name) {
                Some(fold) => self.fold(fold, name),
                None => self.big(name),
            },
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

/// Of how many ways to choose two numbers tell.
fn choices(items: Vec<Expr>) -> Parsed {
    match <[Expr; 2]>::try_from(items) {
        Ok([from, chosen]) => Ok(Expr::Binomial(Box::new((from, chosen)))),
        Err(_) => Err(Unread),
    }
}
