//! Whether two answers are equal: structures part by part, values by [`Decider`].

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed};

use super::decide::Decider;
use super::exact;
use super::expression::{Constant, Expr, Function, Sign};
use super::intervals;
use super::matrices::matrices;
use super::measured::{beside_unit, measured};
use super::names::{self, Named};
use super::{Allowance, Comparison, Outcome};

/// Digits from which a decimal may stand for a value that isn't one.
pub(super) const ROUNDED_DIGITS: u32 = 10;
/// Digits of which the last ones are noise of binary floating point.
const NOISY_DIGITS: u32 = 15;
/// Items of one list.
const MAX_ITEMS: usize = 200;

impl Comparison {
    pub(super) fn with(self, allowance: Allowance) -> Self {
        let is_equal = self.outcome == Outcome::Equal;
        Self {
            allowance: self.allowance.or(is_equal.then_some(allowance)),
            ..self
        }
    }

    /// This one where it is equal, else the other.
    fn or_else(self, other: impl FnOnce() -> Comparison) -> Self {
        if self.outcome == Outcome::Equal {
            return self;
        }
        let other = other();
        match (self.outcome, other.outcome) {
            (_, Outcome::Equal) | (Outcome::Different, _) => other,
            _ => self,
        }
    }

    /// Equal where both are.
    pub(super) fn and_then(self, other: impl FnOnce() -> Comparison) -> Self {
        match self.outcome {
            Outcome::Different => self,
            Outcome::Equal => {
                let other = other();
                Self {
                    outcome: other.outcome,
                    allowance: self.allowance.or(other.allowance),
                    ..self
                }
            }
            Outcome::Undecided | Outcome::Unreadable => match other().outcome {
                Outcome::Different => Outcome::Different.into(),
                _ => self,
            },
        }
    }
}

pub(super) const EQUAL: Comparison = Comparison {
    outcome: Outcome::Equal,
    allowance: None,
    failed_test: None,
};
pub(super) const DIFFERENT: Comparison = Comparison {
    outcome: Outcome::Different,
    allowance: None,
    failed_test: None,
};

/// Whether an answer equals the gold answer.
pub(super) fn compare(gold: &Expr, answer: &Expr, decider: &Decider) -> Comparison {
    same(&with_signs_apart(gold), &with_signs_apart(answer), decider)
}

/// Whether two expressions are equal with no allowance made; for parts of larger ones.
pub(super) fn equivalent(a: &Expr, b: &Expr, decider: &Decider) -> Outcome {
    if a == b {
        return Outcome::Equal;
    }
    let compared = same(a, b, decider);
    match compared.allowance {
        Some(_) => Outcome::Different,
        None => compared.outcome,
    }
}

pub(super) fn same(gold: &Expr, answer: &Expr, decider: &Decider) -> Comparison {
    if gold == answer {
        return EQUAL;
    }
    if let (Expr::Rational(gold), Expr::Rational(answer)) = (gold, answer) {
        return if exact::is_same(gold, answer) {
            EQUAL
        } else {
            DIFFERENT
        };
    }
    match (gold, answer) {
        (Expr::Measured(value, unit), other) | (other, Expr::Measured(value, unit))
            if !matches!((gold, answer), (Expr::Measured(..), Expr::Measured(..))) =>
        {
            let is_gold = std::ptr::eq(gold, other);
            return beside_unit(value, unit, other, is_gold, decider);
        }
        (Expr::Measured(gold, gold_unit), Expr::Measured(answer, unit)) => {
            return measured((gold, gold_unit), (answer, unit), decider);
        }
        _ => {}
    }
    if let Some(compared) = percent(gold, answer, decider) {
        return compared;
    }
    if matches!(gold, Expr::Relation(..)) || matches!(answer, Expr::Relation(..)) {
        return relation(gold, answer, decider);
    }
    if let Some(compared) = intervals::compare(gold, answer, decider) {
        return compared.into();
    }
    match (gold, answer) {
        (Expr::Text(_), _) | (_, Expr::Text(_)) => DIFFERENT,
        (Expr::Numeral(..), _) | (_, Expr::Numeral(..)) => DIFFERENT,
        (Expr::List(_) | Expr::Set(_), _) | (_, Expr::List(_) | Expr::Set(_)) => {
            collection(gold, answer, decider)
        }
        (Expr::Ratio(a, gold), Expr::Ratio(b, clock)) => match (gold, clock) {
            (Some(gold), Some(clock)) => {
                const HALF_A_DAY: u32 = 12 * 3600;
                let is_same = gold.seconds == clock.seconds
                    // A mark that the other leaves out is passed over.
                    || gold.is_marked != clock.is_marked
                        && gold.seconds % HALF_A_DAY == clock.seconds % HALF_A_DAY;
                if is_same { EQUAL } else { DIFFERENT }
            }
            (Some(_), None) | (None, Some(_)) => in_order(a, b, decider),
            (None, None) => ratios(a, b, decider),
        },
        (Expr::Bracket(open, a, close), Expr::Bracket(other_open, b, other_close)) => {
            let is_tuple = a.len() > 2
                && open_and_close_match(*open, *close)
                && open_and_close_match(*other_open, *other_close);
            if a.len() != b.len() || !is_tuple && (open, close) != (other_open, other_close) {
                return DIFFERENT;
            }
            in_order(a, b, decider)
        }
        (Expr::Union(a), Expr::Union(b)) => unordered(a, b, decider),
        (Expr::Bracket(..), _)
        | (_, Expr::Bracket(..))
        | (Expr::Matrix(_), _)
        | (_, Expr::Matrix(_)) => matrices(gold, answer, decider),
        _ if gold.any(&|part| matches!(part, Expr::Matrix(_))) => matrices(gold, answer, decider),
        _ if answer.any(&|part| matches!(part, Expr::Matrix(_))) => matrices(gold, answer, decider),
        _ => scalar(gold, answer, decider),
    }
}

