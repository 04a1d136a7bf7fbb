//! Every kind of lanes against a plain computation, and pairs against tokens alone.

#![expect(unsafe_code, reason = "kernels of a certain kind of lanes")]

use super::super::simd::Portable;
#[cfg(target_arch = "x86_64")]
use super::super::simd::{Avx2, Avx512};
use super::kernel::alone_kernel;
use super::*;

/// softmax(q kᵀ / √width) v, in f64.
fn plain(heads: Heads, q: &[f32], tokens: &[(Vec<f32>, Vec<f32>)]) -> Vec<f64> {
    let width = heads.width;
    let mut out = Vec::new();
    for (head, q) in q.chunks_exact(width).enumerate() {
        let kv = head / (heads.query / heads.key_value) * width;
        let dot = |key: &[f32]| -> f64 {
            let products = q.iter().zip(&key[kv..kv + width]);
            products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let weights: Vec<f64> = tokens
            .iter()
            .map(|(key, _)| (dot(key) / (width as f64).sqrt()).exp())
            .collect();
        let total: f64 = weights.iter().sum();
        for at in kv..kv + width {
            let terms = weights.iter().zip(tokens);
            let sum: f64 = terms.map(|(w, (_, value))| w * f64::from(value[at])).sum();
            out.push(sum / total);
        }
    }
    out
}

#[test]
fn every_kind_of_lanes_agrees_with_the_plain_computation() {
    let value = |i: usize| (i * 7919 % 61) as f32 / 30.0 - 1.0;
    for (query, key_value, width) in [(9, 3, 64), (4, 1, 16), (5, 1, 40), (2, 2, 80), (14, 2, 100)]
    {
        let heads = Heads {
            query,
            key_value,
            width,
        };
        // One token, a block and a half, and more blocks than are read at a time.
        for visible in [1, 24, 70, 101] {
            let token = |at: usize| {
                let row = |seed: usize| {
                    (0..key_value * width)
                        .map(move |i| value(at * 31 + i * 7 + seed))
                        .collect()
                };
                (row(1), row(5))
            };
            let tokens: Vec<(Vec<f32>, Vec<f32>)> = (0..visible).map(token).collect();
            let count = visible.div_ceil(BLOCK);
            // Blocks in another order, and what lies beyond the last token must not count.
            let blocks: Vec<u32> = (0..count as u32).rev().collect();
            let mut cache = LayerCache::new(count, heads);
            cache.keys.fill(f32::NAN);
            cache.values.fill(f32::NAN);
            for head in 0..count * key_value {
                let padded = width.next_multiple_of(LANES);
                let size = BLOCK * padded;
                cache.keys[head * size + width * BLOCK..(head + 1) * size].fill(0.0);
                for slot in 0..BLOCK {
                    let at = head * size + slot * padded;
                    cache.values[at + width..at + padded].fill(0.0);
                }
            }
            for (at, (key, value)) in tokens.iter().enumerate() {
                cache.write(blocks[at / BLOCK], at % BLOCK, key, value);
            }
            let q: Vec<f32> = (0..query * width).map(|i| value(i * 13 + 3)).collect();
            let exact = plain(heads, &q, &tokens);
            let reader = Reader {
                blocks: &blocks,
                position: visible - 1,
            };
            let check = |kind: &str, out: &[f32]| {
                for (found, exact) in out.iter().zip(&exact) {
                    let gap = (f64::from(*found) - exact).abs();
                    assert!(gap < 1e-5, "{kind} {heads:?} {visible}: {found} {exact}");
                }
            };
            let mut out = vec![0.0; q.len()];
            // SAFETY: portable lanes need no feature, the others are tried where it is there.
            unsafe { alone_kernel::<Portable>(&cache, reader, &q, &mut out) };
            check("portable", &out);
            #[cfg(target_arch = "x86_64")]
            {
                if std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("fma")
                {
                    out.fill(0.0);
                    // SAFETY: as above.
                    unsafe { alone_kernel::<Avx2>(&cache, reader, &q, &mut out) };
                    check("AVX2", &out);
                }
                if std::arch::is_x86_feature_detected!("avx512f") {
                    out.fill(0.0);
                    // SAFETY: as above.
                    unsafe { alone_kernel::<Avx512>(&cache, reader, &q, &mut out) };
                    check("AVX-512", &out);
                }
            }
        }
    }
}

/// Requests with a prefix in common, tokens of one request, and one that shares nothing.
#[test]
fn what_is_read_together_is_as_alone_to_the_bit() {
    let value = |i: usize| (i * 7919 % 61) as f32 / 30.0 - 1.0;
    for (query, key_value, width) in [(9, 3, 64), (8, 2, 32), (2, 2, 80), (5, 1, 16)] {
        let heads = Heads {
            query,
            key_value,
            width,
        };
        let mut cache = LayerCache::new(24, heads);
        for (block, slot) in (0..24).flat_map(|block| (0..BLOCK).map(move |slot| (block, slot))) {
            let row = |seed: usize| -> Vec<f32> {
                let at = (block as usize * BLOCK + slot) * 31 + seed;
                (0..key_value * width).map(|i| value(at + i * 7)).collect()
            };
            cache.write(block, slot, &row(1), &row(5));
        }
        let prefix = [3, 1, 4, 15, 9, 2, 6, 5];
        let with = |own: &[u32]| [&prefix, own].concat();
        let blocks = [
            with(&[7, 8]),
            with(&[10]),
            vec![20, 21, 22, 23],
            with(&[11, 12, 13]),
        ];
        let reader = |request: usize, position| Reader {
            blocks: &blocks[request],
            position,
        };
        let all = vec![
            reader(0, 150),
            reader(2, 3),
            reader(1, 130),
            reader(1, 131),
            reader(3, 170),
            reader(2, 60),
            reader(2, 61),
            reader(0, 5),
        ];
        let readers = Readers::new(all.clone());
        assert!(
            readers
                .units
                .iter()
                .filter(|unit| unit.second.is_some())
                .count()
                >= 2
        );
        let row = query * width;
        let q: Vec<f32> = (0..all.len() * row).map(|i| value(i * 13 + 3)).collect();
        let mut out = vec![f32::NAN; q.len()];
        cache.attend(&readers, &q, &mut out);
        for (index, reader) in all.into_iter().enumerate() {
            let span = index * row..(index + 1) * row;
            let mut own = vec![0.0; row];
            alone(&cache, reader, &q[span.clone()], &mut own);
            assert_eq!(own, out[span], "{heads:?}, reader {index}");
        }
    }
}
