//! The registry depends on nothing in the environment: the same writes make the same commits everywhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use registry::{Author, Registry};

use crate::support::{Fixture, base, commit, edit, provenance};

const PATH: &str = "REGISTRY_TEST_ENVIRONMENT";

/// Runs in a process of its own with the environment under test; does nothing otherwise.
#[test]
fn child_process() {
    let Some(path) = std::env::var_os(PATH).map(PathBuf::from) else {
        return;
    };
    let registry = Registry::open_or_create(&path).unwrap();
    let first = registry.create_initial(&base(), &provenance()).unwrap();
    commit(&registry, &first, edit(2), 1);
}

fn write_in(home: &Path, path: &Path) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "environment::child_process"])
        .env_clear()
        .env("HOME", home)
        .env(PATH, path)
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn commits_succeed_and_are_the_same_without_and_with_a_git_configuration() {
    let fixture = Fixture::new();
    write_in(Path::new("/nonexistent"), &fixture.path());
    let author = fixture.git(&["log", "--format=%an <%ae>, %cn <%ce>"]);
    let expected = "coharness <coharness@localhost>, coharness <coharness@localhost>\n";
    assert_eq!(author, expected.repeat(2));
    assert_eq!(fixture.git(&["symbolic-ref", "HEAD"]), "refs/heads/main\n");

    let home = fixture.folder().join("home");
    fs::create_dir_all(home.join("template/hooks")).unwrap();
    fs::write(home.join("template/hooks/pre-commit"), "exit 1").unwrap();
    let configuration = format!(
        "[user]\n\tname = Someone Else\n\temail = a<b>@example.org\n\
         [core]\n\tautocrlf = true\n\teol = crlf\n\tlogAllRefUpdates = always\n\
         [commit]\n\tgpgSign = true\n[tag]\n\tgpgSign = true\n\
         [init]\n\tdefaultBranch = trunk\n\ttemplateDir = {}\n",
        home.join("template").display()
    );
    fs::write(home.join(".gitconfig"), configuration).unwrap();
    let other = fixture.folder().join("other");
    write_in(&home, &other);
    assert_eq!(
        crate::support::git(&other, &["rev-parse", "main", "v1", "v2"]),
        fixture.git(&["rev-parse", "main", "v1", "v2"])
    );
    assert!(!other.join("hooks/pre-commit").exists());
    fixture.fsck();
}

#[test]
fn a_configured_author_signs_the_commits() {
    let fixture = Fixture::new();
    let author = Author::new("Ada Example", "ada@example.org").unwrap();
    let registry = fixture.open().with_author(author);
    registry.create_initial(&base(), &provenance()).unwrap();
    assert_eq!(
        fixture.git(&["log", "--format=%an <%ae>, %cn"]),
        "Ada Example <ada@example.org>, Ada Example\n"
    );
    fixture.fsck();
}
