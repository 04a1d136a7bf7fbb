//! Which block of the key-value pool belongs to what: allocation, sharing and eviction.
//!
//! Full blocks form a prefix tree: a block is identified by its parent block and its own sixteen
//! tokens, so equal prefixes of any two requests find the same blocks. Blocks nobody uses stay as
//! cache until space is needed; the least recently used leaf goes first.

use std::collections::HashMap;

use crate::kernels::paged_attention::BLOCK;

/// Index of a block in the pool.
pub(crate) type BlockId = u32;

/// A block's place in the prefix tree.
type Key = (Option<BlockId>, [u32; BLOCK]);

#[derive(Debug, Default, Clone)]
struct BlockState {
    /// Requests using the block.
    users: u32,
    /// Cached blocks that continue this one.
    children: u32,
    /// Place in the tree; none for a block that only one request can use.
    key: Option<Key>,
    /// Whether its keys and values are computed, or will be in the step being built.
    is_ready: bool,
    last_used: u64,
}

/// Bookkeeping of all blocks.
#[derive(Debug)]
pub(crate) struct BlockPool {
    blocks: Vec<BlockState>,
    free: Vec<BlockId>,
    tree: HashMap<Key, BlockId>,
    clock: u64,
    /// Cached blocks without users.
    idle: usize,
    /// Blocks promised to admitted requests but not yet taken.
    reserved: usize,
}

/// Blocks found and made for a prompt.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Blocks of the prompt's full blocks, in order, and those for its tail.
    pub(crate) blocks: Vec<BlockId>,
    /// Tokens whose keys and values exist or are being computed by an earlier request.
    pub(crate) cached_tokens: usize,
    /// Blocks still promised for the tokens to be generated.
    pub(crate) reserved: usize,
}

impl BlockPool {
    pub(crate) fn new(count: usize) -> Self {
        let limit = u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            blocks: vec![BlockState::default(); limit as usize],
            free: (0..limit).rev().collect(),
            tree: HashMap::new(),
            clock: 0,
            idle: 0,
            reserved: 0,
        }
    }

    /// Take blocks for a prompt of `prompt` tokens and promise those for up to `max_new` more;
    /// nothing if they don't fit now.
    ///
    /// The last prompt token is never taken from the cache: its logits are needed.
    pub(crate) fn admit(&mut self, prompt: &[u32], max_new: usize) -> Option<Admission> {
        self.clock += 1;
        let shareable = prompt.len().saturating_sub(1) / BLOCK;
        let mut hits = Vec::new();
        for chunk in prompt.chunks_exact(BLOCK).take(shareable) {
            let Some(key) = key(hits.last().copied(), chunk) else {
                break;
            };
            let Some(block) = self.tree.get(&key) else {
                break;
            };
            hits.push(*block);
        }
        let total = (prompt.len() + max_new).div_ceil(BLOCK);
        let idle_hits = hits
            .iter()
            .filter(|b| self.blocks[**b as usize].users == 0)
            .count();
        let available = self.free.len() + self.idle - idle_hits;
        if total - hits.len() + self.reserved > available {
            return None;
        }
        let cached_tokens = hits.len() * BLOCK;
        for block in &hits {
            self.acquire(*block);
        }
        let mut blocks = hits;
        for start in (cached_tokens..prompt.len()).step_by(BLOCK) {
            let block = self.allocate()?;
            let chunk = &prompt[start..prompt.len().min(start + BLOCK)];
            if blocks.len() < shareable {
                self.register(block, blocks.last().copied(), chunk);
            }
            blocks.push(block);
        }
        let reserved = total - blocks.len();
        self.reserved += reserved;
        Some(Admission {
            blocks,
            cached_tokens,
            reserved,
        })
    }

    /// One of the blocks promised at admission.
    pub(crate) fn take_reserved(&mut self) -> Option<BlockId> {
        self.reserved = self.reserved.saturating_sub(1);
        self.allocate()
    }

    /// Enter a block filled by generation into the tree, unless an equal one is there.
    pub(crate) fn register(&mut self, block: BlockId, parent: Option<BlockId>, tokens: &[u32]) {
        // A parent outside the tree can be evicted before its child; such chains stay private.
        if parent.is_some_and(|p| self.blocks[p as usize].key.is_none()) {
            return;
        }
        let Some(key) = key(parent, tokens) else {
            return;
        };
        if self.tree.contains_key(&key) {
            return;
        }
        self.tree.insert(key, block);
        self.blocks[block as usize].key = Some(key);
        if let Some(parent) = parent {
            self.blocks[parent as usize].children += 1;
        }
    }

    pub(crate) fn is_ready(&self, block: BlockId) -> bool {
        self.blocks[block as usize].is_ready
    }

    pub(crate) fn set_ready(&mut self, block: BlockId) {
        self.blocks[block as usize].is_ready = true;
    }

    /// Give back a finished request's blocks and promises.
    pub(crate) fn release(&mut self, blocks: &[BlockId], reserved: usize) {
        self.clock += 1;
        self.reserved = self.reserved.saturating_sub(reserved);
        // Children before parents, so that leaves are the older ones among equals.
        for block in blocks.iter().rev() {
            let state = &mut self.blocks[*block as usize];
            state.users -= 1;
            state.last_used = self.clock;
            if state.users == 0 {
                if state.key.is_some() && state.is_ready {
                    self.idle += 1;
                } else {
                    self.idle += 1;
                    self.evict(*block);
                    self.free.push(*block);
                }
            }
        }
    }

    fn acquire(&mut self, block: BlockId) {
        let state = &mut self.blocks[block as usize];
        if state.users == 0 {
            self.idle -= 1;
        }
        state.users += 1;
        state.last_used = self.clock;
    }

    fn allocate(&mut self) -> Option<BlockId> {
        let block = match self.free.pop() {
            Some(block) => block,
            None => {
                let candidates = self.blocks.iter().enumerate();
                let (index, _) = candidates
                    .filter(|(_, b)| b.users == 0 && b.children == 0 && b.key.is_some())
                    .min_by_key(|(_, b)| b.last_used)?;
                let block = u32::try_from(index).ok()?;
                self.evict(block);
                block
            }
        };
        let state = &mut self.blocks[block as usize];
        state.users = 1;
        state.is_ready = false;
        state.last_used = self.clock;
        Some(block)
    }

    /// Take an idle block out of the tree.
    fn evict(&mut self, block: BlockId) {
        self.idle -= 1;
        let state = &mut self.blocks[block as usize];
        state.is_ready = false;
        if let Some(key) = state.key.take() {
            self.tree.remove(&key);
            if let Some(parent) = key.0 {
                self.blocks[parent as usize].children -= 1;
            }
        }
    }
}

