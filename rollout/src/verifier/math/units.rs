//! Units of measurement after a number.

use std::collections::BTreeMap;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::One;

/// Words after a number, as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    name: String,
    known: Option<Known>,
    /// Whether it follows the number without a space, as `10cm`, which could be a product too.
    is_attached: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    /// What it measures: base dimensions and their powers, none of which is zero.
    dimensions: BTreeMap<&'static str, i32>,
    /// Its size in terms of the dimensions' base units.
    size: BigRational,
}

/// Names, what they measure with which power, and their size as a share.
const UNITS: &[(&[&str], &str, i32, u64, u64)] = &[
    (&["nm", "nanometer"], "length", 1, 1, 1_000_000_000),
    (&["mm", "millimeter", "millimetre"], "length", 1, 1, 1000),
    (&["cm", "centimeter", "centimetre"], "length", 1, 1, 100),
    (&["dm", "decimeter", "decimetre"], "length", 1, 1, 10),
    (&["m", "meter", "metre"], "length", 1, 1, 1),
    (&["km", "kilometer", "kilometre"], "length", 1, 1000, 1),
    (&["in", "inch", "inches"], "length", 1, 254, 10_000),
    (&["ft", "foot", "feet"], "length", 1, 3048, 10_000),
    (&["yd", "yard"], "length", 1, 9144, 10_000),
    (&["mi", "mile"], "length", 1, 1_609_344, 1000),
    (&["hectare"], "length", 2, 10_000, 1),
    (&["acre"], "length", 2, 40_468_564_224, 10_000_000),
    (
        &["ml", "mL", "milliliter", "millilitre"],
        "length",
        3,
        1,
        1_000_000,
    ),
    (&["l", "L", "liter", "litre"], "length", 3, 1, 1000),
    (&["mg", "milligram"], "mass", 1, 1, 1000),
    (&["g", "gram"], "mass", 1, 1, 1),
    (&["kg", "kilogram", "kilo"], "mass", 1, 1000, 1),
    (&["tonne"], "mass", 1, 1_000_000, 1),
    (&["ton"], "ton", 1, 1, 1),
    (&["oz", "ounce"], "mass ounce", 1, 1, 1),
    (&["lb", "lbs", "pound"], "mass ounce", 1, 16, 1),
    (&["ms", "millisecond"], "time", 1, 1, 1000),
    (&["s", "sec", "second"], "time", 1, 1, 1),
    (&["min", "minute"], "time", 1, 60, 1),
    (&["h", "hr", "hrs", "hour"], "time", 1, 3600, 1),
    (&["day"], "time", 1, 86_400, 1),
    (&["week"], "time", 1, 604_800, 1),
    (&["month"], "month", 1, 1, 1),
    (&["year", "yr"], "month", 1, 12, 1),
    (&["decade"], "month", 1, 120, 1),
    (&["century", "centuries"], "month", 1, 1200, 1),
    (&["gallon", "gal"], "gallon", 1, 4, 1),
    (&["quart", "qt"], "gallon", 1, 1, 1),
    (&["pint"], "gallon", 1, 1, 2),
    (&["cup"], "gallon", 1, 1, 4),
    (&["tablespoon", "tbsp"], "gallon", 1, 1, 64),
    (&["teaspoon", "tsp"], "gallon", 1, 1, 192),
    (&["°", "degree", "deg"], "angle", 1, 1, 1),
    (&["radian", "rad"], "radian", 1, 1, 1),
    (&["°C", "celsius"], "celsius", 1, 1, 1),
    (&["°F", "fahrenheit"], "fahrenheit", 1, 1, 1),
    (&["$", "dollar", "usd"], "dollar", 1, 100, 1),
    (&["¢", "cent"], "dollar", 1, 1, 1),
    (&["€", "euro", "eur"], "euro", 1, 1, 1),
    (&["£", "gbp"], "sterling", 1, 1, 1),
    (&["¥", "yen", "jpy"], "yen", 1, 1, 1),
    (&["₹", "rupee", "inr"], "rupee", 1, 1, 1),
    (&["A", "amp", "ampere"], "current", 1, 1, 1),
    (&["V", "volt"], "voltage", 1, 1, 1),
    (&["Hz", "hertz"], "frequency", 1, 1, 1),
];

/// Names for what other units make up.
const COMPOSED: &[(&[&str], &str)] = &[
    (&["mph"], "mi/h"),
    (&["kph", "kmh"], "km/h"),
    (&["N", "newton"], "kg m/s^2"),
    (&["J", "joule"], "kg m^2/s^2"),
    (&["W", "watt"], "kg m^2/s^3"),
    (&["Pa", "pascal"], "kg/m/s^2"),
];

impl Unit {
    /// From words with exponents, `/` and "per": `cm^2`, `miles per hour`.
    pub(super) fn named(name: &str) -> Self {
        let name = name.trim().trim_end_matches('.').to_owned();
        Self {
            known: known(&name),
            name,
            is_attached: false,
        }
    }

    /// A currency with the words behind the amount: `$5 per hour`. Its own name says nothing new.
    pub(super) fn with_words(self, words: &Unit) -> Self {
        let is_repeated = words.is_known() && self.factor_from(words).is_some();
        if is_repeated {
            return self;
        }
        Unit::named(&format!("{} {}", self.name, words.name))
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
        self.measures("angle")
    }

