//! What one comparison may cost.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Work of one comparison, in limb products of 64 bits; about 20 ms in an optimised build.
const WORK: u64 = 12_000_000;
/// Wall time after which a comparison is given up whatever it has counted.
const WALL: Duration = Duration::from_millis(60);

/// The budget of a comparison is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spent;

/// Counts work. The count is the same on every machine and decides first; the clock is the last
/// resort.
#[derive(Debug)]
pub(super) struct Budget {
    left: Cell<u64>,
    started: Instant,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            left: Cell::new(WORK),
            started: Instant::now(),
        }
    }

    /// Pays for an operation on numbers of so many bits.
    pub(super) fn pay(&self, bits: u64) -> Result<(), Spent> {
        self.pay_product(bits, bits)
    }

    /// Pays for a product of numbers of so many bits.
    pub(super) fn pay_product(&self, left: u64, right: u64) -> Result<(), Spent> {
        self.pay_steps((left / 64 + 2) * (right / 64 + 2) + 16)
    }

    pub(super) fn pay_steps(&self, steps: u64) -> Result<(), Spent> {
        let left = self.left.get().checked_sub(steps).ok_or(Spent)?;
        self.left.set(left);
        if self.started.elapsed() > WALL {
            self.left.set(0);
            return Err(Spent);
        }
        Ok(())
    }
}
