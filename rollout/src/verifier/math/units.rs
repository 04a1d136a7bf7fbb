//! Units of measurement after a number.

use num_bigint::BigInt;
use num_rational::BigRational;

/// Words after a number, as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    name: String,
    known: Option<Known>,
    /// Whether it follows the number without a space, as `10cm`, which could be a product too.
    is_attached: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    /// What it measures.
    dimension: &'static str,
    /// Its size in terms of the dimension's base unit.
    numerator: u64,
    denominator: u64,
    power: u32,
}

/// Names, what they measure, and their size as a share.
const UNITS: &[(&[&str], &str, u64, u64)] = &[
    (&["mm", "millimeter", "millimetre"], "length", 1, 1000),
    (&["cm", "centimeter", "centimetre"], "length", 1, 100),
    (&["m", "meter", "metre"], "length", 1, 1),
    (&["km", "kilometer", "kilometre"], "length", 1000, 1),
    (&["in", "inch", "inches"], "length", 254, 10_000),
    (&["ft", "foot", "feet"], "length", 3048, 10_000),
    (&["yd", "yard"], "length", 9144, 10_000),
    (&["mi", "mile"], "length", 1_609_344, 1000),
    (&["mg", "milligram"], "mass", 1, 1000),
    (&["g", "gram"], "mass", 1, 1),
    (&["kg", "kilogram", "kilo"], "mass", 1000, 1),
    (&["oz", "ounce"], "mass ounce", 1, 1),
    (&["lb", "lbs", "pound"], "mass ounce", 16, 1),
    (&["s", "sec", "second"], "time", 1, 1),
    (&["min", "minute"], "time", 60, 1),
    (&["h", "hr", "hrs", "hour"], "time", 3600, 1),
    (&["day"], "time", 86_400, 1),
    (&["week"], "time", 604_800, 1),
    (&["month"], "month", 1, 1),
    (&["year", "yr"], "month", 12, 1),
    (&["ml", "mL", "milliliter", "millilitre"], "volume", 1, 1000),
    (&["l", "L", "liter", "litre"], "volume", 1, 1),
    (&["gallon", "gal"], "gallon", 4, 1),
    (&["quart", "qt"], "gallon", 1, 1),
    (&["°", "degree", "deg"], "angle", 1, 1),
    (&["radian", "rad"], "radian", 1, 1),
    (&["°C", "celsius"], "celsius", 1, 1),
    (&["°F", "fahrenheit"], "fahrenheit", 1, 1),
    (&["$", "dollar", "usd"], "dollar", 100, 1),
    (&["¢", "cent"], "dollar", 1, 1),
    (&["€", "euro", "eur"], "euro", 1, 1),
    (&["£", "gbp"], "sterling", 1, 1),
    (&["mph"], "mph", 1, 1),
    (&["kph", "km/h"], "kph", 1, 1),
];

impl Unit {
    pub(super) fn named(name: &str, power: u32) -> Self {
        let name = name.trim().trim_end_matches('.').to_owned();
        Self {
            known: known(&name, power),
            name,
            is_attached: false,
        }
    }

    pub(super) fn attached(self) -> Self {
        Self {
            is_attached: true,
            ..self
        }
    }

    /// Whether it could be a product of variables just as well.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.is_attached
            && self.name.len() < 4
            && self.name.chars().all(|c| c.is_ascii_alphabetic())
    }

    pub(super) fn is_degree(&self) -> bool {
        self.known.is_some_and(|known| known.dimension == "angle")
    }

    /// Whether it is a unit of measurement rather than any other word.
    pub(super) fn is_known(&self) -> bool {
        self.known.is_some()
    }

    pub(super) fn is_radian(&self) -> bool {
        self.known.is_some_and(|known| known.dimension == "radian")
    }

    /// What a value in `other` has to be multiplied with to be in this unit. `None` where the two
    /// measure different things; 1 where one is no unit of measurement.
    pub(super) fn factor_from(&self, other: &Unit) -> Option<BigRational> {
        let one = BigRational::from_integer(1.into());
        let (Some(to), Some(from)) = (self.known, other.known) else {
            return Some(one);
        };
        if to.dimension != from.dimension || to.power != from.power {
            return None;
        }
        let size = |unit: Known| {
            let share =
                BigRational::new(BigInt::from(unit.numerator), BigInt::from(unit.denominator));
            num_traits::pow(share, usize::try_from(unit.power).unwrap_or(1))
        };
        Some(size(from) / size(to))
    }
}

/// Whether a run of letters is the symbol or name of a unit.
pub(super) fn is_unit(name: &str) -> bool {
    known(name, 1).is_some()
}

fn known(name: &str, power: u32) -> Option<Known> {
    let name = name.trim();
    let (name, power) = match name.split_once(' ') {
        Some(("square" | "sq" | "sq.", rest)) => (rest, 2),
        Some(("cubic" | "cu" | "cu.", rest)) => (rest, 3),
        _ => (name, power),
    };
    let lower = name.to_lowercase();
    let singular = lower.strip_suffix('s').unwrap_or(&lower);
    let is_name = |candidate: &str| {
        // Symbols keep their case, words and their plurals don't.
        candidate == name || candidate.len() > 2 && (candidate == lower || candidate == singular)
    };
    let (_, dimension, numerator, denominator) = UNITS
        .iter()
        .find(|(names, ..)| names.iter().any(|name| is_name(name)))?;
    Some(Known {
        dimension,
        numerator: *numerator,
        denominator: *denominator,
        power,
    })
}
