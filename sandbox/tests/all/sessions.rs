//! Interpreters whose variables live on, and fork servers that die.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sandbox::{Exit, SandboxError, SandboxOptions, SandboxPolicy, Session, SessionCall, Start};

use crate::support::{TestBox, every_kind, every_start, policy, strongest, with_options};

async fn call(session: &mut Session, code: &str) -> SessionCall {
    session.call(code, &policy()).await.unwrap()
}

/// Output of a call that has to succeed.
async fn output(session: &mut Session, code: &str) -> String {
    let call = call(session, code).await;
    assert_eq!(call.execution.exit, Exit::Code(0), "{code}: {call:?}");
    assert!(!call.is_state_lost, "{code}");
    call.execution.stdout
}

fn short() -> SandboxPolicy {
    SandboxPolicy {
        wall: Duration::from_millis(700),
        ..policy()
    }
}

#[tokio::test]
async fn variables_functions_imports_and_files_live_on() {
    for test in every_kind().await {
        let mut session = test.sandbox.open_session().await.unwrap();
        assert_eq!(output(&mut session, "x = 6").await, "");
        assert_eq!(
            output(&mut session, "import math\ndef f(y): return x * y").await,
            ""
        );
        assert_eq!(
            output(&mut session, "open('kept', 'w').write(str(f(7)))").await,
            ""
        );
        let code = "print(open('kept').read(), math.isqrt(99), __name__)";
        assert_eq!(output(&mut session, code).await, "42 9 __main__\n");
        let code =
            "from dataclasses import dataclass\nimport pickle\n@dataclass\nclass P:\n    a: int";
        assert_eq!(output(&mut session, code).await, "");
        let code = "print(pickle.loads(pickle.dumps(P(3))))";
        assert_eq!(output(&mut session, code).await, "P(a=3)\n");
    }
}

#[tokio::test]
async fn a_call_that_raises_keeps_the_state_and_names_its_lines() {
    let test = strongest().await;
    let mut session = test.sandbox.open_session().await.unwrap();
    output(&mut session, "x = 1\ndef ratio(a, b):\n    return a / b").await;
    let failed = call(&mut session, "x = 2\nprint('before')\nratio(x, 0)").await;
    assert_eq!(
        (failed.execution.exit, failed.is_state_lost),
        (Exit::Code(1), false)
    );
    assert_eq!(failed.execution.stdout, "before\n");
    let lines: Vec<_> = failed.execution.stderr.lines().map(str::trim).collect();
    for line in [
        "File \"call-2.py\", line 3, in <module>",
        "ratio(x, 0)",
        "return a / b",
    ] {
        assert!(lines.contains(&line), "{line}: {lines:?}");
    }
    assert_eq!(lines.last(), Some(&"ZeroDivisionError: division by zero"));
    for wrong in ["print(1", "raise KeyboardInterrupt", "bytearray(10 ** 12)"] {
        assert!(!call(&mut session, wrong).await.is_state_lost, "{wrong}");
    }
    assert_eq!(output(&mut session, "print(x)").await, "2\n");
}

#[tokio::test]
async fn a_timeout_loses_the_state_and_says_so() {
    for test in every_kind().await {
        let mut session = test.sandbox.open_session().await.unwrap();
        output(&mut session, "x = 1").await;
        let begun = Instant::now();
        let code = "print('started')\nwhile True: pass";
        let late = session.call(code, &short()).await.unwrap();
        assert_eq!(
            (&late.execution.exit, late.is_state_lost),
            (&Exit::TimedOut, true)
        );
        assert_eq!(late.execution.stdout, "started\n");
        assert!(begun.elapsed() < Duration::from_secs(4));
        test.assert_all_gone().await;
        assert_eq!(
            output(&mut session, "print('x' in globals())").await,
            "False\n"
        );
    }
}

#[tokio::test]
async fn whatever_ends_the_interpreter_loses_the_state() {
    let test = strongest().await;
    for (code, exit) in [
        ("import os; os._exit(3)", Exit::Code(3)),
        ("exit(4)", Exit::Code(4)),
        ("import os; os.kill(os.getpid(), 9)", Exit::Signal(9)),
        (
            "import os\nwhile True: os.write(1, b'x' * 65536)",
            Exit::Signal(9),
        ),
        // Forging a return for another call, or anything else on the interpreter's own channel.
        (
            "import os; os.write(63, b'nonsense\\n')\nwhile True: pass",
            Exit::Signal(9),
        ),
        (
            "import os\nwhile True: os.write(63, b'{' * 4096)",
            Exit::Signal(9),
        ),
    ] {
        let mut session = test.sandbox.open_session().await.unwrap();
        output(&mut session, "x = 1").await;
        let ended = call(&mut session, code).await;
        assert_eq!(
            (&ended.execution.exit, ended.is_state_lost),
            (&exit, true),
            "{code}"
        );
        assert_eq!(
            output(&mut session, "print('x' in globals())").await,
            "False\n"
        );
    }
}

#[tokio::test]
async fn each_call_has_its_own_output_and_all_of_it() {
    let test = strongest().await;
    let mut session = test.sandbox.open_session().await.unwrap();
    for number in 0..20 {
        let code = format!("import sys\nprint('{number}' * 70000)\nsys.stderr.write('e{number}')");
        let call = call(&mut session, &code).await;
        assert_eq!(
            call.execution.stdout,
            format!("{}\n", number.to_string().repeat(70_000))
        );
        assert_eq!(call.execution.stderr, format!("e{number}"));
    }
}

