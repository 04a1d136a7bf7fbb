//! Row-wise kernels: RMS norm, rotary embedding, SwiGLU, log-sum-exp; forward and backward.
//!
//! Each works on one row (a token), so that callers can spread rows over threads and a row's result
//! never depends on its neighbours.

#![expect(unsafe_code, reason = "SIMD lanes")]

use super::simd::{LANES, Lanes, dispatch, exp_scalar};

/// `y = x / rms(x) * w`, with rms(x) = sqrt(mean(x²) + eps).
pub(crate) fn rms_norm(x: &[f32], w: &[f32], eps: f32, y: &mut [f32]) {
    dispatch!(rms_norm_kernel(x: &[f32], w: &[f32], eps: f32, y: &mut [f32]));
}

#[inline(always)]
unsafe fn rms_norm_kernel<L: Lanes>(x: &[f32], w: &[f32], eps: f32, y: &mut [f32]) {
    let scale = inverse_rms(x, eps);
    for ((y, x), w) in y.iter_mut().zip(x).zip(w) {
        *y = x * scale * w;
    }
}

#[inline(always)]
fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    let mut sums = [0.0f32; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest: f32 = chunks.remainder().iter().map(|v| v * v).sum();
    for chunk in chunks {
        for (sum, v) in sums.iter_mut().zip(chunk) {
            *sum += v * v;
        }
    }
    let total: f32 = sums.iter().sum::<f32>() + rest;
    1.0 / (total / x.len() as f32 + eps).sqrt()
}

/// Gradient of [`rms_norm`]: writes `dx`, adds to `dw` where one is wanted.
pub(crate) fn rms_norm_backward(
    x: &[f32],
    w: &[f32],
    eps: f32,
    dy: &[f32],
    dx: &mut [f32],
    dw: Option<&mut [f32]>,
) {
    dispatch!(rms_norm_backward_kernel(
        x: &[f32],
        w: &[f32],
        eps: f32,
        dy: &[f32],
        dx: &mut [f32],
        dw: Option<&mut [f32]>
    ));
}

#[inline(always)]
unsafe fn rms_norm_backward_kernel<L: Lanes>(
    x: &[f32],
    w: &[f32],
    eps: f32,
    dy: &[f32],
    dx: &mut [f32],
    dw: Option<&mut [f32]>,
) {
    let scale = inverse_rms(x, eps);
    let mut dot = 0.0f32;
    for ((x, w), dy) in x.iter().zip(w).zip(dy) {
        dot += x * w * dy;
    }
    let correction = scale * scale * scale * dot / x.len() as f32;
    for (((dx, x), w), dy) in dx.iter_mut().zip(x).zip(w).zip(dy) {
        *dx = dy * w * scale - x * correction;
    }
    if let Some(dw) = dw {
        for ((dw, x), dy) in dw.iter_mut().zip(x).zip(dy) {
            *dw += dy * x * scale;
        }
    }
}

/// Rotate each head of a row in place: halves (x₁, x₂) become (x₁cos − x₂sin, x₂cos + x₁sin).
///
/// `direction` is 1 forward and −1 for the gradient (the inverse rotation).
pub(crate) fn rope(row: &mut [f32], cos: &[f32], sin: &[f32], head: usize, direction: f32) {
    let half = head / 2;
    for head in row.chunks_exact_mut(head) {
        let (first, second) = head.split_at_mut(half);
        for (((a, b), c), s) in first.iter_mut().zip(second).zip(cos).zip(sin) {
            let s = s * direction;
            (*a, *b) = (*a * c - *b * s, *b * c + *a * s);
        }
    }
}

/// `y = silu(gate) * up`.
pub(crate) fn swiglu(gate: &[f32], up: &[f32], y: &mut [f32]) {
    dispatch!(swiglu_kernel(gate: &[f32], up: &[f32], y: &mut [f32]));
}

