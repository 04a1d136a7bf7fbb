//! What the CPU multiplies matrices in: a configuration's choice and this machine's answer.

use model::kernels::gemm::Arithmetic;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What matrix products on the CPU are computed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArithmeticKind {
    /// `bf16` where the processor is faster in it (Intel AMX; AVX-512 BF16 of AMD), else `f32`.
    #[default]
    Auto,
    /// f32 throughout.
    F32,
    /// Operands as sums of two bfloat16, f32 sums; needs what `bf16` needs, and pays on AMX only.
    SplitBf16,
    /// Operands rounded to bfloat16, f32 sums; needs Intel AMX or AVX-512 BF16. Weights that are
    /// trained, their gradients and the optimizer stay f32.
    Bf16,
}

impl ArithmeticKind {
    /// What this machine computes in.
    ///
    /// # Errors
    /// When it has no instructions for what was asked.
    pub fn resolve(self) -> Result<Arithmetic, NoBf16> {
        let wanted = match self {
            Self::Auto => return Ok(Arithmetic::fastest()),
            Self::F32 => Arithmetic::F32,
            Self::SplitBf16 => Arithmetic::SplitBf16,
            Self::Bf16 => Arithmetic::Bf16,
        };
        if wanted.is_available() {
            Ok(wanted)
        } else {
            Err(NoBf16)
        }
    }
}

/// The asked-for arithmetic is not available.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error(
    "this processor has no instructions for bfloat16 (Intel AMX or AVX-512 BF16), or the system withholds them; set model.arithmetic to auto or f32"
)]
pub struct NoBf16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_and_f32_work_everywhere() {
        assert_eq!(ArithmeticKind::F32.resolve().expect("f32"), Arithmetic::F32);
        let found = ArithmeticKind::Auto.resolve().expect("auto");
        assert!(found.is_available());
        assert!(matches!(found, Arithmetic::Bf16 | Arithmetic::F32));
        assert_eq!(
            ArithmeticKind::SplitBf16.resolve().is_ok(),
            Arithmetic::SplitBf16.is_available()
        );
    }
}
