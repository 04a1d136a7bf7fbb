//! Sets of real numbers as unions of intervals, and the relations that describe them.

use std::cmp::Ordering;

use super::Outcome;
use super::compare::{equivalent, inside_bars, is_empty_set};
use super::decide::Decider;
use super::expression::{Constant, Expr, Sign};

/// Intervals of one set.
const MAX_INTERVALS: usize = 64;

/// From `low` to `high`, each with whether it belongs to it.
#[derive(Clone, Debug)]
struct Interval {
    low: Expr,
    has_low: bool,
    high: Expr,
    has_high: bool,
}

/// Compares two sets of reals where at least one is more than a bracket or a list of elements:
/// a union, an inequality, a difference, ∅, ℝ. `None` where they aren't such sets.
pub(super) fn compare(gold: &Expr, answer: &Expr, decider: &Decider) -> Option<Outcome> {
    if !is_set(gold) && !is_set(answer) {
        return None;
    }
    let count = |expr: &Expr| match expr {
        Expr::Union(items) | Expr::List(items) => items.len(),
        _ => 1,
    };
    if count(gold).max(count(answer)) > MAX_INTERVALS {
        return Some(Outcome::Undecided);
    }
    if let (Some(a), Some(b)) = (subject(gold), subject(answer))
        && equivalent(&a, &b, decider) == Outcome::Different
    {
        return Some(Outcome::Different);
    }
    let (a, b) = (intervals(gold, decider)?, intervals(answer, decider)?);
    if a.len().max(b.len()) > MAX_INTERVALS {
        return Some(Outcome::Undecided);
    }
    let (a, b) = (merged(a, decider), merged(b, decider));
    if a.len() != b.len() {
        return Some(Outcome::Different);
    }
    let mut outcome = Outcome::Equal;
    let mut left: Vec<&Interval> = b.iter().collect();
    for interval in &a {
        let mut is_undecided = false;
        let found = left.iter().position(|other| {
            if (interval.has_low, interval.has_high) != (other.has_low, other.has_high) {
                return false;
            }
            let ends = [(&interval.low, &other.low), (&interval.high, &other.high)];
            let ends = ends.map(|(a, b)| equivalent(a, b, decider));
            is_undecided |=
                !ends.contains(&Outcome::Different) && ends.contains(&Outcome::Undecided);
            ends == [Outcome::Equal; 2]
        });
        match found {
            Some(index) => {
                left.swap_remove(index);
            }
            None if is_undecided => outcome = Outcome::Undecided,
            None => return Some(Outcome::Different),
        }
    }
    Some(outcome)
}

fn is_set(expr: &Expr) -> bool {
    match expr {
        Expr::Union(_) | Expr::Relation(..) => true,
        Expr::List(items) => items.len() > 1 && items.iter().all(Expr::is_inequality),
        Expr::Opaque(name, _) if matches!(name.as_str(), "cap" | "setminus" | "+" | "-") => true,
        _ => is_empty_set(expr) || is_reals(expr) || difference_of(expr).is_some(),
    }
}

/// `\mathbb{R} - \{0\}`
fn difference_of(expr: &Expr) -> Option<(&Expr, &Expr)> {
    let Expr::Sum(terms) = expr else {
        return None;
    };
    match terms.as_slice() {
        [set, Expr::Negative(other)] if is_reals(set) && matches!(**other, Expr::Set(_)) => {
            Some((set, other))
        }
        _ => None,
    }
}

/// What relations speak of: the one quantity that they bound. `None` where they are about several, or
/// there is no relation.
fn subject(expr: &Expr) -> Option<Expr> {
    let bare = |quantity: &Expr| inside_bars(quantity).unwrap_or(quantity).clone();
    match expr {
        Expr::Relation(first, rest) => match rest.as_slice() {
            [(Sign::In, _)] => Some(bare(first)),
            [(_, right)] if is_quantity(first) && right.variables().is_empty() => Some(bare(first)),
            [(_, right)] if is_quantity(right) && first.variables().is_empty() => Some(bare(right)),
            [(_, middle), _] if is_quantity(middle) => Some(bare(middle)),
            _ => match expr.variables().as_slice() {
                [name] => Some(Expr::Variable((*name).to_owned())),
                _ => None,
            },
        },
        Expr::Union(items) | Expr::List(items) => {
            let mut subjects = items.iter().map(subject);
            let first = subjects.next()??;
            subjects
                .all(|subject| subject.as_ref() == Some(&first))
                .then_some(first)
        }
        Expr::Opaque(name, parts) if name == "cap" => subject(parts.last()?),
        _ => None,
    }
}

