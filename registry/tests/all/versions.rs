//! Making versions and finding them again.

use std::fs;

use harness::{Dimension, Patch, PatchOp};
use registry::{Entry, Origin, RegistryError, VersionName};

use crate::support::{
    Fixture, START, acceptance, apply, base, commit, edit, patch, provenance, rejection, run,
};

#[test]
fn what_is_recorded_reads_back() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    assert_eq!(first.name.to_string(), "v1");
    assert_eq!(first.parent, None);
    assert_eq!(first.origin, Origin::Initial(provenance()));
    assert_eq!(first.summary, "initial: naive");

    let patch = edit(2);
    let candidate = apply(&patch, &base());
    let acceptance = acceptance(patch, 3);
    let second = registry
        .commit_patch(&first, &candidate, &acceptance)
        .unwrap();
    assert_eq!(second.name.to_string(), "v2");
    assert_eq!(second.parent, Some(first.commit));
    assert_eq!(second.harness, Some(candidate.id()));
    assert_eq!(second.unix_seconds, START + 180);
    assert_eq!(second.summary, "P: set prompts.system");
    assert_eq!(second.origin, Origin::Patch(Box::new(acceptance)));
    assert_eq!(registry.history().unwrap(), [first.clone(), second.clone()]);
    assert_eq!(registry.head().unwrap(), second);

    let rejected_patch = edit(5);
    let rejected = apply(&rejected_patch, &candidate);
    let rejection = rejection(rejected_patch, 3);
    let entry = registry
        .record_rejected(&second, &rejected, &rejection)
        .unwrap();
    assert_eq!(entry.name.to_string(), "rejected/run-1/3-1");
    assert_eq!(entry.parent, second.commit);
    assert_eq!(entry.harness, rejected.id());
    assert_eq!(entry.rejection, rejection);
    assert_eq!(registry.rejected().unwrap(), [entry]);

    let third = registry
        .rollback(VersionName::FIRST, "too chatty", START + 900)
        .unwrap();
    assert_eq!(third.name.to_string(), "v3");
    assert_eq!(third.parent, Some(second.commit));
    assert_eq!(third.harness, first.harness);
    let origin = Origin::Rollback {
        to: VersionName::FIRST,
        reason: "too chatty".to_owned(),
    };
    assert_eq!(third.origin, origin);
    assert_eq!(registry.load("v3").unwrap().1, base());
    assert_eq!(registry.load("v2").unwrap().1, candidate);
    fixture.fsck();
}

#[test]
fn a_removal_names_the_version_whose_patch_it_takes_back() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let second = commit(&registry, &first, edit(2), 1);
    let back = patch(
        Dimension::P,
        "prompts.system",
        base().prompts.system.clone(),
    );
    let mut record = acceptance(back, 2);
    record.decision.removes = Some(second.name);
    let third = registry.commit_patch(&second, &base(), &record).unwrap();
    // A run that starts again asks for it again.
    let again = registry.commit_patch(&second, &base(), &record).unwrap();
    assert_eq!(again, third);
    assert_eq!(third.origin, Origin::Patch(Box::new(record)));
    assert_eq!(third.harness, first.harness);
    let message = fixture.git(&["log", "-1", "--format=%B", "v3"]);
    assert!(message.contains("\nRemoves: v2\n"), "{message}");
    fixture.fsck();
}

#[test]
fn entries_are_found_by_every_kind_of_name() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let second = commit(&registry, &first, edit(2), 1);
    let patch = edit(4);
    let candidate = apply(&patch, &base());
    let entry = registry
        .record_rejected(&first, &candidate, &rejection(patch, 7))
        .unwrap();

    for spec in [
        "v2",
        "head",
        "HEAD",
        &second.commit.to_string(),
        &second.commit.short(),
    ] {
        assert_eq!(
            registry.find(spec).unwrap(),
            Entry::Version(second.clone()),
            "{spec}"
        );
    }
    let commit = entry.commit.to_string();
    for spec in [
        "rejected/run-1/7-1",
        "refs/rejected/run-1/7-1",
        "run-1/7-1",
        &commit.to_uppercase(),
        &commit[..8],
    ] {
        let (found, harness) = registry.load(spec).unwrap();
        assert_eq!(found, Entry::Rejected(Box::new(entry.clone())), "{spec}");
        assert_eq!(harness, candidate);
        assert_eq!(found.to_string(), "rejected/run-1/7-1");
        assert_eq!(found.version(), None);
    }
    for spec in [
        "v0",
        "v3",
        "v02",
        "",
        "abc",
        "main",
        "v1^",
        "rejected/run-1/7-2",
        "zzzz",
        "0000000",
    ] {
        let error = registry.load(spec).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "no version `{spec}`; there is v1 to v2, which is head, and rejected/run-1/7-1"
            )
        );
    }
    // The tree's id is a git object as well, but no version.
    let tree = fixture.git(&["rev-parse", "v1^{tree}"]);
    assert!(matches!(
        registry.load(tree.trim()),
        Err(RegistryError::UnknownVersion { .. })
    ));
}

