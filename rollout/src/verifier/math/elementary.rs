//! Exponential, logarithm, sine, cosine and arc tangent to any precision.
//!
//! Computed in fixed point by Taylor series after argument reduction, with guard bits that cover
//! the rounding of every step; each result is widened by an error bound in units of its last bit.

use std::cell::RefCell;

use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{One, Signed, Zero};

use super::real::{Float, Real};

/// Units in the last place by which a result may be off; the true errors are below four.
const ERROR: u32 = 16;
/// Exponent of the largest argument of `exp`.
const EXP_TOP: i64 = 34;
/// Exponent of the largest argument of sine and cosine, whose reduction needs that many digits of π.
const ANGLE_TOP: i64 = 2_000;
/// Room for a multiple of ln 2 as large as an exponent.
const EXPONENT_BITS: u64 = 64;

/// π.
pub(super) fn pi(bits: u64) -> Real {
    let bits = bits + 16;
    Real::from_fixed(&pi_fixed(bits), ERROR, bits)
}

/// e^x; `None` where it is too large or too small to be written.
pub(super) fn exp(x: &Real, bits: u64) -> Option<Real> {
    let mut result = exp_of(&x.low, bits)?;
    if !x.is_exact() {
        let width = width(x, bits);
        if width.top() > 0 {
            return Some(result.joined(exp_of(&x.high, bits)?));
        }
        // e^w is at most 1 + 2w for w up to 1.
        let growth = Real::integer(1).plus(&width.plus(&width, bits), bits);
        result.high = Real::exact(result.high).times(&growth, bits + 16).high;
    }
    Some(result)
}

fn exp_of(x: &Float, bits: u64) -> Option<Real> {
    if x.is_zero() {
        return Some(Real::integer(1));
    }
    if x.top() > EXP_TOP {
        return None;
    }
    let bits = bits + 16;
    let wide = bits + EXPONENT_BITS;
    let (x, ln2) = (x.fixed(wide), ln2_fixed(wide));
    let half: BigInt = &ln2 >> 1;
    let (count, rest) = (x + &half).div_mod_floor(&ln2);
    let rest: BigInt = (rest - half) >> EXPONENT_BITS;
    let power = i64::try_from(count).ok()?;
    let mut result = Real::from_fixed(&exp_fixed(&rest, bits), ERROR, bits);
    result.low.exponent += power;
    result.high.exponent += power;
    Some(result)
}

/// The natural logarithm of a positive number.
pub(super) fn ln(x: &Real, bits: u64) -> Option<Real> {
    let mut result = ln_of(&x.low, bits)?;
    if !x.is_exact() {
        // Its slope is at most 1/low.
        let growth = width(x, bits).over(&Real::exact(x.low.clone()), bits)?;
        result.high = Real::exact(result.high).plus(&growth, bits + 16).high;
    }
    Some(result)
}

fn ln_of(x: &Float, bits: u64) -> Option<Real> {
    let top = x.top();
    let is_one = x.mantissa.magnitude().count_ones() == 1 && top == 1;
    if !x.mantissa.is_positive() || is_one {
        return is_one.then(|| Real::integer(0));
    }
    let bits = bits + 16;
    // x = m · 2^power with m between 3/4 and 3/2.
    let mut power = top - 1;
    let unit = Float::new(x.mantissa.clone(), x.exponent - power).fixed(2);
    if unit >= BigInt::from(6) {
        power += 1;
    }
    let roots = 8 + bits / 64;
    let wide = bits + roots + 32;
    let one = BigInt::one() << wide;
    let mut m = Float::new(x.mantissa.clone(), x.exponent - power).fixed(wide);
    for _ in 0..roots {
        m = (m << wide).sqrt();
    }
    let z = ((&m - &one) << wide) / (m + one);
    let logarithm = series(&z, wide, false) >> (wide - bits - roots - 1);
    let scaled = (ln2_fixed(bits + EXPONENT_BITS) * power) >> EXPONENT_BITS;
    Some(Real::from_fixed(&(logarithm + scaled), ERROR, bits))
}

