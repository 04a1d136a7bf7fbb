//! Ordinary programs behave as under plain Python.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sandbox::Exit;
use tokio::task::JoinSet;

use crate::support::{every_kind, every_kind_with, strongest};

#[tokio::test]
async fn prints() {
    for test in every_kind().await {
        let execution = test.run("print(1 + 1)").await;
        assert_eq!(
            (execution.stdout.as_str(), execution.stderr.as_str()),
            ("2\n", "")
        );
        assert_eq!(execution.exit, Exit::Code(0));
        assert!(!execution.is_truncated);
        assert!(!execution.duration.is_zero());
    }
}

#[tokio::test]
async fn a_traceback_shows_the_program_and_nothing_of_the_box() {
    let test = strongest().await;
    let code = "def ratio(a, b):\n    return a / b\n\nprint('before')\nratio(1, 0)\n";
    let execution = test.run(code).await;
    assert_eq!(execution.exit, Exit::Code(1));
    assert_eq!(execution.stdout, "before\n");
    let lines: Vec<_> = execution
        .stderr
        .lines()
        // Markers under the line differ between versions.
        .filter(|line| !line.trim_matches([' ', '^', '~']).is_empty())
        .collect();
    assert_eq!(
        lines,
        [
            "Traceback (most recent call last):",
            "  File \"main.py\", line 5, in <module>",
            "    ratio(1, 0)",
            "  File \"main.py\", line 2, in ratio",
            "    return a / b",
            "ZeroDivisionError: division by zero",
        ]
    );
}

#[tokio::test]
async fn a_syntax_error_is_the_programs_fault() {
    let test = strongest().await;
    for code in [
        "print(1",
        "x = = 2\n",
        "def f(:\n  pass",
        "  indented",
        "\u{0}",
    ] {
        let execution = test.run(code).await;
        assert_eq!(execution.exit, Exit::Code(1), "{code:?}");
        assert!(execution.stderr.contains("Error"), "{}", execution.stderr);
        assert!(!execution.stderr.contains("_run"), "{}", execution.stderr);
    }
}

#[tokio::test]
async fn exit_codes_and_signals_are_reported() {
    let test = strongest().await;
    let exits = [
        ("", Exit::Code(0)),
        ("import sys; sys.exit(3)", Exit::Code(3)),
        ("exit(4)", Exit::Code(4)),
        ("quit()", Exit::Code(0)),
        ("raise SystemExit('why')", Exit::Code(1)),
        ("import os; os._exit(7)", Exit::Code(7)),
        ("import os; os.abort()", Exit::Signal(6)),
        ("import os; os.kill(os.getpid(), 9)", Exit::Signal(9)),
        ("import os; os.kill(os.getpid(), 15)", Exit::Signal(15)),
        ("def f(n): return f(n + 1)\nf(0)", Exit::Code(1)),
    ];
    for (code, exit) in exits {
        assert_eq!(test.run(code).await.exit, exit, "{code}");
    }
    assert_eq!(test.run("raise SystemExit('why')").await.stderr, "why\n");
}

#[tokio::test]
async fn text_of_any_language_passes_both_ways() {
    let test = strongest().await;
    let output = test
        .output("print('∑ π₀ 数学 🧮', len('🧮'), flush=True)")
        .await;
    assert_eq!(output, "∑ π₀ 数学 🧮 1\n");
    let code = "# -*- coding: latin-1 -*-\nprint(len('\u{e9}'))";
    assert_eq!(
        test.output(code).await,
        "2\n",
        "a declared encoding is honoured"
    );
}

#[tokio::test]
async fn bytes_that_are_no_text_are_replaced() {
    let test = strongest().await;
    let code = r"import sys; sys.stdout.buffer.write(b'ok\xff\xfe\x00end')";
    assert_eq!(test.output(code).await, "ok\u{fffd}\u{fffd}\0end");
    let code = r"import os; os.write(1, b'\xc3'); os.write(1, b'\xa9 \xe2\x82')";
    assert_eq!(test.output(code).await, "\u{e9} \u{fffd}");
}

