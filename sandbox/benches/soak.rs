//! Runs hostile programs for a long time and looks for what they left: processes, scratch files,
//! mounts, descriptors and memory.
//!
//! ```text
//! cargo bench -p sandbox --bench soak -- [runs] [python]
//! ```

#![expect(clippy::print_stdout, reason = "it is here to print")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sandbox::{Sandbox, SandboxPolicy};

mod common;

/// Programs at a time.
const WORKERS: usize = 4;

/// Growth of this process's memory that is no leak.
const ALLOWED_GROWTH_KIB: u64 = 16 << 10;

/// Name, program, and whether it may have children; those start cold.
const HOSTILE: [(&str, &str, bool); 12] = [
    ("print", "print(1)", false),
    (
        "files",
        "import os\nfor n in range(50): os.mkdir(f'd{n}', 0); open(f'f{n}', 'w').write('x')",
        false,
    ),
    (
        "links",
        "import os\nfor n in range(50): os.symlink('/', f'l{n}')",
        false,
    ),
    (
        "flood",
        "import os\nwhile True: os.write(1, b'x' * 65536)",
        false,
    ),
    (
        "memory",
        "x = []\nwhile True: x.append(bytes(1 << 20))",
        false,
    ),
    (
        "disk",
        "n = 0\nwhile True:\n    open(f'f{n}', 'wb').write(bytes(1 << 16)); n += 1",
        false,
    ),
    ("crash", "import ctypes; ctypes.string_at(0)", false),
    ("suicide", "import os; os.kill(os.getpid(), 9)", false),
    (
        "server",
        "import os\nfor n in (os.getppid(), -1, 1):\n    try: os.kill(n, 9)\n    except OSError: pass",
        false,
    ),
    (
        "threads",
        "import threading, time\nfor n in range(40): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
        false,
    ),
    (
        "forks",
        "import os, time\nwhile True:\n    try:\n        if os.fork() == 0: os.setsid()\n    except OSError: break\ntime.sleep(600)",
        true,
    ),
    ("loop", "while True: pass", false),
];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = common::arguments();
    let runs: usize = arguments.next().map_or(Ok(10_000), |runs| runs.parse())?;
    let python = arguments.next().unwrap_or_else(|| "python3".to_owned());
    let root = tempfile::tempdir()?;
    let sandbox = Sandbox::new(
        common::helper(),
        PathBuf::from(python),
        root.path().to_owned(),
    );
    let sandbox = Arc::new(sandbox.await?);
    // Everything that is kept is there after a first round.
    attack(&sandbox, HOSTILE.len() * 4).await?;
    let before = Traces::now(sandbox.process_label(), root.path())?;
    let begun = Instant::now();
    attack(&sandbox, runs).await?;
    let took = begun.elapsed();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let after = Traces::now(sandbox.process_label(), root.path())?;
    println!("{runs} runs in {:.1} s", took.as_secs_f64());
    println!("before {before:?}\nafter  {after:?}");
    drop(sandbox);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let gone = Traces::now("coharness-box-", root.path())?;
    println!("closed {gone:?}");
    let is_clean = after.processes <= before.processes
        && after.entries <= before.entries
        && after.mounts <= before.mounts
        && after.descriptors <= before.descriptors + 4
        && after.memory_kib <= before.memory_kib + ALLOWED_GROWTH_KIB
        && gone.processes == 0
        && gone.entries == 0;
    if is_clean {
        println!("nothing is left");
        Ok(())
    } else {
        Err("something is left".into())
    }
}

async fn attack(sandbox: &Arc<Sandbox>, runs: usize) -> Result<(), Box<dyn Error>> {
    let next = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (sandbox, next) = (Arc::clone(sandbox), Arc::clone(&next));
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= runs {
                        return Ok(());
                    }
                    let (_, code, has_children) = HOSTILE[number % HOSTILE.len()];
                    let policy = SandboxPolicy {
                        wall: Duration::from_millis(300),
                        memory_mib: 128,
                        processes: if has_children { 8 } else { 1 },
                        ..SandboxPolicy::default()
                    };
                    sandbox.run_python(code, &policy).await?;
                }
            })
        })
        .collect();
    for worker in workers {
        let result: Result<(), sandbox::SandboxError> = worker.await?;
        result?;
    }
    Ok(())
}

/// What there is of this process and its boxes.
#[derive(Debug)]
struct Traces {
    processes: usize,
    entries: usize,
    mounts: usize,
    descriptors: usize,
    memory_kib: u64,
}

impl Traces {
    fn now(label: &str, root: &Path) -> Result<Self, Box<dyn Error>> {
        let processes = std::fs::read_dir("/proc")?
            .filter_map(Result::ok)
            .filter(|entry| {
                let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).contains(label)
            })
            .count();
        let status = std::fs::read_to_string("/proc/self/status")?;
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let memory = memory.and_then(|text| text.split_whitespace().next());
        Ok(Traces {
            processes,
            entries: entries(root),
            mounts: std::fs::read_to_string("/proc/self/mountinfo")?
                .lines()
                .count(),
            descriptors: std::fs::read_dir("/proc/self/fd")?.count(),
            memory_kib: memory.ok_or("no VmRSS")?.parse()?,
        })
    }
}

fn entries(directory: &Path) -> usize {
    let Ok(found) = std::fs::read_dir(directory) else {
        return 0;
    };
    let count = |entry: std::fs::DirEntry| 1 + entries(&entry.path());
    found.filter_map(Result::ok).map(count).sum()
}