fn key(parent: Option<BlockId>, tokens: &[u32]) -> Option<Key> {
    Some((parent, tokens.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(shared: u32, own: u32, length: u32) -> Vec<u32> {
        (0..shared)
            .chain((shared..length).map(|i| i + 1000 * own))
            .collect()
    }

    #[test]
    fn equal_prefixes_share_blocks_and_return_to_the_cache() {
        let mut pool = BlockPool::new(16);
        let first = pool.admit(&prompt(40, 1, 60), 10).expect("room");
        assert_eq!(
            (first.cached_tokens, first.blocks.len(), first.reserved),
            (0, 4, 1)
        );
        let second = pool.admit(&prompt(40, 2, 60), 10).expect("room");
        assert_eq!(second.cached_tokens, 32);
        assert_eq!(first.blocks[..2], second.blocks[..2]);
        first.blocks.iter().for_each(|b| pool.set_ready(*b));
        pool.release(&first.blocks, first.reserved);
        let again = pool.admit(&prompt(40, 1, 60), 10).expect("room");
        assert_eq!(
            again.cached_tokens, 48,
            "three full blocks, the tail is never shared"
        );
    }

    #[test]
    fn the_pool_never_promises_more_than_it_has() {
        let mut pool = BlockPool::new(8);
        let first = pool.admit(&prompt(0, 1, 40), 40).expect("5 blocks");
        assert_eq!(first.blocks.len() + first.reserved, 5);
        assert!(pool.admit(&prompt(0, 2, 40), 40).is_none());
        assert!(pool.admit(&prompt(0, 2, 40), 8).is_some());
        pool.release(&first.blocks, first.reserved);
        // The unready blocks of the first went back to the free list, so all can be had again.
        let third = pool.admit(&prompt(0, 3, 40), 40).expect("5 blocks");
        for _ in 0..third.reserved {
            assert!(pool.take_reserved().is_some());
        }
    }

    #[test]
    fn idle_leaves_are_evicted_oldest_first() {
        let mut pool = BlockPool::new(6);
        for own in 1..=2 {
            let admission = pool.admit(&prompt(0, own, 49), 0).expect("4 blocks");
            admission.blocks.iter().for_each(|b| pool.set_ready(*b));
            pool.release(&admission.blocks, admission.reserved);
        }
        // The first prompt's later blocks made room; its root may still be there.
        let second = pool.admit(&prompt(0, 2, 49), 0).expect("fits");
        assert_eq!(second.cached_tokens, 48);
        pool.release(&second.blocks, second.reserved);
        let first = pool.admit(&prompt(0, 1, 49), 0).expect("fits");
        assert!(first.cached_tokens < 48);
    }
}