#[tokio::test]
async fn standard_library_works() {
    let programs = [
        (
            "import math; print(math.comb(10, 3), math.isqrt(99))",
            "120 9\n",
        ),
        (
            "from fractions import Fraction as F; print(F(1, 3) + F(1, 6))",
            "1/2\n",
        ),
        (
            "from decimal import *; getcontext().prec = 30; print(Decimal(2).sqrt())",
            "1.41",
        ),
        (
            "import itertools as i; print(len(list(i.permutations(range(5)))))",
            "120\n",
        ),
        (
            "import statistics; print(statistics.mean([1, 2, 6]))",
            "3\n",
        ),
        (
            "import random; random.seed(1); print(random.randrange(1) == 0)",
            "True\n",
        ),
        (
            "import json, re, collections, functools, heapq, bisect, cmath; print(1)",
            "1\n",
        ),
        (
            "import datetime, time; time.sleep(0.01); print(datetime.date(2024, 2, 29))",
            "2024",
        ),
        (
            "import asyncio\nasync def f(): return 7\nprint(asyncio.run(f()))",
            "7\n",
        ),
        (
            "import numbers, string, array, struct, hashlib, secrets, uuid; print(2)",
            "2\n",
        ),
        ("print(len(str(3 ** 20000)))", "9543\n"),
        (
            "import os; print(os.path.basename(os.getcwd()) != '')",
            "True\n",
        ),
    ];
    for test in every_kind().await {
        for (code, expected) in programs {
            let output = test.output(code).await;
            assert!(
                output.starts_with(expected),
                "{:?} {code}: {output}",
                test.isolation()
            );
        }
    }
}

#[tokio::test]
async fn threads_work_where_they_can_be_bounded() {
    let test = strongest().await;
    let code = "import concurrent.futures as c\n\
                with c.ThreadPoolExecutor(4) as pool: print(sum(pool.map(abs, [-1, -2, 3])))";
    assert_eq!(test.output(code).await, "6\n");
}

#[tokio::test]
async fn installed_packages_can_be_imported() {
    let programs = [
        (
            "sympy",
            "import sympy as s; x = s.symbols('x'); print(s.solve(x**2 - 5*x + 6, x))",
            "[2, 3]\n",
        ),
        (
            "numpy",
            "import numpy as n; a = n.eye(200) * 2; print(int((a @ a).trace()))",
            "800\n",
        ),
    ];
    for (package, code, expected) in programs {
        let find = format!("import importlib.util as u; exit(u.find_spec({package:?}) is None)");
        let found = std::process::Command::new(crate::support::python())
            .args(["-I", "-c", &find])
            .status();
        if !found.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: {package} is not installed");
            continue;
        }
        for test in every_kind().await {
            assert_eq!(test.output(code).await, expected);
        }
    }
}

#[tokio::test]
async fn a_virtual_environment_brings_its_packages() {
    let directory = tempfile::tempdir().unwrap();
    let environment = directory.path().join("environment");
    let created = std::process::Command::new(crate::support::python())
        .args(["-m", "venv", "--without-pip"])
        .arg(&environment)
        .status();
    if !created.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: this Python cannot create virtual environments");
        return;
    }
    let packages = std::fs::read_dir(environment.join("lib"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("site-packages"))
        .find(|path| path.is_dir())
        .unwrap();
    std::fs::write(packages.join("only_here.py"), "answer = 6 * 7").unwrap();
    // Code of the machine's that would run in every interpreter.
    std::fs::write(packages.join("hook.pth"), "import only_here; print('hook')").unwrap();
    let strongest = strongest().await.isolation();
    let boxes = every_kind_with(environment.join("bin/python3")).await;
    assert_eq!(boxes[0].isolation(), strongest);
    for test in boxes {
        let output = test
            .output("import only_here; print(only_here.answer)")
            .await;
        assert_eq!(output, "42\n");
        // `/tmp` is writable unless the interpreter occupies it; the scratch directory always is.
        let code = "import tempfile; print(tempfile.TemporaryFile('w').write('x'))";
        assert_eq!(test.output(code).await, "1\n");
    }
}

#[tokio::test]
async fn the_program_is_the_main_module() {
    let test = strongest().await;
    let code = "import pickle, sys\nfrom dataclasses import dataclass\n\
                @dataclass\nclass P:\n    x: int\n\
                print(__name__, __file__, sys.argv, pickle.loads(pickle.dumps(P(2))))\n\
                print(sorted(n for n in globals() if not n.startswith('__')))\n";
    assert_eq!(
        test.output(code).await,
        "__main__ main.py ['main.py'] P(x=2)\n['P', 'dataclass', 'pickle', 'sys']\n"
    );
}

#[tokio::test]
async fn there_is_no_input() {
    let test = strongest().await;
    let execution = test.run("input('number? ')").await;
    assert_eq!(execution.exit, Exit::Code(1));
    assert!(
        execution
            .stderr
            .ends_with("EOFError: EOF when reading a line\n")
    );
}

