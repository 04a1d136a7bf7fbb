//! Whether two values are the same.
//!
//! Values without variables are enclosed ever more finely. Enclosures that don't touch prove the
//! two different. Rationals are compared exactly; other algebraic numbers are proved equal where
//! the difference is below the separation bound of its expression. For the rest (π, e, logarithms,
//! angles) the two count as equal when they agree to a number of bits far beyond the size of every
//! number on the way and of the expressions themselves; short of that the outcome is undecided.
//!
//! Values with variables are compared at rational points that depend on both texts, so nobody can
//! choose answers that agree at all of them.

use std::cell::{Cell, RefCell};

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Signed, Zero};

use super::Outcome;
use super::budget::Budget;
use super::compare::equivalent;
use super::evaluate::{DOUBLE_FACTORIAL, Evaluator, Fault, Opaques};
use super::exact;
use super::expression::{Constant, Expr, Fold};
use super::number::Value;

/// Bits of the enclosures, one after the other.
const PRECISIONS: [u64; 5] = [128, 512, 2_048, 8_192, 24_576];
/// Agreement below this many bits never makes two values equal without a proof.
const AGREEMENT_BITS: i64 = 256;
/// A separation bound of so many bits is waited for.
const PROOF_BITS: f64 = 1_900.0;
/// Times that values with opaque names have to agree.
const OPAQUE_DRAWS: u32 = 4;
/// Points at which values with variables have to agree.
const USABLE_POINTS: usize = 4;
/// Rounds of points with all variables positive, then with either sign, then whole and positive.
const ROUNDS: [std::ops::Range<u32>; 3] = [0..4, 4..7, 7..17];

/// Decides with one budget; equal names get equal values over its life.
pub(super) struct Decider<'a> {
    budget: &'a Budget,
    /// Mixed into every point.
    seed: blake3::Hash,
    opaques: RefCell<Vec<(String, Vec<Expr>)>>,
    /// Mixed into the numbers that opaque names get: another one at every point.
    draw: Cell<u32>,
}

/// What one point says.
enum AtPoint {
    Same,
    Different,
    /// Outside the domain of both, or of one.
    Unusable,
    Undecided,
}

