//! Time, memory, output, disk and tasks are bounded.

use std::time::{Duration, Instant};

use sandbox::{Exit, PolicyError, SandboxError, SandboxPolicy};

use crate::support::{every_kind, policy, strongest, with_children};

#[tokio::test]
async fn wall_time_is_limited_and_what_was_printed_is_kept() {
    let policy = SandboxPolicy {
        wall: Duration::from_secs(1),
        ..policy()
    };
    for test in every_kind().await {
        for code in [
            "print('started')\nwhile True: pass",
            "import time; print('started'); time.sleep(600)",
            "import signal\nfor n in range(1, 32):\n  try: signal.signal(n, signal.SIG_IGN)\n  \
             except (OSError, ValueError): pass\nprint('started')\nwhile True: pass",
        ] {
            let begun = Instant::now();
            let execution = test.run_under(code, &policy).await;
            assert_eq!(execution.exit, Exit::TimedOut, "{code}");
            assert_eq!(execution.stdout, "started\n");
            assert!(
                begun.elapsed() < Duration::from_secs(3),
                "{:?}",
                begun.elapsed()
            );
        }
        test.assert_all_gone().await;
    }
}

#[tokio::test]
async fn cpu_time_is_limited_even_when_the_signal_is_ignored() {
    let test = strongest().await;
    let policy = SandboxPolicy {
        cpu: Duration::from_secs(1),
        ..policy()
    };
    for code in [
        "while True: pass",
        "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
    ] {
        assert_eq!(
            test.run_under(code, &policy).await.exit,
            Exit::TimedOut,
            "{code}"
        );
    }
}

#[tokio::test]
async fn memory_is_limited() {
    let bombs = [
        "x = []\nwhile True: x.append('a' * 1000000)",
        "x = bytearray(10 ** 12)",
        "x = 'a'\nwhile True: x += x",
        "def f(x):\n    y = x * 2\n    return f(y)\nf([0])",
        "x = {}\nn = 0\nwhile True:\n    x[n] = str(n)\n    n += 1",
    ];
    let policy = SandboxPolicy {
        memory_mib: 128,
        ..policy()
    };
    for test in every_kind().await {
        for code in bombs {
            let execution = test.run_under(code, &policy).await;
            assert_eq!(
                execution.exit,
                Exit::OutOfMemory,
                "{code}: {}",
                execution.stderr
            );
        }
        let survivor = "try: bytearray(10 ** 12)\nexcept MemoryError: print('survived')";
        assert_eq!(test.output(survivor).await, "survived\n");
    }
}

#[tokio::test]
async fn memory_cannot_be_had_outside_the_address_space() {
    let code = "import os, mmap\n\
                try: os.memfd_create('m')\n\
                except OSError: print('refused')\n\
                try: mmap.mmap(-1, 1 << 40)\n\
                except (OSError, MemoryError): print('refused')\n";
    for test in every_kind().await {
        assert_eq!(test.output(code).await, "refused\nrefused\n");
    }
}

