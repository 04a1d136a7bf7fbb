//! The scales of GGUF's quantised tensors, apart from their quants.
//!
//! A block is a few bytes of scales around the quants of 32 or 256 neighbours of a row
//! (`ggml-common.h` of llama.cpp). Only the scales are read here: with them the quants follow from the
//! dequantised values.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Result, Tensor};
use half::f16;

use crate::config::ModelConfig;
use crate::gguf_names::from_gguf_rows;
use crate::kernels::blocks::BlockScales;

/// Scales and offsets of the groups of one block.
type Groups = (Vec<f32>, Vec<f32>);

/// How the scales of a type are read.
struct Layout {
    group: usize,
    bits: u32,
    zero: u8,
    read: fn(&[u8]) -> Groups,
}

/// The layout of a type; none for those that are not quantised or rarely met.
fn layout(kind: GgmlDType) -> Option<Layout> {
    let small = |bits, zero, read| Layout {
        group: 32,
        bits,
        zero,
        read,
    };
    Some(match kind {
        GgmlDType::Q4_0 => small(4, 8, one_scale),
        GgmlDType::Q4_1 => small(4, 0, scale_and_offset),
        GgmlDType::Q5_0 => small(8, 16, one_scale),
        GgmlDType::Q5_1 => small(8, 0, scale_and_offset),
        GgmlDType::Q8_0 => small(8, 128, one_scale),
        GgmlDType::Q2K => Layout {
            group: 16,
            bits: 4,
            zero: 0,
            read: sixteen_of_four_bits,
        },
        GgmlDType::Q3K => Layout {
            group: 16,
            bits: 4,
            zero: 4,
            read: sixteen_of_six_bits,
        },
        GgmlDType::Q4K => small(4, 0, eight_of_six_bits),
        GgmlDType::Q5K => small(8, 0, eight_of_six_bits),
        GgmlDType::Q6K => Layout {
            group: 16,
            bits: 8,
            zero: 32,
            read: sixteen_bytes,
        },
        _ => return None,
    })
}

