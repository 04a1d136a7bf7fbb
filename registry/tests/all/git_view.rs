//! What a person sees with the real git.

use harness::Dimension;
use registry::{Origin, RegistryError, VersionName};

use crate::support::{
    Fixture, START, acceptance, apply, base, commit, edit, git, git_output, patch, rejection,
};

#[test]
fn an_accepted_patch_reads_well() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let second = commit(&registry, &first, edit(2), 3);
    let expected = format!(
        "v2 P: set prompts.system\n\
         \n\
         9 of 16 failed rollouts end without output.\n\
         \n\
         - task-3, turn 2\n\
         - task-8, turn 1\n\
         \n\
         Root-Cause: middleware_mismatch\n\
         Harness-Dim: P\n\
         Severity: high\n\
         Delta-In: +0.140625 [+0.078125, +0.203125] at 0.95, 10 gained, 1 lost, 64 pairs\n\
         Delta-Out: +0 [-0.0625, +0.0625] at 0.95, 1 gained, 1 lost, 64 pairs\n\
         Gate-Mode: sequential\n\
         Gate-Detail: e-value 41.2, threshold 20\n\
         Run: run-1\n\
         Round: 3\n\
         Model: smollm2-135m@4d3a\n\
         Harness-Id: {}\n\
         Patch: {{\"dimension\":\"P\",\"ops\":[{{\"op\":\"replace\",\"path\":\"prompts.system\",\
         \"value\":\"Solve the problem. Style 2.\"}}],\"summary\":\"set prompts.system\"}}\n\n",
        second.harness.unwrap().to_hex()
    );
    assert_eq!(fixture.git(&["log", "-1", "--format=%B", "v2"]), expected);

    let shown = fixture.git(&["show", "v2"]);
    assert!(
        shown.contains("Author: coharness <coharness@localhost>\nDate:   Thu Oct 9"),
        "{shown}"
    );
    assert!(shown.contains("\n+++ b/prompts/system.md\n"), "{shown}");
    assert!(
        shown.contains("\n+Solve the problem. Style 2.\n"),
        "{shown}"
    );
    let log = fixture.git(&["log", "--stat", "--format=%D%n%s"]);
    assert!(
        log.starts_with("HEAD -> main, tag: v2\nv2 P: set prompts.system\n"),
        "{log}"
    );
    assert!(log.contains(" prompts/system.md |"), "{log}");
    assert!(log.contains("\ntag: v1\nv1 initial: naive\n"), "{log}");
    assert!(log.contains(" middleware.yaml "), "{log}");
}

#[test]
fn git_reads_the_trailers() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    commit(&registry, &first, edit(2), 1);
    let rejected = edit(4);
    let candidate = apply(&rejected, &base());
    registry
        .record_rejected(&first, &candidate, &rejection(rejected, 1))
        .unwrap();
    registry
        .rollback(VersionName::FIRST, "worse in practice", START + 9)
        .unwrap();

    let one = |name: &str, key: &str| {
        let format = format!("--format=%(trailers:key={key},valueonly)");
        fixture.git(&["log", "-1", &format, name]).trim().to_owned()
    };
    assert_eq!(one("v1", "Source"), "configs/harness/naive");
    assert_eq!(one("v2", "Root-Cause"), "middleware_mismatch");
    assert_eq!(one("v2", "Run"), "run-1");
    assert!(one("v2", "Patch").starts_with('{'));
    assert_eq!(
        one("refs/rejected/run-1/1-1", "Verdict"),
        "harm: 7 tasks lost"
    );
    assert_eq!(one("v3", "Rollback-To"), "v1");
    assert_eq!(one("v3", "Reason"), "worse in practice");
    let subjects = fixture.git(&["log", "--format=%s", "--all", "--date-order"]);
    for subject in [
        "rejected P: set prompts.system",
        "v3 rollback to v1: worse in practice",
    ] {
        assert!(subjects.lines().any(|line| line == subject), "{subjects}");
    }
    assert_eq!(fixture.git(&["diff", "--stat", "v1", "v3"]), "");
}

#[test]
fn text_of_a_critic_can_neither_forge_trailers_nor_reach_the_terminal() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let mut patch = patch(
        Dimension::P,
        "prompts.system",
        "a\u{9b}31m b\r\nc \u{7f} \u{2028} é",
    );
    // The harness may refuse such a prompt; then there is nothing to record.
    if patch.apply(&base()).is_err() {
        patch.ops[0].value = Some("a\nb \u{2028} é".into());
    }
    patch.summary = format!(
        "evil\n\nRun: other\nRound: 99\u{1b}[31m {}",
        "long ".repeat(40)
    );
    let candidate = apply(&patch, &base());
    let mut record = acceptance(patch, 1);
    record.decision.root_cause = "x\nRun: other".to_owned();
    record.decision.evidence =
        "\n\n  seen\u{1b}[2J\r\n\nRun: other\nRound: 99\nRollback-To: v1\n\0\n\n".to_owned();
    record.decision.gate_detail = "\u{9b}2J\tdone".to_owned();
    let second = registry.commit_patch(&first, &candidate, &record).unwrap();

    let Origin::Patch(read) = &second.origin else {
        panic!("{:?}", second.origin)
    };
    assert_eq!(read.decision.run.as_str(), "run-1");
    assert_eq!(read.decision.round, 1);
    assert_eq!(read.decision.root_cause, "x Run: other");
    assert_eq!(read.decision.patch, record.decision.patch);
    assert_eq!(
        read.decision.evidence,
        "  seen[2J\n\nRun: other\nRound: 99\nRollback-To: v1"
    );
    assert_eq!(read.decision.gate_detail, "2J done");
    let runs = fixture.git(&["log", "-1", "--format=%(trailers:key=Run,valueonly)", "v2"]);
    assert_eq!(runs.trim(), "run-1");
    let text = fixture.git(&["log", "-1", "--format=%B", "v2"]);
    assert!(
        !text.contains(|c: char| c.is_control() && c != '\n'),
        "{text:?}"
    );
    let subject = text.lines().next().unwrap();
    assert_eq!(subject.chars().count(), 72);
    assert!(subject.ends_with('…'), "{subject}");
    fixture.fsck();
}

