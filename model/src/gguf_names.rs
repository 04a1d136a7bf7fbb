//! What GGUF calls a checkpoint's tensors, and where it lays them out in another way.

use candle_core::{Result, Tensor};

use crate::config::{Family, ModelConfig};

/// Names outside the blocks, in GGUF and in a checkpoint.
const TOP: [(&str, &str); 3] = [
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
];

/// Names inside a block.
const PARTS: [(&str, &str); 11] = [
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];

/// Divisors of the rotary frequencies: what Llama 3's scaling comes to, which GGUF keeps among the
/// tensors and not in the metadata.
pub(crate) const ROPE_TABLE: &str = "rope_freqs.weight";

/// The checkpoint's name of a GGUF tensor; none for [`ROPE_TABLE`], which is no weight.
pub(crate) fn hugging_face_name(gguf: &str) -> Option<String> {
    let (stem, kind) = gguf.rsplit_once('.')?;
    if let Some((_, name)) = TOP.iter().find(|(gguf, _)| *gguf == stem) {
        return Some(format!("{name}.{kind}"));
    }
    let (layer, part) = stem.strip_prefix("blk.")?.split_once('.')?;
    let known = PARTS.iter().find(|(gguf, _)| *gguf == part);
    // What isn't known keeps its name, and is then named as unexpected.
    let part = known.map_or(part, |(_, name)| name);
    Some(format!("model.layers.{layer}.{part}.{kind}"))
}

/// GGUF's name of a checkpoint's tensor.
pub(crate) fn gguf_name(name: &str) -> Option<String> {
    let (stem, kind) = name.rsplit_once('.')?;
    if let Some((gguf, _)) = TOP.iter().find(|(_, name)| *name == stem) {
        return Some(format!("{gguf}.{kind}"));
    }
    let (layer, part) = stem.strip_prefix("model.layers.")?.split_once('.')?;
    let (gguf, _) = PARTS.iter().find(|(_, name)| *name == part)?;
    Some(format!("blk.{layer}.{gguf}.{kind}"))
}

/// A GGUF tensor with its rows in the checkpoint's order: llama.cpp's converter interleaves the
/// rotary halves of q and k of the Llama family.
pub(crate) fn from_gguf_rows(name: &str, weight: Tensor, config: &ModelConfig) -> Result<Tensor> {
    // `[heads, half, 2, k]` to `[heads, 2, half, k]`.
    match rotary_heads(name, config) {
        Some(heads) => reorder(&weight, heads, |half| (half, 2)),
        None => Ok(weight),
    }
}

/// The way back.
pub(crate) fn to_gguf_rows(name: &str, weight: Tensor, config: &ModelConfig) -> Result<Tensor> {
    match rotary_heads(name, config) {
        Some(heads) => reorder(&weight, heads, |half| (2, half)),
        None => Ok(weight),
    }
}

/// Heads of a tensor whose rows are interleaved in GGUF.
fn rotary_heads(name: &str, config: &ModelConfig) -> Option<usize> {
    if config.family != Family::Llama {
        None
    } else if name.ends_with("q_proj.weight") {
        Some(config.num_attention_heads)
    } else if name.ends_with("k_proj.weight") {
        Some(config.num_key_value_heads)
    } else {
        None
    }
}

/// Rows of each head, seen as a matrix of this shape, transposed.
fn reorder(
    weight: &Tensor,
    heads: usize,
    shape: impl Fn(usize) -> (usize, usize),
) -> Result<Tensor> {
    let (rows, columns) = weight.dims2()?;
    let (outer, inner) = shape(rows / heads / 2);
    weight
        .reshape((heads, outer, inner, columns))?
        .transpose(1, 2)?
        .contiguous()?
        .reshape((rows, columns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::expected_shapes;

    fn config() -> ModelConfig {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let golden = directory.join("../trainer/tests/golden/llama_untied");
        ModelConfig::from_directory(&golden).expect("config")
    }

    #[test]
    fn every_tensor_has_a_name_in_gguf_and_gets_its_own_back() {
        let families = [Family::Llama, Family::Qwen2, Family::Qwen3];
        for config in families.map(|family| ModelConfig { family, ..config() }) {
            for name in expected_shapes(&config).keys() {
                let gguf = gguf_name(name).expect("a name");
                assert_eq!(hugging_face_name(&gguf).as_ref(), Some(name));
            }
        }
        assert_eq!(hugging_face_name(ROPE_TABLE), None);
        assert_eq!(gguf_name("model.layers.0.mlp.router.weight"), None);
    }

    #[test]
    fn rotary_rows_go_there_and_back() {
        let config = config();
        let rows = config.num_attention_heads * config.head_dim;
        let weight = Tensor::arange(0f32, rows as f32 * 3.0, &candle_core::Device::Cpu)
            .and_then(|t| t.reshape((rows, 3)))
            .expect("tensor");
        let name = "model.layers.0.self_attn.q_proj.weight";
        let values = |t: &Tensor| t.to_vec2::<f32>().expect("rows");
        let there = to_gguf_rows(name, weight.clone(), &config).expect("reordered");
        // The first pair of a head: its first row and the first of its second half.
        let half = config.head_dim / 2;
        assert_eq!(values(&there)[1], values(&weight)[half]);
        let back = from_gguf_rows(name, there, &config).expect("reordered");
        assert_eq!(values(&back), values(&weight));
    }
}
