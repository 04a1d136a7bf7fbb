//! The adapters of an engine: what requests name, and what tells their cached prefixes apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::adapter::Adapter;

/// An adapter as requests to one engine name it; [`super::Engine::add_adapter`] gives it. Clones stand for
/// the same one, whose weights are freed with the last of them.
#[derive(Clone)]
pub struct EngineAdapter {
    key: AdapterKey,
    weights: Arc<Adapter>,
    owner: Arc<AdapterKeys>,
}

impl EngineAdapter {
    pub(crate) fn key(&self) -> AdapterKey {
        self.key
    }

    pub(crate) fn weights(&self) -> &Adapter {
        &self.weights
    }
}

impl std::fmt::Debug for EngineAdapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("EngineAdapter").field(&self.key.0).finish()
    }
}

/// Tells an engine's adapters apart. None is given twice, so that what one adapter left in the cache is
/// never another's, however long it stays there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AdapterKey(pub(crate) u64);

/// The keys of one engine.
#[derive(Debug, Default)]
pub(crate) struct AdapterKeys {
    next: AtomicU64,
}

impl AdapterKeys {
    /// `weights` under a key of their own.
    pub(crate) fn give(self: &Arc<Self>, weights: Arc<Adapter>) -> EngineAdapter {
        EngineAdapter {
            key: AdapterKey(self.next.fetch_add(1, Ordering::Relaxed)),
            weights,
            owner: Arc::clone(self),
        }
    }

    /// Whether the key was given here.
    pub(crate) fn own(self: &Arc<Self>, adapter: &EngineAdapter) -> bool {
        Arc::ptr_eq(self, &adapter.owner)
    }
}