#[tokio::test]
async fn a_repeated_run_prints_the_same() {
    let test = strongest().await;
    let code = "print({str(n) for n in range(50)}, hash('x'))";
    assert_eq!(test.output(code).await, test.output(code).await);
}

#[tokio::test]
async fn scratch_files_work_and_are_not_seen_by_the_next_run() {
    let code = "import os, tempfile\n\
                print(sorted(os.listdir()))\n\
                os.makedirs('a/b'); open('a/b/c', 'w').write('text')\n\
                os.rename('a/b/c', 'a/d'); print(open('a/d').read())\n\
                with tempfile.NamedTemporaryFile('w+') as f: f.write('x'); print(f.tell())\n";
    for test in every_kind().await {
        for _ in 0..2 {
            assert_eq!(test.output(code).await, "['main.py']\ntext\n1\n");
        }
    }
}

#[tokio::test]
async fn nothing_is_left_on_disk() {
    for test in every_kind().await {
        let scratch = test.root.path().join("scratch");
        let before = tree(&scratch);
        test.run("import os\nfor n in range(20): os.mkdir(f'd{n}'); open(f'd{n}/f', 'w')")
            .await;
        test.run("1 / 0").await;
        let code = "open('f', 'w')\nwhile True: pass";
        let policy = sandbox::SandboxPolicy {
            wall: std::time::Duration::from_millis(300),
            ..crate::support::policy()
        };
        test.run_under(code, &policy).await;
        // A server that had to be replaced has another name than before.
        let left = settled(&scratch, before.len());
        assert!(
            left.len() <= before.len(),
            "{:?}: {left:?}",
            test.isolation()
        );
        drop(test.sandbox);
        let left = settled(&scratch, 0);
        assert!(left.is_empty(), "{left:?}");
    }
}

/// What is in a directory once there are at most so many entries, or after ten seconds: what a
/// killed program leaves is swept away beside the next one.
fn settled(directory: &std::path::Path, entries: usize) -> Vec<std::path::PathBuf> {
    let begun = std::time::Instant::now();
    loop {
        let found = tree(directory);
        if found.len() <= entries || begun.elapsed() > std::time::Duration::from_secs(10) {
            return found;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn tree(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    // What is swept away meanwhile is not there.
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(tree(&path));
        }
        found.push(path);
    }
    found
}

/// Programs that come together share the servers that are kept; one that takes long holds up none.
#[tokio::test(flavor = "multi_thread")]
async fn many_short_programs_need_few_servers_and_long_ones_make_room() {
    let test = Arc::new(strongest().await);
    if !test.sandbox.enforcement().layers.fork_server.enforced {
        eprintln!("SKIPPED: no fork server");
        return;
    }
    let run_all = |count: usize, code: &'static str| {
        let mut programs = JoinSet::new();
        for _ in 0..count {
            let test = Arc::clone(&test);
            programs.spawn(async move { test.run(code).await });
        }
        programs.join_all()
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // Every server has a scratch folder of its own. Two for each processor may be young at a time. On a busy
    // machine many programs take long enough to make room for others; still, most find a server there.
    let count = (20 * processors).min(60);
    let code = "import os\nat = os.stat('.')\nprint(at.st_dev, at.st_ino)";
    let mut fewest = usize::MAX;
    for _ in 0..8 {
        let executions = run_all(count, code).await;
        let folders = executions.into_iter().map(|execution| execution.stdout);
        let folders: BTreeSet<String> = folders.collect();
        assert!(folders.iter().all(|folder| !folder.is_empty()));
        fewest = fewest.min(folders.len());
        if fewest <= 2 * processors {
            break;
        }
    }
    assert!(2 * fewest <= count, "{fewest} servers for {count} programs");

    // Two for each processor may be young at a time: if they made no room these would take four times two
    // seconds.
    let code = "import time\ntime.sleep(2)\nprint(1)";
    let mut quickest = Duration::MAX;
    for _ in 0..3 {
        let started = Instant::now();
        let slept = run_all((8 * processors).min(64), code).await;
        assert!(slept.iter().all(|execution| execution.stdout == "1\n"));
        quickest = quickest.min(started.elapsed());
        if quickest < Duration::from_secs(6) {
            break;
        }
    }
    assert!(quickest < Duration::from_secs(6), "{quickest:?}");
}
