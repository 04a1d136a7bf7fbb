//! Arithmetic of large rationals without needless reductions.
//!
//! Reducing a share to lowest terms takes time that grows with the square of its digits; whole
//! numbers and numbers of very different sizes, which answers are full of, don't need it.

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, Zero};

pub(super) fn sum(a: &BigRational, b: &BigRational) -> BigRational {
    if a.is_integer() && b.is_integer() {
        return BigRational::from_integer(a.numer() + b.numer());
    }
    share(
        a.numer() * b.denom() + b.numer() * a.denom(),
        a.denom() * b.denom(),
    )
}

pub(super) fn product(a: &BigRational, b: &BigRational) -> BigRational {
    if a.is_integer() && b.is_integer() {
        return BigRational::from_integer(a.numer() * b.numer());
    }
    share(a.numer() * b.numer(), a.denom() * b.denom())
}

/// The other must not be zero.
pub(super) fn quotient(a: &BigRational, b: &BigRational) -> BigRational {
    share(a.numer() * b.denom(), a.denom() * b.numer())
}

pub(super) fn power(value: &BigRational, exponent: u32) -> BigRational {
    // Powers of lowest terms are in lowest terms.
    BigRational::new_raw(value.numer().pow(exponent), value.denom().pow(exponent))
}

/// Both are in lowest terms.
pub(super) fn is_same(a: &BigRational, b: &BigRational) -> bool {
    a.numer() == b.numer() && a.denom() == b.denom()
}

/// A share in lowest terms.
fn share(numerator: BigInt, denominator: BigInt) -> BigRational {
    let (numerator, denominator) = if denominator.is_negative() {
        (-numerator, -denominator)
    } else {
        (numerator, denominator)
    };
    if numerator.magnitude().is_one() || denominator.is_one() {
        return BigRational::new_raw(numerator, denominator);
    }
    let (whole, rest) = numerator.div_rem(&denominator);
    if rest.is_zero() {
        return BigRational::from_integer(whole);
    }
    // Euclid's first steps bring numbers of different sizes to similar ones.
    let small = &denominator % &rest;
    let divisor = rest.gcd(&small);
    BigRational::new_raw(numerator / &divisor, denominator / divisor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rational() -> impl Strategy<Value = BigRational> {
        let size = prop_oneof![-20_i64..20, any::<i64>()];
        (size.clone(), size).prop_filter_map("a denominator", |(numerator, denominator)| {
            (denominator != 0).then(|| BigRational::new(numerator.into(), denominator.into()))
        })
    }

    proptest! {
        #[test]
        fn agrees_with_the_library(a in rational(), b in rational(), exponent in 0_u32..6) {
            prop_assert!(is_same(&sum(&a, &b), &(&a + &b)));
            prop_assert!(is_same(&product(&a, &b), &(&a * &b)));
            if !b.is_zero() {
                prop_assert!(is_same(&quotient(&a, &b), &(&a / &b)));
            }
            let powered = num_traits::pow(a.clone(), exponent.try_into().expect("small"));
            prop_assert!(is_same(&power(&a, exponent), &powered));
        }
    }
}
