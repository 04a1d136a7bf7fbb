//! The value of an expression without variables, to a given number of bits.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::budget::{Budget, Spent};
use super::elementary;
use super::exact;
use super::expression::{Constant, Expr, Fold, Function};
use super::number::{Complex, Separation, Value, rational_root};
use super::real::Real;

/// Bits up to which rationals stay exact.
const EXACT_BITS: u64 = 1 << 16;
/// Largest number whose factorial is multiplied out.
const FACTORIAL: u32 = 5_000;
/// Values beyond 2^±this aren't computed with.
const TOP: i64 = 1 << 34;
/// Largest degree of a root that is taken by whole-number arithmetic.
const ROOT_DEGREE: u32 = 64;
/// Largest numbers whose divisors are looked for.
const DIVISOR_BITS: u64 = 4_096;

/// Cost of an exponential, a logarithm or an angle: that of a product of numbers so many times as
/// long.
const ELEMENTARY: u64 = 24;

/// The name of `n!!`.
pub(super) const DOUBLE_FACTORIAL: &str = "double factorial";

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It has none: a division by zero, the logarithm of zero.
    Undefined,
    /// More bits may help.
    Imprecise,
    /// A number on the way is beyond all bounds.
    TooLarge,
    /// Not a kind of expression that has a number for its value.
    Unsupported,
    /// The comparison's budget is spent.
    Spent,
}

impl From<Spent> for Fault {
    fn from(Spent: Spent) -> Self {
        Fault::Spent
    }
}

/// Gives names that are only equal to themselves a number each.
pub(super) trait Opaques {
    fn value(&self, name: &str, parts: &[Expr]) -> Result<BigRational, Fault>;
}

/// One evaluation, and what it has come across.
pub(super) struct Evaluator<'a> {
    pub(super) bits: u64,
    pub(super) budget: &'a Budget,
    pub(super) opaques: &'a dyn Opaques,
    /// Largest size of a binary exponent of any value on the way.
    pub(super) extent: Cell<i64>,
    /// Whether a root or a logarithm of a negative number was taken.
    pub(super) left_reals: Cell<bool>,
    /// Binary logarithm of the degree of the field that the radicals span.
    pub(super) degree: Cell<f64>,
    radicals: RefCell<HashSet<String>>,
}

type Evaluated = Result<Value, Fault>;

impl<'a> Evaluator<'a> {
    pub(super) fn new(bits: u64, budget: &'a Budget, opaques: &'a dyn Opaques) -> Self {
        Self {
            bits,
            budget,
            opaques,
            extent: Cell::new(0),
            left_reals: Cell::new(false),
            degree: Cell::new(0.0),
            radicals: RefCell::default(),
        }
    }

    pub(super) fn evaluate(&self, expr: &Expr) -> Evaluated {
        let value = self.node(expr)?;
        let top = match &value {
            Value::Exact(value) if value.is_zero() => 0,
            Value::Exact(value) => {
                let bits = |n: &BigInt| i64::try_from(n.bits()).unwrap_or(i64::MAX);
                bits(value.numer()).max(bits(value.denom()))
            }
            // How small such a value is isn't known.
            Value::Enclosed(value, _) if value.contains_zero() => 0,
            Value::Enclosed(value, _) => value.top().saturating_abs(),
        };
        if top > TOP {
            return Err(Fault::TooLarge);
        }
        self.extent.set(self.extent.get().max(top));
        Ok(value)
    }