pub(super) fn is_reals(expr: &Expr) -> bool {
    matches!(expr, Expr::Opaque(name, parts)
        if name == "mathbb" && parts == &[Expr::Variable("R".into())])
}

fn infinity(is_positive: bool) -> Expr {
    let infinity = Expr::Constant(Constant::Infinity);
    if is_positive {
        infinity
    } else {
        infinity.negative()
    }
}

fn intervals(expr: &Expr, decider: &Decider) -> Option<Vec<Interval>> {
    if let Some((set, other)) = difference_of(expr) {
        return difference(set, other, decider);
    }
    match expr {
        Expr::Union(items) => {
            let is_relation = |item: &Expr| matches!(item, Expr::Relation(..));
            if items.iter().all(is_relation) && subject(expr).is_none() {
                return None;
            }
            Some(parts_of(items, decider)?.into_iter().flatten().collect())
        }
        Expr::Opaque(name, parts) => match (name.as_str(), parts.as_slice()) {
            ("cap", [a, b]) => common(&intervals(a, decider)?, &intervals(b, decider)?, decider),
            ("setminus", [a, b]) => difference(a, b, decider),
            ("+", [set]) if is_reals(set) => Some(vec![between(
                (Expr::integer(0), false),
                (infinity(true), false),
            )]),
            ("-", [set]) if is_reals(set) => Some(vec![between(
                (infinity(false), false),
                (Expr::integer(0), false),
            )]),
            _ if is_reals(expr) => Some(vec![between(
                (infinity(false), false),
                (infinity(true), false),
            )]),
            _ => None,
        },
        Expr::Set(items) if items.iter().all(Expr::is_scalar) => {
            Some(items.iter().map(point).collect())
        }
        Expr::Bracket(open, items, close) => match items.as_slice() {
            [low, high] if low.is_scalar() && high.is_scalar() => Some(vec![Interval {
                low: low.clone(),
                has_low: *open == '[',
                high: high.clone(),
                has_high: *close == ']',
            }]),
            _ => None,
        },
        Expr::List(items) if items.iter().all(|item| matches!(item, Expr::Relation(..))) => {
            subject(expr)?;
            let parts = parts_of(items, decider)?;
            // All have to hold: "x > 1, x < 5". Those that can't all hold at once are the parts of a
            // union: "x < -1, x > 1".
            let mut all = parts.first()?.clone();
            for part in &parts[1..] {
                all = common(&all, part, decider)?;
            }
            Some(if all.is_empty() {
                parts.into_iter().flatten().collect()
            } else {
                all
            })
        }
        Expr::Relation(first, rest) => of_relation(first, rest, decider),
        _ if is_empty_set(expr) => Some(Vec::new()),
        _ => None,
    }
}

fn parts_of(items: &[Expr], decider: &Decider) -> Option<Vec<Vec<Interval>>> {
    let parts = items.iter().map(|item| intervals(item, decider));
    parts.collect()
}

/// Which of two values is larger, where that is known.
fn order(a: &Expr, b: &Expr, decider: &Decider) -> Option<Ordering> {
    match (a.infinity(), b.infinity()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        (Some(is_positive), None) | (None, Some(is_positive)) => {
            let is_first = a.infinity().is_some();
            Some(if is_positive == is_first {
                Ordering::Greater
            } else {
                Ordering::Less
            })
        }
        (None, None) => match decider.same(a, b) {
            Outcome::Equal => Some(Ordering::Equal),
            Outcome::Different => decider.sign(&b.clone().minus(a.clone())).map(|is_below| {
                if is_below {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }),
            Outcome::Undecided | Outcome::Unreadable => None,
        },
    }
}

/// An end of an interval, and whether it belongs to it.
type End<'a> = (&'a Expr, bool);

/// The later of two beginnings; an end that is left out comes later than the same one taken in.
fn later<'a>(a: End<'a>, b: End<'a>, decider: &Decider) -> Option<End<'a>> {
    Some(match order(a.0, b.0, decider)? {
        Ordering::Less => b,
        Ordering::Greater => a,
        Ordering::Equal => (a.0, a.1 && b.1),
    })
}

