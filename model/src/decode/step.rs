//! One step of the engine: the new tokens of every scheduled request through the model at once.

use std::ops::Range;

use candle_core::{Device, Result, Tensor};

use super::adapters::EngineAdapter;
use super::pool::BlockId;
use crate::kernels::paged_attention::{BLOCK, LayerCache, Reader, Readers};
use crate::ops::{Heads, floats};
use crate::row_adapters::{AdapterRun, RowAdapters};
use crate::transformer::Transformer;

/// Keys and values of every layer.
#[derive(Debug)]
pub(crate) struct KeyValueCache {
    layers: Vec<LayerCache>,
}

impl KeyValueCache {
    pub(crate) fn new(layers: usize, blocks: usize, heads: Heads) -> Self {
        Self {
            layers: (0..layers)
                .map(|_| LayerCache::new(blocks, heads))
                .collect(),
        }
    }

    /// Bytes one block takes over all layers.
    pub(crate) fn block_bytes(layers: usize, heads: Heads) -> usize {
        layers * LayerCache::block_floats(heads) * 2 * size_of::<f32>()
    }
}

/// New tokens of one request, at consecutive positions.
pub(crate) struct Chunk<'a> {
    pub(crate) tokens: &'a [u32],
    pub(crate) first_position: usize,
    pub(crate) blocks: &'a [BlockId],
    /// The adapter of the request, if it has one.
    pub(crate) adapter: Option<&'a EngineAdapter>,
    /// Whether logits of the chunk's last token are wanted.
    pub(crate) wants_logits: bool,
}

/// Run the chunks; returns the wanted logits, one row per chunk that wants them, in order.
pub(crate) fn run(
    model: &Transformer,
    cache: &mut KeyValueCache,
    chunks: &[Chunk<'_>],
) -> Result<Option<Tensor>> {
    let key = |chunk: &Chunk<'_>| chunk.adapter.map(EngineAdapter::key);
    // Chunks of one adapter lie side by side, so that its rows are multiplied where they are.
    let mut order: Vec<usize> = (0..chunks.len()).collect();
    order.sort_by_key(|index| key(&chunks[*index]));
    let mut tokens = Vec::new();
    let mut positions = Vec::new();
    let mut readers = Vec::new();
    let mut last_row = vec![0; chunks.len()];
    let mut runs: Vec<(&Chunk<'_>, Range<usize>)> = Vec::new();
    for index in order {
        let chunk = &chunks[index];
        let start = tokens.len();
        for (offset, token) in chunk.tokens.iter().enumerate() {
            let position = chunk.first_position + offset;
            tokens.push(*token);
            positions.push(u32::try_from(position).unwrap_or(u32::MAX));
            readers.push(Reader {
                blocks: chunk.blocks,
                position,
            });
        }
        last_row[index] = u32::try_from(tokens.len())
            .unwrap_or(u32::MAX)
            .saturating_sub(1);
        match runs.last_mut() {
            Some((first, rows)) if key(first) == key(chunk) => rows.end = tokens.len(),
            _ => runs.push((chunk, start..tokens.len())),
        }
    }
    let wanted: Vec<u32> = chunks
        .iter()
        .zip(last_row)
        .filter_map(|(chunk, row)| chunk.wants_logits.then_some(row))
        .collect();
    let adapted: Vec<AdapterRun<'_>> = runs
        .iter()
        .filter_map(|(chunk, rows)| {
            let (adapter, rows) = (chunk.adapter?.weights(), rows.clone());
            Some(AdapterRun { rows, adapter })
        })
        .collect();
    let adapters = match runs.as_slice() {
        [(chunk, _)] => RowAdapters::All(chunk.adapter.map(EngineAdapter::weights)),
        _ => RowAdapters::Runs(&adapted),
    };
    let readers = Readers::new(readers);
    let heads = model.heads();
    let (query, key_value) = (heads.query * heads.width, heads.key_value * heads.width);
    let hidden = model.decode_hidden(&tokens, &positions, adapters, |layer, q, k, v| {
        let layer = &mut cache.layers[layer];
        {
            let (k, v) = (floats(k)?, floats(v)?);
            for (row, reader) in readers.iter().enumerate() {
                let block = reader.blocks[reader.position / BLOCK];
                let span = row * key_value..(row + 1) * key_value;
                layer.write(block, reader.position % BLOCK, &k[span.clone()], &v[span]);
            }
        }
        let mut out = vec![0.0; readers.len() * query];
        layer.attend(&readers, &floats(q)?, &mut out);
        Tensor::from_vec(out, (readers.len(), query), &Device::Cpu)
    })?;
    if wanted.is_empty() {
        return Ok(None);
    }
    let rows = hidden.index_select(&Tensor::new(wanted.as_slice(), &Device::Cpu)?, 0)?;
    Ok(Some(model.logits(&rows)?))
}
