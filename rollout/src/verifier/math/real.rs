//! Real numbers as intervals between two binary floating-point numbers of any precision.
//!
//! Every operation rounds outward, so an interval always holds the exact value: what an interval
//! excludes is excluded for certain.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, Zero};

/// `mantissa · 2^exponent`.
#[derive(Clone, Debug)]
pub(super) struct Float {
    pub(super) mantissa: BigInt,
    pub(super) exponent: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Down,
    Up,
}

impl Float {
    pub(super) fn new(mantissa: BigInt, exponent: i64) -> Self {
        Self { mantissa, exponent }
    }

    fn zero() -> Self {
        Self::new(BigInt::zero(), 0)
    }

    pub(super) fn is_zero(&self) -> bool {
        self.mantissa.is_zero()
    }

    /// The number is below `2^top` in size and at least half of that; `i64::MIN` for zero.
    pub(super) fn top(&self) -> i64 {
        if self.is_zero() {
            return i64::MIN;
        }
        self.exponent.saturating_add_unsigned(self.mantissa.bits())
    }

    /// Floor of `self · 2^bits`.
    pub(super) fn fixed(&self, bits: u64) -> BigInt {
        let shift = self.exponent.saturating_add_unsigned(bits);
        if shift >= 0 {
            &self.mantissa << shift.unsigned_abs()
        } else {
            &self.mantissa >> shift.unsigned_abs()
        }
    }

    fn negated(&self) -> Self {
        Self::new(-&self.mantissa, self.exponent)
    }

    /// The same number with `bits` bits, or the next one.
    fn rounded(self, bits: u64, round: Round) -> Self {
        let size = self.mantissa.bits();
        if size <= bits {
            return self;
        }
        let shift = size - bits;
        let mantissa = match round {
            // A shift to the right is a floor, for negative numbers too.
            Round::Down => self.mantissa >> shift,
            Round::Up => -(-self.mantissa >> shift),
        };
        Self::new(mantissa, self.exponent.saturating_add_unsigned(shift))
    }

    fn plus(&self, other: &Float, bits: u64, round: Round) -> Self {
        if self.is_zero() {
            return other.clone().rounded(bits, round);
        }
        if other.is_zero() {
            return self.clone().rounded(bits, round);
        }
        let (big, small) = if self.top() >= other.top() {
            (self, other)
        } else {
            (other, self)
        };
        let padding = (bits + 4).saturating_sub(big.mantissa.bits());
        let unit = big.exponent.saturating_sub_unsigned(padding);
        let sum = if small.top() <= unit {
            // Far below the last bit: only its direction matters.
            let step = match (round, small.mantissa.sign()) {
                (Round::Down, Sign::Minus) => -BigInt::one(),
                (Round::Up, Sign::Plus) => BigInt::one(),
                _ => BigInt::zero(),
            };
            Self::new((&big.mantissa << padding) + step, unit)
        } else {
            let exponent = big.exponent.min(small.exponent);
            let aligned = |x: &Float| &x.mantissa << x.exponent.abs_diff(exponent);
            Self::new(aligned(big) + aligned(small), exponent)
        };
        sum.rounded(bits, round)
    }

    fn times(&self, other: &Float, bits: u64, round: Round) -> Self {
        let exponent = self.exponent.saturating_add(other.exponent);
        Self::new(&self.mantissa * &other.mantissa, exponent).rounded(bits, round)
    }

    /// The other must not be zero.
    fn over(&self, other: &Float, bits: u64, round: Round) -> Self {
        let shift = (bits + 2 + other.mantissa.bits()).saturating_sub(self.mantissa.bits());
        let numerator = &self.mantissa << shift;
        let mantissa = match round {
            Round::Down => numerator.div_floor(&other.mantissa),
            Round::Up => numerator.div_ceil(&other.mantissa),
        };
        let exponent = self.exponent.saturating_sub(other.exponent);
        Self::new(mantissa, exponent.saturating_sub_unsigned(shift)).rounded(bits, round)
    }

    /// The `degree`-th root of a number that isn't negative.
    fn root(&self, degree: u32, bits: u64, round: Round) -> Self {
        if self.is_zero() {
            return Self::zero();
        }
        let size = u64::from(degree) * (bits + 2);
        let mut shift = i64::try_from(size.saturating_sub(self.mantissa.bits())).unwrap_or(0);
        shift += (self.exponent - shift).rem_euclid(i64::from(degree));
        let radicand = &self.mantissa << shift.unsigned_abs();
        let mut root = radicand.nth_root(degree);
        if round == Round::Up && root.pow(degree) != radicand {
            root += 1;
        }
        Self::new(root, (self.exponent - shift) / i64::from(degree)).rounded(bits, round)
    }
}

