//! Values of expressions: exact rationals as long as possible, complex intervals otherwise.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, Zero};

use super::elementary;
use super::evaluate::Fault;
use super::real::Real;

/// A complex number; `im` is exactly zero for a real one.
#[derive(Clone, Debug)]
pub(super) struct Complex {
    pub(super) re: Real,
    pub(super) im: Real,
}

impl Complex {
    pub(super) fn real(re: Real) -> Self {
        Self {
            re,
            im: Real::integer(0),
        }
    }

    pub(super) fn is_real(&self) -> bool {
        self.im.is_exactly_zero()
    }

    /// Its value where it is real.
    pub(super) fn as_real(&self) -> Result<&Real, Fault> {
        if self.is_real() {
            return Ok(&self.re);
        }
        Err(if self.im.contains_zero() {
            Fault::Imprecise
        } else {
            Fault::Unsupported
        })
    }

    pub(super) fn contains_zero(&self) -> bool {
        self.re.contains_zero() && self.im.contains_zero()
    }

    pub(super) fn top(&self) -> i64 {
        self.re.top().max(self.im.top())
    }

    pub(super) fn negated(&self) -> Self {
        Self {
            re: self.re.negated(),
            im: self.im.negated(),
        }
    }

    pub(super) fn plus(&self, other: &Complex, bits: u64) -> Self {
        Self {
            re: self.re.plus(&other.re, bits),
            im: self.im.plus(&other.im, bits),
        }
    }

    pub(super) fn times(&self, other: &Complex, bits: u64) -> Self {
        if self.is_real() && other.is_real() {
            return Self::real(self.re.times(&other.re, bits));
        }
        let product = |a: &Real, b: &Real| a.times(b, bits);
        Self {
            re: product(&self.re, &other.re).minus(&product(&self.im, &other.im), bits),
            im: product(&self.re, &other.im).plus(&product(&self.im, &other.re), bits),
        }
    }

    pub(super) fn over(&self, other: &Complex, bits: u64) -> Result<Self, Fault> {
        if other.re.is_exactly_zero() && other.im.is_exactly_zero() {
            return Err(Fault::Undefined);
        }
        if other.contains_zero() {
            return Err(Fault::Imprecise);
        }
        let over = |a: &Real, b: &Real| a.over(b, bits).ok_or(Fault::Imprecise);
        if other.is_real() {
            return Ok(Self {
                re: over(&self.re, &other.re)?,
                im: if self.is_real() {
                    Real::integer(0)
                } else {
                    over(&self.im, &other.re)?
                },
            });
        }
        let norm = other.norm(bits);
        let conjugate = Self {
            re: other.re.clone(),
            im: other.im.negated(),
        };
        let product = self.times(&conjugate, bits);
        Ok(Self {
            re: over(&product.re, &norm)?,
            im: over(&product.im, &norm)?,
        })
    }

    fn norm(&self, bits: u64) -> Real {
        let square = |x: &Real| {
            let size = x.size();
            size.times(&size, bits)
        };
        square(&self.re).plus(&square(&self.im), bits)
    }

    pub(super) fn size(&self, bits: u64) -> Real {
        if self.is_real() {
            return self.re.size();
        }
        self.norm(bits).root(2, bits)
    }

    pub(super) fn exp(&self, bits: u64) -> Result<Self, Fault> {
        let size = elementary::exp(&self.re, bits).ok_or(Fault::TooLarge)?;
        if self.is_real() {
            return Ok(Self::real(size));
        }
        let (sin, cos) = elementary::sin_cos(&self.im, bits).ok_or(Fault::TooLarge)?;
        Ok(Self {
            re: size.times(&cos, bits),
            im: size.times(&sin, bits),
        })
    }

    /// The principal logarithm.
    pub(super) fn ln(&self, bits: u64) -> Result<Self, Fault> {
        if self.contains_zero() {
            return Err(if self.top() == i64::MIN {
                Fault::Undefined
            } else {
                Fault::Imprecise
            });
        }
        let logarithm = |x: &Real| elementary::ln(x, bits).ok_or(Fault::Imprecise);
        if self.is_real() {
            return Ok(Self {
                re: logarithm(&self.re.size())?,
                im: if self.re.is_negative() {
                    elementary::pi(bits)
                } else {
                    Real::integer(0)
                },
            });
        }
        let half = Real::rational(&BigRational::new(1.into(), 2.into()), bits);
        Ok(Self {
            re: logarithm(&self.norm(bits))?.times(&half, bits),
            im: self.argument(bits)?,
        })
    }