    fn node(&self, expr: &Expr) -> Evaluated {
        self.budget.pay_steps(8)?;
        match expr {
            Expr::Rational(value) => Ok(Value::Exact(value.clone())),
            Expr::Decimal(decimal) => Ok(Value::Exact(decimal.value.clone())),
            Expr::Constant(constant) => self.constant(*constant),
            Expr::Sum(items) => {
                let mut sum = Value::Exact(BigRational::zero());
                for item in items {
                    sum = self.plus(&sum, &self.evaluate(item)?)?;
                }
                Ok(sum)
            }
            Expr::Product(items) => {
                let mut product = Value::Exact(BigRational::one());
                for item in items {
                    product = self.times(&product, &self.evaluate(item)?)?;
                }
                Ok(product)
            }
            Expr::Quotient(parts) => {
                self.over(&self.evaluate(&parts.0)?, &self.evaluate(&parts.1)?)
            }
            Expr::Negative(inner) => self.negative(&self.evaluate(inner)?),
            Expr::Power(parts) => self.power(&parts.0, &parts.1),
            Expr::Root(parts) => self.root(
                &parts.0,
                &BigRational::new(BigInt::one(), parts.1.into()),
                true,
            ),
            Expr::Function(function, inner) => self.function(*function, inner),
            Expr::Factorial(inner) => self.factorial(inner),
            Expr::Binomial(parts) => self.binomial(&parts.0, &parts.1),
            Expr::Fold(fold, items) => self.fold(*fold, items),
            Expr::Percent(inner) => {
                let hundred = Value::Exact(BigRational::from_integer(100.into()));
                self.over(&self.evaluate(inner)?, &hundred)
            }
            Expr::Degrees(inner) => {
                let degree = Value::Exact(BigRational::new(1.into(), 180.into()));
                let turns = self.times(&self.evaluate(inner)?, &degree)?;
                self.times(&turns, &self.constant(Constant::Pi)?)
            }
            Expr::Opaque(name, parts) if name == DOUBLE_FACTORIAL && parts.len() == 1 => {
                self.double_factorial(&parts[0])
            }
            Expr::Opaque(name, parts) => Ok(Value::Exact(self.opaques.value(name, parts)?)),
            _ => Err(Fault::Unsupported),
        }
    }

    fn constant(&self, constant: Constant) -> Evaluated {
        self.budget.pay(self.bits * 4)?;
        match constant {
            Constant::Pi => Ok(real(elementary::pi(self.bits))),
            Constant::Euler => {
                let e = elementary::exp(&Real::integer(1), self.bits);
                e.map(real).ok_or(Fault::TooLarge)
            }
            Constant::Imaginary => {
                self.note_radical(2, || "i".into());
                let size = Separation {
                    upper: 0.0,
                    lower: 0.0,
                };
                let value = Complex {
                    re: Real::integer(0),
                    im: Real::integer(1),
                };
                Ok(Value::Enclosed(value, Some(size)))
            }
            Constant::Infinity | Constant::EmptySet => Err(Fault::Unsupported),
        }
    }

    fn plus(&self, a: &Value, b: &Value) -> Evaluated {
        self.pay_for(a, b)?;
        if let (Value::Exact(a), Value::Exact(b)) = (a, b) {
            return Ok(self.exact(exact::sum(a, b)));
        }
        let separation = both(a, b, Separation::plus);
        let sum = a.complex(self.bits).plus(&b.complex(self.bits), self.bits);
        Ok(Value::Enclosed(sum, separation))
    }

    fn times(&self, a: &Value, b: &Value) -> Evaluated {
        self.pay_for(a, b)?;
        if let (Value::Exact(a), Value::Exact(b)) = (a, b) {
            return Ok(self.exact(exact::product(a, b)));
        }
        if a.is_exactly_zero() || b.is_exactly_zero() {
            return Ok(Value::Exact(BigRational::zero()));
        }
        let separation = both(a, b, Separation::times);
        let product = a.complex(self.bits).times(&b.complex(self.bits), self.bits);
        Ok(Value::Enclosed(product, separation))
    }

    fn over(&self, a: &Value, b: &Value) -> Evaluated {
        self.pay_for(a, b)?;
        if b.is_exactly_zero() {
            return Err(Fault::Undefined);
        }
        if let (Value::Exact(a), Value::Exact(b)) = (a, b) {
            return Ok(self.exact(exact::quotient(a, b)));
        }
        let separation = both(a, b, |a, b| a.times(b.inverted()));
        let quotient = a
            .complex(self.bits)
            .over(&b.complex(self.bits), self.bits)?;
        Ok(Value::Enclosed(quotient, separation))
    }

    fn negative(&self, a: &Value) -> Evaluated {
        Ok(match a {
            Value::Exact(value) => Value::Exact(-value),
            Value::Enclosed(value, separation) => Value::Enclosed(value.negated(), *separation),
        })
    }

