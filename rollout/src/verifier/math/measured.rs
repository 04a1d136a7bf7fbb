//! Values with units.

use num_traits::{One, ToPrimitive};

use super::compare::{DIFFERENT, EQUAL, same, scalar};
use super::decide::Decider;
use super::expression::Expr;
use super::names::{self, Named};
use super::units::Unit;
use super::{Allowance, Comparison, Outcome};

/// A value with a unit beside one without.
pub(super) fn beside_unit(
    value: &Expr,
    unit: &Unit,
    other: &Expr,
    other_is_gold: bool,
    decider: &Decider,
) -> Comparison {
    let ordered = |value: &Expr| {
        if other_is_gold {
            same(other, value, decider)
        } else {
            same(value, other, decider)
        }
    };
    if let Expr::Relation(..) = other {
        // The unit stands after the last member of the other.
        if let Some(Named { value: stated, .. }) = names::named(other) {
            let measured = Expr::Measured(Box::new(value.clone()), unit.clone());
            return if other_is_gold {
                same(&stated, &measured, decider)
            } else {
                same(&measured, &stated, decider)
            };
        }
    }
    if let Some((number, letters)) = with_letters(other, unit) {
        let (own, other) = ((value, unit), (&number, &letters));
        return if other_is_gold {
            measured(other, own, decider)
        } else {
            measured(own, other, decider)
        };
    }
    if unit.is_degree() {
        // 30° is π/6 exactly.
        let angle = Expr::Degrees(Box::new(value.clone()));
        let is_value = other.is_scalar() && other.literal().is_none();
        if is_value && decider.same(&angle, other) == Outcome::Equal {
            return EQUAL;
        }
    }
    if !other_is_gold && unit.is_ambiguous() {
        return DIFFERENT;
    }
    ordered(value).with(Allowance::Units)
}

pub(super) fn measured(
    gold: (&Expr, &Unit),
    answer: (&Expr, &Unit),
    decider: &Decider,
) -> Comparison {
    let Some(factor) = gold.1.factor_from(answer.1) else {
        let angle = |value: &Expr| Expr::Degrees(Box::new(value.clone()));
        return match (gold.1, answer.1) {
            (degrees, radians) if degrees.is_degree() && radians.is_radian() => {
                scalar(&angle(gold.0), answer.0, decider)
            }
            (radians, degrees) if degrees.is_degree() && radians.is_radian() => {
                scalar(gold.0, &angle(answer.0), decider)
            }
            _ => DIFFERENT,
        };
    };
    let compared = if factor.is_one() {
        same(gold.0, answer.0, decider)
    } else {
        let scaled = Expr::Product(vec![Expr::Rational(factor), answer.0.clone()]);
        same(gold.0, &scaled, decider)
    };
    if gold.1.is_known() && answer.1.is_known() || gold.1 == answer.1 {
        compared
    } else {
        compared.with(Allowance::Units)
    }
}

/// A number with letters behind it, `5000 m`, as a quantity of the kind that `unit` measures. Beside
/// `5 km` the letter is no variable.
pub(super) fn with_letters(expr: &Expr, unit: &Unit) -> Option<(Expr, Unit)> {
    if !unit.is_known() {
        return None;
    }
    let (mut numbers, mut letters) = (Vec::new(), Vec::new());
    part(expr, 1, &mut numbers, &mut letters)?;
    let name = letters
        .iter()
        .map(|(name, power)| format!("{name}^{power}"))
        .collect::<Vec<_>>()
        .join(" ");
    let written = Unit::named(&name);
    let is_same_kind = written.is_known() && unit.factor_from(&written).is_some();
    (is_same_kind && !numbers.is_empty()).then_some((Expr::Product(numbers), written))
}

/// Takes a product apart into numbers, and letters with their powers.
fn part(
    expr: &Expr,
    power: i32,
    numbers: &mut Vec<Expr>,
    letters: &mut Vec<(String, i32)>,
) -> Option<()> {
    match expr {
        Expr::Variable(name) => letters.push((name.clone(), power)),
        Expr::Product(factors) => {
            for factor in factors {
                part(factor, power, numbers, letters)?;
            }
        }
        Expr::Quotient(parts) => {
            part(&parts.0, power, numbers, letters)?;
            part(&parts.1, -power, numbers, letters)?;
        }
        Expr::Power(parts) if !parts.0.variables().is_empty() => {
            let exponent = parts.1.literal().filter(|value| value.is_integer())?;
            let exponent = exponent.to_integer().to_i32()?;
            part(&parts.0, power.checked_mul(exponent)?, numbers, letters)?;
        }
        Expr::Negative(inner) => {
            numbers.push(Expr::integer(-1));
            part(inner, power, numbers, letters)?;
        }
        number if number.is_scalar() && number.variables().is_empty() => {
            numbers.push(if power < 0 {
                Expr::quotient(Expr::integer(1), number.clone())
            } else {
                number.clone()
            });
        }
        _ => return None,
    }
    Some(())
}