#[test]
fn everything_survives_garbage_collection() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let second = commit(&registry, &first, edit(2), 1);
    let rejected = edit(4);
    let candidate = apply(&rejected, &base());
    let entry = registry
        .record_rejected(&first, &candidate, &rejection(rejected, 1))
        .unwrap();
    fixture.git(&["gc", "-q", "--prune=now"]);
    fixture.git(&["pack-refs", "--all", "--prune"]);
    assert_eq!(registry.history().unwrap(), [first, second.clone()]);
    assert_eq!(registry.rejected().unwrap(), [entry]);
    assert_eq!(registry.load("rejected/run-1/1-1").unwrap().1, candidate);
    let third = commit(&registry, &second, edit(5), 2);
    assert_eq!(third.name.to_string(), "v3");
    let reopened = fixture.open();
    assert_eq!(reopened.head().unwrap(), third);
    fixture.fsck();
}

#[test]
fn a_commit_made_by_hand_becomes_a_version() {
    let fixture = Fixture::new();
    let (_, first) = fixture.started();
    let path = fixture.path();
    let work = fixture.folder().join("work");
    let path = path.to_str().unwrap();
    git(fixture.folder(), &["clone", "-q", path, "work"]);
    std::fs::write(work.join("prompts/system.md"), "By hand.\n").unwrap();
    git(
        &work,
        &["commit", "-qam", "shorter prompt\n\nI like it: short"],
    );
    git(&work, &["push", "-q", "origin", "main"]);

    let registry = fixture.open();
    assert_eq!(
        fixture.git(&["rev-parse", "v2"]),
        fixture.git(&["rev-parse", "main"])
    );
    let (entry, harness) = registry.load("v2").unwrap();
    assert_eq!(harness.prompts.system, "By hand.");
    let version = entry.version().unwrap();
    assert_eq!(version.harness, Some(harness.id()));
    assert_eq!(version.summary, "shorter prompt");
    assert_eq!(
        version.origin,
        Origin::Foreign {
            reason: "no trailer Source".to_owned()
        }
    );
    let third = commit(&registry, version, edit(5), 1);

    // Files that are no harness are a version nobody can load, and a rollback away from it.
    git(&work, &["pull", "-q", "--ff-only"]);
    std::fs::write(work.join("middleware.yaml"), "protocol: 7\n").unwrap();
    git(&work, &["commit", "-qam", "v9 oops"]);
    git(&work, &["push", "-q", "origin", "main"]);
    let broken = registry.head().unwrap();
    assert_eq!(
        (broken.name.to_string().as_str(), broken.harness),
        ("v4", None)
    );
    let error = registry.load("v4").unwrap_err();
    assert!(matches!(error, RegistryError::Folder { .. }), "{error}");
    let back = registry
        .rollback(third.name, "does not load", START + 50)
        .unwrap();
    assert_eq!(back.harness, third.harness);
    assert_eq!(registry.history().unwrap().len(), 5);
    assert_eq!(registry.history().unwrap()[0], first);
    fixture.fsck();
}

#[test]
fn entries_that_are_no_text_are_named() {
    let fixture = Fixture::new();
    fixture.started();
    let path = fixture.path();
    git(
        fixture.folder(),
        &["clone", "-q", path.to_str().unwrap(), "work"],
    );
    let work = fixture.folder().join("work");
    std::os::unix::fs::symlink("/etc/passwd", work.join("prompts/extra.md")).unwrap();
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "link"]);
    std::fs::remove_file(work.join("prompts/extra.md")).unwrap();
    std::fs::write(work.join("prompts/system.md"), b"\xff\xfe").unwrap();
    git(&work, &["commit", "-qam", "bytes"]);
    git(&work, &["push", "-q", "origin", "main"]);
    let registry = fixture.open();
    let error = registry.load("v2").unwrap_err().to_string();
    assert!(
        error.starts_with("`prompts/extra.md` in commit "),
        "{error}"
    );
    assert!(error.ends_with("is a link or a submodule"), "{error}");
    let error = registry.load("v3").unwrap_err().to_string();
    assert!(error.ends_with("is not UTF-8 text"), "{error}");
}

#[test]
fn a_tag_that_was_moved_is_named_with_the_way_back() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    commit(&registry, &first, edit(2), 1);
    fixture.git(&["tag", "-f", "v1", "v2"]);
    let error = registry::Registry::open(&fixture.path())
        .unwrap_err()
        .to_string();
    let repair = format!("tag -f v1 {}", first.commit);
    assert!(error.ends_with(&repair), "{error}");
    let arguments: Vec<&str> = repair.split(' ').collect();
    assert!(git_output(&fixture.path(), &arguments).status.success());
    assert_eq!(fixture.open().load("v1").unwrap().0.commit(), first.commit);
}