fn half(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

fn one_scale(block: &[u8]) -> Groups {
    (vec![half(block, 0)], Vec::new())
}

fn scale_and_offset(block: &[u8]) -> Groups {
    (vec![half(block, 0)], vec![half(block, 2)])
}

/// Q2_K: sixteen bytes of a scale and, above it, a minimum.
fn sixteen_of_four_bits(block: &[u8]) -> Groups {
    let (scale, minimum) = (half(block, 80), half(block, 82));
    block[..16]
        .iter()
        .map(|byte| {
            let (q, m) = (byte & 15, byte >> 4);
            (scale * f32::from(q), -(minimum * f32::from(m)))
        })
        .unzip()
}

/// Q3_K: sixteen scales in twelve bytes, of each the lower four bits in the first eight and the upper
/// two in the last four.
fn sixteen_of_six_bits(block: &[u8]) -> Groups {
    let (packed, scale) = (&block[96..108], half(block, 108));
    let scales = (0..16).map(|index| {
        let low = (packed[index % 8] >> (4 * (index / 8))) & 15;
        let high = (packed[8 + index % 4] >> (2 * (index / 4))) & 3;
        scale * (f32::from(low | (high << 4)) - 32.0)
    });
    (scales.collect(), Vec::new())
}

/// Q4_K and Q5_K: eight scales and eight minima of six bits each in twelve bytes.
fn eight_of_six_bits(block: &[u8]) -> Groups {
    let (scale, minimum, packed) = (half(block, 0), half(block, 2), &block[4..16]);
    (0..8)
        .map(|index| {
            let (q, m) = if index < 4 {
                (packed[index] & 63, packed[index + 4] & 63)
            } else {
                let (low, high) = (packed[index + 4], [packed[index - 4], packed[index]]);
                let [q, m] = high.map(|byte| (byte >> 6) << 4);
                ((low & 15) | q, (low >> 4) | m)
            };
            (scale * f32::from(q), -(minimum * f32::from(m)))
        })
        .unzip()
}

/// Q6_K: sixteen signed bytes before the scale of all.
fn sixteen_bytes(block: &[u8]) -> Groups {
    let end = block.len() - 2;
    let scale = half(block, end);
    let factors = block[end - 16..end].iter();
    let scales = factors.map(|byte| scale * f32::from(byte.cast_signed()));
    (scales.collect(), Vec::new())
}

/// The scales of a tensor of two dimensions, its rows in the checkpoint's order; none where its type
/// has none that are read here.
///
/// # Errors
/// When a tensor operation fails.
pub(crate) fn block_scales(
    name: &str,
    tensor: &QTensor,
    config: &ModelConfig,
) -> Result<Option<BlockScales>> {
    let kind = tensor.dtype();
    let (Some(layout), Ok((rows, columns))) = (layout(kind), tensor.shape().dims2()) else {
        return Ok(None);
    };
    let (mut scale, mut offset) = (Vec::new(), Vec::new());
    for block in tensor.data()?.chunks_exact(kind.type_size()) {
        let (scales, offsets) = (layout.read)(block);
        scale.extend(scales);
        offset.extend(offsets);
    }
    let in_order = |values: Vec<f32>| -> Result<Vec<f32>> {
        if values.is_empty() {
            return Ok(values);
        }
        let values = Tensor::from_vec(values, (rows, columns / layout.group), &Device::Cpu)?;
        from_gguf_rows(name, values, config)?
            .flatten_all()?
            .to_vec1()
    };
    Ok(Some(BlockScales {
        group: layout.group,
        bits: layout.bits,
        zero: layout.zero,
        scale: in_order(scale)?,
        offset: in_order(offset)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::gemm::{Arithmetic, Packed};

    /// Every type that is read: what it stores is described by the scales to the bit.
    #[test]
    fn scales_describe_what_candle_dequantises() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let golden = directory.join("../trainer/tests/golden/llama_untied");
        let config = ModelConfig::from_directory(&golden).expect("config");
        let (n, k) = (config.num_attention_heads * config.head_dim, 512);
        let values: Vec<f32> = (0..n * k)
            .map(|i| ((i * 7919 % 1009) as f32 / 504.5 - 1.0) * (1.0 + (i / 100 % 9) as f32))
            .collect();
        let weight = Tensor::from_vec(values, (n, k), &Device::Cpu).expect("weight");
        for kind in [
            GgmlDType::Q4_0,
            GgmlDType::Q4_1,
            GgmlDType::Q5_0,
            GgmlDType::Q5_1,
            GgmlDType::Q8_0,
            GgmlDType::Q2K,
            GgmlDType::Q3K,
            GgmlDType::Q4K,
            GgmlDType::Q5K,
            GgmlDType::Q6K,
        ] {
            let stored = QTensor::quantize(&weight, kind).expect("quantised");
            let name = "model.layers.0.self_attn.q_proj.weight";
            let scales = block_scales(name, &stored, &config).expect("read");
            let scales = scales.expect("a layout");
            let floats = stored
                .dequantize(&Device::Cpu)
                .and_then(|floats| from_gguf_rows(name, floats, &config)?.flatten_all())
                .and_then(|floats| floats.to_vec1::<f32>())
                .expect("dequantised");
            let packed = Packed::compact(&floats, n, k, Arithmetic::F32, Some(&scales));
            let plain = Packed::new(&floats, n, k, Arithmetic::F32);
            assert!(
                2 * packed.bytes() < plain.bytes(),
                "{kind:?} is kept as floats"
            );
            for (index, value) in floats.iter().enumerate() {
                assert_eq!(
                    packed.at(index / k, index % k),
                    *value,
                    "{kind:?} at {index}"
                );
            }
        }
    }
}
