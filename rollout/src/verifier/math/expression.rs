//! What an answer says, once read.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::Zero;

use super::units::Unit;

/// A value or a structure of values.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    /// A whole number or an exact share.
    Rational(BigRational),
    /// A number written with a decimal point.
    Decimal(Decimal),
    Constant(Constant),
    Variable(String),
    Sum(Vec<Expr>),
    Product(Vec<Expr>),
    Quotient(Box<(Expr, Expr)>),
    Negative(Box<Expr>),
    /// `±x`; `false` for `∓x`. All signs of one expression go together.
    PlusMinus(bool, Box<Expr>),
    Power(Box<(Expr, Expr)>),
    /// Radicand and degree.
    Root(Box<(Expr, u32)>),
    Function(Function, Box<Expr>),
    Factorial(Box<Expr>),
    Binomial(Box<(Expr, Expr)>),
    /// One value made of several, such as the largest of them.
    Fold(Fold, Vec<Expr>),
    Degrees(Box<Expr>),
    Percent(Box<Expr>),
    /// A name with parts that is only ever equal to itself: `f(x)`, `a_{n+1}`, a sum or an integral, a
    /// decimal that goes on in ways not known.
    Opaque(String, Vec<Expr>),
    /// A numeral of another base, with its digits.
    Numeral(String, u32),
    Matrix(Vec<Vec<Expr>>),
    /// A tuple, a point or an interval, with its brackets.
    Bracket(char, Vec<Expr>, char),
    Set(Vec<Expr>),
    Union(Vec<Expr>),
    /// Several answers, in the order in which they are written.
    List(Vec<Expr>),
    /// `a < b ≤ c`: the first member, then each sign with what follows it.
    Relation(Box<Expr>, Vec<(Sign, Expr)>),
    /// `a : b`, with the parts as they are written where these could be a time of day.
    Ratio(Vec<Expr>, Option<Clock>),
    Text(String),
    Measured(Box<Expr>, Unit),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decimal {
    pub(super) value: BigRational,
    /// Digits after the point.
    pub(super) places: u32,
    /// Digits from the first that isn't zero.
    pub(super) significant: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Constant {
    Pi,
    Euler,
    Imaginary,
    Infinity,
    EmptySet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Sin,
    Cos,
    Tan,
    Cot,
    Sec,
    Csc,
    Arcsin,
    Arccos,
    Arctan,
    Sinh,
    Cosh,
    Tanh,
    Exp,
    Ln,
    Log10,
    Abs,
    Floor,
    Ceil,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    Gcd,
    Lcm,
    Max,
    Min,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
    In,
    /// `a ≈ b`.
    Near,
    /// `a ≡ b`, `a → b` and the like: only ever equal to itself.
    Other,
}

/// Seconds since midnight, where a time of day is meant at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    pub(super) seconds: u32,
    /// Whether a.m. or p.m. stands there.
    pub(super) is_marked: bool,
}

impl Function {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "sin" => Self::Sin,
            "cos" => Self::Cos,
            "tan" | "tg" => Self::Tan,
            "cot" | "ctg" => Self::Cot,
            "sec" => Self::Sec,
            "csc" | "cosec" => Self::Csc,
            "arcsin" | "asin" => Self::Arcsin,
            "arccos" | "acos" => Self::Arccos,
            "arctan" | "atan" | "arctg" => Self::Arctan,
            "sinh" => Self::Sinh,
            "cosh" => Self::Cosh,
            "tanh" => Self::Tanh,
            "exp" => Self::Exp,
            "ln" => Self::Ln,
            "log" | "lg" => Self::Log10,
            "abs" => Self::Abs,
            "floor" => Self::Floor,
            "ceil" => Self::Ceil,
            _ => return None,
        })
    }

    pub(super) fn inverse(self) -> Option<Self> {
        Some(match self {
            Self::Sin => Self::Arcsin,
            Self::Cos => Self::Arccos,
            Self::Tan => Self::Arctan,
            _ => return None,
        })
    }
}

impl Fold {
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "gcd" | "GCD" | "hcf" | "HCF" => Self::Gcd,
            "lcm" | "LCM" => Self::Lcm,
            "max" => Self::Max,
            "min" => Self::Min,
            _ => return None,
        })
    }
}

