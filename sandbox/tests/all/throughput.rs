//! How many short programs a second. A measurement, not a test of anything: run it with
//! `cargo test -p sandbox --test all throughput -- --ignored --nocapture`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use sandbox::{Isolation, SandboxOptions};

use crate::support::{ISOLATIONS, TestBox, with_options};

const RUNS: u32 = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn short_programs_a_second() {
    for isolation in ISOLATIONS {
        let options = SandboxOptions {
            isolation: Some(isolation),
            ..SandboxOptions::default()
        };
        let Ok(test) = with_options(options, &[]).await else {
            continue;
        };
        let test = Arc::new(test);
        for workers in [1, 2, 4] {
            measure(&test, isolation, workers).await;
        }
    }
}

async fn measure(test: &Arc<TestBox>, isolation: Isolation, workers: u32) {
    let begun = Instant::now();
    let started = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..workers)
        .map(|_| {
            let (test, started) = (test.clone(), started.clone());
            tokio::spawn(async move {
                while started.fetch_add(1, Ordering::Relaxed) < RUNS {
                    assert_eq!(test.output("print(1 + 1)").await, "2\n");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let rate = f64::from(RUNS) / begun.elapsed().as_secs_f64();
    eprintln!("{isolation:?}, {workers} at a time: {rate:.1} runs/s");
}
