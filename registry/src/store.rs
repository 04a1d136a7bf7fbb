//! Making and opening repositories.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use git2::{Config, ConfigLevel, ErrorCode, Repository, RepositoryInitOptions};

use crate::author::Author;
use crate::error::RegistryError;

/// The layout of references and messages that this program writes.
const FORMAT: i64 = 1;
/// Where the format is kept in the repository's git configuration.
const FORMAT_KEY: &str = "coharness.registryFormat";
/// Git settings for this crate alone. Flushing makes a commit survive a power loss; git itself would
/// print a deprecation warning at every command if this stood in the repository's own configuration.
const SETTINGS: &str = "# Read by coharness only.\n[core]\n\tfsyncObjectFiles = true\n";
const SETTINGS_FILE: &str = "coharness.config";

/// A git repository of harness versions. See the crate's documentation for the layout.
///
/// A registry can be sent to another thread but not shared; opening one more is cheap. Writers are kept from
/// overwriting each other by compare-and-swap alone, so several may be open at once.
pub struct Registry {
    pub(crate) repository: Repository,
    pub(crate) path: PathBuf,
    pub(crate) author: Author,
    is_read_only: bool,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// Opens the registry at `path`, or makes an empty bare one in an absent or empty folder.
    ///
    /// # Errors
    /// As [`Registry::open`], and [`RegistryError::Occupied`] for a folder with other files in it.
    pub fn open_or_create(path: &Path) -> Result<Self, RegistryError> {
        match Self::open(path) {
            Err(RegistryError::NotFound { .. }) => {}
            result => return result,
        }
        let folder = create(path)?;
        // An empty folder may be replaced, one with anything in it may not.
        let result = fs::rename(&folder, path.canonicalize().as_deref().unwrap_or(path));
        if let Err(source) = result {
            fs::remove_dir_all(&folder).map_err(RegistryError::io(&folder))?;
            return match (Self::open(path), source.kind()) {
                // Another process made it at the same time.
                (Ok(registry), _) => Ok(registry),
                (_, ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory) => {
                    Err(RegistryError::Occupied {
                        path: path.to_owned(),
                    })
                }
                _ => Err(RegistryError::Io {
                    path: path.to_owned(),
                    source,
                }),
            };
        }
        Self::open(path)
    }

    /// Opens an existing registry, bare or not, and completes tags that a writer which died left out.
    ///
    /// # Errors
    /// [`RegistryError::NotFound`], [`RegistryError::ForeignOwner`], [`RegistryError::NewerFormat`], or a
    /// history that can't be read.
    pub fn open(path: &Path) -> Result<Self, RegistryError> {
        let mut registry = Self::open_read_only(path)?;
        registry.is_read_only = false;
        let format = registry.format()?;
        if format > FORMAT {
            return Err(RegistryError::NewerFormat {
                path: path.to_owned(),
                found: format,
                supported: FORMAT,
            });
        }
        registry.make_durable()?;
        match registry.repair_tags() {
            // Names come from the history, not from tags, so a held tag can wait for the next writer.
            Err(RegistryError::Locked { .. }) => {}
            result => result?,
        }
        Ok(registry)
    }

    /// Opens an existing registry without changing anything in it, whatever its format.
    ///
    /// # Errors
    /// [`RegistryError::NotFound`] or [`RegistryError::ForeignOwner`].
    pub fn open_read_only(path: &Path) -> Result<Self, RegistryError> {
        let repository = Repository::open(path).map_err(|source| match source.code() {
            // The fix needs the path in full: git compares `safe.directory` as text.
            ErrorCode::Owner => RegistryError::ForeignOwner {
                path: path.canonicalize().unwrap_or_else(|_| path.to_owned()),
                source,
            },
            ErrorCode::NotFound => RegistryError::NotFound {
                path: path.to_owned(),
                source,
            },
            _ => RegistryError::Git {
                action: "open the registry",
                source,
            },
        })?;
        Ok(Self {
            repository,
            path: path.to_owned(),
            author: Author::default(),
            is_read_only: true,
        })
    }