impl Sign {
    /// The sign with its sides swapped.
    pub(super) fn mirrored(self) -> Option<Self> {
        Some(match self {
            Self::Equal | Self::NotEqual => self,
            Self::Less => Self::Greater,
            Self::AtMost => Self::AtLeast,
            Self::Greater => Self::Less,
            Self::AtLeast => Self::AtMost,
            Self::In | Self::Near | Self::Other => return None,
        })
    }
}

impl Expr {
    pub(super) fn integer(value: impl Into<BigInt>) -> Self {
        Self::Rational(BigRational::from_integer(value.into()))
    }

    pub(super) fn quotient(upper: Expr, lower: Expr) -> Self {
        Self::Quotient(Box::new((upper, lower)))
    }

    pub(super) fn power(base: Expr, exponent: Expr) -> Self {
        Self::Power(Box::new((base, exponent)))
    }

    pub(super) fn negative(self) -> Self {
        Self::Negative(Box::new(self))
    }

    pub(super) fn minus(self, other: Expr) -> Self {
        Self::Sum(vec![self, other.negative()])
    }

    /// The number that is literally written, with its sign.
    pub(super) fn literal(&self) -> Option<BigRational> {
        match self {
            Self::Rational(value) => Some(value.clone()),
            Self::Decimal(decimal) => Some(decimal.value.clone()),
            Self::Negative(inner) => inner.literal().map(|value| -value),
            Self::Quotient(parts) => {
                let (upper, lower) = (parts.0.literal()?, parts.1.literal()?);
                (!lower.is_zero()).then(|| upper / lower)
            }
            _ => None,
        }
    }

    /// The decimal that is literally written, and whether a minus stands before it.
    pub(super) fn decimal(&self) -> Option<(&Decimal, bool)> {
        match self {
            Self::Decimal(decimal) => Some((decimal, false)),
            Self::Negative(inner) => inner.decimal().map(|(d, is_negative)| (d, !is_negative)),
            _ => None,
        }
    }

    /// A decimal whose digits go on in ways not known, as they are written.
    pub(super) fn unending(digits: &str) -> Self {
        Self::Opaque(format!("{digits}…"), Vec::new())
    }

    pub(super) fn is_unending(&self) -> bool {
        matches!(self, Self::Opaque(name, parts)
            if parts.is_empty() && name.ends_with('…') && name.len() > '…'.len_utf8())
    }

    /// Whether it says of a value something else than what it equals: `x > 2`, `x ≠ 0`, `x ∈ S`.
    pub(super) fn is_inequality(&self) -> bool {
        let is_sign = |sign: &Sign| !matches!(sign, Sign::Equal | Sign::Near | Sign::Other);
        matches!(self, Self::Relation(_, rest) if rest.iter().all(|(sign, _)| is_sign(sign)))
    }

    /// `true` for ∞, `false` for −∞.
    pub(super) fn infinity(&self) -> Option<bool> {
        match self {
            Self::Constant(Constant::Infinity) => Some(true),
            Self::Negative(inner) => inner.infinity().map(|sign| !sign),
            _ => None,
        }
    }

    /// The parts in which values may stand.
    pub(super) fn parts(&self) -> Vec<&Expr> {
        match self {
            Self::Rational(_)
            | Self::Decimal(_)
            | Self::Constant(_)
            | Self::Variable(_)
            | Self::Numeral(..)
            | Self::Text(_) => Vec::new(),
            Self::Sum(items)
            | Self::Product(items)
            | Self::Fold(_, items)
            | Self::Opaque(_, items)
            | Self::Bracket(_, items, _)
            | Self::Set(items)
            | Self::Union(items)
            | Self::List(items)
            | Self::Ratio(items, _) => items.iter().collect(),
            Self::Quotient(pair) | Self::Power(pair) | Self::Binomial(pair) => {
                vec![&pair.0, &pair.1]
            }
            Self::Root(pair) => vec![&pair.0],
            Self::Negative(inner)
            | Self::PlusMinus(_, inner)
            | Self::Function(_, inner)
            | Self::Factorial(inner)
            | Self::Degrees(inner)
            | Self::Percent(inner)
            | Self::Measured(inner, _) => vec![inner],
            Self::Matrix(rows) => rows.iter().flatten().collect(),
            Self::Relation(first, rest) => std::iter::once(first.as_ref())
                .chain(rest.iter().map(|(_, member)| member))
                .collect(),
        }
    }

