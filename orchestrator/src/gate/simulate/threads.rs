//! Work on all processors.

/// `work(0)` to `work(count - 1)` on all processors; the results don't depend on how many there are.
pub(super) fn parallel<T: Send>(count: u32, work: impl Fn(u32) -> T + Sync) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let share = (count as usize).div_ceil(threads).max(1);
    let numbers: Vec<u32> = (0..count).collect();
    std::thread::scope(|scope| {
        let work = &work;
        let parts: Vec<_> = numbers
            .chunks(share)
            .map(|part| scope.spawn(move || part.iter().map(|n| work(*n)).collect::<Vec<T>>()))
            .collect();
        parts
            .into_iter()
            .flat_map(|part| match part.join() {
                Ok(results) => results,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_their_numbers() {
        let alone: Vec<u32> = (0..5).collect();
        assert_eq!(parallel(5, |n| n), alone);
        assert!(parallel(0, |n| n).is_empty());
    }
}
