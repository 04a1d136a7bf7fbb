//! Adapters and the versions they go with.

use registry::{AdapterId, ModelId, PairingRecord, RegistryError};

use crate::support::{Fixture, START, commit, delta, edit, run};

fn record(adapter: &str) -> PairingRecord {
    PairingRecord {
        adapter: AdapterId::new(adapter).unwrap(),
        run: run("run-1"),
        round: 2,
        model: ModelId::new("smollm2-135m").unwrap(),
        gate_mode: "sequential".to_owned(),
        delta_in: Some(delta(12, 2)),
        delta_out: None,
        unix_seconds: START + 5,
    }
}

#[test]
fn pairings_read_back_by_version_and_survive_a_rollback() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let second = commit(&registry, &first, edit(2), 1);
    for (version, adapter) in [(&second, "b"), (&second, "a"), (&first, "b")] {
        let pairing = registry.pair_adapter(version, &record(adapter)).unwrap();
        assert_eq!(pairing.record, record(adapter));
        assert_eq!(
            (pairing.version, pairing.commit),
            (version.name, version.commit)
        );
    }
    registry
        .rollback(first.name, "worse on Mondays", START + 9)
        .unwrap();
    let listed: Vec<String> = registry
        .pairings()
        .unwrap()
        .iter()
        .map(|pairing| format!("{} {}", pairing.version, pairing.record.adapter))
        .collect();
    assert_eq!(listed, ["v1 b", "v2 a", "v2 b"]);
    fixture.fsck();
}

#[test]
fn pairing_again_keeps_the_first_record() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    let pairing = registry.pair_adapter(&first, &record("a")).unwrap();
    let later = PairingRecord {
        unix_seconds: START + 99,
        round: 3,
        ..record("a")
    };
    assert_eq!(registry.pair_adapter(&first, &later).unwrap(), pairing);
    assert_eq!(registry.pairings().unwrap(), [pairing]);
}

#[test]
fn a_pairing_is_seen_in_git_log_and_git_show() {
    let fixture = Fixture::new();
    let (registry, first) = fixture.started();
    registry.pair_adapter(&first, &record("lora-7")).unwrap();
    let log = fixture.git(&["log", "--oneline", "--decorate"]);
    assert!(log.contains("refs/pairings/lora-7/v1"), "{log}");
    let shown = fixture.git(&["show", "-s", "refs/pairings/lora-7/v1"]);
    assert!(shown.contains("\nadapter lora-7 with v1\n"), "{shown}");
    assert!(shown.contains("\nDelta-In: +0.15625 ["), "{shown}");
}

#[test]
fn what_is_no_pairing_is_named() {
    let fixture = Fixture::new();
    let (registry, _) = fixture.started();
    fixture.git(&["update-ref", "refs/pairings/x/v1", "v1"]);
    let error = registry.pairings().unwrap_err();
    assert!(
        matches!(&error, RegistryError::ForeignRecord { .. }),
        "{error:?}"
    );
    assert!(
        error.to_string().starts_with("refs/pairings/x/v1 "),
        "{error}"
    );
}