#[inline(always)]
unsafe fn swiglu_kernel<L: Lanes>(gate: &[f32], up: &[f32], y: &mut [f32]) {
    let whole = y.len() / LANES * LANES;
    for at in (0..whole).step_by(LANES) {
        // SAFETY: `at + LANES` is inside the equally long slices; silu(g) = g / (1 + e^-g), and the
        // reciprocal is taken lane by lane as division is not among the lane operations.
        unsafe {
            let g = L::load(gate.as_ptr().add(at));
            let e = g.mul(L::splat(-1.0)).exp().add(L::splat(1.0)).to_array();
            let inverse: [f32; LANES] = std::array::from_fn(|i| 1.0 / e[i]);
            let value = g
                .mul(L::load(inverse.as_ptr()))
                .mul(L::load(up.as_ptr().add(at)));
            value.store(y.as_mut_ptr().add(at));
        }
    }
    for at in whole..y.len() {
        y[at] = gate[at] / (1.0 + exp_scalar(-gate[at])) * up[at];
    }
}

/// Gradients of [`swiglu`] by `gate` and `up`.
pub(crate) fn swiglu_backward(
    gate: &[f32],
    up: &[f32],
    dy: &[f32],
    dgate: &mut [f32],
    dup: &mut [f32],
) {
    dispatch!(swiglu_backward_kernel(
        gate: &[f32],
        up: &[f32],
        dy: &[f32],
        dgate: &mut [f32],
        dup: &mut [f32]
    ));
}

#[inline(always)]
unsafe fn swiglu_backward_kernel<L: Lanes>(
    gate: &[f32],
    up: &[f32],
    dy: &[f32],
    dgate: &mut [f32],
    dup: &mut [f32],
) {
    let (gate, up) = (&gate[..dy.len()], &up[..dy.len()]);
    let (dgate, dup) = (&mut dgate[..dy.len()], &mut dup[..dy.len()]);
    for at in 0..dy.len() {
        let g = gate[at];
        let sigmoid = 1.0 / (1.0 + exp_scalar(-g));
        dgate[at] = dy[at] * up[at] * sigmoid * (1.0 + g * (1.0 - sigmoid));
        dup[at] = dy[at] * g * sigmoid;
    }
}

/// `(max, Σ e^(scale·(x − max)))` of a row.
pub(crate) fn max_and_exp_sum(x: &[f32], scale: f32) -> (f32, f32) {
    let max = x.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
    let mut sum = 0.0;
    exp_sum(x, max, scale, &mut sum);
    (max, sum)
}

fn exp_sum(x: &[f32], max: f32, scale: f32, out: &mut f32) {
    dispatch!(exp_sum_kernel(x: &[f32], max: f32, scale: f32, out: &mut f32));
}

#[inline(always)]
unsafe fn exp_sum_kernel<L: Lanes>(x: &[f32], max: f32, scale: f32, out: &mut f32) {
    // SAFETY: only whole chunks of LANES floats are loaded.
    unsafe {
        let mut sum = L::splat(0.0);
        let chunks = x.chunks_exact(LANES);
        let rest = chunks.remainder();
        for chunk in chunks {
            let shifted = L::load(chunk.as_ptr())
                .add(L::splat(-max))
                .mul(L::splat(scale));
            sum = sum.add(shifted.exp());
        }
        *out = sum.sum()
            + rest
                .iter()
                .map(|v| exp_scalar((v - max) * scale))
                .sum::<f32>();
    }
}

/// Replace scores by `e^(x − max) / Σ`; all-`-inf` rows do not occur (a token sees itself).
pub(crate) fn softmax(x: &mut [f32]) {
    dispatch!(softmax_kernel(x: &mut [f32]));
}