    /// A rational, as long as it stays within bounds.
    fn exact(&self, value: BigRational) -> Value {
        if value.numer().bits().max(value.denom().bits()) <= EXACT_BITS {
            return Value::Exact(value);
        }
        let separation = Separation::of(&value);
        Value::Enclosed(
            Complex::real(Real::rational(&value, self.bits)),
            Some(separation),
        )
    }

    fn pay_for(&self, a: &Value, b: &Value) -> Result<(), Fault> {
        let (left, right) = (a.bits(self.bits), b.bits(self.bits));
        let is_whole = |value: &Value| matches!(value, Value::Exact(value) if value.is_integer());
        if is_whole(a) && is_whole(b) {
            return Ok(self.budget.pay_product(left, right)?);
        }
        // Reducing a share to lowest terms costs about as much as a product.
        let is_exact = matches!((a, b), (Value::Exact(_), Value::Exact(_)));
        let factor = if is_exact { 3 } else { 1 };
        for _ in 0..factor {
            self.budget.pay(left.max(right))?;
        }
        Ok(())
    }

    fn power(&self, base: &Expr, exponent: &Expr) -> Evaluated {
        let power = self.evaluate(exponent)?;
        if let Value::Exact(power) = &power {
            if power.is_integer() {
                return self.whole_power(&self.evaluate(base)?, power.numer());
            }
            // The real root is meant by 1/3 where that is written out, not where a variable
            // happens to have this value.
            let is_written = !matches!(exponent, Expr::Rational(_)) && exponent.literal().is_some();
            return self.root(base, power, is_written);
        }
        if *base == Expr::Constant(Constant::Euler) {
            self.budget.pay(self.bits * ELEMENTARY)?;
            return Ok(enclosed(power.complex(self.bits).exp(self.bits)?));
        }
        let base = self.evaluate(base)?;
        if base.is_exactly_zero() {
            return Err(Fault::Undefined);
        }
        let base = base.complex(self.bits);
        self.note_cut(&base);
        self.budget.pay(self.bits * ELEMENTARY)?;
        let logarithm = base.ln(self.bits)?;
        let product = logarithm.times(&power.complex(self.bits), self.bits);
        Ok(enclosed(product.exp(self.bits)?))
    }

    fn whole_power(&self, base: &Value, exponent: &BigInt) -> Evaluated {
        let count = exponent.magnitude().to_u64();
        if exponent.is_negative() {
            let power = self.whole_power(base, &-exponent)?;
            return self.over(&Value::Exact(BigRational::one()), &power);
        }
        if exponent.is_zero() {
            return Ok(Value::Exact(BigRational::one()));
        }
        if let Value::Exact(value) = base {
            if value.is_zero() || value.is_one() {
                return Ok(base.clone());
            }
            if (-value).is_one() {
                let is_even = exponent.is_even();
                return Ok(Value::Exact(if is_even { -value } else { value.clone() }));
            }
        }
        let count = count.ok_or(Fault::TooLarge)?;
        if let Value::Exact(value) = base {
            let bits = power_bits(value.numer(), count).max(power_bits(value.denom(), count));
            if bits <= EXACT_BITS {
                self.budget.pay(bits)?;
                let count = u32::try_from(count).map_err(|_| Fault::TooLarge)?;
                return Ok(Value::Exact(exact::power(value, count)));
            }
        }
        let separation = base.separation().map(|s| s.power(count));
        let mut square = base.complex(self.bits);
        let mut result: Option<Complex> = None;
        let mut rest = count;
        loop {
            self.budget.pay(self.bits * 2)?;
            if rest & 1 == 1 {
                result = Some(match result {
                    Some(result) => result.times(&square, self.bits),
                    None => square.clone(),
                });
            }
            rest >>= 1;
            if rest == 0 {
                break;
            }
            square = square.times(&square, self.bits);
            if square.top().saturating_abs() > TOP && !square.contains_zero() {
                return Err(Fault::TooLarge);
            }
        }
        let result = result.ok_or(Fault::Unsupported)?;
        Ok(Value::Enclosed(result, separation))
    }

