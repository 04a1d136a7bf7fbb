//! The box says what it enforces, and is refused where that is not enough.

use sandbox::{
    EnforcementReport, Guarantees, HelperCommand, InterpreterError, Isolation, Layers, Sandbox,
    SandboxError, SandboxOptions, SandboxPolicy,
};

use crate::support::{every_kind, helper, policy, python, strongest, with_options};

/// `docs/sandbox.md` has a row for each guarantee, layer and separation, and the limits that are the
/// sandbox's own.
#[test]
fn the_page_says_what_there_is() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/sandbox.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (guarantees, layers) = (Guarantees::default(), Layers::default());
    let guarantees = guarantees.all().map(|(name, _)| name.to_owned());
    let layers = layers.all().map(|(name, _)| name.to_owned());
    let separations = [
        Isolation::FreshUser,
        Isolation::UserNamespace,
        Isolation::NamespacesOnly,
        Isolation::Process,
    ];
    let separations = separations.map(|separation| {
        let name = serde_json::to_value(separation).unwrap();
        name.as_str().unwrap().to_owned()
    });
    for name in guarantees.iter().chain(&layers).chain(&separations) {
        assert!(page.contains(&format!("\n| `{name}` | ")), "{name}");
    }
    let policy = SandboxPolicy::default();
    for (row, value) in [
        ("output", policy.output_bytes as u64 >> 20),
        ("files", policy.file_mib),
    ] {
        let row = format!("\n| {row} | {value} MiB ");
        assert!(page.contains(&row), "{row}");
    }
}

#[tokio::test]
async fn every_accepted_box_holds_all_guarantees() {
    for test in every_kind().await {
        let report = test.sandbox.enforcement();
        for (name, status) in report.guarantees.all() {
            assert!(
                status.enforced,
                "{:?} {name}: {}",
                report.isolation, status.detail
            );
            assert!(!status.detail.is_empty());
        }
        assert_ne!(report.level(), "none");
    }
}

#[tokio::test]
async fn the_level_says_how_many_layers_carry_the_box() {
    let test = strongest().await;
    let report = test.sandbox.enforcement();
    let layers = &report.layers;
    let has_all = [&layers.landlock, &layers.seccomp, &layers.mount_namespace]
        .iter()
        .all(|layer| layer.enforced);
    assert_eq!(
        report.level(),
        if has_all { "full" } else { "partial" },
        "{report:#?}"
    );
    let text = serde_json::to_string(report).unwrap();
    assert_eq!(
        &serde_json::from_str::<EnforcementReport>(&text).unwrap(),
        report
    );
}

#[tokio::test]
async fn a_kernel_without_landlock_and_namespaces_is_refused_by_name() {
    let lacking = ["--without-landlock", "--without-namespaces"];
    let refused = with_options(SandboxOptions::default(), &lacking).await;
    let Err(SandboxError::Degraded { missing }) = refused.map(drop) else {
        panic!("it should be refused")
    };
    let text = missing.join("\n");
    for part in ["reading: ", "landlock: ", "namespaces: "] {
        assert!(
            missing.iter().any(|line| line.starts_with(part)),
            "{part} not in {text}"
        );
    }

    let options = SandboxOptions {
        allow_degraded: true,
        ..SandboxOptions::default()
    };
    let test = with_options(options, &lacking).await.unwrap();
    let report = test.sandbox.enforcement();
    assert_eq!(
        (report.level(), report.isolation),
        ("none", Isolation::Process)
    );
    assert!(!report.layers.landlock.enforced && report.layers.seccomp.enforced);
    assert_eq!(test.output("print('runs anyway')").await, "runs anyway\n");
}

