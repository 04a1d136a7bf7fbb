//! Sequences that share prefixes, packed into one row of tokens.
//!
//! Trajectories of one run begin alike: the same system prompt and examples, the same problem for
//! the samples of one task. [`TokenTree`] stores every shared part once. A token attends to the
//! tokens of its ancestors and to those before it in its own segment, at the position it has in its
//! sequence, so that the packed computation equals computing every sequence alone.

use std::ops::Range;

/// A run of consecutive tokens without a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where the tokens stand in the packed row.
    pub tokens: Range<usize>,
    /// Index of the segment that precedes this one in its sequences; always smaller than its own.
    pub parent: Option<usize>,
}

/// A packed set of sequences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenTree {
    /// Token ids, segment after segment.
    pub tokens: Vec<u32>,
    /// Position of each token in its sequence.
    pub positions: Vec<u32>,
    /// Segments in packed order, parents before children.
    pub segments: Vec<Segment>,
    /// For each sequence: the packed index of each of its tokens, as ranges in order.
    pub paths: Vec<Vec<Range<usize>>>,
}

/// A branch under construction.
struct Node {
    tokens: Vec<u32>,
    children: Vec<usize>,
}

impl TokenTree {
    /// Pack `sequences`, sharing every common prefix.
    pub fn new<S: AsRef<[u32]>>(sequences: &[S]) -> Self {
        let mut nodes = vec![Node {
            tokens: Vec::new(),
            children: Vec::new(),
        }];
        let ends: Vec<usize> = sequences
            .iter()
            .map(|s| insert(&mut nodes, s.as_ref()))
            .collect();
        // Later splits insert nodes above an end, never below it, so an end's chain of ancestors
        // spells its sequence.
        let mut tree = Self::default();
        let mut segment_of = vec![None; nodes.len()];
        let mut parent_of = vec![0; nodes.len()];
        let mut stack: Vec<(usize, Option<usize>, u32)> = nodes[0]
            .children
            .iter()
            .rev()
            .map(|child| (*child, None, 0))
            .collect();
        while let Some((index, parent, depth)) = stack.pop() {
            let node = &nodes[index];
            let start = tree.tokens.len();
            tree.tokens.extend(&node.tokens);
            let length = u32::try_from(node.tokens.len()).unwrap_or(u32::MAX);
            tree.positions.extend(depth..depth + length);
            let segment = tree.segments.len();
            tree.segments.push(Segment {
                tokens: start..tree.tokens.len(),
                parent,
            });
            segment_of[index] = Some(segment);
            for child in node.children.iter().rev() {
                parent_of[*child] = index;
                stack.push((*child, Some(segment), depth + length));
            }
        }
        tree.paths = ends
            .into_iter()
            .map(|end| {
                let mut path = Vec::new();
                let mut index = end;
                while let Some(segment) = segment_of[index] {
                    path.push(tree.segments[segment].tokens.clone());
                    index = parent_of[index];
                }
                path.reverse();
                path
            })
            .collect();
        tree
    }

    /// Number of packed tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there is no token at all.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Packed index of token `at` of sequence `sequence`.
    pub fn index_of(&self, sequence: usize, at: usize) -> Option<usize> {
        let mut left = at;
        for range in self.paths.get(sequence)? {
            if left < range.len() {
                return Some(range.start + left);
            }
            left -= range.len();
        }
        None
    }

    /// Token ranges segment `segment` sees before its own tokens, root first.
    pub fn ancestors(&self, segment: usize) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        let mut parent = self.segments[segment].parent;
        while let Some(index) = parent {
            ranges.push(self.segments[index].tokens.clone());
            parent = self.segments[index].parent;
        }
        ranges.reverse();
        ranges
    }
}

/// Insert a sequence below the root; returns the node it ends in.
fn insert(nodes: &mut Vec<Node>, sequence: &[u32]) -> usize {
    let mut at = 0;
    let mut rest = sequence;
    while let Some(first) = rest.first() {
        let Some(slot) = nodes[at]
            .children
            .iter()
            .position(|child| nodes[*child].tokens[0] == *first)
        else {
            nodes.push(Node {
                tokens: rest.to_vec(),
                children: Vec::new(),
            });
            let leaf = nodes.len() - 1;
            nodes[at].children.push(leaf);
            return leaf;
        };
        let child = nodes[at].children[slot];
        let common = nodes[child]
            .tokens
            .iter()
            .zip(rest)
            .take_while(|(a, b)| a == b)
            .count();
        if common < nodes[child].tokens.len() {
            // Split: the shared part becomes a new node above the old child.
            let tail = nodes[child].tokens.split_off(common);
            let head = std::mem::replace(&mut nodes[child].tokens, tail);
            nodes.push(Node {
                tokens: head,
                children: vec![child],
            });
            let upper = nodes.len() - 1;
            nodes[at].children[slot] = upper;
            at = upper;
        } else {
            at = child;
        }
        rest = &rest[common..];
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spell(tree: &TokenTree, sequence: usize) -> Vec<u32> {
        tree.paths[sequence]
            .iter()
            .flat_map(|r| tree.tokens[r.clone()].to_vec())
            .collect()
    }

    #[test]
    fn every_sequence_is_spelt_by_its_path_and_shared_parts_stand_once() {
        let sequences: Vec<Vec<u32>> = vec![
            vec![1, 2, 3, 4, 5],
            vec![1, 2, 3, 9],
            vec![1, 2],
            vec![7, 8],
            vec![1, 2, 3, 4, 5, 6],
            vec![1, 2, 3, 4, 5],
        ];
        let tree = TokenTree::new(&sequences);
        assert_eq!(tree.len(), 9);
        for (index, sequence) in sequences.iter().enumerate() {
            assert_eq!(&spell(&tree, index), sequence);
            for (at, token) in sequence.iter().enumerate() {
                let packed = tree.index_of(index, at).expect("token of the sequence");
                assert_eq!(tree.tokens[packed], *token);
                assert_eq!(tree.positions[packed] as usize, at);
            }
            assert_eq!(tree.index_of(index, sequence.len()), None);
        }
        for (index, segment) in tree.segments.iter().enumerate() {
            assert!(segment.parent.is_none_or(|parent| parent < index));
            let before: usize = tree
                .ancestors(index)
                .iter()
                .map(ExactSizeIterator::len)
                .sum();
            assert_eq!(tree.positions[segment.tokens.start] as usize, before);
        }
    }

    #[test]
    fn nothing_shared_gives_one_segment_each() {
        let tree = TokenTree::new(&[vec![1, 2], vec![2, 1], vec![3]]);
        assert_eq!(tree.segments.len(), 3);
        assert!(tree.segments.iter().all(|s| s.parent.is_none()));
        assert!(TokenTree::new::<Vec<u32>>(&[]).is_empty());
    }
}