/// Sine and cosine; `None` for angles too large to be reduced.
pub(super) fn sin_cos(x: &Real, bits: u64) -> Option<(Real, Real)> {
    if x.is_exactly_zero() {
        return Some((Real::integer(0), Real::integer(1)));
    }
    if x.top() > ANGLE_TOP {
        return None;
    }
    let bits = bits + 16;
    let wide = bits + u64::try_from(x.top()).unwrap_or(0) + 16;
    // Both functions change by no more than their argument does.
    let (low, high) = (x.low.fixed(wide), x.high.fixed(wide) + 1);
    let middle: BigInt = (&low + &high) >> 1;
    let spread = ((high - low) >> (wide - bits)) + ERROR;
    let quarter = pi_fixed(wide + 1) >> 2;
    let half: BigInt = &quarter >> 1;
    let (turns, rest) = (middle + &half).div_mod_floor(&quarter);
    let rest: BigInt = (rest - half) >> (wide - bits);
    let (sin, cos) = sin_cos_fixed(&rest, bits);
    let (sin, cos) = match u8::try_from(turns.mod_floor(&4.into())).ok()? {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    };
    let widened = |value: BigInt| {
        let exponent = 0_i64.saturating_sub_unsigned(bits);
        Real {
            low: Float::new(&value - &spread, exponent),
            high: Float::new(value + &spread, exponent),
        }
    };
    Some((widened(sin), widened(cos)))
}

/// The arc tangent, between -π/2 and π/2.
pub(super) fn atan(x: &Real, bits: u64) -> Option<Real> {
    let mut result = atan_of(&x.low, bits)?;
    if !x.is_exact() {
        // Its slope is at most one.
        result.high = Real::exact(result.high)
            .plus(&width(x, bits), bits + 16)
            .high;
    }
    Some(result)
}

fn atan_of(x: &Float, bits: u64) -> Option<Real> {
    if x.is_zero() {
        return Some(Real::integer(0));
    }
    let bits = bits + 16;
    let halvings = 8 + bits / 64;
    let wide = bits + halvings + 32;
    let one = BigInt::one() << wide;
    let is_large = x.top() > 1;
    let mut t = if is_large {
        // 1/x, from the leading bits of x.
        let reduced = Real::integer(1).over(&Real::exact(x.clone()), wide)?;
        reduced.low.fixed(wide)
    } else {
        x.fixed(wide)
    };
    for _ in 0..halvings {
        let root = (((&t * &t) >> wide) + &one) << wide;
        t = (t << wide) / (root.sqrt() + &one);
    }
    let angle = series(&t, wide, true) >> (wide - bits - halvings);
    let right: BigInt = pi_fixed(bits) >> 1;
    let angle = match (is_large, x.mantissa.is_negative()) {
        (false, _) => angle,
        (true, false) => right - angle,
        (true, true) => -right - angle,
    };
    Some(Real::from_fixed(&angle, ERROR, bits))
}

/// How far the ends of an interval are apart, from above.
fn width(x: &Real, bits: u64) -> Real {
    let ends = Real::exact(x.high.clone()).minus(&Real::exact(x.low.clone()), bits);
    Real::exact(ends.high)
}

/// Sum of `z^n / n` over odd n: the inverse hyperbolic tangent, or with changing signs the arc
/// tangent.
fn series(z: &BigInt, bits: u64, is_alternating: bool) -> BigInt {
    let square: BigInt = (z * z) >> bits;
    let mut power = z.clone();
    let mut sum = BigInt::zero();
    let mut n = 1_u32;
    // A shifted negative number never reaches zero; its floor stays at minus one.
    while power.magnitude() > BigInt::one().magnitude() {
        let term = &power / n;
        if is_alternating && n % 4 == 3 {
            sum -= term;
        } else {
            sum += term;
        }
        power = (power * &square) >> bits;
        n += 2;
    }
    sum
}

/// e^x for a fixed-point number below one in size.
fn exp_fixed(x: &BigInt, bits: u64) -> BigInt {
    let halvings = bits.isqrt() / 2 + 2;
    let guard = 2 * halvings + 16;
    let wide = bits + guard;
    let x: BigInt = x << (guard - halvings);
    let mut sum = BigInt::one() << wide;
    let mut term = sum.clone();
    let mut n = 1_u32;
    while term.magnitude() > BigInt::one().magnitude() {
        term = ((term * &x) >> wide) / n;
        sum += &term;
        n += 1;
    }
    for _ in 0..halvings {
        sum = (&sum * &sum) >> wide;
    }
    sum >> guard
}

/// Sine and cosine of a fixed-point number below one in size, as the powers of e^(ix).
fn sin_cos_fixed(x: &BigInt, bits: u64) -> (BigInt, BigInt) {
    let halvings = bits.isqrt() / 2 + 2;
    let guard = 2 * halvings + 16;
    let wide = bits + guard;
    let x: BigInt = x << (guard - halvings);
    let mut cos = BigInt::one() << wide;
    let mut sin = BigInt::zero();
    let mut term = cos.clone();
    let mut n = 1_u32;
    while term.magnitude() > BigInt::one().magnitude() {
        term = ((term * &x) >> wide) / n;
        match n % 4 {
            1 => sin += &term,
            2 => cos -= &term,
            3 => sin -= &term,
            _ => cos += &term,
        }
        n += 1;
    }
    for _ in 0..halvings {
        let doubled = (&sin * &cos) >> (wide - 1);
        cos = (&cos * &cos - &sin * &sin) >> wide;
        sin = doubled;
    }
    (sin >> guard, cos >> guard)
}

