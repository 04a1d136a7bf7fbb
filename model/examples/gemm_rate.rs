//! Rate of the packed product at a model's shapes, in every arithmetic this machine has:
//! `gemm_rate [ROWS]`.

use std::time::Instant;

use model::kernels::gemm::{Arithmetic, Packed, Rows, sum_of_products};

fn main() {
    let m = std::env::args()
        .nth(1)
        .and_then(|v| v.parse().ok())
        .unwrap_or(64);
    for (n, k) in [
        (576, 64),
        (576, 128),
        (576, 256),
        (576, 576),
        (192, 576),
        (1536, 576),
        (576, 1536),
        (49152, 576),
    ] {
        let weight: Vec<f32> = (0..n * k).map(|i| (i % 7) as f32 - 3.0).collect();
        let a = vec![1.0f32; m * k];
        let mut out = vec![0.0f32; m * n];
        let mut rates = Vec::new();
        for arithmetic in [Arithmetic::F32, Arithmetic::SplitBf16, Arithmetic::Bf16] {
            if !arithmetic.is_available() {
                continue;
            }
            let packed = Packed::new(&weight, n, k, arithmetic);
            let operations = 2.0 * (m * n * k) as f64;
            let repeats = (2e10 / operations).max(1.0) as usize;
            let mut start = Instant::now();
            for repeat in 0..=repeats {
                if repeat == 1 {
                    start = Instant::now();
                }
                let rows = Rows::new(&a, m, k, arithmetic);
                sum_of_products(&[(&rows, &packed)], &mut out, false);
            }
            let rate = operations * repeats as f64 / start.elapsed().as_secs_f64() / 1e9;
            rates.push(format!("{arithmetic:?} {rate:.0}"));
        }
        #[expect(clippy::print_stdout, reason = "the example's result")]
        {
            println!("[{m}, {k}] x [{n}, {k}], GFLOP/s: {}", rates.join(", "));
        }
    }
}
