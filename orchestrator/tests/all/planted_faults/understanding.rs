//! How the model understands a problem, and the program that it makes of it.

use rollout::Role;

use super::mind::Mind;
use super::problems::Kind;
use super::reading::{self, has_any};

/// A problem as the model understands it.
pub(super) struct Problem {
    pub(super) kind: Kind,
    /// The operation of a plain one.
    pub(super) sign: char,
    pub(super) numbers: Vec<u128>,
}

impl Problem {
    pub(super) fn read(text: &str) -> Option<Self> {
        let has = |part: &str| text.contains(part);
        let (kind, sign) = if has(" percent of ") {
            (Kind::Percent, '*')
        } else if has("Work in two parts") {
            (Kind::Parts, '*')
        } else if has("Multiply ") {
            (Kind::Long, '*')
        } else if has("average of") {
            (Kind::Average, '+')
        } else if has(" dozen ") && has("How many") {
            (Kind::Dozen, '*')
        } else if has("can be divided by") {
            (Kind::Search, '+')
        } else if has("rows and") && has("cells") {
            (Kind::Grid, '*')
        } else if has("Count up from") {
            (Kind::List, '+')
        } else if has("boxes with") && has("sells") {
            let is_plan = has("Make a plan");
            (if is_plan { Kind::Plan } else { Kind::Steps }, '*')
        } else if has("metres of fence") {
            (Kind::Fence, '*')
        } else if has("Make sure") && has("more.") {
            (Kind::Sure, '+')
        } else if has(" buys ") {
            (Kind::Plain, '+')
        } else if has(" gives away ") {
            (Kind::Plain, '-')
        } else if has(" in each of ") || has("rows with") || has("packs with") {
            (Kind::Plain, '*')
        } else {
            return None;
        };
        let numbers: Vec<u128> = text
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|word| word.parse().ok())
            .collect();
        (numbers.len() >= if kind == Kind::Dozen { 1 } else { 2 }).then_some(Problem {
            kind,
            sign,
            numbers,
        })
    }

    /// One in ten is read with its first number one too high.
    fn misread(mut self) -> Self {
        let sum: u128 = self.numbers.iter().sum();
        let is_misread = sum % 10 == 3 && self.kind != Kind::List;
        if is_misread {
            self.numbers[0] += 1;
        }
        self
    }

    /// What comes out in the head: near, and wrong.
    pub(super) fn guess(&self) -> u128 {
        let all = &self.numbers;
        let near = match (self.kind, self.sign) {
            (Kind::Steps | Kind::Plan | Kind::Parts, _) => all[0] * all[1],
            (Kind::Dozen, _) => all[0] * 12,
            (Kind::Percent, _) => all[0] * all[1] / 100,
            (_, '+') => all[0] + all[1],
            (_, '-') => all[0].saturating_sub(all[1]),
            _ => all[0] * all[1],
        };
        near + 10
    }
}

impl Mind<'_> {
    pub(super) fn program(&self) -> String {
        let problem = Problem {
            numbers: self.problem.numbers.clone(),
            ..self.problem
        }
        .misread();
        let n = &problem.numbers;
        let value = match problem.kind {
            Kind::Plain | Kind::Sure => format!("{} {} {}", n[0], problem.sign, n[1]),
            Kind::Long => format!("{} * {}", n[0], n[1]),
            Kind::Steps | Kind::Plan if self.takes_apart() => {
                let mut program = format!(
                    "first = {} * {}\n{}",
                    n[0],
                    n[1],
                    self.shown_value(&format!("first - {}", n[2]))
                );
                if self.prints_steps_last() {
                    program.push('\n');
                    program.push_str(&self.shown_value("first"));
                }
                return program;
            }
            Kind::Steps | Kind::Plan => format!("{} * {}", n[0], n[1]),
            Kind::Percent if self.is_told(&["/ 100"]) => format!("{} * {} / 100", n[1], n[0]),
            Kind::Percent => self.by_rule(&["percent"], n),
            Kind::Fence => self.by_rule(&["round a rectangle", "perimeter"], n),
            Kind::Dozen => format!("{} * {}", n[0], self.dozen()),
            Kind::Average if self.is_told(&["sum(values) / len(values)"]) => self.average(n),
            Kind::Average => format!("mean({n:?})"),
            Kind::Parts if self.calls() == 0 => {
                return format!("part = {} * {}\n{}", n[0], n[1], self.shown_value("part"));
            }
            Kind::Parts => format!("part - {}", n[2]),
            Kind::Search => format!(
                "sum(1 for n in range({}, {} + 1) if n % {} == 0 and n % {} != 0)",
                n[0], n[1], n[2], n[3]
            ),
            Kind::Grid => {
                return format!(
                    "cells = [0] * ({} * {})\n{}",
                    n[0],
                    n[1],
                    self.shown_value("len(cells)")
                );
            }
            Kind::List => {
                let range = format!("range({}, {} + 1, {})", n[0], n[1], n[2]);
                return format!(
                    "for n in {range}:\n    print(n)\n{}",
                    self.shown_value(&format!("len({range})"))
                );
            }
        };
        format!("{}{}", self.imports(), self.shown_value(&value))
    }

    /// The program after an error that the model knows how to read.
    pub(super) fn mended(&self) -> String {
        let n = &self.problem.numbers;
        match self.problem.kind {
            Kind::Average => self.shown_value(&self.average(n)),
            Kind::Parts => self.shown_value(&format!("{} * {} - {}", n[0], n[1], n[2])),
            _ => self.program(),
        }
    }

    fn takes_apart(&self) -> bool {
        let last = self.sentences().filter_map(reading::keeps_steps_apart);
        if last.last() == Some(false) {
            return false;
        }
        let told = self.is_told(&["its own line", "very number of the question"])
            || self.sentences().any(reading::gives_steps_lines);
        let is_shown = self.examples.iter().any(|message| {
            message.role == Role::User
                && message
                    .content
                    .split(|c: char| !c.is_ascii_digit())
                    .filter(|word| !word.is_empty())
                    .count()
                    >= 3
        });
        told || is_shown
    }

    fn prints_steps_last(&self) -> bool {
        let told = self.sentences().filter_map(reading::prints_steps_last);
        told.last().unwrap_or(false)
    }

    fn average(&self, numbers: &[u128]) -> String {
        format!("sum({numbers:?}) // {}", numbers.len())
    }

    /// By the last rule that was given for a topic, or else a product.
    fn by_rule(&self, topic: &[&str], n: &[u128]) -> String {
        let told = self.sentences();
        told.filter(|sentence| has_any(sentence, topic))
            .filter_map(|sentence| reading::rule(sentence, n[0], n[1]))
            .last()
            .unwrap_or_else(|| format!("{} * {}", n[0], n[1]))
    }

    fn dozen(&self) -> u128 {
        let told = self.sentences().filter_map(reading::dozen);
        told.last().unwrap_or(12)
    }
}
