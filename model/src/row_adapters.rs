//! Which adapter changes which rows of a pass.

use std::ops::Range;

use crate::adapter::Adapter;

/// The adapters of a pass over rows.
#[derive(Clone, Copy)]
pub(crate) enum RowAdapters<'a> {
    /// One, or none, for all rows.
    All(Option<&'a Adapter>),
    /// One for each of these runs; other rows are the base model's.
    Runs(&'a [AdapterRun<'a>]),
}

/// Consecutive rows under one adapter.
pub(crate) struct AdapterRun<'a> {
    pub(crate) rows: Range<usize>,
    pub(crate) adapter: &'a Adapter,
}