/// The earlier of two ends.
fn earlier<'a>(a: End<'a>, b: End<'a>, decider: &Decider) -> Option<End<'a>> {
    Some(match order(a.0, b.0, decider)? {
        Ordering::Less => a,
        Ordering::Greater => b,
        Ordering::Equal => (a.0, a.1 && b.1),
    })
}

/// An interval, where there is anything between its ends.
fn unless_empty(low: End<'_>, high: End<'_>, decider: &Decider) -> Option<Option<Interval>> {
    let has_any = match order(low.0, high.0, decider)? {
        Ordering::Less => true,
        Ordering::Equal => low.1 && high.1,
        Ordering::Greater => false,
    };
    Some(has_any.then(|| between((low.0.clone(), low.1), (high.0.clone(), high.1))))
}

/// What two sets have in common.
fn common(a: &[Interval], b: &[Interval], decider: &Decider) -> Option<Vec<Interval>> {
    let mut all = Vec::new();
    if a.len() * b.len() > MAX_INTERVALS * MAX_INTERVALS {
        return None;
    }
    for a in a {
        for b in b {
            let low = later((&a.low, a.has_low), (&b.low, b.has_low), decider)?;
            let high = earlier((&a.high, a.has_high), (&b.high, b.has_high), decider)?;
            all.extend(unless_empty(low, high, decider)?);
        }
    }
    Some(all)
}

/// One set without another.
fn difference(set: &Expr, other: &Expr, decider: &Decider) -> Option<Vec<Interval>> {
    let mut left = intervals(set, decider)?;
    // `ℝ∖{0}` without backslashes before the braces.
    let is_element = other.is_scalar() && other.variables().is_empty();
    let others = match intervals(other, decider) {
        Some(others) => others,
        None if is_element => vec![point(other)],
        None => return None,
    };
    if left.len() + others.len() > MAX_INTERVALS {
        return None;
    }
    for other in &others {
        let mut parts = Vec::new();
        for interval in &left {
            let (low, high) = (
                (&interval.low, interval.has_low),
                (&interval.high, interval.has_high),
            );
            let before = earlier(high, (&other.low, !other.has_low), decider)?;
            let after = later(low, (&other.high, !other.has_high), decider)?;
            parts.extend(unless_empty(low, before, decider)?);
            parts.extend(unless_empty(after, high, decider)?);
        }
        left = parts;
    }
    Some(left)
}

fn point(value: &Expr) -> Interval {
    between((value.clone(), true), (value.clone(), true))
}

fn between(low: (Expr, bool), high: (Expr, bool)) -> Interval {
    Interval {
        low: low.0,
        has_low: low.1,
        high: high.0,
        has_high: high.1,
    }
}

fn of_relation(first: &Expr, rest: &[(Sign, Expr)], decider: &Decider) -> Option<Vec<Interval>> {
    match rest {
        [(Sign::In, set)] => intervals(set, decider),
        [(sign, right)] => {
            if !first.is_scalar() || !right.is_scalar() {
                return None;
            }
            if right.variables().is_empty() && is_quantity(first) {
                return bounded(first, *sign, right);
            }
            if first.variables().is_empty() && is_quantity(right) {
                return bounded(right, sign.mirrored()?, first);
            }
            if let Some(inner) = inside_bars(first)
                && right.variables().is_empty()
            {
                return within(inner, *sign, right, decider);
            }
            linear(first, *sign, right, decider)
        }
        [(lower, middle), (upper, right)] => {
            let (low, high, lower, upper) = match (lower, upper) {
                (Sign::Less | Sign::AtMost, Sign::Less | Sign::AtMost) => {
                    (first, right, *lower, *upper)
                }
                (Sign::Greater | Sign::AtLeast, Sign::Greater | Sign::AtLeast) => {
                    (right, first, upper.mirrored()?, lower.mirrored()?)
                }
                _ => return None,
            };
            let has = |sign| sign == Sign::AtMost;
            if !low.variables().is_empty() || !high.variables().is_empty() {
                return None;
            }
            if let Some(inner) = inside_bars(middle) {
                let is_positive = is_quantity(inner) && decider.sign(low) == Some(true);
                return is_positive.then(|| {
                    vec![
                        between(
                            (high.clone().negative(), has(upper)),
                            (low.clone().negative(), has(lower)),
                        ),
                        between((low.clone(), has(lower)), (high.clone(), has(upper))),
                    ]
                });
            }
            is_quantity(middle).then(|| {
                vec![between(
                    (low.clone(), has(lower)),
                    (high.clone(), has(upper)),
                )]
            })
        }
        _ => None,
    }
}

