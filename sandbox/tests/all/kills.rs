//! When a run is over, nothing of it is left, however it tried to stay.

use std::time::{Duration, Instant};

use sandbox::{Exit, SandboxPolicy, Start};

use crate::support::{TestBox, every_kind, every_start, parent, policy, strongest, with_children};

/// Runs a program that hides children, checks that they exist, and that they are gone afterwards.
async fn assert_hidden_children_die(test: &TestBox, code: &str, children: usize) {
    let policy = SandboxPolicy {
        wall: Duration::from_secs(2),
        processes: 8,
        ..policy()
    };
    let begun = Instant::now();
    let (execution, ()) = tokio::join!(
        test.run_under(code, &policy),
        test.wait_for_processes(1 + children)
    );
    assert_eq!(execution.exit, Exit::TimedOut, "{execution:?}");
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
    test.assert_all_gone().await;
}

#[tokio::test]
async fn a_child_in_its_own_session_dies() {
    let Some(test) = with_children().await else {
        return;
    };
    let code = "import os, time\n\
                if os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\n\
                while True: pass";
    assert_hidden_children_die(&test, code, 1).await;
}

#[tokio::test]
async fn a_daemon_after_two_forks_dies() {
    let Some(test) = with_children().await else {
        return;
    };
    let code = "import os, time\n\
                if os.fork() == 0:\n    os.setsid()\n    \
                if os.fork() == 0:\n        os.setpgid(0, 0)\n        time.sleep(600)\n    os._exit(0)\n\
                os.wait()\ntime.sleep(600)";
    assert_hidden_children_die(&test, code, 1).await;
}

#[tokio::test]
async fn a_survivor_of_the_programs_own_exit_dies_and_delays_nothing() {
    let Some(test) = with_children().await else {
        return;
    };
    let policy = SandboxPolicy {
        processes: 8,
        ..policy()
    };
    // The child holds both pipes.
    let code = "import os, time\n\
                if os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\n\
                time.sleep(0.5)\nprint('done')";
    let begun = Instant::now();
    let (execution, ()) = tokio::join!(test.run_under(code, &policy), test.wait_for_processes(2));
    assert_eq!(
        (execution.exit, execution.stdout.as_str()),
        (Exit::Code(0), "done\n")
    );
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    test.assert_all_gone().await;
}

#[tokio::test]
async fn a_grandchild_that_holds_the_output_delays_nothing() {
    let Some(test) = with_children().await else {
        return;
    };
    let policy = SandboxPolicy {
        wall: Duration::from_secs(1),
        processes: 8,
        ..policy()
    };
    let code = "import subprocess, sys, time\n\
                subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'], \
                start_new_session=True)\n\
                print('started', flush=True)\ntime.sleep(600)";
    let begun = Instant::now();
    let execution = test.run_under(code, &policy).await;
    assert_eq!(
        (execution.exit, execution.stdout.as_str()),
        (Exit::TimedOut, "started\n")
    );
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    test.assert_all_gone().await;
}

#[tokio::test]
async fn a_cancelled_run_is_killed() {
    for test in every_kind().await {
        let policy = policy();
        let run = test.sandbox.run_python("while True: pass", &policy);
        tokio::select! {
            _ = run => panic!("it should not end"),
            () = test.wait_for_processes(1) => {}
        }
        test.assert_all_gone().await;
    }
}

#[tokio::test]
async fn the_box_dies_with_its_supervisor() {
    // A program from a fork server would be run again, see `sessions`.
    let cold = every_start().await.into_iter();
    for (test, _) in cold.filter(|(_, start)| *start == Start::Cold) {
        let policy = policy();
        let run = test.sandbox.run_python("while True: pass", &policy);
        let murder = async {
            test.wait_for_processes(1).await;
            for supervisor in supervisors(&test) {
                let supervisor = nix::unistd::Pid::from_raw(supervisor.cast_signed());
                nix::sys::signal::kill(supervisor, nix::sys::signal::Signal::SIGKILL).unwrap();
            }
        };
        let (result, ()) = tokio::join!(run, murder);
        // A fault of the machinery, not of the program.
        assert!(
            matches!(result, Err(sandbox::SandboxError::Launch(_))),
            "{result:?}"
        );
        test.assert_all_gone().await;
    }
}

/// The supervisors of the programs that run now: their ancestors that are children of this
/// process.
fn supervisors(test: &TestBox) -> Vec<u32> {
    let ascend = |mut pid: u32| {
        while let Some(above) = parent(pid)
            && above != std::process::id()
        {
            pid = above;
        }
        pid
    };
    test.processes().into_iter().map(ascend).collect()
}

#[tokio::test]
async fn the_program_can_signal_nobody_else() {
    // A process group of 0 would be the program's own.
    let code = "import os, signal\n\
                for pid in {pids}:\n\
                \x20   try: pid != 0 and os.kill(pid, signal.SIGKILL)\n\
                \x20   except OSError: pass\n\
                print('alive')";
    let pids = format!(
        "[1, os.getppid(), -os.getpgid(os.getppid()), {}]",
        std::process::id()
    );
    for test in every_kind().await {
        assert_eq!(test.output(&code.replace("{pids}", &pids)).await, "alive\n");
    }
    // To all processes: the program itself is spared by definition.
    let test = strongest().await;
    let everyone = "import os, signal\n\
                    try: os.kill(-1, signal.SIGKILL)\nexcept OSError: pass\nprint('alive')";
    assert_eq!(test.output(everyone).await, "alive\n");
}