    /// A power with a share as its exponent. Odd roots of negative numbers are the real ones where
    /// `is_written` says that a root is meant.
    fn root(&self, radicand: &Expr, exponent: &BigRational, is_written: bool) -> Evaluated {
        let base = self.evaluate(radicand)?;
        let degree = exponent.denom().to_u32().ok_or(Fault::TooLarge)?;
        let is_positive_power = exponent.is_positive();
        if base.is_exactly_zero() {
            return if is_positive_power {
                Ok(Value::Exact(BigRational::zero()))
            } else {
                Err(Fault::Undefined)
            };
        }
        if let Value::Exact(value) = &base {
            self.budget.pay(base.bits(self.bits))?;
            if let Some(root) = rational_root(value, degree) {
                return self.whole_power(&Value::Exact(root), exponent.numer());
            }
        }
        let separation = base.separation().map(|s| s.root(degree));
        if separation.is_some() {
            self.note_radical(degree, || format!("{degree} {radicand:?}"));
        }
        let number = base.complex(self.bits);
        self.budget.pay(self.bits * 3)?;
        let root = if !number.is_real() {
            self.note_cut(&number);
            self.root_by_logarithm(&number, degree)?
        } else if number.re.is_positive() {
            Complex::real(self.positive_root(&number.re, degree)?)
        } else if number.re.is_negative() {
            let size = self.positive_root(&number.re.negated(), degree)?;
            if degree % 2 == 1 && is_written {
                Complex::real(size.negated())
            } else {
                self.left_reals.set(true);
                // The principal root has the angle π/degree.
                if degree == 2 {
                    self.note_radical(2, || "i".into());
                    Complex {
                        re: Real::integer(0),
                        im: size,
                    }
                } else {
                    self.root_by_logarithm(&number, degree)?
                }
            }
        } else {
            return Err(Fault::Imprecise);
        };
        self.whole_power(&Value::Enclosed(root, separation), exponent.numer())
    }

    fn positive_root(&self, value: &Real, degree: u32) -> Result<Real, Fault> {
        if degree <= ROOT_DEGREE {
            return Ok(value.root(degree, self.bits));
        }
        let root = self.root_by_logarithm(&Complex::real(value.clone()), degree)?;
        Ok(root.re)
    }

    fn root_by_logarithm(&self, value: &Complex, degree: u32) -> Result<Complex, Fault> {
        self.budget.pay(self.bits * ELEMENTARY)?;
        let share = BigRational::new(BigInt::one(), degree.into());
        let share = Complex::real(Real::rational(&share, self.bits));
        value.ln(self.bits)?.times(&share, self.bits).exp(self.bits)
    }

    fn function(&self, function: Function, inner: &Expr) -> Evaluated {
        let value = self.evaluate(inner)?;
        if let Value::Exact(value) = &value {
            match function {
                Function::Abs => return Ok(Value::Exact(value.abs())),
                Function::Floor => return Ok(Value::Exact(value.floor())),
                Function::Ceil => return Ok(Value::Exact(value.ceil())),
                _ => {}
            }
        }
        self.budget.pay(self.bits * ELEMENTARY)?;
        let bits = self.bits;
        let number = value.complex(bits);
        let one = || Complex::real(Real::integer(1));
        match function {
            Function::Exp => return Ok(enclosed(number.exp(bits)?)),
            Function::Abs if number.is_real() => {
                let size = Complex::real(number.re.size());
                return Ok(Value::Enclosed(size, value.separation()));
            }
            Function::Abs => return Ok(real(number.size(bits))),
            Function::Ln | Function::Log10 => {
                if value.is_exactly_zero() {
                    return Err(Fault::Undefined);
                }
                self.note_cut(&number);
                let logarithm = number.ln(bits)?;
                if function == Function::Ln {
                    return Ok(enclosed(logarithm));
                }
                let ten = elementary::ln(&Real::integer(10), bits).ok_or(Fault::Imprecise)?;
                return Ok(enclosed(logarithm.over(&Complex::real(ten), bits)?));
            }
            Function::Sinh | Function::Cosh | Function::Tanh => {
                let (plus, minus) = (number.exp(bits)?, number.negated().exp(bits)?);
                let half = Real::rational(&BigRational::new(1.into(), 2.into()), bits);
                let half = Complex::real(half);
                let sinh = plus.plus(&minus.negated(), bits).times(&half, bits);
                let cosh = plus.plus(&minus, bits).times(&half, bits);
                return Ok(enclosed(match function {
                    Function::Sinh => sinh,
                    Function::Cosh => cosh,
                    _ => sinh.over(&cosh, bits)?,
                }));
            }
            _ => {}
        }
        let x = number.as_real()?;
        let trigonometric = || {
            let (sin, cos) = elementary::sin_cos(x, bits).ok_or(Fault::TooLarge)?;
            Ok::<_, Fault>((Complex::real(sin), Complex::real(cos)))
        };
        Ok(match function {
            Function::Sin => enclosed(trigonometric()?.0),
            Function::Cos => enclosed(trigonometric()?.1),
            Function::Tan => {
                let (sin, cos) = trigonometric()?;
                enclosed(sin.over(&cos, bits)?)
            }
            Function::Cot => {
                let (sin, cos) = trigonometric()?;
                enclosed(cos.over(&sin, bits)?)
            }
            Function::Sec => enclosed(one().over(&trigonometric()?.1, bits)?),
            Function::Csc => enclosed(one().over(&trigonometric()?.0, bits)?),
            Function::Arctan => real(elementary::atan(x, bits).ok_or(Fault::Imprecise)?),
            Function::Arcsin => real(self.arcsin(x)?),
            Function::Arccos => {
                let half = Real::rational(&BigRational::new(1.into(), 2.into()), bits);
                let quarter = elementary::pi(bits).times(&half, bits);
                real(quarter.minus(&self.arcsin(x)?, bits))
            }
            Function::Floor | Function::Ceil => {
                let shift = |x: &super::real::Float| match function {
                    Function::Floor => x.fixed(0),
                    _ => -super::real::Float::new(-&x.mantissa, x.exponent).fixed(0),
                };
                if x.top() > i64::try_from(bits).unwrap_or(0) || shift(&x.low) != shift(&x.high) {
                    return Err(Fault::Imprecise);
                }
                Value::Exact(BigRational::from_integer(shift(&x.low)))
            }
            _ => return Err(Fault::Unsupported),
        })
    }