    /// The angle, from -π to π, of a number that isn't real.
    fn argument(&self, bits: u64) -> Result<Real, Fault> {
        let tangent = |a: &Real, b: &Real| {
            let ratio = a.over(b, bits).ok_or(Fault::Imprecise)?;
            elementary::atan(&ratio, bits).ok_or(Fault::Imprecise)
        };
        if self.re.is_positive() {
            return tangent(&self.im, &self.re);
        }
        let half = Real::rational(&BigRational::new(1.into(), 2.into()), bits);
        let quarter = elementary::pi(bits).times(&half, bits);
        let steep = || tangent(&self.re, &self.im);
        if self.im.is_positive() {
            Ok(quarter.minus(&steep()?, bits))
        } else if self.im.is_negative() {
            Ok(quarter.negated().minus(&steep()?, bits))
        } else {
            // On both sides of the cut along the negative numbers.
            Err(Fault::Imprecise)
        }
    }
}

/// Sizes behind the separation bound of Burnikel, Funke, Mehlhorn, Schirra and Schmitt ("A
/// separation bound for real algebraic expressions", 2001), as binary logarithms: an algebraic
/// expression that isn't zero is at least `1 / (lower · upper^(degree − 1))` in size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Separation {
    pub(super) upper: f64,
    pub(super) lower: f64,
}

impl Separation {
    pub(super) fn of(value: &BigRational) -> Self {
        Self {
            upper: bits_of(value.numer()),
            lower: bits_of(value.denom()),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            upper: (self.upper + other.lower).max(self.lower + other.upper) + 1.0,
            lower: self.lower + other.lower,
        }
    }

    pub(super) fn times(self, other: Self) -> Self {
        Self {
            upper: self.upper + other.upper,
            lower: self.lower + other.lower,
        }
    }

    pub(super) fn inverted(self) -> Self {
        Self {
            upper: self.lower,
            lower: self.upper,
        }
    }

    pub(super) fn power(self, exponent: u64) -> Self {
        let factor = f64::from(u32::try_from(exponent).unwrap_or(u32::MAX));
        Self {
            upper: self.upper * factor,
            lower: self.lower * factor,
        }
    }

    pub(super) fn root(self, degree: u32) -> Self {
        let k = f64::from(degree);
        let Self { upper, lower } = self;
        if upper >= lower {
            Self {
                upper: (upper + (k - 1.0) * lower) / k,
                lower,
            }
        } else {
            Self {
                upper,
                lower: ((k - 1.0) * upper + lower) / k,
            }
        }
    }
}

/// Binary logarithm of a whole number, rounded up; zero counts as one.
fn bits_of(value: &BigInt) -> f64 {
    f64::from(u32::try_from(value.bits()).unwrap_or(u32::MAX))
}

/// A value with what is known about it.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Exact(BigRational),
    /// With sizes of the algebraic number that it encloses, where it is one.
    Enclosed(Complex, Option<Separation>),
}

impl Value {
    pub(super) fn complex(&self, bits: u64) -> Complex {
        match self {
            Value::Exact(value) => Complex::real(Real::rational(value, bits)),
            Value::Enclosed(value, _) => value.clone(),
        }
    }

    pub(super) fn separation(&self) -> Option<Separation> {
        match self {
            Value::Exact(value) => Some(Separation::of(value)),
            Value::Enclosed(_, separation) => *separation,
        }
    }

    /// Bits of the numbers that hold it.
    pub(super) fn bits(&self, bits: u64) -> u64 {
        match self {
            Value::Exact(value) => value.numer().bits() + value.denom().bits(),
            Value::Enclosed(..) => bits,
        }
    }

    pub(super) fn is_exactly_zero(&self) -> bool {
        match self {
            Value::Exact(value) => value.is_zero(),
            Value::Enclosed(value, _) => value.re.is_exactly_zero() && value.is_real(),
        }
    }
}

/// The exact root of a rational number that isn't negative, if it is rational.
pub(super) fn rational_root(value: &BigRational, degree: u32) -> Option<BigRational> {
    let root = |n: &BigInt| {
        let root = n.nth_root(degree);
        (num_traits::pow(root.clone(), usize::try_from(degree).ok()?) == *n).then_some(root)
    };
    if value.is_negative() {
        return None;
    }
    if value.is_one() || value.is_zero() {
        return Some(value.clone());
    }
    Some(BigRational::new(root(value.numer())?, root(value.denom())?))
}
