//! Relations that give a value a name: `x = 5`, `f(x) = 2x + 3`, `|AB| = 4`, `(p, q) = (3, 2)`.

use super::compare::is_equation;
use super::expression::{Expr, Function, Sign};

/// A value and the name it is given.
pub(super) struct Named {
    /// What tells the name from others; arguments of a function don't.
    pub(super) key: String,
    pub(super) value: Expr,
}

/// The value that a relation states, where it states one.
pub(super) fn named(expr: &Expr) -> Option<Named> {
    let Expr::Relation(first, rest) = expr else {
        return None;
    };
    if let [(Sign::In, set)] = rest.as_slice() {
        return Some(Named {
            key: key(first)?,
            value: set.clone(),
        });
    }
    if !is_equation(rest) {
        return None;
    }
    // `x = 1/3 ≈ 0.33` states 1/3.
    let exact = rest.iter().position(|(sign, _)| *sign == Sign::Near);
    let exact = exact
        .filter(|&end| end > 0 || key(first).is_none())
        .unwrap_or(rest.len());
    let mut members: Vec<&Expr> = vec![first];
    members.extend(rest[..exact].iter().map(|(_, member)| member));
    let last = *members.last()?;
    if let Some(key) = key(first)
        && members.len() > 1
    {
        return Some(Named {
            key,
            value: last.clone(),
        });
    }
    match members.as_slice() {
        [value] => Some(Named {
            key: String::new(),
            value: (*value).clone(),
        }),
        // `5 = x`
        [value, name] if value.variables().is_empty() && matches!(name, Expr::Variable(_)) => {
            Some(Named {
                key: key(name)?,
                value: (*value).clone(),
            })
        }
        // A calculation: `2 + 2 = 4`.
        _ if members
            .iter()
            .all(|member| member.is_scalar() && member.variables().is_empty()) =>
        {
            Some(Named {
                key: String::new(),
                value: last.clone(),
            })
        }
        [_, _] => None,
        // `2a = … = x = 0`
        _ => {
            let name = members.iter().find_map(|member| match member {
                Expr::Variable(_) => key(member),
                _ => None,
            })?;
            Some(Named {
                key: name,
                value: last.clone(),
            })
        }
    }
}

/// The values of a list whose items all have names, no two the same.
pub(super) fn distinct(items: &[Expr]) -> Option<Vec<Expr>> {
    let mut keys: Vec<String> = Vec::new();
    let mut values = Vec::new();
    for item in items {
        let Named { key, value } = named(item)?;
        if key.is_empty() || keys.contains(&key) {
            return None;
        }
        keys.push(key);
        values.push(value);
    }
    Some(values)
}

/// The items without a name that only one side gives: `n = 2, 3` beside `2, 3`, `x = 1, x = 2`
/// beside `1, 2`. One name for all, at the first item or at each.
pub(super) fn without_shared(items: &[Expr], others: &[Expr]) -> Vec<Expr> {
    let name = |items: &[Expr]| -> Option<String> {
        let mut shared: Option<String> = None;
        for (index, item) in items.iter().enumerate() {
            match named(item) {
                Some(named) if !named.key.is_empty() => {
                    let is_other = shared.as_ref().is_some_and(|known| *known != named.key);
                    if is_other {
                        return None;
                    }
                    shared = Some(named.key);
                }
                _ if index == 0 => return None,
                _ => {}
            }
        }
        shared
    };
    let (own, other) = (name(items), name(others));
    let is_shared = match (&own, &other) {
        (Some(own), Some(other)) => own == other,
        (Some(_), None) => !others.iter().any(|item| matches!(item, Expr::Relation(..))),
        (None, _) => false,
    };
    if !is_shared {
        return items.to_vec();
    }
    let value = |item: &Expr| named(item).map_or_else(|| item.clone(), |named| named.value);
    items.iter().map(value).collect()
}

/// What tells a name from others; `None` for what is no name.
fn key(expr: &Expr) -> Option<String> {
    let all = |items: &[Expr]| -> Option<String> {
        let keys: Option<Vec<String>> = items.iter().map(key).collect();
        Some(keys?.join(","))
    };
    Some(match expr {
        Expr::Variable(name) => name.clone(),
        // Points and segments: `AB`, `NO/BO`.
        Expr::Product(factors) => {
            let is_point = |factor: &Expr| {
                matches!(factor, Expr::Variable(name)
                    if name.starts_with(|c: char| c.is_ascii_uppercase()))
            };
            if !factors.iter().all(is_point) {
                return None;
            }
            all(factors)?
        }
        Expr::Quotient(parts) => format!("{}/{}", point_key(&parts.0)?, point_key(&parts.1)?),
        Expr::Function(Function::Abs, inner) => format!("|{}|", point_key(inner)?),
        Expr::Opaque(name, parts) => match name.as_str() {
            "angle" | "triangle" | "prime" | "inverse" | "star" => {
                format!("{name} {}", key(parts.first()?)?)
            }
            _ if name.ends_with('_') => format!("{name}{:?}", parts),
            _ if name.chars().count() == 1 && parts.len() == 1 => name.clone(),
            _ => return None,
        },
        Expr::Ratio(parts, None) => all(parts)?,
        Expr::Bracket('(', items, ')') => format!("({})", all(items)?),
        _ => return None,
    })
}

/// Names of points and segments, whose quotients and lengths are names too.
fn point_key(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Product(_) | Expr::Variable(_) => key(expr),
        _ => None,
    }
}
