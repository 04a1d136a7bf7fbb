//! Reading a harness from its folder.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use harness::folder::{check_file, check_folder};
use harness::{Harness, Shipped, shipped};

use crate::config::Loaded;
use crate::error::RunError;

/// Read a starting harness: a folder, or one that is built in.
///
/// # Errors
/// When the folder can't be read or is no harness.
pub fn read_harness(loaded: &Loaded) -> Result<Harness, RunError> {
    let name = &loaded.config.harness;
    let path = loaded.resolve(name);
    if path.is_dir() {
        return read_harness_folder(&path);
    }
    read_built_in(name)?.ok_or_else(|| RunError::Harness {
        path,
        reason: format!("no such folder (built-in harnesses: {})", built_in_names()),
    })
}

/// The built-in harness of this name, if there is one.
///
/// # Errors
/// When it can't be read.
pub(crate) fn read_built_in(name: &str) -> Result<Option<Harness>, RunError> {
    let found = Shipped::named(name).map(|shipped| shipped.read());
    found.transpose().map_err(|error| RunError::Harness {
        path: PathBuf::from(name),
        reason: error.to_string(),
    })
}

/// The names of the built-in harnesses, for a message.
pub(crate) fn built_in_names() -> String {
    shipped::ALL.map(|shipped| shipped.name).join(", ")
}

/// Read a harness from its folder.
///
/// # Errors
/// When the folder can't be read or is no harness.
pub fn read_harness_folder(path: &Path) -> Result<Harness, RunError> {
    let refused = |reason| RunError::Harness {
        path: path.to_owned(),
        reason,
    };
    let mut files = BTreeMap::new();
    collect(path, "", &mut files).map_err(refused)?;
    harness::from_files(&files).map_err(|error| refused(error.to_string()))
}

/// Read what has a place in a harness; at the first thing that has none, say so unread. `inside` is a
/// folder of the harness with a `/` at its end, or empty for its own.
///
/// Links are followed: since only folders with a place are entered, they can't lead round in a circle.
fn collect(root: &Path, inside: &str, files: &mut BTreeMap<String, String>) -> Result<(), String> {
    let folder = root.join(inside);
    let names = names(&folder).map_err(|error| unreadable(&folder.to_string_lossy(), &error))?;
    for name in names {
        let name = name.into_string().map_err(|name| {
            let shown = format!("{inside}{}", name.to_string_lossy());
            format!("{shown} isn't part of a harness: its name isn't UTF-8")
        })?;
        let name = format!("{inside}{name}");
        let path = root.join(&name);
        // A link that leads nowhere is judged by its name, as a file.
        let found = fs::metadata(&path);
        if found.as_ref().is_ok_and(Metadata::is_dir) {
            check_folder(&name).map_err(|error| error.to_string())?;
            collect(root, &format!("{name}/"), files)?;
            continue;
        }
        check_file(&name).map_err(|error| error.to_string())?;
        let found = found.map_err(|error| unreadable(&name, &error))?;
        // Reading a pipe would wait for whoever writes to it.
        if !found.is_file() {
            return Err(format!("{name} isn't a regular file"));
        }
        let bytes = fs::read(&path).map_err(|error| unreadable(&name, &error))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
            format!("{name} isn't UTF-8, line {line}")
        })?;
        // No text of a harness has a carriage return.
        files.insert(name, text.replace("\r\n", "\n"));
    }
    Ok(())
}

/// The names in a folder, sorted, so that the same one is complained of each time.
fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name());
    }
    names.sort();
    Ok(names)
}

fn unreadable(name: &str, error: &io::Error) -> String {
    format!("cannot read {name}: {error}")
}
