//! Seeds derived by name, so that no two uses share randomness and none depends on order.

/// A point in the tree of seeds that hangs from the run's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed([u8; 32]);

impl Seed {
    /// The root: the run's own seed.
    pub fn new(seed: u64) -> Self {
        Self(*blake3::hash(&seed.to_le_bytes()).as_bytes())
    }

    /// The seed below this one that `name` names.
    #[must_use]
    pub fn derive(self, name: impl std::fmt::Display) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(name.to_string().as_bytes());
        Self(*hasher.finalize().as_bytes())
    }

    /// As a number.
    pub fn value(self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(bytes)
    }
}
