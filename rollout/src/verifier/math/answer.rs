//! From tokens to an answer: lists, relations, sets, unions, ratios and times of day.

use super::Unread;
use super::expression::{Clock, Constant, Expr, Sign};
use super::intervals::is_reals;
use super::parser::{Parsed, Parser, one_or};
use super::quantity::joined;
use super::token::{Kind, plain, tokens};
use super::vocabulary::{is_separator, phrase, relation_sign, without_lead};
use super::without_full_stop;

/// Words of a text answer.
const MAX_WORDS: usize = 12;

/// Reads a whole answer.
pub(super) fn read(text: &str) -> Parsed {
    let text = without_lead(without_full_stop(text));
    if let Some(time) = time_of_day(text) {
        return Ok(time);
    }
    let tokens = tokens(text)?;
    let mut parser = Parser::new(&tokens);
    let answers = parser.elements()?;
    let answers = parser.infix(answers)?;
    // Full stops and commas of the sentence around it.
    while parser.take_sign('.') || parser.take_sign(',') {}
    if !parser.is_at_end() {
        return Err(Unread);
    }
    Ok(one_or(answers, Expr::List))
}

/// How strongly two answers are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Separator {
    Comma,
    /// A semicolon, "and".
    Strong,
    Or,
}

impl Parser<'_> {
    /// Statements with commas, semicolons, "and" or "or" between them.
    pub(super) fn elements(&mut self) -> Result<Vec<Expr>, Unread> {
        let mut groups: Vec<Vec<Expr>> = vec![Vec::new()];
        let mut has_or = false;
        loop {
            let statement = self.statement()?;
            if let Some(group) = groups.last_mut() {
                group.push(statement);
            }
            match self.separator() {
                Some(Separator::Comma) => {}
                Some(separator) => {
                    has_or |= separator == Separator::Or;
                    groups.push(Vec::new());
                }
                None => break,
            }
        }
        // `p=5, q=2; p=7, q=2` are two points.
        let names = |group: &Vec<Expr>| -> Option<Vec<Expr>> {
            let name = |item: &Expr| match item {
                Expr::Relation(name, rest) if rest.len() == 1 && rest[0].0 == Sign::Equal => {
                    Some((**name).clone())
                }
                _ => None,
            };
            group.iter().map(name).collect()
        };
        let first = names(&groups[0]);
        let is_points = groups.len() > 1
            && groups[0].len() > 1
            && first.is_some()
            && groups.iter().all(|group| names(group) == first);
        if is_points {
            let point = |group| Expr::Bracket('(', group, ')');
            return Ok(groups.into_iter().map(point).collect());
        }
        let items = with_shared_signs(groups.into_iter().flatten().collect());
        // `x < -1 or x > 1` is a union; without an "or" both have to hold.
        let is_relation = |item: &Expr| matches!(item, Expr::Relation(..));
        if has_or && items.iter().all(is_relation) && items.iter().any(Expr::is_inequality) {
            return Ok(vec![Expr::Union(items)]);
        }
        // "2 hours and 30 minutes" is one quantity.
        let total = match items.split_first() {
            Some((first, rest)) if !rest.is_empty() => rest
                .iter()
                .try_fold(first.clone(), |total, item| joined(&total, item)),
            _ => None,
        };
        Ok(total.map_or(items, |total| vec![total]))
    }

    fn separator(&mut self) -> Option<Separator> {
        let start = self.position();
        let mut found = None;
        loop {
            let next = match self.peek() {
                Some(Kind::Sign(',')) => Separator::Comma,
                Some(Kind::Sign(';' | '&')) => Separator::Strong,
                Some(Kind::Command(name)) => match name.as_str() {
                    "lor" | "vee" => Separator::Or,
                    "land" | "wedge" | "&" => Separator::Strong,
                    _ => break,
                },
                Some(Kind::Word(word) | Kind::Text(word)) if is_separator(word) => {
                    if word.to_ascii_lowercase().contains("or") {
                        Separator::Or
                    } else {
                        Separator::Strong
                    }
                }
                _ => break,
            };
            found = found.max(Some(next));
            self.skip();
        }
        // At the end of a bracket or of the answer it separates nothing.
        let is_end = matches!(self.peek(), None | Some(Kind::Sign('.' | ')' | ']' | '}')))
            || matches!(self.peek(), Some(Kind::Command(name)) if name == "}");
        if is_end && found.is_some() {
            self.go_to(start);
            return None;
        }
        found
    }

    /// A value, a set or a relation between some.
    pub(super) fn statement(&mut self) -> Parsed {
        while let Some(Kind::Text(text)) = self.peek()
            && without_lead(text).trim().is_empty()
        {
            self.skip();
        }
        // "approximately 5", "≈ 5", "either 5 or 6".
        let is_hedge = match self.peek() {
            Some(Kind::Word(word)) => matches!(
                word.as_str(),
                "approximately" | "about" | "approx" | "exactly" | "either" | "both"
            ),
            Some(Kind::Command(name)) => name == "approx",
            _ => false,
        };
        if is_hedge {
            self.skip();
        }
        let first = self.nested(Self::union)?;
        let mut rest = Vec::new();
        while let Some(sign) = self.sign() {
            self.skip();
            let member = self.nested(Self::union)?;
            // `x = \sqrt2 = 1.414…` gives the last only nearly.
            let sign = match sign {
                Sign::Equal if member.is_unending() => Sign::Near,
                sign => sign,
            };
            rest.push((sign, member));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        Ok(Expr::Relation(Box::new(first), rest))
    }

    fn sign(&self) -> Option<Sign> {
        Some(match self.peek()? {
            Kind::Sign('=') => Sign::Equal,
            Kind::Sign('<') => Sign::Less,
            Kind::Sign('>') => Sign::Greater,
            Kind::Command(name) => relation_sign(name)?,
            _ => return None,
        })
    }

    fn union(&mut self) -> Parsed {
        let mut parts = vec![self.ratio()?];
        loop {
            let is_union = match self.peek() {
                Some(Kind::Command(name))
                    if matches!(
                        name.as_str(),
                        "cap" | "setminus" | "smallsetminus" | "backslash"
                    ) =>
                {
                    self.skip();
                    let name = if name == "cap" { "cap" } else { "setminus" };
                    let left = one_or(parts, Expr::Union);
                    parts = vec![Expr::Opaque(name.into(), vec![left, self.ratio()?])];
                    continue;
                }
                Some(Kind::Command(name)) => name == "cup",
                Some(Kind::Letter('U')) => true,
                Some(Kind::Word(word)) => word == "union",
                _ => false,
            };
            if !is_union {
                return Ok(one_or(parts, Expr::Union));
            }
            self.skip();
            parts.push(self.ratio()?);
        }
    }

    fn ratio(&mut self) -> Parsed {
        let mut parts = vec![self.member()?];
        while self.take_sign(':') || self.take_command("colon") {
            parts.push(self.member()?);
        }
        Ok(one_or(parts, |parts| Expr::Ratio(parts, None)))
    }

    /// A quantity, or words.
    fn member(&mut self) -> Parsed {
        if let Some(Kind::Word(_) | Kind::Text(_)) = self.peek() {
            let start = self.position();
            if let Some(text) = self.words() {
                return Ok(phrase(&text));
            }
            self.go_to(start);
        }
        self.quantity()
    }

    /// Two words or more up to the end of the statement.
    fn words(&mut self) -> Option<String> {
        let mut words = Vec::new();
        loop {
            match self.peek() {
                Some(Kind::Word(word) | Kind::Text(word)) if !is_separator(word) => {
                    words.push(word.trim().to_lowercase());
                }
                Some(Kind::Letter(letter)) if letter.is_lowercase() || words.is_empty() => {
                    words.push(letter.to_lowercase().to_string());
                }
                None | Some(Kind::Sign(',' | ';' | '.' | '}' | ')')) => break,
                Some(Kind::Word(_) | Kind::Text(_)) => break,
                _ => return None,
            }
            self.skip();
        }
        let is_text = words.len() > 1
            && words.len() <= MAX_WORDS
            && words.iter().any(|word| word.chars().count() > 2);
        is_text.then(|| words.join(" "))
    }

    /// `\{…\}`, after its opening brace.
    pub(super) fn set(&mut self) -> Parsed {
        if self.take_closing_brace() {
            return Ok(Expr::Constant(Constant::EmptySet));
        }
        if let Some(length) = self.condition_ahead() {
            return self.set_with_condition(length);
        }
        let items = self.nested(Self::elements)?;
        if !self.take_closing_brace() {
            return Err(Unread);
        }
        Ok(Expr::Set(items))
    }

    fn take_closing_brace(&mut self) -> bool {
        self.take_command("}") || self.take_command("rbrace")
    }

    /// Tokens before the one bar or colon that introduces a condition.
    fn condition_ahead(&self) -> Option<usize> {
        let mut depth = 0_i32;
        let mut found = None;
        for ahead in 0.. {
            match self.peek_at(ahead)? {
                Kind::Command(name) if name == "}" || name == "rbrace" => {
                    if depth == 0 {
                        return found;
                    }
                    depth -= 1;
                }
                Kind::Command(name) if name == "{" => depth += 1,
                Kind::Sign('(' | '[' | '{') => depth += 1,
                Kind::Sign(')' | ']' | '}') => depth -= 1,
                Kind::Sign('|' | ':') if depth == 0 => {
                    if found.is_some() {
                        return None;
                    }
                    found = Some(ahead);
                }
                Kind::Command(name) if name == "mid" && depth == 0 => found = Some(ahead),
                _ => {}
            }
        }
        None
    }

    /// `\{x : x > 2\}` is the relation itself, and where there are more of them, or the element is one of
    /// a set, all have to hold. Anything else stands for itself.
    fn set_with_condition(&mut self, length: usize) -> Parsed {
        let mut head = self.part(length);
        let element = head.nested(Self::statement)?;
        if !head.is_at_end() {
            return Err(Unread);
        }
        self.go_to(self.position() + length + 1);
        let mut conditions = self.nested(Self::elements)?;
        if !self.take_closing_brace() {
            return Err(Unread);
        }
        let set = match &element {
            Expr::Variable(_) => None,
            Expr::Relation(name, rest)
                if matches!(**name, Expr::Variable(_))
                    && matches!(rest.as_slice(), [(Sign::In, _)]) =>
            {
                (!is_reals(&rest[0].1)).then(|| element.clone())
            }
            _ => {
                conditions.insert(0, element);
                return Ok(Expr::Opaque("set of".into(), conditions));
            }
        };
        let is_condition = |part: &Expr| matches!(part, Expr::Relation(..) | Expr::Union(_));
        if !conditions.iter().all(is_condition) {
            conditions.insert(0, element);
            return Ok(Expr::Opaque("set of".into(), conditions));
        }
        let both = |a: Expr, b: Expr| Expr::Opaque("cap".into(), vec![a, b]);
        let all = set.into_iter().chain(conditions).reduce(both);
        all.ok_or(Unread)
    }
}

