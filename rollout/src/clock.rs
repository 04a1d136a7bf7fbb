//! What work took, whatever else the machine does.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// What this thread has computed so far; a clock that can't be read stands still.
pub(crate) fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
