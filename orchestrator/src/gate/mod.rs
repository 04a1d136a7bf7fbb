//! The decision to accept a patch or new weights.
//!
//! The paper's rule (Co-Harness, arXiv:2607.22688) is δ_in > 0 and δ_out ≥ 0: better on problems the
//! incumbent failed, no worse on those it solved. Which problems these are is told by one earlier
//! rollout of the incumbent; scoring a candidate against that same rollout would bias both deltas
//! (from 0% one can only rise, from 100% only fall), so both arms are rolled out afresh, paired by
//! problem and seed, under one budget. A single comparison accepts about a quarter of all changes
//! that do nothing, since it only looks at signs. Mode `confirmed` asks for the same on other
//! problems with other seeds; mode `sequential` asks for evidence that stands many looks and many
//! candidates, and stops as soon as it has an answer.
//!
//! [`evidence`] counts and estimates, [`martingale`] holds the mathematics, [`decide`] the paper's
//! rule and [`sequential`] when to stop; [`question`] asks the same of removals, which needn't gain.
//! [`plan`] chooses problems, [`contest`] lets candidates compete until there is a [`decision`] on each, and
//! [`measure`] or [`simulate`] drives it. [`outlook`] says beforehand what that can tell at best.
//! [`spend`] says what the arms took. [`loss`] looks the other way: whether what was let in does worse than what was
//! there before, by rollouts that [`watch`] makes.

pub mod contest;
pub mod decide;
pub mod decision;
pub mod evidence;
pub mod loss;
pub mod martingale;
mod measure;
pub(crate) mod outlook;
pub mod plan;
pub mod question;
pub mod sequential;
pub mod simulate;
pub mod spend;
pub(crate) mod watch;

pub(crate) use self::measure::CLASSIFY_TEMPERATURE;
