//! Rate of the packed product at a model's shapes, in every arithmetic this machine has:
//! `gemm_rate [ROWS]`.

mod rate;

use model::kernels::gemm::Arithmetic;

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
        let rates: Vec<String> = [Arithmetic::F32, Arithmetic::SplitBf16, Arithmetic::Bf16]
            .into_iter()
            .filter(|arithmetic| arithmetic.is_available())
            .map(|arithmetic| {
                let rate = rate::of_product([m, n, k], arithmetic) / 1e9;
                format!("{arithmetic:?} {rate:.0}")
            })
            .collect();
        #[expect(clippy::print_stdout, reason = "the example's result")]
        {
            println!("[{m}, {k}] x [{n}, {k}], GFLOP/s: {}", rates.join(", "));
        }
    }
}
