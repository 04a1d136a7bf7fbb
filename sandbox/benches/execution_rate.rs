//! How many programs a second, and how much a run takes over the program's own time.
//!
//! ```text
//! cargo bench -p sandbox --bench execution_rate -- [python] [runs] [isolation]
//! ```
//!
//! It fails where forked programs don't reach [`LEAST_RATE`] or take more than [`MOST_OVERHEAD`].
//! `isolation` is one of `fresh_user`, `user_namespace`, `namespaces_only` and `process`; by default
//! the strongest. Programs with `sympy` need a Python that has it, and are left out aloud otherwise.

#![expect(clippy::print_stdout, reason = "it is here to print")]

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sandbox::{Execution, Exit, Sandbox, SandboxOptions, SandboxPolicy, Start};

mod common;

/// Programs at a time.
const WORKERS: usize = 2;

/// Programs a second, forked from a server that is warm.
const LEAST_RATE: f64 = 200.0;

/// What half of them may take over their own time.
const MOST_OVERHEAD: Duration = Duration::from_millis(5);

/// Measured with a clock of their own, so that what is left is the sandbox's.
const PROGRAMS: [(&str, &str); 3] = [
    ("print", "print(1 + 1)"),
    ("calculate", "print(sum(i * i for i in range(20_000)))"),
    (
        "sympy",
        "import sympy\nx = sympy.symbols('x')\nprint(sympy.expand((x + 1) ** 3))",
    ),
];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = common::arguments();
    let python = arguments.next().unwrap_or_else(|| "python3".to_owned());
    let runs: usize = arguments.next().map_or(Ok(1000), |runs| runs.parse())?;
    let isolation = match arguments.next() {
        Some(name) => Some(serde_json::from_value(name.into())?),
        None => None,
    };
    println!("{WORKERS} at a time, {runs} runs warm, a tenth of them cold");
    println!("start  program      runs/s   p50 over own   p99 over own    first run");
    let scratch = tempfile::tempdir()?;
    let mut late = Vec::new();
    for start in [Start::Warm, Start::Cold] {
        let options = SandboxOptions {
            isolation,
            start,
            ..SandboxOptions::default()
        };
        let root = scratch.path().to_owned();
        let sandbox = Arc::new(
            Sandbox::with_options(common::helper(), PathBuf::from(&python), root, options).await?,
        );
        for (name, program) in PROGRAMS {
            let code = timed(program);
            let begun = Instant::now();
            let first = sandbox.run_python(&code, &policy()).await?;
            let first_took = begun.elapsed();
            if first.exit != Exit::Code(0) {
                let why = first.stderr.lines().last().unwrap_or_default();
                println!("{start:?}   {name}: SKIPPED, {why}");
                continue;
            }
            let runs = if start == Start::Warm {
                runs
            } else {
                runs / 10
            };
            let (rate, overheads) = measure(&sandbox, &code, runs.max(10)).await?;
            let at = |share: f64| {
                let index = (overheads.len() as f64 * share) as usize;
                overheads[index.min(overheads.len() - 1)]
            };
            let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
            println!(
                "{start:?}   {name:10} {rate:8.1}   {:9.2} ms   {:9.2} ms {:9.1} ms",
                milliseconds(at(0.5)),
                milliseconds(at(0.99)),
                milliseconds(first_took)
            );
            // The other programs have work of their own to do.
            let is_bare = start == Start::Warm && name == "print";
            if is_bare && (rate < LEAST_RATE || at(0.5) > MOST_OVERHEAD) {
                late.push(name);
            }
        }
    }
    match late.as_slice() {
        [] => Ok(()),
        late => Err(format!("too slow: {}", late.join(", ")).into()),
    }
}

/// Runs a program often. Returns runs a second, and what each took over its own time, sorted.
async fn measure(
    sandbox: &Arc<Sandbox>,
    code: &str,
    runs: usize,
) -> Result<(f64, Vec<Duration>), Box<dyn Error>> {
    let started = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (sandbox, started, code) = (sandbox.clone(), started.clone(), code.to_owned());
            tokio::spawn(async move {
                let mut overheads = Vec::new();
                while started.fetch_add(1, Ordering::Relaxed) < runs {
                    let begun = Instant::now();
                    let execution = sandbox.run_python(&code, &policy()).await?;
                    let own = own_time(&execution).ok_or_else(|| failed(&execution))?;
                    overheads.push(begun.elapsed().saturating_sub(own));
                }
                Ok::<_, Box<dyn Error + Send + Sync>>(overheads)
            })
        })
        .collect();
    let mut overheads = Vec::new();
    for worker in workers {
        overheads.extend(worker.await?.map_err(|error| error.to_string())?);
    }
    let rate = overheads.len() as f64 / begun.elapsed().as_secs_f64();
    overheads.sort();
    Ok((rate, overheads))
}

/// A program that says at its end how long it took. Importing is its own time too where nothing
/// has been imported before, so imports stand before the clock.
fn timed(program: &str) -> String {
    let (imports, rest): (Vec<_>, Vec<_>) = program
        .lines()
        .partition(|line| line.starts_with("import "));
    format!(
        "import time as _time\n{}\n_begun = _time.perf_counter_ns()\n{}\n\
         print(_time.perf_counter_ns() - _begun)\n",
        imports.join("\n"),
        rest.join("\n")
    )
}

fn own_time(execution: &Execution) -> Option<Duration> {
    let last = execution.stdout.lines().last()?;
    last.parse().ok().map(Duration::from_nanos)
}

fn failed(execution: &Execution) -> String {
    format!("{:?}: {}", execution.exit, execution.stderr)
}

fn policy() -> SandboxPolicy {
    SandboxPolicy {
        wall: Duration::from_secs(30),
        ..SandboxPolicy::default()
    }
}