#[tokio::test]
async fn without_namespaces_landlock_and_seccomp_carry_the_box() {
    let test = with_options(SandboxOptions::default(), &["--without-namespaces"])
        .await
        .unwrap();
    let report = test.sandbox.enforcement();
    assert_eq!(
        (report.level(), report.isolation),
        ("partial", Isolation::Process)
    );
    assert!(
        report
            .rejected
            .iter()
            .any(|reason| reason.contains("creating namespaces"))
    );
    assert!(!report.layers.pid_namespace.enforced);
    // What cannot be bounded there is refused, not ignored.
    let children = sandbox::SandboxPolicy {
        processes: 2,
        ..policy()
    };
    let error = test.sandbox.run_python("", &children).await.unwrap_err();
    assert!(matches!(error, SandboxError::Policy(_)), "{error}");
}

#[tokio::test]
async fn without_landlock_the_private_file_system_hides_the_machine() {
    let full = strongest().await;
    if !full.sandbox.enforcement().layers.mount_namespace.enforced {
        eprintln!("SKIPPED: no private file system here");
        return;
    }
    let test = with_options(SandboxOptions::default(), &["--without-landlock"])
        .await
        .unwrap();
    let report = test.sandbox.enforcement();
    assert_eq!(report.level(), "partial");
    assert!(!report.layers.landlock.enforced);
    assert!(report.layers.mount_namespace.enforced);
    assert!(report.guarantees.reading.enforced);
}

#[tokio::test]
async fn without_seccomp_the_box_is_refused() {
    let refused = with_options(SandboxOptions::default(), &["--without-seccomp"]).await;
    let Err(SandboxError::Degraded { missing }) = refused.map(drop) else {
        panic!("it should be refused")
    };
    assert!(
        missing
            .iter()
            .any(|line| line.starts_with("system_calls: ")),
        "{missing:?}"
    );
    assert!(
        missing.iter().any(|line| line.starts_with("seccomp: ")),
        "{missing:?}"
    );
}

#[tokio::test]
async fn a_box_without_any_layer_still_ends_its_programs() {
    let options = SandboxOptions {
        allow_degraded: true,
        ..SandboxOptions::default()
    };
    let lacking = [
        "--without-landlock",
        "--without-namespaces",
        "--without-seccomp",
    ];
    let test = with_options(options, &lacking).await.unwrap();
    assert_eq!(test.sandbox.enforcement().level(), "none");
    // Nothing denies children here, so the supervisor has to find them.
    let code = "import os, time\n\
                if os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\n\
                time.sleep(600)";
    let policy = sandbox::SandboxPolicy {
        wall: std::time::Duration::from_secs(1),
        ..policy()
    };
    let (execution, ()) = tokio::join!(test.run_under(code, &policy), test.wait_for_processes(2));
    assert_eq!(execution.exit, sandbox::Exit::TimedOut);
    test.assert_all_gone().await;
}

#[tokio::test]
async fn a_missing_interpreter_is_named() {
    let root = tempfile::tempdir().unwrap();
    let create = |python: &str| {
        Sandbox::new(
            HelperCommand::new(helper()),
            python.into(),
            root.path().to_owned(),
        )
    };
    let error = create("/nonexistent/python3").await.unwrap_err();
    assert!(matches!(
        error,
        SandboxError::Interpreter(InterpreterError::Missing { .. })
    ));
    assert_eq!(
        error.to_string(),
        "no Python interpreter at /nonexistent/python3"
    );
    let error = create("/bin/echo").await.unwrap_err();
    assert!(matches!(
        error,
        SandboxError::Interpreter(InterpreterError::NotPython { .. })
    ));
}

#[tokio::test]
async fn a_helper_that_is_none_is_named() {
    for program in ["/bin/true", "/nonexistent/helper"] {
        let root = tempfile::tempdir().unwrap();
        let helper = HelperCommand::new(program);
        let created = Sandbox::new(helper, python(), root.path().to_owned()).await;
        let Err(SandboxError::Unusable { attempts }) = created.map(drop) else {
            panic!("{program} should not do")
        };
        assert!(
            attempts.iter().any(|attempt| attempt.contains("helper")),
            "{attempts:?}"
        );
    }
}