impl PartialEq for Float {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Float {}

impl PartialOrd for Float {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Float {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |x: &Float| x.mantissa.signum();
        sign(self).cmp(&sign(other)).then_with(|| {
            let by_size = self.top().cmp(&other.top()).then_with(|| {
                // Equal tops: the alignment is at most the longer mantissa.
                let exponent = self.exponent.min(other.exponent);
                let aligned = |x: &Float| x.mantissa.magnitude() << x.exponent.abs_diff(exponent);
                aligned(self).cmp(&aligned(other))
            });
            if self.mantissa.is_negative() {
                by_size.reverse()
            } else {
                by_size
            }
        })
    }
}

/// All numbers from `low` to `high`.
#[derive(Clone, Debug)]
pub(super) struct Real {
    pub(super) low: Float,
    pub(super) high: Float,
}

impl Real {
    pub(super) fn exact(value: Float) -> Self {
        Self {
            low: value.clone(),
            high: value,
        }
    }

    pub(super) fn integer(value: i64) -> Self {
        Self::exact(Float::new(value.into(), 0))
    }

    /// From `(value ± error) · 2^-bits`.
    pub(super) fn from_fixed(value: &BigInt, error: u32, bits: u64) -> Self {
        let exponent = 0_i64.saturating_sub_unsigned(bits);
        Self {
            low: Float::new(value - error, exponent),
            high: Float::new(value + error, exponent),
        }
    }

    pub(super) fn rational(value: &BigRational, bits: u64) -> Self {
        let numerator = Self::exact(Float::new(value.numer().clone(), 0));
        let denominator = Float::new(value.denom().clone(), 0);
        Self {
            low: numerator.low.over(&denominator, bits, Round::Down),
            high: numerator.high.over(&denominator, bits, Round::Up),
        }
    }

    pub(super) fn is_exact(&self) -> bool {
        self.low == self.high
    }

    pub(super) fn is_exactly_zero(&self) -> bool {
        self.low.is_zero() && self.high.is_zero()
    }

    pub(super) fn contains_zero(&self) -> bool {
        !self.is_positive() && !self.is_negative()
    }

    pub(super) fn is_positive(&self) -> bool {
        self.low.mantissa.is_positive()
    }

    pub(super) fn is_negative(&self) -> bool {
        self.high.mantissa.is_negative()
    }

    /// Every number in it is below `2^top` in size.
    pub(super) fn top(&self) -> i64 {
        self.low.top().max(self.high.top())
    }

    pub(super) fn negated(&self) -> Self {
        Self {
            low: self.high.negated(),
            high: self.low.negated(),
        }
    }

    pub(super) fn size(&self) -> Self {
        if self.is_negative() {
            return self.negated();
        }
        if self.contains_zero() {
            return Self {
                low: Float::zero(),
                high: self.low.negated().max(self.high.clone()),
            };
        }
        self.clone()
    }

    pub(super) fn plus(&self, other: &Real, bits: u64) -> Self {
        Self {
            low: self.low.plus(&other.low, bits, Round::Down),
            high: self.high.plus(&other.high, bits, Round::Up),
        }
    }

    pub(super) fn minus(&self, other: &Real, bits: u64) -> Self {
        self.plus(&other.negated(), bits)
    }

    pub(super) fn times(&self, other: &Real, bits: u64) -> Self {
        if !self.low.mantissa.is_negative() && !other.low.mantissa.is_negative() {
            return Self {
                low: self.low.times(&other.low, bits, Round::Down),
                high: self.high.times(&other.high, bits, Round::Up),
            };
        }
        let ends = [
            (&self.low, &other.low),
            (&self.low, &other.high),
            (&self.high, &other.low),
            (&self.high, &other.high),
        ];
        let extreme = |round: Round| ends.iter().map(move |(a, b)| a.times(b, bits, round));
        Self {
            low: extreme(Round::Down).min().unwrap_or_else(Float::zero),
            high: extreme(Round::Up).max().unwrap_or_else(Float::zero),
        }
    }

    /// `None` where the divisor may be zero.
    pub(super) fn over(&self, other: &Real, bits: u64) -> Option<Self> {
        if other.contains_zero() {
            return None;
        }
        let one = Float::new(BigInt::one(), 0);
        let inverse = Self {
            low: one.over(&other.high, bits + 2, Round::Down),
            high: one.over(&other.low, bits + 2, Round::Up),
        };
        Some(self.times(&inverse, bits))
    }

    /// The root of the part that isn't negative.
    pub(super) fn root(&self, degree: u32, bits: u64) -> Self {
        let end = |x: &Float, round| x.max(&Float::zero()).root(degree, bits, round);
        Self {
            low: end(&self.low, Round::Down),
            high: end(&self.high, Round::Up),
        }
    }

    /// The smallest interval around both.
    pub(super) fn joined(self, other: Real) -> Self {
        Self {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }
}