    /// Whether it is a unit of measurement rather than any other word.
    pub(super) fn is_known(&self) -> bool {
        self.known.is_some()
    }

    pub(super) fn is_radian(&self) -> bool {
        self.measures("radian")
    }

    fn measures(&self, dimension: &str) -> bool {
        self.known
            .as_ref()
            .is_some_and(|known| known.dimensions.keys().eq([&dimension]))
    }

    /// What a value in `other` has to be multiplied with to be in this unit. `None` where the two
    /// measure different things; 1 where one is no unit of measurement.
    pub(super) fn factor_from(&self, other: &Unit) -> Option<BigRational> {
        let (Some(to), Some(from)) = (&self.known, &other.known) else {
            return Some(BigRational::one());
        };
        (to.dimensions == from.dimensions).then(|| &from.size / &to.size)
    }
}

/// The unit that a sign before or after an amount stands for.
pub(super) fn currency_sign(sign: char) -> Option<&'static str> {
    Some(match sign {
        '¤' => "$",
        '€' => "€",
        '£' => "£",
        '¥' => "¥",
        '₹' => "₹",
        '¢' => "¢",
        _ => return None,
    })
}

/// Whether a run of letters is the symbol or name of a unit.
pub(super) fn is_unit(name: &str) -> bool {
    known_word(name).is_some()
}

/// What a name measures; words behind the unit, as in "cm tall", are passed over.
fn known(name: &str) -> Option<Known> {
    let spaced = name.replace('/', " / ").replace(['·', '*'], " ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    (1..=words.len())
        .rev()
        .find_map(|length| product(&words[..length]))
}

/// What words measure that are all units, or stand between some.
fn product(words: &[&str]) -> Option<Known> {
    let mut parts: Vec<(Known, i32)> = Vec::new();
    let mut sign = 1;
    let mut power = 1;
    for word in words {
        match *word {
            "/" | "per" if !parts.is_empty() => sign = -1,
            "square" | "sq" | "sq." => power = 2,
            "cubic" | "cu" | "cu." => power = 3,
            "squared" => parts.last_mut()?.1 *= 2,
            "cubed" => parts.last_mut()?.1 *= 3,
            word => {
                let (name, exponent) = word.split_once('^').unwrap_or((word, "1"));
                let exponent: i32 = exponent.parse().ok().filter(|e| (-9..=9).contains(e))?;
                parts.push((known_word(name)?, sign * power * exponent));
                power = 1;
            }
        }
    }
    let mut all = Known {
        dimensions: BTreeMap::new(),
        size: BigRational::one(),
    };
    for (part, power) in &parts {
        for (dimension, own) in &part.dimensions {
            *all.dimensions.entry(*dimension).or_insert(0) += own * power;
        }
        let size = num_traits::pow(
            part.size.clone(),
            usize::try_from(power.unsigned_abs()).ok()?,
        );
        all.size = if *power < 0 {
            all.size / size
        } else {
            all.size * size
        };
    }
    all.dimensions.retain(|_, power| *power != 0);
    let is_whole = power == 1 && !matches!(words.last(), Some(&("/" | "per")));
    (is_whole && !all.dimensions.is_empty()).then_some(all)
}

fn known_word(name: &str) -> Option<Known> {
    let name = name.trim().trim_end_matches('.');
    let lower = name.to_lowercase();
    let singular = lower.strip_suffix('s').unwrap_or(&lower);
    let has_name = |names: &[&str]| {
        // Symbols keep their case, words and their plurals don't.
        names.iter().any(|candidate| {
            *candidate == name
                || candidate.len() > 2 && (*candidate == lower || *candidate == singular)
        })
    };
    if let Some((_, composed)) = COMPOSED.iter().find(|(names, _)| has_name(names)) {
        return known(composed);
    }
    let (_, dimension, power, numerator, denominator) =
        UNITS.iter().find(|(names, ..)| has_name(names))?;
    Some(Known {
        dimensions: BTreeMap::from([(*dimension, *power)]),
        size: BigRational::new(BigInt::from(*numerator), BigInt::from(*denominator)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factor(to: &str, from: &str) -> Option<String> {
        let (to, from) = (Unit::named(to), Unit::named(from));
        assert!(to.is_known() && from.is_known());
        to.factor_from(&from).map(|factor| factor.to_string())
    }

    #[test]
    fn units_of_one_kind_are_converted() {
        for (to, from, expected) in [
            ("km", "m", Some("1/1000")),
            ("m^2", "square centimeters", Some("1/10000")),
            ("m^2", "cm", None),
            ("km/h", "m/s", Some("18/5")),
            ("mph", "miles per hour", Some("1")),
            ("liters", "cubic centimeters", Some("1/1000")),
            ("N", "kg m/s^2", Some("1")),
            ("m/s", "m/s^2", None),
            ("cm tall", "m long", Some("100")),
            ("hours", "minutes", Some("1/60")),
        ] {
            assert_eq!(factor(to, from).as_deref(), expected, "{to} {from}");
        }
        for other in ["apples", "square", "per day", "units", "cm^99"] {
            assert!(!Unit::named(other).is_known(), "{other}");
        }
    }
}