#[tokio::test]
async fn a_flood_is_cut_at_the_cap_and_costs_little_memory() {
    let cap = 1 << 20;
    let policy = SandboxPolicy {
        output_bytes: cap,
        ..policy()
    };
    for test in every_kind().await {
        for descriptor in [1, 2] {
            let code =
                format!("import os\nb = b'x' * 65536\nwhile True: os.write({descriptor}, b)");
            let before = resident_bytes();
            let begun = Instant::now();
            let execution = test.run_under(&code, &policy).await;
            assert!(begun.elapsed() < Duration::from_secs(5));
            assert_eq!(execution.exit, Exit::Signal(9));
            assert!(execution.is_truncated);
            assert_eq!(execution.stdout.len() + execution.stderr.len(), cap);
            // Other tests of this process allocate at the same time, hence more than the few
            // mebibytes that one run takes; a reader without a cap would take gigabytes.
            let grown = resident_bytes().saturating_sub(before);
            assert!(grown < 32 << 20, "{grown} bytes");
        }
        test.assert_all_gone().await;
    }
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[tokio::test]
async fn much_output_below_the_cap_is_complete() {
    let test = strongest().await;
    let policy = SandboxPolicy {
        output_bytes: 4 << 20,
        ..policy()
    };
    for count in [150_000, 2_000_000] {
        let code = format!("import sys; sys.stdout.write('x' * {count})");
        let execution = test.run_under(&code, &policy).await;
        assert_eq!(
            (execution.exit, execution.stdout.len()),
            (Exit::Code(0), count)
        );
        assert!(!execution.is_truncated);
    }
    let code = "import sys; sys.stderr.write('e' * 300000); print('done')";
    let execution = test.run_under(code, &policy).await;
    assert_eq!(
        (execution.exit, execution.stderr.len()),
        (Exit::Code(0), 300_000)
    );
    assert_eq!(execution.stdout, "done\n");
}

#[tokio::test]
async fn the_disk_cannot_be_filled() {
    let many_files = "n = 0\nb = b'x' * 65536\n\
                      while True:\n    open(f'f{n}', 'wb').write(b)\n    n += 1";
    let one_file = "f = open('f', 'wb', buffering=0)\nb = b'x' * 65536\n\
                    while True:\n    assert f.write(b) == 65536";
    let empty_files = "n = 0\nwhile True:\n    open(f'f{n}', 'wb')\n    n += 1";
    let policy = SandboxPolicy {
        file_mib: 2,
        ..policy()
    };
    for test in every_kind().await {
        for code in [many_files, one_file, empty_files] {
            let execution = test.run_under(code, &policy).await;
            // Full or too large for the program itself; killed where only the parent can see it.
            let is_error = execution.exit == Exit::Code(1) && execution.stderr.contains("Error");
            let is_kill = execution.exit == Exit::Signal(25);
            assert!(
                is_error || is_kill,
                "{:?} {code} {execution:?}",
                test.isolation()
            );
        }
    }
}

#[tokio::test]
async fn children_are_denied_unless_the_policy_gives_some() {
    let attempts = "import os, subprocess, sys\n\
                    for start in (os.fork, lambda: subprocess.run([sys.executable, '-V'])):\n\
                    \x20   try: start()\n\
                    \x20   except OSError as error: print(error.strerror)\n";
    for test in every_kind().await {
        let denied = "Operation not permitted\n";
        assert_eq!(test.output(attempts).await, format!("{denied}{denied}"));
    }
}

#[tokio::test]
async fn a_fork_bomb_stays_within_its_limit_and_disturbs_no_other_run() {
    let Some(test) = with_children().await else {
        return;
    };
    let bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass";
    let limit = 16;
    let policy = SandboxPolicy {
        wall: Duration::from_secs(3),
        processes: limit,
        ..policy()
    };
    let begun = Instant::now();
    let bombing = test.run_under(bomb, &policy);
    let watching = async {
        test.wait_for_processes(limit as usize / 2).await;
        let other = test.run("print('still here')").await;
        assert_eq!(other.stdout, "still here\n");
        let mut most = 0;
        while begun.elapsed() < Duration::from_millis(2500) {
            most = most.max(test.processes().len());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        most
    };
    let (execution, most) = tokio::join!(bombing, watching);
    assert_eq!(execution.exit, Exit::TimedOut);
    assert!(most <= limit as usize, "{most} processes");
    assert!(
        begun.elapsed() < Duration::from_secs(6),
        "{:?}",
        begun.elapsed()
    );
    test.assert_all_gone().await;
}

#[tokio::test]
async fn children_work_where_the_policy_gives_some() {
    let Some(test) = with_children().await else {
        return;
    };
    let policy = SandboxPolicy {
        processes: 4,
        ..policy()
    };
    let code = "import subprocess, sys\n\
                print(subprocess.run([sys.executable, '-S', '-c', 'print(6 * 7)'], \
                capture_output=True, text=True).stdout)";
    let execution = test.run_under(code, &policy).await;
    assert_eq!(execution.stdout, "42\n\n", "{}", execution.stderr);
}

#[tokio::test]
async fn threads_are_bounded() {
    let code = "import threading, time\nthreading.stack_size(65536)\nn = 0\n\
                try:\n    while n < 1000:\n        \
                threading.Thread(target=time.sleep, args=(1,), daemon=True).start()\n        n += 1\n\
                except RuntimeError: pass\nprint(n)";
    for test in every_kind().await {
        let count: u32 = test.output(code).await.trim().parse().unwrap();
        assert!(count < 64, "{:?}: {count} threads", test.isolation());
    }
}

#[tokio::test]
async fn limits_cannot_be_raised() {
    let code = "import resource as r\n\
                for name in ('AS', 'CPU', 'FSIZE', 'NOFILE', 'CORE', 'STACK'):\n\
                \x20   kind = getattr(r, 'RLIMIT_' + name)\n\
                \x20   try: r.setrlimit(kind, (r.RLIM_INFINITY, r.RLIM_INFINITY))\n\
                \x20   except (OSError, ValueError): continue\n\
                \x20   print(name, 'raised')\n";
    for test in every_kind().await {
        assert_eq!(test.output(code).await, "");
    }
}

#[tokio::test]
async fn twenty_runs_at_a_time_do_not_mix() {
    let test = std::sync::Arc::new(strongest().await);
    let runs: Vec<_> = (0..20)
        .map(|number| {
            let test = test.clone();
            tokio::spawn(async move {
                let code =
                    format!("open('mine', 'w').write('{number}')\nprint(open('mine').read())");
                (number, test.run(&code).await)
            })
        })
        .collect();
    for run in runs {
        let (number, execution) = run.await.unwrap();
        assert_eq!(
            execution.stdout,
            format!("{number}\n"),
            "{}",
            execution.stderr
        );
    }
    test.assert_all_gone().await;
}

#[tokio::test]
async fn a_policy_that_cannot_work_is_refused() {
    let test = strongest().await;
    let policy = SandboxPolicy {
        memory_mib: 1,
        ..policy()
    };
    let error = test.sandbox.run_python("", &policy).await.unwrap_err();
    assert!(matches!(
        error,
        SandboxError::Policy(PolicyError::MemoryTooSmall { memory_mib: 1 })
    ));
}