#[tokio::test]
async fn between_calls_nothing_runs() {
    let test = strongest().await;
    let mut session = test.sandbox.open_session().await.unwrap();
    let code = "import threading\nn = 0\ndef count():\n    global n\n    while True: n += 1\n\
                threading.Thread(target=count, daemon=True).start()";
    output(&mut session, code).await;
    let cpu = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<_> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        (fields[11].to_owned(), fields[12].to_owned())
    };
    let program = test.processes()[0];
    let before = cpu(program);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(cpu(program), before);
    let code = "import time\na = n\ntime.sleep(0.2)\nprint(n > a)";
    assert_eq!(output(&mut session, code).await, "True\n");
}

#[tokio::test]
async fn sessions_do_not_see_each_other() {
    for test in every_kind().await {
        let mut sessions = Vec::new();
        for number in 0..4 {
            let mut session = test.sandbox.open_session().await.unwrap();
            let code = format!("import os\nx = {number}\nopen('mine', 'w').write(str(x))");
            output(&mut session, &code).await;
            sessions.push(session);
        }
        for (number, session) in sessions.iter_mut().enumerate() {
            let code = "print(x, open('mine').read(), os.listdir())";
            assert_eq!(
                output(session, code).await,
                format!("{number} {number} ['mine']\n")
            );
        }
        drop(sessions);
        test.assert_all_gone().await;
        let mut session = test.sandbox.open_session().await.unwrap();
        let code = "import os; print('x' in globals(), os.listdir())";
        assert_eq!(output(&mut session, code).await, "False []\n");
    }
}

#[tokio::test]
async fn a_cancelled_call_kills_the_interpreter() {
    let test = strongest().await;
    let mut session = test.sandbox.open_session().await.unwrap();
    output(&mut session, "x = 1").await;
    let policy = policy();
    tokio::select! {
        _ = session.call("while True: pass", &policy) => panic!("it should not end"),
        () = tokio::time::sleep(Duration::from_millis(200)) => {}
    }
    test.assert_all_gone().await;
    assert_eq!(
        output(&mut session, "print('x' in globals())").await,
        "False\n"
    );
}

#[tokio::test]
async fn without_fork_servers_programs_start_cold_and_sessions_are_refused() {
    let options = SandboxOptions {
        start: Start::Cold,
        ..SandboxOptions::default()
    };
    let test = with_options(options, &[]).await.unwrap();
    assert_eq!(test.output("print(1)").await, "1\n");
    assert!(test.labelled().is_empty());
    let refused = test.sandbox.open_session().await;
    assert!(matches!(refused, Err(SandboxError::NoForkServer { .. })));
}

/// Kills the fork servers that are there, as a kernel that is out of memory would.
fn kill_servers(test: &TestBox) -> usize {
    let servers = test.labelled();
    for server in &servers {
        let _ = kill(Pid::from_raw(server.cast_signed()), Signal::SIGKILL);
    }
    servers.len()
}

#[tokio::test]
async fn a_dead_fork_server_is_replaced() {
    for test in every_kind().await {
        assert_eq!(test.output("print(1)").await, "1\n");
        assert!(kill_servers(&test) > 0);
        for _ in 0..3 {
            assert_eq!(test.output("print(2)").await, "2\n");
        }
        // A new one is there, not only the cold start that stands in for it.
        assert!(!test.labelled().is_empty(), "{:?}", test.isolation());
    }
}

#[tokio::test]
async fn a_program_whose_server_dies_is_run_again() {
    let test = strongest().await;
    let policy = policy();
    let code = "import time; time.sleep(1); print('done')";
    let run = test.sandbox.run_python(code, &policy);
    let murder = async {
        test.wait_for_processes(1).await;
        assert!(kill_servers(&test) > 0);
    };
    let (execution, ()) = tokio::join!(run, murder);
    let execution = execution.unwrap();
    assert_eq!(
        (execution.exit, execution.stdout.as_str()),
        (Exit::Code(0), "done\n")
    );
    test.assert_all_gone().await;
}

#[tokio::test]
async fn a_session_whose_server_dies_says_that_its_state_is_lost() {
    let test = strongest().await;
    let mut session = test.sandbox.open_session().await.unwrap();
    output(&mut session, "x = 1").await;
    assert!(kill_servers(&test) > 0);
    let lost = call(&mut session, "print(x)").await;
    assert!(lost.is_state_lost);
    assert_ne!(lost.execution.exit, Exit::Code(0));
    assert_eq!(output(&mut session, "print(3)").await, "3\n");
}

#[tokio::test]
async fn what_a_program_draws_follows_from_its_text() {
    for (test, _) in every_start().await {
        let code = "import random; print(random.getrandbits(64))";
        let first = test.output(code).await;
        assert_eq!(first, test.output(code).await);
        assert_ne!(first, test.output(&format!("{code} # another")).await);
    }
}

#[tokio::test]
async fn objects_lie_where_they_lay_in_the_run_before() {
    use nix::sys::personality::{self, Persona};
    let own = personality::get().unwrap();
    if personality::set(own | Persona::ADDR_NO_RANDOMIZE).is_err() {
        eprintln!("SKIPPED, the system denies fixed addresses");
        return;
    }
    personality::set(own).unwrap();
    // Sets of objects without a hash of their own are ordered by address.
    let code = "class A: pass\nprint(len({A, int, None}), hex(id(None)))";
    let test = strongest().await;
    let first = test.output(code).await;
    assert!(kill_servers(&test) > 0);
    assert_eq!(first, test.output(code).await);
}
