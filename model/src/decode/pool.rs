//! Which block of the key-value pool belongs to what: allocation, sharing and eviction.
//!
//! Full blocks form prefix trees, one for the base model and one for each adapter, since each has keys
//! and values of its own for the same tokens: a block is identified by its parent block, or its tree, and
//! its own sixteen tokens, so equal prefixes of any two requests to one adapter find the same blocks.
//! Blocks nobody uses stay as cache until space is needed; the least recently used leaf of all trees goes
//! first.

use std::collections::HashMap;

use super::adapters::AdapterKey;
use crate::kernels::paged_attention::BLOCK;

/// Index of a block in the pool.
pub(crate) type BlockId = u32;

/// What a block continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Parent {
    /// Nothing: it begins a prompt to this adapter, or to the base model.
    Root(Option<AdapterKey>),
    Block(BlockId),
}

impl Parent {
    /// What the block after `blocks` continues, in a request to `adapter`.
    pub(crate) fn after(blocks: &[BlockId], adapter: Option<AdapterKey>) -> Self {
        match blocks.last() {
            Some(block) => Self::Block(*block),
            None => Self::Root(adapter),
        }
    }
}

/// A block's place in a prefix tree.
type Key = (Parent, [u32; BLOCK]);

#[derive(Debug, Default, Clone)]
struct BlockState {
    /// Requests using the block.
    users: u32,
    /// Cached blocks that continue this one.
    children: u32,
    /// Place in its tree; none for a block that only one request can use.
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