#[inline(always)]
pub(crate) unsafe fn softmax_kernel<L: Lanes>(x: &mut [f32]) {
    // SAFETY: only whole chunks of LANES floats are loaded and stored.
    unsafe {
        let max = x.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
        let mut sums = L::splat(0.0);
        let whole = x.len() / LANES * LANES;
        for at in (0..whole).step_by(LANES) {
            let p = x.as_mut_ptr().add(at);
            let e = L::load(p).add(L::splat(-max)).exp();
            e.store(p);
            sums = sums.add(e);
        }
        let mut sum = sums.sum();
        for v in &mut x[whole..] {
            *v = exp_scalar(*v - max);
            sum += *v;
        }
        let inverse = 1.0 / sum;
        for v in x {
            *v *= inverse;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_accurate_over_its_range() {
        for i in -8800..8800 {
            let x = i as f32 / 100.0;
            let exact = f64::from(x).exp();
            if x < -87.0 {
                assert!(f64::from(exp_scalar(x)) <= exact * 1.01);
                continue;
            }
            let mut row = [x, 0.0];
            let mut lanes = [x; 2 * LANES];
            lanes[3] = x - 1.0;
            assert!((f64::from(exp_scalar(x)) / exact - 1.0).abs() < 3e-7, "{x}");
            if x < 0.0 {
                softmax(&mut row);
                let p = exact / (1.0 + exact);
                assert!((f64::from(row[0]) - p).abs() < 1e-6 * p.max(1e-30), "{x}");
            }
            let (max, sum) = max_and_exp_sum(&lanes, 1.0);
            let expected = 2.0 * LANES as f32 - 1.0 + (-1.0f32).exp();
            assert_eq!(max, x);
            assert!((sum - expected).abs() < 1e-2, "{x} {sum}");
        }
    }

    #[test]
    fn backward_passes_agree_with_finite_differences() {
        let n = 35;
        let x: Vec<f32> = (0..n).map(|i| ((i * 37 % 19) as f32 - 9.0) / 7.0).collect();
        let w: Vec<f32> = (0..n).map(|i| 0.5 + (i % 5) as f32 / 5.0).collect();
        let dy: Vec<f32> = (0..n).map(|i| ((i * 11 % 13) as f32 - 6.0) / 6.0).collect();
        let loss = |x: &[f32], w: &[f32]| {
            let (mut a, mut b) = (vec![0.0; n], vec![0.0; n]);
            rms_norm(x, w, 1e-5, &mut a);
            swiglu(x, w, &mut b);
            let dot = |y: &[f32]| {
                y.iter()
                    .zip(&dy)
                    .map(|(y, d)| f64::from(y * d))
                    .sum::<f64>()
            };
            (dot(&a), dot(&b))
        };
        let (mut dx, mut dw) = (vec![0.0; n], vec![0.0; n]);
        rms_norm_backward(&x, &w, 1e-5, &dy, &mut dx, Some(&mut dw));
        let (mut dg, mut du) = (vec![0.0; n], vec![0.0; n]);
        swiglu_backward(&x, &w, &dy, &mut dg, &mut du);
        for i in 0..n {
            let h = 1e-2;
            let nudge = |v: &[f32], by: f32| {
                let mut v = v.to_vec();
                v[i] += by;
                v
            };
            let (plus, minus) = (loss(&nudge(&x, h), &w), loss(&nudge(&x, -h), &w));
            let step = f64::from(2.0 * h);
            assert!(((plus.0 - minus.0) / step - f64::from(dx[i])).abs() < 2e-3);
            assert!(((plus.1 - minus.1) / step - f64::from(dg[i])).abs() < 2e-3);
            let (plus, minus) = (loss(&x, &nudge(&w, h)), loss(&x, &nudge(&w, -h)));
            assert!(((plus.0 - minus.0) / step - f64::from(dw[i])).abs() < 2e-3);
            assert!(((plus.1 - minus.1) / step - f64::from(du[i])).abs() < 2e-3);
        }
    }

    #[test]
    fn rope_backwards_undoes_it() {
        let mut row: Vec<f32> = (0..16).map(|i| i as f32).collect();
        let (cos, sin): (Vec<f32>, Vec<f32>) =
            (0..4).map(|i| ((i as f32).cos(), (i as f32).sin())).unzip();
        rope(&mut row, &cos, &sin, 8, 1.0);
        assert!((row[1] - (1.0 * cos[1] - 5.0 * sin[1])).abs() < 1e-6);
        rope(&mut row, &cos, &sin, 8, -1.0);
        for (i, v) in row.iter().enumerate() {
            assert!((v - i as f32).abs() < 1e-5);
        }
    }
}
