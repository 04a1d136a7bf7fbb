//! CPU kernels on plain `f32` slices: the arithmetic below the tensor operations of
//! [`crate::ops`] and below the decoding engine.

mod aligned;
mod bf16_unit;
pub mod blocks;
pub(crate) mod fresh;
pub mod gemm;
mod lane_gemm;
pub(crate) mod narrow;
pub(crate) mod paged_attention;
pub(crate) mod rows;
pub(crate) mod simd;
mod tile_gemm;
pub(crate) mod tree_attention;