    /// The same expression with every part replaced.
    pub(super) fn map(&self, mut f: impl FnMut(&Expr) -> Expr) -> Expr {
        let mut all = |items: &[Expr]| items.iter().map(&mut f).collect::<Vec<_>>();
        match self {
            Self::Rational(_)
            | Self::Decimal(_)
            | Self::Constant(_)
            | Self::Variable(_)
            | Self::Numeral(..)
            | Self::Text(_) => self.clone(),
            Self::Sum(items) => Self::Sum(all(items)),
            Self::Product(items) => Self::Product(all(items)),
            Self::Fold(fold, items) => Self::Fold(*fold, all(items)),
            Self::Opaque(name, items) => Self::Opaque(name.clone(), all(items)),
            Self::Bracket(open, items, close) => Self::Bracket(*open, all(items), *close),
            Self::Set(items) => Self::Set(all(items)),
            Self::Union(items) => Self::Union(all(items)),
            Self::List(items) => Self::List(all(items)),
            Self::Ratio(items, clock) => Self::Ratio(all(items), *clock),
            Self::Matrix(rows) => Self::Matrix(rows.iter().map(|row| all(row)).collect()),
            Self::Quotient(pair) => Self::quotient(f(&pair.0), f(&pair.1)),
            Self::Power(pair) => Self::power(f(&pair.0), f(&pair.1)),
            Self::Binomial(pair) => Self::Binomial(Box::new((f(&pair.0), f(&pair.1)))),
            Self::Root(pair) => Self::Root(Box::new((f(&pair.0), pair.1))),
            Self::Negative(inner) => f(inner).negative(),
            Self::PlusMinus(sign, inner) => Self::PlusMinus(*sign, Box::new(f(inner))),
            Self::Function(function, inner) => Self::Function(*function, Box::new(f(inner))),
            Self::Factorial(inner) => Self::Factorial(Box::new(f(inner))),
            Self::Degrees(inner) => Self::Degrees(Box::new(f(inner))),
            Self::Percent(inner) => Self::Percent(Box::new(f(inner))),
            Self::Measured(inner, unit) => Self::Measured(Box::new(f(inner)), unit.clone()),
            Self::Relation(first, rest) => {
                let first = Box::new(f(first));
                let rest = rest.iter().map(|(sign, member)| (*sign, f(member)));
                Self::Relation(first, rest.collect())
            }
        }
    }

    /// Whether any part, itself included, is as asked.
    pub(super) fn any(&self, test: &impl Fn(&Expr) -> bool) -> bool {
        test(self) || self.parts().into_iter().any(|part| part.any(test))
    }

    /// Number of nodes.
    pub(super) fn size(&self) -> u64 {
        1 + self.parts().into_iter().map(Expr::size).sum::<u64>()
    }

    /// Names of its variables, each once, in order of appearance.
    pub(super) fn variables(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.collect_variables(&mut names);
        names
    }

    fn collect_variables<'a>(&'a self, names: &mut Vec<&'a str>) {
        if let Self::Variable(name) = self
            && !names.contains(&name.as_str())
        {
            names.push(name);
        }
        for part in self.parts() {
            part.collect_variables(names);
        }
    }

    /// Whether it is one value rather than a structure of several.
    pub(super) fn is_scalar(&self) -> bool {
        !self.any(&|part| {
            matches!(
                part,
                Self::Matrix(_)
                    | Self::Bracket(..)
                    | Self::Set(_)
                    | Self::Union(_)
                    | Self::List(_)
                    | Self::Relation(..)
                    | Self::Ratio(..)
                    | Self::Text(_)
                    | Self::Measured(..)
                    | Self::Numeral(..)
                    | Self::Constant(Constant::EmptySet)
            )
        }) || matches!(self, Self::Opaque(..))
    }
}
