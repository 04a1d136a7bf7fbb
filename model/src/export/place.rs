//! A file or directory that is there whole or not at all: it is made under another name and renamed.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::ExportError;

/// What is being written.
pub(super) struct Place {
    part: PathBuf,
    target: PathBuf,
}

impl Place {
    /// Begin to write `target`; what an earlier try left is removed.
    pub(super) fn new(target: &Path) -> Self {
        let mut name = std::ffi::OsString::from(".part-");
        name.push(target.file_name().unwrap_or_default());
        let place = Self {
            part: target.with_file_name(name),
            target: target.to_owned(),
        };
        place.remove();
        place
    }

    /// Where to write it meanwhile.
    pub(super) fn path(&self) -> &Path {
        &self.part
    }

    /// Make it last and give it its name.
    pub(super) fn publish(self) -> Result<(), ExportError> {
        sync(&self.part)?;
        std::fs::rename(&self.part, &self.target).map_err(io(&self.target))?;
        match self.target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => sync(parent),
            _ => sync(Path::new(".")),
        }
    }

    /// Nothing can be done about a part that stays; the next try meets it again.
    fn remove(&self) {
        let _ = std::fs::remove_file(&self.part);
        let _ = std::fs::remove_dir_all(&self.part);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Put a file or a directory's entries on the disk.
pub(super) fn sync(path: &Path) -> Result<(), ExportError> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(io(path))
}

pub(super) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> ExportError + '_ {
    move |source| ExportError::Io {
        path: path.to_owned(),
        source,
    }
}