    /// The same registry, with another author on new commits.
    #[must_use]
    pub fn with_author(self, author: Author) -> Self {
        Self { author, ..self }
    }

    /// Where the registry was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that holds git's files.
    pub(crate) fn git_folder(&self) -> &Path {
        self.repository.commondir()
    }

    pub(crate) fn check_writable(&self) -> Result<(), RegistryError> {
        if self.is_read_only {
            return Err(RegistryError::ReadOnly {
                path: self.path.clone(),
            });
        }
        Ok(())
    }

    fn format(&self) -> Result<i64, RegistryError> {
        let read = |config: Config| config.get_i64(FORMAT_KEY);
        match self.repository.config().and_then(read) {
            // A clone does not carry the original's configuration.
            Err(error) if error.code() == ErrorCode::NotFound => Ok(FORMAT),
            result => result.map_err(RegistryError::git("read the registry's format")),
        }
    }

    /// Puts [`SETTINGS`] above the repository's own; has to come before the first object is touched,
    /// since libgit2 reads them once.
    fn make_durable(&self) -> Result<(), RegistryError> {
        let file = self.git_folder().join(SETTINGS_FILE);
        if fs::read_to_string(&file).ok().as_deref() != Some(SETTINGS) {
            // A name of its own for threads of one process too: the first rename takes the file away.
            static WRITTEN: AtomicU32 = AtomicU32::new(0);
            let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
            let writer = format!("{}-{number}.partial", std::process::id());
            let partial = file.with_extension(writer);
            fs::write(&partial, SETTINGS).map_err(RegistryError::io(&partial))?;
            fs::rename(&partial, &file).map_err(RegistryError::io(&file))?;
        }
        self.repository
            .config()
            .and_then(|mut config| config.add_file(&file, ConfigLevel::App, true))
            .map_err(RegistryError::git("read coharness.config"))
    }
}

/// Makes a complete registry beside `path`, so that a process that dies on the way leaves nothing half-made
/// at `path` itself. Returns the folder.
fn create(path: &Path) -> Result<PathBuf, RegistryError> {
    let occupied = || RegistryError::Occupied {
        path: path.to_owned(),
    };
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .ok_or_else(occupied)?;
    let parent = path.parent().unwrap_or(Path::new(""));
    let parent = if parent == Path::new("") {
        Path::new(".")
    } else {
        parent
    };
    fs::create_dir_all(parent).map_err(RegistryError::io(parent))?;
    let mut attempt = 0u32;
    let folder = loop {
        let folder = parent.join(format!("{name}.creating-{attempt}"));
        match fs::create_dir(&folder) {
            Ok(()) => break folder,
            // Left by a process that died, or in use by one that is at it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => attempt += 1,
            Err(source) => {
                return Err(RegistryError::Io {
                    path: folder,
                    source,
                });
            }
        }
    };
    let mut options = RepositoryInitOptions::new();
    // Neither the user's templates (hooks) nor their default branch are wanted here.
    options
        .bare(true)
        .external_template(false)
        .initial_head("main");
    let configure = |repository: Repository| {
        let mut config = repository.config()?.open_level(ConfigLevel::Local)?;
        config.set_i64(FORMAT_KEY, FORMAT)?;
        // So that `git log` shows pairings beside the versions they belong to.
        config.set_str("log.initialDecorationSet", "all")
    };
    Repository::init_opts(&folder, &options)
        .and_then(configure)
        .map_err(RegistryError::git("create the registry"))?;
    // What libgit2 writes here is not flushed, and a registry without HEAD is none.
    for file in ["HEAD", "config"]
        .map(|name| folder.join(name))
        .iter()
        .chain([&folder])
    {
        fs::File::open(file)
            .and_then(|file| file.sync_all())
            .map_err(RegistryError::io(file))?;
    }
    Ok(folder)
}