    fn arcsin(&self, x: &Real) -> Result<Real, Fault> {
        let bits = self.bits;
        let one = Real::integer(1);
        let rest = one.minus(&x.times(x, bits), bits);
        if rest.is_negative() {
            // Beyond the reals.
            return Err(Fault::Undefined);
        }
        if x.is_exact() && rest.is_exactly_zero() {
            let half = BigRational::new(if x.is_positive() { 1 } else { -1 }.into(), 2.into());
            return Ok(elementary::pi(bits).times(&Real::rational(&half, bits), bits));
        }
        let ratio = x.over(&rest.root(2, bits), bits).ok_or(Fault::Imprecise)?;
        elementary::atan(&ratio, bits).ok_or(Fault::Imprecise)
    }

    fn factorial(&self, inner: &Expr) -> Evaluated {
        let Value::Exact(value) = self.evaluate(inner)? else {
            return Err(Fault::Unsupported);
        };
        if !value.is_integer() || value.is_negative() {
            return Err(Fault::Undefined);
        }
        let n = value.numer().to_u32().filter(|n| *n <= FACTORIAL);
        let n = n.ok_or(Fault::TooLarge)?;
        self.budget.pay_steps(u64::from(n) * u64::from(n) / 16)?;
        let product = (2..=n).fold(BigInt::one(), |product, k| product * k);
        Ok(Value::Exact(BigRational::from_integer(product)))
    }

    fn double_factorial(&self, inner: &Expr) -> Evaluated {
        let Value::Exact(value) = self.evaluate(inner)? else {
            return Err(Fault::Unsupported);
        };
        if !value.is_integer() || value.is_negative() {
            return Err(Fault::Undefined);
        }
        let n = value.numer().to_u32().filter(|n| *n <= FACTORIAL);
        let n = n.ok_or(Fault::TooLarge)?;
        self.budget.pay_steps(u64::from(n) * u64::from(n) / 32)?;
        let factors = (2..=n).filter(|k| k % 2 == n % 2);
        let product = factors.fold(BigInt::one(), |product, k| product * k);
        Ok(Value::Exact(BigRational::from_integer(product)))
    }