/// `x ≠ 1, 2` says `x ≠ 2` too.
fn with_shared_signs(items: Vec<Expr>) -> Vec<Expr> {
    let mut name = None;
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        let is_bare = item.is_scalar() && item.variables().is_empty();
        match (&item, &name) {
            (Expr::Relation(first, rest), _) => {
                let is_exclusion = matches!(rest.as_slice(), [(Sign::NotEqual, _)]);
                name = is_exclusion.then(|| first.clone());
                all.push(item);
            }
            (_, Some(first)) if is_bare => {
                all.push(Expr::Relation(first.clone(), vec![(Sign::NotEqual, item)]));
            }
            _ => {
                name = None;
                all.push(item);
            }
        }
    }
    all
}

/// `20:34`, `20:34:00`, `8:34 p.m.`: hours and two digits each of minutes and seconds.
fn time_of_day(text: &str) -> Option<Expr> {
    let text = plain(text).to_ascii_lowercase();
    let text = ["\\text{", "\\mathrm{", "\\textrm{"]
        .iter()
        .fold(text, |text, mark| text.replace(mark, ""))
        .replace(['}', '.', ' ', '\\'], "");
    let (digits, mark) = ["am", "pm"]
        .iter()
        .find_map(|mark| Some((text.strip_suffix(mark)?, *mark)))
        .unwrap_or((&text, ""));
    let parts: Vec<&str> = digits.split(':').collect();
    let is_shaped = (2..=3).contains(&parts.len())
        && (1..=2).contains(&parts[0].len())
        && parts[1..].iter().all(|part| part.len() == 2)
        && digits.chars().all(|c| c.is_ascii_digit() || c == ':');
    if !is_shaped {
        return None;
    }
    let values: Vec<u32> = parts
        .iter()
        .map(|part| part.parse())
        .collect::<Result<_, _>>()
        .ok()?;
    let (hours, minutes) = (values[0], values[1]);
    let seconds = values.get(2).copied().unwrap_or(0);
    if hours > 24 || minutes > 59 || seconds > 59 || !mark.is_empty() && !(1..=12).contains(&hours)
    {
        return None;
    }
    let hours = match mark {
        "am" => hours % 12,
        "pm" => hours % 12 + 12,
        _ => hours,
    };
    let clock = Clock {
        seconds: (hours * 60 + minutes) * 60 + seconds,
        is_marked: !mark.is_empty(),
    };
    let parts = values.into_iter().map(Expr::integer).collect();
    Some(Expr::Ratio(parts, Some(clock)))
}
