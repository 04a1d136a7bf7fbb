//! Matrices: their sums, products and entries.

use super::Comparison;
use super::compare::{DIFFERENT, EQUAL, in_order};
use super::decide::Decider;
use super::expression::Expr;

/// Matrices, after their sums and products; a matrix of one row or column beside a point.
pub(super) fn matrices(gold: &Expr, answer: &Expr, decider: &Decider) -> Comparison {
    let (Some(a), Some(b)) = (rows(gold), rows(answer)) else {
        return DIFFERENT;
    };
    let line = |rows: &[Vec<Expr>]| -> Option<Vec<Expr>> {
        let is_line = rows.len() == 1 || rows.iter().all(|row| row.len() == 1);
        is_line.then(|| rows.iter().flatten().cloned().collect())
    };
    let is_point = |expr: &Expr| match expr {
        Expr::Bracket(_, items, _) => !items.iter().all(|item| matches!(item, Expr::Bracket(..))),
        _ => false,
    };
    if is_point(gold) != is_point(answer) {
        return match (line(&a), line(&b)) {
            (Some(a), Some(b)) => in_order(&a, &b, decider),
            _ => DIFFERENT,
        };
    }
    if a.len() != b.len() {
        return DIFFERENT;
    }
    a.iter().zip(&b).fold(EQUAL, |compared, (a, b)| {
        compared.and_then(|| in_order(a, b, decider))
    })
}

/// The rows of a matrix, or of an expression of matrices and scalars.
fn rows(expr: &Expr) -> Option<Vec<Vec<Expr>>> {
    let each = |rows: Vec<Vec<Expr>>, f: &dyn Fn(Expr) -> Expr| -> Vec<Vec<Expr>> {
        rows.into_iter()
            .map(|row| row.into_iter().map(f).collect())
            .collect()
    };
    match expr {
        Expr::Matrix(rows) => Some(rows.clone()),
        Expr::Bracket('(' | '[', items, ')' | ']') => {
            // `[[1, 2], [3, 4]]`
            let nested = |item: &Expr| match item {
                Expr::Bracket('[', items, ']') => Some(items.clone()),
                _ => None,
            };
            let nested: Option<Vec<_>> = items.iter().map(nested).collect();
            Some(nested.unwrap_or_else(|| vec![items.clone()]))
        }
        Expr::Negative(inner) => Some(each(rows(inner)?, &Expr::negative)),
        Expr::Quotient(parts) if parts.1.is_scalar() => Some(each(rows(&parts.0)?, &|x| {
            Expr::quotient(x, parts.1.clone())
        })),
        Expr::Sum(terms) => {
            let mut terms = terms.iter();
            let mut sum = rows(terms.next()?)?;
            for term in terms {
                let term = rows(term)?;
                let fits = term.len() == sum.len()
                    && term.iter().zip(&sum).all(|(a, b)| a.len() == b.len());
                if !fits {
                    return None;
                }
                for (a, b) in sum.iter_mut().flatten().zip(term.into_iter().flatten()) {
                    *a = Expr::Sum(vec![a.clone(), b]);
                }
            }
            Some(sum)
        }
        Expr::Product(factors) => {
            let mut product: Option<Vec<Vec<Expr>>> = None;
            let mut scale = Vec::new();
            for factor in factors {
                if factor.is_scalar() {
                    scale.push(factor.clone());
                    continue;
                }
                let right = rows(factor)?;
                product = Some(match product {
                    Some(left) => matrix_product(&left, &right)?,
                    None => right,
                });
            }
            let scaled = |x: Expr| {
                let mut factors = scale.clone();
                factors.push(x);
                Expr::Product(factors)
            };
            Some(each(product?, &scaled))
        }
        _ => None,
    }
}

fn matrix_product(left: &[Vec<Expr>], right: &[Vec<Expr>]) -> Option<Vec<Vec<Expr>>> {
    let columns = right.first()?.len();
    if left.len() * columns > 100 || left.iter().any(|row| row.len() != right.len()) {
        return None;
    }
    let cell = |row: &[Expr], column: usize| {
        let pairs = row.iter().zip(right);
        Expr::Sum(
            pairs
                .map(|(a, b)| Expr::Product(vec![a.clone(), b[column].clone()]))
                .collect(),
        )
    };
    Some(
        left.iter()
            .map(|row| (0..columns).map(|column| cell(row, column)).collect())
            .collect(),
    )
}