#[test]
fn an_empty_registry_says_so() {
    let fixture = Fixture::new();
    let registry = fixture.open();
    assert!(registry.history().unwrap().is_empty());
    assert!(registry.rejected().unwrap().is_empty());
    assert!(matches!(registry.head(), Err(RegistryError::Empty { .. })));
    let error = registry.load("v1").unwrap_err();
    assert_eq!(
        error.to_string(),
        "no version `v1`; there is no version yet"
    );
    assert!(
        registry
            .rollback(VersionName::FIRST, "why not", START)
            .is_err()
    );
}

#[test]
fn a_prefix_that_fits_several_commits_is_ambiguous() {
    let fixture = Fixture::new();
    let (registry, _) = fixture.started();
    // Enough commits that some share four digits, made in one process.
    let mut input = String::new();
    for number in 1..=1200 {
        input.push_str(&format!(
            "commit refs/rejected/import/1-{number}\n\
             committer A <a@example.org> {} +0000\ndata 1\nx\n",
            START + number
        ));
    }
    let file = fixture.folder().join("import");
    fs::write(&file, input).unwrap();
    let script = format!("git fast-import --quiet < '{}'", file.display());
    let shell = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(fixture.path())
        .status()
        .unwrap();
    assert!(shell.success());
    let listing = fixture.git(&[
        "for-each-ref",
        "--format=%(objectname)",
        "refs/rejected/import",
    ]);
    let mut commits: Vec<&str> = listing.lines().collect();
    commits.sort_unstable();
    let pair = commits
        .windows(2)
        .find(|pair| pair[0][..4] == pair[1][..4])
        .unwrap();
    let error = registry.load(&pair[0][..4]).unwrap_err();
    assert!(
        matches!(error, RegistryError::AmbiguousVersion { .. }),
        "{error}"
    );
    for commit in pair {
        assert!(error.to_string().contains(commit), "{error}");
    }
    // A long list is cut.
    let error = registry.load("v9").unwrap_err().to_string();
    assert!(error.ends_with(" and 1192 older rejected ones"), "{error}");
}

#[test]
fn a_harness_id_finds_the_newest_version_with_that_harness() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let second = commit(&registry, &first, edit(2), 1);
    let third = registry.rollback(first.name, "back", START).unwrap();
    let patch = edit(4);
    let candidate = apply(&patch, &base());
    let record = rejection(patch, 1);
    let entry = registry
        .record_rejected(&third, &candidate, &record)
        .unwrap();
    let find = |id: harness::HarnessId| registry.find(&id.to_string()).unwrap().to_string();
    assert_eq!(find(base().id()), "v3");
    assert_eq!(find(second.harness.unwrap()), "v2");
    assert_eq!(find(candidate.id()), entry.name.to_string());
    // The same harness, accepted later: the version is meant.
    commit(&registry, &third, edit(4), 2);
    assert_eq!(find(candidate.id()), "v4");
    assert_eq!(
        registry.find(&candidate.id().to_hex()).unwrap().to_string(),
        "v4"
    );
}