    /// The greatest common divisor, the least common multiple, the largest or the smallest of several
    /// values.
    fn fold(&self, fold: Fold, items: &[Expr]) -> Evaluated {
        let mut items = items.iter();
        let mut value = self.evaluate(items.next().ok_or(Fault::Unsupported)?)?;
        for item in items {
            let other = self.evaluate(item)?;
            self.pay_for(&value, &other)?;
            value = match fold {
                Fold::Gcd | Fold::Lcm => self.by_divisors(fold, &value, &other)?,
                Fold::Max | Fold::Min => {
                    let is_larger = self.is_larger(&other, &value)?;
                    if is_larger == (fold == Fold::Max) {
                        other
                    } else {
                        value
                    }
                }
            };
        }
        Ok(value)
    }

    fn by_divisors(&self, fold: Fold, a: &Value, b: &Value) -> Evaluated {
        let (Value::Exact(a), Value::Exact(b)) = (a, b) else {
            return Err(Fault::Unsupported);
        };
        if !a.is_integer() || !b.is_integer() {
            return Err(Fault::Undefined);
        }
        let (a, b) = (a.numer(), b.numer());
        let bits = a.bits().max(b.bits());
        if bits > DIVISOR_BITS {
            return Err(Fault::TooLarge);
        }
        self.budget.pay_steps(bits * (bits / 64 + 2))?;
        let value = match fold {
            Fold::Gcd => a.gcd(b),
            _ => a.lcm(b),
        };
        Ok(self.exact(BigRational::from_integer(value)))
    }

    /// Whether one real value is larger than another.
    fn is_larger(&self, a: &Value, b: &Value) -> Result<bool, Fault> {
        if let (Value::Exact(a), Value::Exact(b)) = (a, b) {
            return Ok(a > b);
        }
        let difference = a
            .complex(self.bits)
            .plus(&b.complex(self.bits).negated(), self.bits);
        let difference = difference.as_real()?;
        if difference.contains_zero() {
            return Err(Fault::Imprecise);
        }
        Ok(difference.is_positive())
    }

    fn binomial(&self, upper: &Expr, lower: &Expr) -> Evaluated {
        let (Value::Exact(n), Value::Exact(k)) = (self.evaluate(upper)?, self.evaluate(lower)?)
        else {
            return Err(Fault::Unsupported);
        };
        if !n.is_integer() || !k.is_integer() || n.is_negative() {
            return Err(Fault::Undefined);
        }
        if k.is_negative() || k > n {
            return Ok(Value::Exact(BigRational::zero()));
        }
        let k = k.clone().min(&n - k).numer().to_u32();
        let k = k.filter(|k| *k <= FACTORIAL).ok_or(Fault::TooLarge)?;
        let mut product = BigInt::one();
        for i in 0..k {
            self.budget.pay_steps(product.bits() / 64 + 2)?;
            product = product * (n.numer() - i) / (i + 1);
            if product.bits() > EXACT_BITS {
                return Err(Fault::TooLarge);
            }
        }
        Ok(Value::Exact(BigRational::from_integer(product)))
    }

    /// Roots, powers and logarithms of negative and complex numbers depend on a branch.
    fn note_cut(&self, value: &Complex) {
        if !value.is_real() || value.re.is_negative() {
            self.left_reals.set(true);
        }
    }

    /// Counts each radical of the expression once.
    fn note_radical(&self, degree: u32, key: impl FnOnce() -> String) {
        if self.radicals.borrow_mut().insert(key()) {
            self.degree
                .set(self.degree.get() + f64::from(degree).log2());
        }
    }
}

/// Bits of a power; for large bases rounded up.
fn power_bits(base: &BigInt, exponent: u64) -> u64 {
    match base.magnitude().to_u32() {
        Some(0 | 1) => 1,
        Some(small) => {
            let size =
                f64::from(small).log2() * f64::from(u32::try_from(exponent).unwrap_or(u32::MAX));
            // A float becomes the nearest whole number that there is.
            size as u64 + 1
        }
        None => base.bits().saturating_mul(exponent),
    }
}

fn real(value: Real) -> Value {
    enclosed(Complex::real(value))
}

fn enclosed(value: Complex) -> Value {
    Value::Enclosed(value, None)
}

fn both(
    a: &Value,
    b: &Value,
    combine: impl Fn(Separation, Separation) -> Separation,
) -> Option<Separation> {
    Some(combine(a.separation()?, b.separation()?))
}