impl<'a> Decider<'a> {
    /// `texts` are the two answers.
    pub(super) fn new(budget: &'a Budget, texts: [&str; 2]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for text in texts {
            hasher.update(text.as_bytes());
            hasher.update(&[0]);
        }
        Self {
            budget,
            seed: hasher.finalize(),
            opaques: RefCell::default(),
            draw: Cell::default(),
        }
    }

    /// Whether two scalar expressions have the same value, for all values of their variables at
    /// which both have one.
    pub(super) fn same(&self, a: &Expr, b: &Expr) -> Outcome {
        if a == b {
            return Outcome::Equal;
        }
        // Parts of names are compared while values are drawn for the whole.
        let draw = self.draw.get();
        let outcome = self.same_value(a, b);
        self.draw.set(draw);
        outcome
    }

    fn same_value(&self, a: &Expr, b: &Expr) -> Outcome {
        self.budget.pay_steps(a.size() + b.size()).ok();
        let mut names = a.variables();
        for name in b.variables() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() {
            return self.same_constant(a, b);
        }
        let is_complex =
            |expr: &Expr| expr.any(&|part| *part == Expr::Constant(Constant::Imaginary));
        let is_complex = is_complex(a) || is_complex(b);
        let needs_whole = |expr: &Expr| {
            expr.any(&|part| {
                let is_whole = match part {
                    Expr::Factorial(_) | Expr::Binomial(_) => true,
                    Expr::Fold(fold, _) => matches!(fold, Fold::Gcd | Fold::Lcm),
                    Expr::Opaque(name, _) => name == DOUBLE_FACTORIAL,
                    _ => false,
                };
                is_whole && !part.variables().is_empty()
            })
        };
        let needs_whole = needs_whole(a) || needs_whole(b);
        let mut usable = 0;
        for (kind, rounds) in ROUNDS.into_iter().enumerate() {
            if needs_whole && kind < 2 {
                continue;
            }
            for round in rounds {
                if kind == 2 && usable >= USABLE_POINTS {
                    break;
                }
                self.draw.set(round);
                let at = |expr: &Expr| self.substituted(expr, &names, round, kind);
                // Where they agree once, the coarse precision shows nothing more.
                let first = usize::from(usable > 0);
                match self.at_point(&at(a), &at(b), is_complex, first) {
                    AtPoint::Same => usable += 1,
                    AtPoint::Different => return Outcome::Different,
                    AtPoint::Undecided => return Outcome::Undecided,
                    AtPoint::Unusable => {}
                }
            }
        }
        if usable >= USABLE_POINTS {
            Outcome::Equal
        } else {
            Outcome::Undecided
        }
    }

    /// Whether two expressions without variables have the same value. Names that are only equal to
    /// themselves may happen to get the other's value once, but not every time.
    fn same_constant(&self, a: &Expr, b: &Expr) -> Outcome {
        let has_names = |expr: &Expr| expr.any(&|part| matches!(part, Expr::Opaque(..)));
        let draws = if has_names(a) || has_names(b) {
            OPAQUE_DRAWS
        } else {
            1
        };
        for draw in 0..draws {
            self.draw.set(draw);
            match self.at_point(a, b, true, 0) {
                AtPoint::Same => {}
                AtPoint::Different => return Outcome::Different,
                // Too large to be computed with, perhaps with parts that aren't.
                _ if self.folded(a) == self.folded(b) => {}
                AtPoint::Unusable | AtPoint::Undecided => return Outcome::Undecided,
            }
        }
        Outcome::Equal
    }

    /// Whether `f` is `g` times a constant other than zero, and if so whether that is positive.
    pub(super) fn proportion(&self, f: &Expr, g: &Expr) -> (Outcome, Option<bool>) {
        let mut names = f.variables();
        for name in g.variables() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        // A point at which neither is zero.
        for round in 100..110 {
            let at = |expr: &Expr| self.substituted(expr, &names, round, 0);
            let (f0, g0) = (at(f), at(g));
            let (Some(sign_f), Some(sign_g)) = (self.sign(&f0), self.sign(&g0)) else {
                continue;
            };
            let left = Expr::Product(vec![f.clone(), g0]);
            let right = Expr::Product(vec![g.clone(), f0]);
            return (self.same(&left, &right), Some(sign_f == sign_g));
        }
        (Outcome::Undecided, None)
    }

    /// The value of an expression without variables where it is rational and found exactly.
    pub(super) fn exact(&self, value: &Expr) -> Option<BigRational> {
        let evaluator = Evaluator::new(PRECISIONS[0], self.budget, self);
        match evaluator.evaluate(value) {
            Ok(Value::Exact(value)) => Some(value),
            _ => None,
        }
    }

    /// Whether a value without variables is positive; `None` where it is zero or not real.
    pub(super) fn sign(&self, value: &Expr) -> Option<bool> {
        for bits in PRECISIONS {
            let evaluator = Evaluator::new(bits, self.budget, self);
            match evaluator.evaluate(value) {
                Ok(Value::Exact(value)) => {
                    return (!value.is_zero()).then(|| value.is_positive());
                }
                Ok(Value::Enclosed(value, _)) => {
                    if !value.is_real() {
                        return None;
                    }
                    if !value.re.contains_zero() {
                        return Some(value.re.is_positive());
                    }
                }
                Err(Fault::Imprecise) => {}
                Err(_) => return None,
            }
        }
        None
    }

    fn at_point(&self, a: &Expr, b: &Expr, is_complex: bool, first: usize) -> AtPoint {
        // Several points together need no proof at each.
        let is_proof_wanted = first == 0;
        for &bits in &PRECISIONS[first..] {
            let evaluator = Evaluator::new(bits, self.budget, self);
            let values = (evaluator.evaluate(a), evaluator.evaluate(b));
            if evaluator.left_reals.get() && !is_complex {
                return AtPoint::Unusable;
            }
            let (a, b) = match values {
                (Err(Fault::Spent), _) | (_, Err(Fault::Spent)) => return AtPoint::Undecided,
                (Err(Fault::Imprecise), _) | (_, Err(Fault::Imprecise)) => continue,
                (Err(Fault::Undefined), Ok(_)) | (Ok(_), Err(Fault::Undefined)) if is_complex => {
                    return AtPoint::Different;
                }
                (Err(Fault::Undefined), _) | (_, Err(Fault::Undefined)) => {
                    return AtPoint::Unusable;
                }
                (Err(_), _) | (_, Err(_)) => return AtPoint::Undecided,
                (Ok(a), Ok(b)) => (a, b),
            };
            if let (Value::Exact(a), Value::Exact(b)) = (&a, &b) {
                return if exact::is_same(a, b) {
                    AtPoint::Same
                } else {
                    AtPoint::Different
                };
            }
            let difference = a.complex(bits).plus(&b.complex(bits).negated(), bits);
            if !difference.contains_zero() {
                return AtPoint::Different;
            }
            let top = difference.top();
            if let (Some(a), Some(b)) = (a.separation(), b.separation()) {
                let size = a.plus(b);
                let degree = evaluator.degree.get().exp2();
                let separation = size.lower + (degree - 1.0) * size.upper + 2.0;
                if as_float(top) < -separation {
                    return AtPoint::Same;
                }
                if is_proof_wanted && separation < PROOF_BITS {
                    continue;
                }
            }
            if self.agree(bits, top, evaluator.extent.get()) {
                return AtPoint::Same;
            }
        }
        AtPoint::Undecided
    }

    /// Whether a difference below `2^top` at so many bits is as good as none.
    fn agree(&self, bits: u64, top: i64, extent: i64) -> bool {
        let needed = AGREEMENT_BITS.saturating_add(extent.saturating_mul(2));
        let reached = top.saturating_neg();
        reached > needed && i64::try_from(bits).is_ok_and(|bits| bits > needed)
    }

    /// The expression with a rational number for every variable.
    fn substituted(&self, expr: &Expr, names: &[&str], round: u32, kind: usize) -> Expr {
        match expr {
            Expr::Variable(name) if names.contains(&name.as_str()) => {
                Expr::Rational(self.coordinate(name, round, kind))
            }
            _ => expr.map(|part| self.substituted(part, names, round, kind)),
        }
    }

    /// The expression with exact values for its parts, where they have one.
    fn folded(&self, expr: &Expr) -> Expr {
        if matches!(expr, Expr::Rational(_)) {
            return expr.clone();
        }
        if expr.is_scalar()
            && let Some(value) = self.exact(expr)
        {
            return Expr::Rational(value);
        }
        expr.map(|part| self.folded(part))
    }

    fn coordinate(&self, name: &str, round: u32, kind: usize) -> BigRational {
        // Small, medium and large values in turn, for functions with narrow domains.
        const SCALES: [u32; 6] = [1, 3, 12, 2, 40, 1];
        let random = self.random(&[b"point", name.as_bytes(), &round.to_le_bytes()]);
        let (upper, lower, sign) = (random[0], random[1], random[2]);
        if kind == 2 {
            return BigRational::from_integer((upper % 17 + 2).into());
        }
        let scale = SCALES[round as usize % SCALES.len()];
        let lower = 64 + lower % 64;
        let upper = 1 + upper % (lower * scale);
        let value = BigRational::new(upper.into(), lower.into());
        // All variables are negative at the first of these points.
        if kind == 1 && (round == ROUNDS[1].start || sign % 2 == 0) {
            -value
        } else {
            value
        }
    }

    fn random(&self, parts: &[&[u8]]) -> [u32; 3] {
        let mut hasher = blake3::Hasher::new_keyed(self.seed.as_bytes());
        for part in parts {
            hasher.update(part);
            hasher.update(&[0]);
        }
        let bytes = *hasher.finalize().as_bytes();
        let word =
            |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        [word(0) % 4_096, word(4), word(8)]
    }
}