/// Machin's formula: π = 16 atan(1/5) − 4 atan(1/239).
fn pi_fixed(bits: u64) -> BigInt {
    thread_local!(static PI: Cache = const { RefCell::new(None) });
    let series = |bits| inverse_series(5, bits, true) * 16 - inverse_series(239, bits, true) * 4;
    PI.with(|cache| cached(cache, bits, series))
}

/// ln 2 = 18 atanh(1/26) − 2 atanh(1/4801) + 8 atanh(1/8749).
fn ln2_fixed(bits: u64) -> BigInt {
    thread_local!(static LN_2: Cache = const { RefCell::new(None) });
    let series = |bits| {
        let term = |n: u32| inverse_series(n, bits, false);
        term(26) * 18 - term(4801) * 2 + term(8749) * 8
    };
    LN_2.with(|cache| cached(cache, bits, series))
}

/// A constant to the most bits asked for so far, at most some thousand.
type Cache = RefCell<Option<(u64, BigInt)>>;

fn cached(cache: &Cache, bits: u64, series: impl Fn(u64) -> BigInt) -> BigInt {
    let wide = bits + 16;
    let mut cache = cache.borrow_mut();
    match cache.as_ref() {
        Some((known, value)) if *known >= wide => value >> (known - bits),
        _ => {
            let value = series(wide);
            let result = &value >> 16;
            *cache = Some((wide, value));
            result
        }
    }
}

/// [`series`] of 1/n, by small divisions only.
fn inverse_series(n: u32, bits: u64, is_alternating: bool) -> BigInt {
    let mut power = (BigInt::one() << bits) / n;
    let mut sum = power.clone();
    let square = u64::from(n) * u64::from(n);
    let mut k = 3_u32;
    while !power.is_zero() {
        power /= square;
        let term = &power / k;
        if is_alternating && k % 4 == 3 {
            sum -= term;
        } else {
            sum += term;
        }
        k += 2;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_rational::BigRational;
    use proptest::prelude::*;

    fn approximate(x: &Real) -> f64 {
        let shift = 60 - x.low.top().clamp(-2_000, 2_000);
        let scaled = x.low.fixed(u64::try_from(shift.max(0)).expect("shift"));
        let value: f64 = scaled.to_string().parse().expect("number");
        value / 2_f64.powi(i32::try_from(shift.max(0)).expect("shift"))
    }

    fn width_below(x: &Real, top: i64) -> bool {
        x.high.top() == i64::MIN || x.minus(&Real::exact(x.low.clone()), 64).top() < top
    }

    proptest! {
        #[test]
        fn agree_with_the_standard_library(n in -40_000_i32..40_000, bits in 64_u64..1_200) {
            let x = Real::rational(&BigRational::new(n.into(), 1_000.into()), bits);
            let x = Real::exact(x.low);
            let value = f64::from(n) / 1_000.0;
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
            prop_assert!(near(approximate(&exp(&x, bits).expect("exp")), value.exp()));
            let (sin, cos) = sin_cos(&x, bits).expect("angle");
            prop_assert!(near(approximate(&sin), value.sin()));
            prop_assert!(near(approximate(&cos), value.cos()));
            prop_assert!(near(approximate(&atan(&x, bits).expect("atan")), value.atan()));
            if n > 0 {
                prop_assert!(near(approximate(&ln(&x, bits).expect("ln")), value.ln()));
            }
        }

        /// Enclosures of the same value at two precisions overlap, and the finer one is as fine
        /// as it says.
        #[test]
        fn precisions_agree(n in 1_i32..1_000_000, shift in -300_i64..300) {
            let x = Real::exact(Float::new(n.into(), shift.min(10)));
            let inverse = |bits| {
                let logarithm = ln(&x, bits).expect("ln");
                exp(&logarithm, bits).expect("exp")
            };
            let (coarse, fine) = (inverse(128), inverse(900));
            prop_assert!(coarse.low <= x.low && x.low <= coarse.high);
            prop_assert!(fine.low <= x.low && x.low <= fine.high);
            prop_assert!(width_below(&fine, x.top() - 850));
            let (sin, cos) = sin_cos(&x, 900).expect("angle");
            let one = sin.times(&sin, 900).plus(&cos.times(&cos, 900), 900);
            let unit = Real::integer(1);
            prop_assert!(one.low <= unit.low && unit.low <= one.high && width_below(&one, -850));
            let (coarse, fine) = (atan(&x, 128).expect("atan"), atan(&x, 900).expect("atan"));
            prop_assert!(coarse.low <= fine.high && fine.low <= coarse.high);
        }
    }
}
