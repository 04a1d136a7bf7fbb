//! Everything the binary reads from the environment, in one place.
//!
//! - `COHARNESS_DIR`: where runs are kept (also `--dir`).
//! - `COHARNESS_CACHE`: where known models are kept; else `$XDG_CACHE_HOME/coharness`, else
//!   `~/.cache/coharness`.
//! - `COHARNESS_PYTHON`: the interpreter of the Python tool; else `python3` on `PATH`.
//! - `COHARNESS_LOG`: filter of diagnostics, such as `debug`.
//! - `NO_COLOR`, `TERM` and `COLUMNS`: how the terminal is written to (read in `paint.rs`).
//! - The variables a configuration names as `policy.api_key_env` and `critic.llm.api_key_env`.

use std::path::PathBuf;

use crate::error::RunError;
use crate::workshop::Environment;

/// Folder of known models.
pub(crate) fn cache() -> PathBuf {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    set("COHARNESS_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|base| base.join("coharness")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/coharness")))
        .unwrap_or_else(|| PathBuf::from(".cache/coharness"))
}

/// The Python tool's interpreter.
pub(crate) fn python() -> PathBuf {
    if let Some(path) = std::env::var_os("COHARNESS_PYTHON").filter(|v| !v.is_empty()) {
        return PathBuf::from(path);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join("python3"))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| PathBuf::from("python3"))
}

/// What a run needs to know of this machine.
pub(crate) fn read() -> Result<Environment, RunError> {
    let helper = std::env::current_exe().map_err(|source| RunError::Io {
        path: PathBuf::from("coharness"),
        source,
    })?;
    Ok(Environment {
        cache: cache(),
        python: python(),
        helper,
        scratch: std::env::temp_dir(),
        allow_weak_sandbox: false,
        key: |name| std::env::var(name).ok().filter(|v| !v.is_empty()),
    })
}