impl Opaques for Decider<'_> {
    /// A random number for every name with parts; the same for parts of the same value.
    fn value(&self, name: &str, parts: &[Expr]) -> Result<BigRational, Fault> {
        self.budget.pay_steps(64)?;
        let parts: Vec<Expr> = parts.iter().map(|part| self.folded(part)).collect();
        let known: Vec<(usize, Vec<Expr>)> = {
            let opaques = self.opaques.borrow();
            let same_name = opaques.iter().enumerate();
            same_name
                .filter(|(_, known)| known.0 == name && known.1.len() == parts.len())
                .map(|(index, known)| (index, known.1.clone()))
                .collect()
        };
        let mut found = None;
        for (index, known) in known {
            let outcomes: Vec<Outcome> = known
                .iter()
                .zip(&parts)
                .map(|(a, b)| equivalent(a, b, self))
                .collect();
            if outcomes.iter().all(|outcome| *outcome == Outcome::Equal) {
                found = Some(index);
                break;
            }
            if !outcomes.contains(&Outcome::Different) {
                // Not known to be another name.
                return Err(Fault::TooLarge);
            }
        }
        let index = match found {
            Some(index) => index,
            None => {
                let mut opaques = self.opaques.borrow_mut();
                opaques.push((name.to_owned(), parts));
                opaques.len() - 1
            }
        };
        let draw = self.draw.get().to_le_bytes();
        let random = self.random(&[b"opaque", &index.to_le_bytes(), &draw]);
        Ok(BigRational::new(
            BigInt::from(random[0] + 64),
            BigInt::from(random[1] % 61 + 64),
        ))
    }
}

fn as_float(value: i64) -> f64 {
    i32::try_from(value).map_or(if value < 0 { f64::MIN } else { f64::MAX }, f64::from)
}