/// A variable or a call such as `f(x)`.
fn is_quantity(expr: &Expr) -> bool {
    match expr {
        Expr::Variable(_) => true,
        Expr::Opaque(name, parts) => name.chars().count() == 1 && parts.len() == 1,
        _ => inside_bars(expr).is_some_and(is_quantity),
    }
}

/// A quantity with one bound.
fn bounded(quantity: &Expr, sign: Sign, bound: &Expr) -> Option<Vec<Interval>> {
    let minus = || bound.clone().negative();
    let below = |has| between((infinity(false), false), (bound.clone(), has));
    let above = |has| between((bound.clone(), has), (infinity(true), false));
    if inside_bars(quantity).is_some() {
        return match sign {
            Sign::Less | Sign::AtMost => {
                let has = sign == Sign::AtMost;
                Some(vec![between((minus(), has), (bound.clone(), has))])
            }
            Sign::Greater | Sign::AtLeast => {
                let has = sign == Sign::AtLeast;
                Some(vec![
                    between((infinity(false), false), (minus(), has)),
                    above(has),
                ])
            }
            _ => None,
        };
    }
    Some(match sign {
        Sign::Less => vec![below(false)],
        Sign::AtMost => vec![below(true)],
        Sign::Greater => vec![above(false)],
        Sign::AtLeast => vec![above(true)],
        Sign::Equal => vec![point(bound)],
        Sign::NotEqual => vec![below(false), above(false)],
        Sign::In | Sign::Near | Sign::Other => return None,
    })
}

/// `|f| < c` and `|f| > c`, where `f` is linear.
fn within(f: &Expr, sign: Sign, bound: &Expr, decider: &Decider) -> Option<Vec<Interval>> {
    let upper = linear(f, sign, bound, decider)?;
    let lower = linear(f, sign.mirrored()?, &bound.clone().negative(), decider)?;
    match sign {
        Sign::Less | Sign::AtMost => common(&upper, &lower, decider),
        Sign::Greater | Sign::AtLeast => Some(upper.into_iter().chain(lower).collect()),
        _ => None,
    }
}

/// An inequality that is linear in its only variable: `2x + 1 > 5`.
fn linear(left: &Expr, sign: Sign, right: &Expr, decider: &Decider) -> Option<Vec<Interval>> {
    let difference = left.clone().minus(right.clone());
    let names = difference.variables();
    let [name] = names.as_slice() else {
        return None;
    };
    let at = |x: i64| replaced(&difference, name, &Expr::integer(x));
    let (zero, one, two) = (at(0), at(1), at(2));
    let bend = Expr::Sum(vec![
        two,
        Expr::Product(vec![Expr::integer(-2), one.clone()]),
        zero.clone(),
    ]);
    let third = Expr::Sum(vec![
        at(-3),
        Expr::Product(vec![Expr::integer(3), one.clone()]),
        Expr::Product(vec![Expr::integer(-4), zero.clone()]),
    ]);
    let nothing = Expr::integer(0);
    let is_straight = |expr: &Expr| decider.same(expr, &nothing) == Outcome::Equal;
    if !is_straight(&bend) || !is_straight(&third) {
        return None;
    }
    let slope = one.minus(zero.clone());
    let is_growing = decider.sign(&slope)?;
    let root = Expr::quotient(zero.negative(), slope);
    let sign = if is_growing { sign } else { sign.mirrored()? };
    bounded(&Expr::Variable((*name).into()), sign, &root)
}

fn replaced(expr: &Expr, name: &str, value: &Expr) -> Expr {
    match expr {
        Expr::Variable(variable) if variable == name => value.clone(),
        _ => expr.map(|part| replaced(part, name, value)),
    }
}

