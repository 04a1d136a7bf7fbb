//! Sets of real numbers as unions of intervals, and the relations that describe them.

use super::Outcome;
use super::compare::{equivalent, inside_bars, is_empty_set};
use super::decide::Decider;
use super::expression::{Constant, Expr, Sign};

/// From `low` to `high`, each with whether it belongs to it.
#[derive(Clone, Debug)]
struct Interval {
    low: Expr,
    has_low: bool,
    high: Expr,
    has_high: bool,
}

/// Compares two sets of reals where at least one is more than a bracket or a list of elements:
/// a union, an inequality, ∅, ℝ. `None` where they aren't such sets.
pub(super) fn compare(gold: &Expr, answer: &Expr, decider: &Decider) -> Option<Outcome> {
    let is_set = |expr: &Expr| {
        matches!(expr, Expr::Union(_) | Expr::Relation(..)) || is_empty_set(expr) || is_reals(expr)
    };
    if !is_set(gold) && !is_set(answer) {
        return None;
    }
    let (a, b) = (intervals(gold, decider)?, intervals(answer, decider)?);
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

fn is_reals(expr: &Expr) -> bool {
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
    match expr {
        Expr::Union(items) => {
            let parts: Option<Vec<_>> = items.iter().map(|item| intervals(item, decider)).collect();
            Some(parts?.into_iter().flatten().collect())
        }
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
        // "x < -1 or x > 1"
        Expr::List(items) if items.iter().all(|item| matches!(item, Expr::Relation(..))) => {
            let parts: Option<Vec<_>> = items.iter().map(|item| intervals(item, decider)).collect();
            Some(parts?.into_iter().flatten().collect())
        }
        Expr::Relation(first, rest) => of_relation(first, rest, decider),
        _ if is_empty_set(expr) => Some(Vec::new()),
        _ if is_reals(expr) => Some(vec![between(
            (infinity(false), false),
            (infinity(true), false),
        )]),
        _ => None,
    }
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
    let is_below = |a: &Expr, b: &Expr| match (a.infinity(), b.infinity()) {
        (Some(a), Some(b)) => Some(!a && b),
        (Some(a), None) => Some(!a),
        (None, Some(b)) => Some(b),
        (None, None) => match decider.same(a, b) {
            Outcome::Equal => Some(false),
            Outcome::Different => decider.sign(&b.clone().minus(a.clone())),
            Outcome::Undecided | Outcome::Unreadable => None,
        },
    };
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