    /// Take blocks for a prompt to `adapter`, or to the base model, and promise those for up to
    /// `max_new` tokens more; nothing if they don't fit now.
    ///
    /// The last prompt token is never taken from the cache: its logits are needed.
    pub(crate) fn admit(
        &mut self,
        adapter: Option<AdapterKey>,
        prompt: &[u32],
        max_new: usize,
    ) -> Option<Admission> {
        self.clock += 1;
        let shareable = prompt.len().saturating_sub(1) / BLOCK;
        let mut hits = Vec::new();
        for chunk in prompt.chunks_exact(BLOCK).take(shareable) {
            let Some(key) = key(Parent::after(&hits, adapter), chunk) else {
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
                self.register(block, Parent::after(&blocks, adapter), chunk);
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

    /// Enter a block filled by generation into its tree, unless an equal one is there.
    pub(crate) fn register(&mut self, block: BlockId, parent: Parent, tokens: &[u32]) {
        // A parent outside the tree can be evicted before its child; such chains stay private.
        if let Parent::Block(parent) = parent
            && self.blocks[parent as usize].key.is_none()
        {
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
        if let Parent::Block(parent) = parent {
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

    /// Take an idle block out of its tree.
    fn evict(&mut self, block: BlockId) {
        self.idle -= 1;
        let state = &mut self.blocks[block as usize];
        state.is_ready = false;
        if let Some(key) = state.key.take() {
            self.tree.remove(&key);
            if let Parent::Block(parent) = key.0 {
                self.blocks[parent as usize].children -= 1;
            }
        }
    }
}

fn key(parent: Parent, tokens: &[u32]) -> Option<Key> {
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
        let first = pool.admit(None, &prompt(40, 1, 60), 10).expect("room");
        assert_eq!(
            (first.cached_tokens, first.blocks.len(), first.reserved),
            (0, 4, 1)
        );
        let second = pool.admit(None, &prompt(40, 2, 60), 10).expect("room");
        assert_eq!(second.cached_tokens, 32);
        assert_eq!(first.blocks[..2], second.blocks[..2]);
        first.blocks.iter().for_each(|b| pool.set_ready(*b));
        pool.release(&first.blocks, first.reserved);
        let again = pool.admit(None, &prompt(40, 1, 60), 10).expect("room");
        assert_eq!(
            again.cached_tokens, 48,
            "three full blocks, the tail is never shared"
        );
    }

    #[test]
    fn the_pool_never_promises_more_than_it_has() {
        let mut pool = BlockPool::new(8);
        let first = pool.admit(None, &prompt(0, 1, 40), 40).expect("5 blocks");
        assert_eq!(first.blocks.len() + first.reserved, 5);
        assert!(pool.admit(None, &prompt(0, 2, 40), 40).is_none());
        assert!(pool.admit(None, &prompt(0, 2, 40), 8).is_some());
        pool.release(&first.blocks, first.reserved);
        // The unready blocks of the first went back to the free list, so all can be had again.
        let third = pool.admit(None, &prompt(0, 3, 40), 40).expect("5 blocks");
        for _ in 0..third.reserved {
            assert!(pool.take_reserved().is_some());
        }
    }

    #[test]
    fn idle_leaves_are_evicted_oldest_first() {
        let mut pool = BlockPool::new(6);
        for own in 1..=2 {
            let admission = pool.admit(None, &prompt(0, own, 49), 0).expect("4 blocks");
            admission.blocks.iter().for_each(|b| pool.set_ready(*b));
            pool.release(&admission.blocks, admission.reserved);
        }
        // The first prompt's later blocks made room; its root may still be there.
        let second = pool.admit(None, &prompt(0, 2, 49), 0).expect("fits");
        assert_eq!(second.cached_tokens, 48);
        pool.release(&second.blocks, second.reserved);
        let first = pool.admit(None, &prompt(0, 1, 49), 0).expect("fits");
        assert!(first.cached_tokens < 48);
    }

    #[test]
    fn a_prefix_is_another_one_under_every_adapter() {
        let trees = [None, Some(AdapterKey(0)), Some(AdapterKey(1))];
        let mut pool = BlockPool::new(16);
        let prompt = prompt(0, 1, 40);
        let first: Vec<Admission> = trees
            .iter()
            .map(|tree| pool.admit(*tree, &prompt, 8).expect("room"))
            .collect();
        for (index, admission) in first.iter().enumerate() {
            assert_eq!(admission.cached_tokens, 0);
            for other in &first[..index] {
                let shared = |block| other.blocks.contains(block);
                assert!(!admission.blocks.iter().any(shared), "{first:?}");
            }
            admission.blocks.iter().for_each(|b| pool.set_ready(*b));
        }
        // All again while the first ones run, and once more from what they left.
        for is_idle in [false, true] {
            for (tree, first) in trees.iter().zip(&first) {
                if is_idle {
                    pool.release(&first.blocks, first.reserved);
                }
                let again = pool.admit(*tree, &prompt, 0).expect("room");
                assert_eq!(again.cached_tokens, 32);
                assert_eq!(again.blocks[..2], first.blocks[..2]);
                pool.release(&again.blocks, again.reserved);
            }
        }
        // An adapter that came later finds nothing, and drives out what was used longest ago.
        let later = pool.admit(Some(AdapterKey(2)), &prompt, 216).expect("all");
        assert_eq!((later.cached_tokens, later.blocks.len()), (0, 3));
        for _ in 0..later.reserved {
            assert!(pool.take_reserved().is_some());
        }
        assert!(pool.admit(None, &prompt, 0).is_none());
    }

    #[test]
    fn what_is_generated_continues_its_own_adapters_prefix() {
        let keys = [Some(AdapterKey(0)), None];
        let mut pool = BlockPool::new(8);
        let tokens = prompt(0, 1, 40);
        for key in keys {
            let admission = pool.admit(key, &tokens[..20], 16).expect("room");
            let [first, second, ..] = admission.blocks[..] else {
                panic!("{admission:?}");
            };
            // The second block was filled by the reply.
            pool.set_ready(first);
            pool.set_ready(second);
            let parent = Parent::after(&[first], key);
            pool.register(second, parent, &tokens[16..32]);
            pool.release(&admission.blocks, admission.reserved);
            let longer = pool.admit(key, &tokens, 0).expect("room");
            assert_eq!(longer.blocks[..2], [first, second]);
            pool.release(&longer.blocks, longer.reserved);
        }
    }
}
