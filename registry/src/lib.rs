//! The registry: a plain git repository that versions harness folders.
//!
//! One accepted patch is one commit that touches one dimension of the harness, and its message ends in
//! git trailers that say why it was accepted. History only grows: a rollback is a new commit with the
//! old tree. Start at [`Registry`].
//!
//! Parts: `store` makes and opens repositories, `object` and `reference` are the two phases of a write, `write`
//! makes versions, `rejected` keeps candidates that were turned down, `lineage` reads them back, `pairing`
//! records which adapter goes with which version, `lock` recovers from writers that died, `message` is the form
//! of commit messages and `wording` what they say.
//!
//! Layout in the repository (bare when made here):
//!
//! ```text
//! refs/heads/main                              the current harness; first parents are the history
//! refs/tags/v1, v2, ...                        the n-th commit of that history
//! refs/rejected/<run>/<round>-<n>              a candidate the gate turned down, child of its base version
//! refs/pairings/<adapter>/v<n>                 an annotated tag on the version the adapter goes with
//! coharness.config                             git settings only this crate reads (durability)
//! coharness.lock                               held by the one run that writes
//! ```
//!
//! Every write has two phases: objects first (flushed to disk and read back), then a reference that is moved
//! by compare-and-swap. A process that dies in between leaves unreachable objects and nothing else, and every
//! write is idempotent: repeated after a crash it returns what is already there.

mod author;
mod delta;
mod error;
mod id;
mod lineage;
mod lock;
mod message;
mod object;
mod pairing;
mod record;
mod reference;
mod rejected;
mod store;
mod wording;
mod write;

pub use author::Author;
pub use delta::Delta;
pub use error::RegistryError;
pub use id::{AdapterId, CommitId, ModelId, RejectedName, RunId, VersionName};
pub use lock::RegistryLock;
pub use record::{
    Acceptance, Decision, Entry, Origin, Pairing, PairingRecord, Provenance, RejectedEntry,
    Rejection, Version,
};
pub use store::Registry;