#[test]
fn repeating_a_write_returns_what_is_there() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    assert_eq!(
        registry.create_initial(&base(), &provenance()).unwrap(),
        first
    );

    let patch = edit(2);
    let candidate = apply(&patch, &base());
    let mut record = acceptance(patch.clone(), 1);
    let second = registry.commit_patch(&first, &candidate, &record).unwrap();
    // A process that starts again has another clock.
    record.decision.unix_seconds += 3600;
    assert_eq!(
        registry.commit_patch(&first, &candidate, &record).unwrap(),
        second
    );
    let third = commit(&registry, &second, edit(5), 1);
    // Also when head has moved on.
    assert_eq!(
        registry.commit_patch(&first, &candidate, &record).unwrap(),
        second
    );
    assert_eq!(
        registry.create_initial(&base(), &provenance()).unwrap(),
        first
    );
    assert_eq!(registry.head().unwrap(), third);

    // The same candidate from another round or run is another decision.
    record.decision.round = 2;
    let error = registry
        .commit_patch(&first, &candidate, &record)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "head is v3, not v1: another writer or a rollback moved it"
    );

    let mut record = rejection(patch, 1);
    let one = registry
        .record_rejected(&first, &candidate, &record)
        .unwrap();
    record.decision.unix_seconds += 3600;
    assert_eq!(
        registry
            .record_rejected(&first, &candidate, &record)
            .unwrap(),
        one
    );
    record.decision.round = 2;
    let two = registry
        .record_rejected(&first, &candidate, &record)
        .unwrap();
    record.decision.run = run("run-2");
    let three = registry
        .record_rejected(&first, &candidate, &record)
        .unwrap();
    let names: Vec<String> = registry
        .rejected()
        .unwrap()
        .iter()
        .map(|entry| entry.name.to_string())
        .collect();
    assert_eq!(
        names,
        [
            "rejected/run-1/1-1",
            "rejected/run-1/2-1",
            "rejected/run-2/2-1"
        ]
    );
    assert_eq!([two.name.index, three.name.index], [1, 1]);

    let back = registry
        .rollback(VersionName::FIRST, "not worth it", START + 1)
        .unwrap();
    assert_eq!(
        registry
            .rollback(VersionName::FIRST, "not worth it", START + 2)
            .unwrap(),
        back
    );
    assert_eq!(registry.history().unwrap().len(), 4);
    fixture.fsck();

    // On top of a version that is named, the same rollback is found again after others came.
    let last = commit(&registry, &back, edit(2), 2);
    let again = registry
        .rollback_from(&last, VersionName::FIRST, "lost 9 of 12", START + 3)
        .unwrap();
    commit(&registry, &again, edit(5), 3);
    assert_eq!(
        registry
            .rollback_from(&last, VersionName::FIRST, "lost 9 of 12", START + 4)
            .unwrap(),
        again
    );
    for (parent, reason) in [(&last, "lost 8 of 12"), (&third, "lost 9 of 12")] {
        let error = registry
            .rollback_from(parent, VersionName::FIRST, reason, START)
            .unwrap_err();
        assert!(matches!(error, RegistryError::HeadMoved { .. }), "{error}");
    }
    let error = registry
        .rollback_from(&back, VersionName::FIRST, "why", START)
        .unwrap_err();
    assert!(
        matches!(error, RegistryError::NothingChanged { .. }),
        "{error}"
    );
    fixture.fsck();
}

#[test]
fn rejected_candidates_are_counted_beyond_nine() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    for number in 1..=12 {
        let patch = edit(2 * number);
        let candidate = apply(&patch, &base());
        let entry = registry
            .record_rejected(&first, &candidate, &rejection(patch, 1))
            .unwrap();
        assert_eq!(entry.name.index, number);
    }
    let last = registry.rejected().unwrap().pop().unwrap();
    assert_eq!(last.name.to_string(), "rejected/run-1/1-12");
}