fn open_and_close_match(open: char, close: char) -> bool {
    matches!((open, close), ('(', ')') | ('[', ']'))
}

/// Two single values.
pub(super) fn scalar(gold: &Expr, answer: &Expr, decider: &Decider) -> Comparison {
    match (gold.infinity(), answer.infinity()) {
        (Some(a), Some(b)) => return if a == b { EQUAL } else { DIFFERENT },
        (None, None) => {}
        _ => return DIFFERENT,
    }
    if !gold.is_scalar() || !answer.is_scalar() {
        return DIFFERENT;
    }
    Comparison::from(decider.same(gold, answer)).or_else(|| rounded(gold, answer, decider))
}

/// A decimal with many digits beside the exact value that it rounds.
fn rounded(gold: &Expr, answer: &Expr, decider: &Decider) -> Comparison {
    let (decimal, exact) = match (gold.decimal(), answer.decimal()) {
        (Some(decimal), None) => (decimal, answer),
        (None, Some(decimal)) => (decimal, gold),
        _ => return DIFFERENT,
    };
    let (decimal, is_negative) = decimal;
    let has_names = exact.any(&|part| matches!(part, Expr::Variable(_) | Expr::Opaque(..)));
    if decimal.significant < ROUNDED_DIGITS || has_names {
        return DIFFERENT;
    }
    let ten = BigRational::from_integer(10.into());
    let power = |n: u32| num_traits::pow(ten.clone(), usize::try_from(n).unwrap_or(0));
    // Where the exact value has no more digits than are written, none were rounded away.
    let terminates = decider
        .exact(exact)
        .is_some_and(|value| (value * power(decimal.places)).is_integer());
    if terminates {
        return DIFFERENT;
    }
    let noise = decimal.significant.saturating_sub(NOISY_DIGITS);
    let step = power(noise) / power(decimal.places);
    // Rounded to the nearest, or cut off.
    let above = if noise == 0 {
        &step / BigInt::from(2)
    } else {
        step.clone()
    };
    let size = if is_negative {
        exact.clone().negative()
    } else {
        exact.clone()
    };
    let excess = size.minus(Expr::Rational(decimal.value.clone()));
    let is_positive = |value: Expr| decider.sign(&value) == Some(true);
    let is_near = is_positive(Expr::Rational(step).minus(excess.clone()))
        && is_positive(Expr::Sum(vec![Expr::Rational(above), excess]));
    if is_near {
        return EQUAL.with(Allowance::Rounding);
    }
    DIFFERENT
}

