//! Natural numbers of any size, as exact comparison needs them.

use std::cmp::Ordering;

/// A natural number: decimal digits, the lowest first, without leading zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Digits(Vec<u32>);

impl Digits {
    /// From digits with the highest first.
    pub(super) fn of(digits: impl IntoIterator<Item = u32>) -> Self {
        let mut digits: Vec<u32> = digits.into_iter().collect();
        digits.reverse();
        Digits(digits).trimmed()
    }

    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    pub(super) fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn is_one(&self) -> bool {
        self.0 == [1]
    }

    pub(super) fn compare(&self, other: &Digits) -> Ordering {
        let by_length = self.0.len().cmp(&other.0.len());
        by_length.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    pub(super) fn plus(&self, other: &Digits) -> Digits {
        let length = self.0.len().max(other.0.len());
        let at = |digits: &[u32], index: usize| digits.get(index).copied().unwrap_or(0);
        let sums = (0..length).map(|index| at(&self.0, index) + at(&other.0, index));
        Digits(sums.collect()).carried()
    }

    pub(super) fn times(&self, other: &Digits) -> Digits {
        let mut result = vec![0; self.0.len() + other.0.len()];
        for (i, a) in self.0.iter().enumerate() {
            for (j, b) in other.0.iter().enumerate() {
                result[i + j] += a * b;
            }
        }
        Digits(result).carried()
    }

    fn carried(mut self) -> Digits {
        let mut carry = 0;
        for digit in &mut self.0 {
            let sum = *digit + carry;
            *digit = sum % 10;
            carry = sum / 10;
        }
        while carry > 0 {
            self.0.push(carry % 10);
            carry /= 10;
        }
        self.trimmed()
    }

    /// By long division, keeping only the remainder.
    pub(super) fn is_multiple_of(&self, divisor: &Digits) -> bool {
        let mut remainder = Digits(Vec::new());
        for digit in self.0.iter().rev() {
            remainder.0.insert(0, *digit);
            remainder = remainder.trimmed();
            while remainder.compare(divisor) != Ordering::Less {
                remainder = remainder.minus(divisor);
            }
        }
        remainder.is_zero()
    }

    /// The other must not be larger.
    fn minus(&self, other: &Digits) -> Digits {
        let mut borrow = 0;
        let mut result = Vec::with_capacity(self.0.len());
        for (index, digit) in self.0.iter().enumerate() {
            let taken = other.0.get(index).copied().unwrap_or(0) + borrow;
            borrow = u32::from(*digit < taken);
            result.push(*digit + 10 * borrow - taken);
        }
        Digits(result).trimmed()
    }

    pub(super) fn approximate(&self) -> f64 {
        self.0
            .iter()
            .rev()
            .fold(0.0, |value, digit| value * 10.0 + f64::from(*digit))
    }
}
