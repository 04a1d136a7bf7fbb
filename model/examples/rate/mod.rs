//! Rate of the packed product, for the examples that measure it.

use std::time::Instant;

use model::kernels::gemm::{Arithmetic, Packed, Rows, sum_of_products};

/// Operations a second, two for each multiplication and addition, of `[m, k] · [n, k]ᵀ`: rows are made
/// ready each time, as a library's product does; the weight is packed once.
pub(crate) fn of_product([m, n, k]: [usize; 3], arithmetic: Arithmetic) -> f64 {
    let weight: Vec<f32> = (0..n * k).map(|i| (i % 7) as f32 - 3.0).collect();
    let a = vec![1.0f32; m * k];
    let mut out = vec![0.0f32; m * n];
    let packed = Packed::new(&weight, n, k, arithmetic);
    let operations = 2.0 * (m * n * k) as f64;
    let repeats = (2e10 / operations).max(1.0) as usize;
    let mut start = Instant::now();
    for repeat in 0..=repeats {
        // The first one is not counted.
        if repeat == 1 {
            start = Instant::now();
        }
        let rows = Rows::new(&a, m, k, arithmetic);
        sum_of_products(&[(&rows, &packed)], &mut out, false);
    }
    operations * repeats as f64 / start.elapsed().as_secs_f64()
}