/// Where one side is a percentage. A gold answer's own percent sign may be left out; an answer's
/// is passed over only where the gold answer can't be a share.
fn percent(gold: &Expr, answer: &Expr, decider: &Decider) -> Option<Comparison> {
    let inner = |expr: &Expr| match expr {
        Expr::Percent(inner) => Some((**inner).clone()),
        Expr::Negative(negative) => match &**negative {
            Expr::Percent(inner) => Some((**inner).clone().negative()),
            _ => None,
        },
        _ => None,
    };
    let compared = match (inner(gold), inner(answer)) {
        (None, None) => return None,
        (Some(gold), Some(answer)) => same(&gold, &answer, decider),
        _ if !gold.is_scalar() || !answer.is_scalar() => return None,
        (Some(written), None) => scalar(gold, answer, decider)
            .or_else(|| same(&written, answer, decider).with(Allowance::Percent)),
        (None, Some(written)) => scalar(gold, answer, decider).or_else(|| {
            let is_share = gold
                .literal()
                .is_none_or(|value| value.abs() <= BigRational::one());
            if is_share {
                return DIFFERENT;
            }
            same(gold, &written, decider).with(Allowance::Percent)
        }),
    };
    Some(compared)
}

/// At least one side is a relation.
fn relation(gold: &Expr, answer: &Expr, decider: &Decider) -> Comparison {
    if let (Expr::Relation(a, a_rest), Expr::Relation(b, b_rest)) = (gold, answer) {
        let compared =
            Comparison::from(intervals::same_relation((a, a_rest), (b, b_rest), decider));
        return compared.or_else(|| {
            match (names::named(gold), names::named(answer)) {
                (Some(gold), Some(answer)) if gold.key == answer.key => {
                    return same(&gold.value, &answer.value, decider);
                }
                // Different lines, such as x = 5 and y = 5.
                (Some(_), Some(_)) => return DIFFERENT,
                _ => {}
            }
            intervals::compare(gold, answer, decider).map_or(DIFFERENT, Comparison::from)
        });
    }
    let (statement, other, is_gold) = match gold {
        Expr::Relation(..) => (gold, answer, true),
        _ => (answer, gold, false),
    };
    if let Some(Named { value, .. }) = names::named(statement) {
        return if is_gold {
            same(&value, other, decider)
        } else {
            same(other, &value, decider)
        };
    }
    if let Expr::List(items) | Expr::Set(items) = other
        && items.len() == 1
    {
        return if is_gold {
            same(statement, &items[0], decider)
        } else {
            same(&items[0], statement, decider)
        };
    }
    intervals::compare(gold, answer, decider).map_or(DIFFERENT, Comparison::from)
}

/// At least one side is a list or a set.
fn collection(gold: &Expr, answer: &Expr, decider: &Decider) -> Comparison {
    let items = |expr: &Expr| match expr {
        Expr::List(items) | Expr::Set(items) => items.clone(),
        other => vec![other.clone()],
    };
    let (a, b) = (items(gold), items(answer));
    if a.len() > MAX_ITEMS || b.len() > MAX_ITEMS {
        return Outcome::Undecided.into();
    }
    // Named values beside a point or a bare list: in the order of the names.
    let (names_a, names_b) = (names::distinct(&a), names::distinct(&b));
    let point = |expr: &Expr| match expr {
        Expr::Bracket('(', items, ')') => Some(items.clone()),
        Expr::Bracket('[', items, ']') if items.len() > 2 => Some(items.clone()),
        _ => None,
    };
    match (&names_a, point(answer), &names_b, point(gold)) {
        (Some(values), Some(point), _, _) if a.len() > 1 => {
            return in_order(values, &point, decider);
        }
        (_, _, Some(values), Some(point)) if b.len() > 1 => {
            return in_order(&point, values, decider);
        }
        _ => {}
    }
    // `[1, 2, 3]` is how programs print a list.
    if let (Expr::List(_), Expr::Bracket('[', items, ']')) = (gold, answer)
        && items.len() > 2
    {
        return unordered(&a, items, decider);
    }
    match (names_a, names_b) {
        (Some(values), None) if a.len() > 1 && a.len() == b.len() && !has_names(&b) => {
            in_order(&values, &b, decider)
        }
        (None, Some(values)) if b.len() > 1 && a.len() == b.len() && !has_names(&a) => {
            in_order(&a, &values, decider)
        }
        _ => {
            let (a, b) = (names::without_shared(&a, &b), names::without_shared(&b, &a));
            // A set holds an element once; so does a list of solutions that are points.
            let is_set = |expr: &Expr| matches!(expr, Expr::Set(_));
            let are_points =
                |items: &[Expr]| items.iter().all(|item| matches!(item, Expr::Bracket(..)));
            if is_set(gold) || is_set(answer) || are_points(&a) && are_points(&b) {
                return unordered(&once(a, decider), &once(b, decider), decider);
            }
            unordered(&a, &b, decider)
        }
    }
}