#[test]
fn a_record_has_to_be_true() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let one = edit(2);
    let candidate = apply(&one, &base());

    let error = registry
        .commit_patch(&first, &candidate, &acceptance(edit(4), 1))
        .unwrap_err();
    assert!(
        matches!(error, RegistryError::PatchMismatch { .. }),
        "{error}"
    );
    let error = registry
        .record_rejected(&first, &candidate, &rejection(edit(4), 1))
        .unwrap_err();
    assert!(
        matches!(error, RegistryError::PatchMismatch { .. }),
        "{error}"
    );

    // A patch leaves its dimension: the harness crate says so.
    let stray = Patch {
        dimension: Dimension::T,
        ..one.clone()
    };
    let error = registry
        .commit_patch(&first, &candidate, &acceptance(stray, 1))
        .unwrap_err();
    assert!(matches!(error, RegistryError::PatchFails { .. }), "{error}");

    let same = patch(Dimension::P, "prompts.system", base().prompts.system);
    let error = registry
        .commit_patch(&first, &base(), &acceptance(same, 1))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "nothing changes: the harness is that of v1 already"
    );

    let mut record = acceptance(one.clone(), 1);
    record.delta_out.low = f64::NAN;
    let error = registry
        .commit_patch(&first, &candidate, &record)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("Delta-Out is not a finite number"),
        "{error}"
    );
    let mut record = rejection(one.clone(), 1);
    record.verdict = " \n".to_owned();
    let error = registry
        .record_rejected(&first, &candidate, &record)
        .unwrap_err();
    assert_eq!(error.to_string(), "Verdict is empty: \"\"");
    for blank in 0..3 {
        let mut record = acceptance(one.clone(), 1);
        let Decision3(fields) = Decision3::of(&mut record.decision);
        *fields[blank] = String::new();
        assert!(registry.commit_patch(&first, &candidate, &record).is_err());
    }

    let other = apply(&edit(5), &base());
    let error = registry.create_initial(&other, &provenance()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the registry already starts with another harness (head is v1)"
    );
    assert!(registry.rollback(VersionName::FIRST, "", START).is_err());
    let error = registry
        .rollback(VersionName::FIRST, "again", START)
        .unwrap_err();
    assert!(
        matches!(error, RegistryError::NothingChanged { .. }),
        "{error}"
    );

    assert_eq!(registry.history().unwrap(), [first]);
    assert!(registry.rejected().unwrap().is_empty());
}

/// The one-line fields that may not be empty.
struct Decision3<'a>([&'a mut String; 3]);

impl<'a> Decision3<'a> {
    fn of(decision: &'a mut registry::Decision) -> Self {
        Self([
            &mut decision.root_cause,
            &mut decision.severity,
            &mut decision.gate_mode,
        ])
    }
}

#[test]
fn a_parent_from_another_registry_is_refused() {
    let [here, there] = [Fixture::new(), Fixture::new()];
    let (registry, _) = here.started();
    let (other, first) = there.started();
    let stranger = commit(&other, &first, edit(3), 1);
    let patch = edit(2);
    let candidate = apply(&patch, &apply(&edit(3), &base()));
    let error = registry
        .record_rejected(&stranger, &candidate, &rejection(patch.clone(), 1))
        .unwrap_err();
    assert!(
        matches!(error, RegistryError::UnknownParent { .. }),
        "{error}"
    );
    let error = registry
        .commit_patch(&stranger, &candidate, &acceptance(patch, 1))
        .unwrap_err();
    assert!(
        matches!(error, RegistryError::UnknownParent { .. }),
        "{error}"
    );
}

#[test]
fn every_dimension_can_change() {
    let fixture = Fixture::new();
    let (registry, mut head) = fixture.started();
    let skill = serde_json::json!({
        "name": "check", "description": "Check the result.", "triggers": ["sum"],
        "body": "Compute twice."
    });
    let add_skill = Patch {
        dimension: Dimension::S,
        ops: vec![PatchOp::add("skills.check".parse().unwrap(), skill)],
        summary: String::new(),
    };
    let patches = [
        (
            patch(Dimension::P, "prompts.system", "Be brief."),
            "v2 P: ",
            "prompts/",
        ),
        (
            patch(Dimension::T, "tools.python.description", "Runs code."),
            "v3 T: ",
            "tools/",
        ),
        (add_skill, "v4 S: add skills.check", "skills/"),
        (
            patch(Dimension::Mid, "middleware.sampling.top_p", 0.5),
            "v5 Mid: ",
            "middleware.yaml",
        ),
        (
            Patch {
                dimension: Dimension::M,
                ops: vec![
                    PatchOp::replace("memory.kind".parse().unwrap(), "notes".into()),
                    PatchOp::replace("memory.capacity".parse().unwrap(), 4.into()),
                ],
                summary: "keep notes".to_owned(),
            },
            "v6 M: keep notes",
            "memory.yaml",
        ),
    ];
    for (patch, subject, folder) in patches {
        head = commit(&registry, &head, patch, 1);
        let shown = fixture.git(&["show", "--format=%s", "--name-only", "HEAD"]);
        let mut lines = shown.lines().filter(|line| !line.is_empty());
        let first = lines.next().unwrap();
        assert!(first.starts_with(subject), "{first}");
        assert!(lines.all(|file| file.starts_with(folder)), "{shown}");
    }
}