/// Intervals that touch as one. Only numbers that are written out are put in order.
fn merged(mut intervals: Vec<Interval>, decider: &Decider) -> Vec<Interval> {
    let is_below = |a: &Expr, b: &Expr| order(a, b, decider).map(|order| order == Ordering::Less);
    let mut index = 0;
    'next: while index < intervals.len() {
        for other in 0..intervals.len() {
            if other == index {
                continue;
            }
            let (a, b) = (&intervals[index], &intervals[other]);
            // a starts no later than b, and b starts no later than a ends.
            let (Some(b_first), Some(gap), Some(apart)) = (
                is_below(&b.low, &a.low),
                is_below(&a.high, &b.low),
                is_below(&b.low, &a.high),
            ) else {
                continue;
            };
            let touches = apart || !gap && (a.has_high || b.has_low);
            if b_first || gap || !touches {
                continue;
            }
            let (Some(later), Some(earlier), Some(inner)) = (
                is_below(&a.low, &b.low),
                is_below(&a.high, &b.high),
                is_below(&b.high, &a.high),
            ) else {
                continue;
            };
            let merged = Interval {
                low: a.low.clone(),
                has_low: a.has_low || !later && b.has_low,
                high: if earlier {
                    b.high.clone()
                } else {
                    a.high.clone()
                },
                has_high: if earlier {
                    b.has_high
                } else if inner {
                    a.has_high
                } else {
                    a.has_high || b.has_high
                },
            };
            intervals[index] = merged;
            intervals.remove(other);
            index = 0;
            continue 'next;
        }
        index += 1;
    }
    intervals
}

type Members<'a> = (&'a Expr, &'a [(Sign, Expr)]);

/// Whether two relations say the same: member by member, or as one inequality or equation that is
/// a constant times the other.
pub(super) fn same_relation(
    a: (&Expr, &Vec<(Sign, Expr)>),
    b: (&Expr, &Vec<(Sign, Expr)>),
    decider: &Decider,
) -> Outcome {
    let by_member = |a: Members, b: Members| {
        let signs = |rest: &[(Sign, Expr)]| rest.iter().map(|(sign, _)| *sign).collect::<Vec<_>>();
        if signs(a.1) != signs(b.1) {
            return Outcome::Different;
        }
        let members = |(first, rest): Members| {
            std::iter::once(first.clone())
                .chain(rest.iter().map(|(_, member)| member.clone()))
                .collect::<Vec<_>>()
        };
        let pairs = members(a).into_iter().zip(members(b));
        for (a, b) in pairs {
            match equivalent(&a, &b, decider) {
                Outcome::Equal => {}
                other => return other,
            }
        }
        Outcome::Equal
    };
    let a = (a.0, a.1.as_slice());
    let b = (b.0, b.1.as_slice());
    let mut outcome = by_member(a, b);
    if outcome == Outcome::Equal {
        return outcome;
    }
    if let Some((first, rest)) = mirrored(b) {
        outcome = by_member(a, (&first, &rest));
        if outcome == Outcome::Equal {
            return outcome;
        }
    }
    let ([(a_sign, a_right)], [(b_sign, b_right)]) = (a.1, b.1) else {
        return outcome;
    };
    if ![a.0, a_right, b.0, b_right]
        .into_iter()
        .all(Expr::is_scalar)
    {
        return outcome;
    }
    let (Some((a_sign, f)), Some((b_sign, g))) = (
        one_sided(a.0, *a_sign, a_right),
        one_sided(b.0, *b_sign, b_right),
    ) else {
        return outcome;
    };
    if a_sign != b_sign || f.variables().is_empty() || g.variables().is_empty() {
        return Outcome::Different;
    }
    let (outcome, is_positive) = decider.proportion(&f, &g);
    let is_either = matches!(a_sign, Sign::Equal | Sign::NotEqual);
    if outcome == Outcome::Equal && !is_either && is_positive != Some(true) {
        return Outcome::Different;
    }
    outcome
}

/// `a < b` as `b − a > 0`.
fn one_sided(left: &Expr, sign: Sign, right: &Expr) -> Option<(Sign, Expr)> {
    Some(match sign {
        Sign::Less | Sign::AtMost => (sign.mirrored()?, right.clone().minus(left.clone())),
        Sign::Equal | Sign::NotEqual | Sign::Greater | Sign::AtLeast => {
            (sign, left.clone().minus(right.clone()))
        }
        Sign::In | Sign::Near | Sign::Other => return None,
    })
}

/// The relation read from right to left.
fn mirrored((first, rest): Members) -> Option<(Expr, Vec<(Sign, Expr)>)> {
    let mut members = vec![first.clone()];
    members.extend(rest.iter().map(|(_, member)| member.clone()));
    let signs: Option<Vec<Sign>> = rest.iter().rev().map(|(sign, _)| sign.mirrored()).collect();
    let mut members = members.into_iter().rev();
    let first = members.next()?;
    Some((first, signs?.into_iter().zip(members).collect()))
}