fn has_names(items: &[Expr]) -> bool {
    items.iter().any(|item| matches!(item, Expr::Relation(..)))
}

fn once(items: Vec<Expr>, decider: &Decider) -> Vec<Expr> {
    let mut kept: Vec<Expr> = Vec::new();
    for item in items {
        let is_known = kept
            .iter()
            .any(|known| equivalent(known, &item, decider) == Outcome::Equal);
        if !is_known {
            kept.push(item);
        }
    }
    kept
}

pub(super) fn in_order(gold: &[Expr], answer: &[Expr], decider: &Decider) -> Comparison {
    if gold.len() != answer.len() {
        return DIFFERENT;
    }
    let pairs = gold.iter().zip(answer);
    pairs.fold(EQUAL, |compared, (gold, answer)| {
        compared.and_then(|| same(gold, answer, decider))
    })
}

/// Each item of one beside an item of the other.
fn unordered(gold: &[Expr], answer: &[Expr], decider: &Decider) -> Comparison {
    if gold.len() != answer.len() {
        return DIFFERENT;
    }
    let mut left: Vec<&Expr> = answer.iter().collect();
    let mut compared = EQUAL;
    for item in gold {
        let mut is_undecided = false;
        let found = left.iter().position(|other| {
            let one = same(item, other, decider);
            is_undecided |= one.outcome == Outcome::Undecided;
            if one.outcome == Outcome::Equal {
                compared.allowance = compared.allowance.or(one.allowance);
            }
            one.outcome == Outcome::Equal
        });
        match found {
            Some(index) => {
                left.swap_remove(index);
            }
            None if is_undecided => compared.outcome = Outcome::Undecided,
            None => return DIFFERENT,
        }
    }
    compared
}

/// `2 : 4` is `1 : 2`.
fn ratios(a: &[Expr], b: &[Expr], decider: &Decider) -> Comparison {
    if a.len() != b.len() {
        return DIFFERENT;
    }
    let plain = in_order(a, b, decider);
    if !a.iter().chain(b).all(Expr::is_scalar) {
        return plain;
    }
    plain.or_else(|| {
        let zero = Expr::integer(0);
        let mut compared = EQUAL;
        for (x, y) in a.iter().zip(b).skip(1) {
            let is_zero = |value: &Expr| decider.same(value, &zero) != Outcome::Different;
            if is_zero(x) || is_zero(y) {
                return DIFFERENT;
            }
            let product = |x: &Expr, y: &Expr| Expr::Product(vec![x.clone(), y.clone()]);
            compared =
                compared.and_then(|| decider.same(&product(&a[0], y), &product(&b[0], x)).into());
        }
        compared
    })
}

/// `a ± b` as two answers, in a list.
fn with_signs_apart(expr: &Expr) -> Expr {
    let has_signs = |expr: &Expr| expr.any(&|part| matches!(part, Expr::PlusMinus(..)));
    if !has_signs(expr) {
        return expr.clone();
    }
    let both = |expr: &Expr| [with_sign(expr, true), with_sign(expr, false)];
    let all = |items: &[Expr]| -> Vec<Expr> {
        let apart = |item: &Expr| match with_signs_apart(item) {
            Expr::List(items) => items,
            item => vec![item],
        };
        items.iter().flat_map(apart).collect()
    };
    match expr {
        Expr::List(items) => Expr::List(all(items)),
        Expr::Set(items) => Expr::Set(all(items)),
        // One mark of a unit or a name for both.
        _ => Expr::List(both(expr).to_vec()),
    }
}

fn with_sign(expr: &Expr, is_upper: bool) -> Expr {
    match expr {
        Expr::PlusMinus(is_plus, inner) => {
            let inner = with_sign(inner, is_upper);
            if *is_plus == is_upper {
                inner
            } else {
                inner.negative()
            }
        }
        _ => expr.map(|part| with_sign(part, is_upper)),
    }
}

/// The absolute value's argument.
pub(super) fn inside_bars(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::Function(Function::Abs, inner) => Some(inner),
        _ => None,
    }
}

/// Whether the relation signs all say that its members are equal.
pub(super) fn is_equation(rest: &[(Sign, Expr)]) -> bool {
    rest.iter()
        .all(|(sign, _)| matches!(sign, Sign::Equal | Sign::Near))
}

/// ∅.
pub(super) fn is_empty_set(expr: &Expr) -> bool {
    *expr == Expr::Constant(Constant::EmptySet)
}
