//! Scripts that ask other programs' libraries. The trainer's tests take this file too.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// A Python that has torch, transformers and peft.
pub(crate) struct PeersPython(OsString);

impl PeersPython {
    /// The one that `COHARNESS_TEST_PEERS_PYTHON` names.
    pub(crate) fn named() -> Option<Self> {
        let python = std::env::var_os("COHARNESS_TEST_PEERS_PYTHON").map(Self);
        if python.is_none() {
            println!("skipped: COHARNESS_TEST_PEERS_PYTHON is not set");
        }
        python
    }

    /// What a script in the crate's `tests` prints last for a request, which it gets as a file.
    pub(crate) fn ask<T: DeserializeOwned>(&self, script: &str, request: &Value) -> T {
        let place = tempfile::tempdir().expect("directory");
        let file = place.path().join("request.json");
        std::fs::write(&file, request.to_string()).expect("file");
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests")
            .join(script);
        let output = Command::new(&self.0)
            .arg(script)
            .arg(file)
            .env("HF_HUB_OFFLINE", "1")
            .output()
            .expect("Python runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().last().expect("a line");
        serde_json::from_str(line).expect("a reply")
    }
}
