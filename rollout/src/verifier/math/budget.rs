//! What one comparison may cost.

use std::cell::Cell;
use std::time::Duration;

use crate::clock::processor_time;

/// Work of one comparison, in limb products of 64 bits; about 20 ms in an optimised build.
const WORK: u64 = 12_000_000;
/// Processor time after which a comparison is given up whatever it has counted. Not wall time: on a
/// busy machine the same comparison would be given up that is decided on an idle one.
const PROCESSOR_TIME: Duration = Duration::from_millis(60);
/// Work between two looks at the clock, a system call.
const LOOK: u64 = 1 << 14;

/// The budget of a comparison is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spent;

/// Counts work. The count is the same on every machine and decides first; the clock is the last
/// resort.
#[derive(Debug)]
pub(super) struct Budget {
    left: Cell<u64>,
    started: Duration,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self {
            left: Cell::new(WORK),
            started: processor_time(),
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
        let before = self.left.get();
        let left = before.checked_sub(steps).ok_or(Spent)?;
        self.left.set(left);
        let is_due = before / LOOK != left / LOOK;
        if is_due && processor_time().saturating_sub(self.started) > PROCESSOR_TIME {
            self.left.set(0);
            return Err(Spent);
        }
        Ok(())
    }
}
