//! The Python interpreter: where it is and which files it needs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde::Deserialize;
use tokio::process::Command;

/// Prints what [`Answer`] reads.
const INSPECT: &str = include_str!("python/inspect.py");

/// A version manager's shim on a cold network disk may take seconds.
const INSPECT_WITHIN: Duration = Duration::from_secs(30);

/// Oldest version whose standard streams and start-up options the bootstrap relies on.
const OLDEST: (u32, u32) = (3, 8);

/// Files outside the interpreter's own directories that it reads.
const SYSTEM_PATHS: [&str; 7] = [
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/etc/localtime",
];

/// Devices without side effects.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];

/// A configured interpreter that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InterpreterError {
    /// There is no such program.
    #[error("no Python interpreter at {}", python.display())]
    Missing {
        /// The configured path.
        python: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It could not be run.
    #[error("cannot run {}", python.display())]
    Start {
        /// The configured path.
        python: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It ran and did not answer as Python does.
    #[error("{} does not behave like Python: {detail}", python.display())]
    NotPython {
        /// The configured path.
        python: PathBuf,
        /// What it did instead.
        detail: String,
    },
    /// It is Python, but too old.
    #[error("{} is Python {version}, older than 3.8", python.display())]
    TooOld {
        /// The configured path.
        python: PathBuf,
        /// Its version.
        version: String,
    },
}

/// An interpreter and what it needs, found by asking it.
#[derive(Clone, Debug)]
pub(crate) struct Interpreter {
    /// The real program, behind any shim or virtual environment.
    pub(crate) executable: PathBuf,
    /// Such as `3.11.7`.
    pub(crate) version: String,
    /// Directories of installed packages.
    pub(crate) module_paths: Vec<PathBuf>,
    /// Files and directories to read.
    pub(crate) readable: Vec<PathBuf>,
    /// The interpreter and the dynamic loaders.
    pub(crate) executables: Vec<PathBuf>,
    /// Devices to read and write.
    pub(crate) devices: Vec<PathBuf>,
}

/// What the inspection prints.
#[derive(Deserialize)]
struct Answer {
    executable: PathBuf,
    version: (u32, u32, u32),
    libraries: Vec<PathBuf>,
    module_paths: Vec<PathBuf>,
}

impl Interpreter {
    /// Asks `python`, which may be a bare command name, a shim or part of a virtual environment.
    pub(crate) async fn find(python: &Path) -> Result<Self, InterpreterError> {
        let output = inspect(python).await?;
        let not_python = |detail| InterpreterError::NotPython {
            python: python.into(),
            detail,
        };
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let last = beginning(stderr.lines().last().unwrap_or_default());
            return Err(not_python(format!("{}, {last}", output.status)));
        }
        // What comes before the last line was printed by start-up hooks of the installation.
        let stdout = String::from_utf8_lossy(&output.stdout);
        let answer: Answer = serde_json::from_str(stdout.lines().last().unwrap_or_default())
            .map_err(|error| not_python(format!("its answer is unreadable ({error})")))?;
        let (major, minor, patch) = answer.version;
        let version = format!("{major}.{minor}.{patch}");
        if (major, minor) < OLDEST {
            return Err(InterpreterError::TooOld {
                python: python.into(),
                version,
            });
        }
        let executable =
            answer
                .executable
                .canonicalize()
                .map_err(|source| InterpreterError::Start {
                    python: python.into(),
                    source,
                })?;
        Ok(Self::with_files(
            executable,
            version,
            answer.libraries,
            answer.module_paths,
        ))
    }

    fn with_files(
        executable: PathBuf,
        version: String,
        libraries: Vec<PathBuf>,
        module_paths: Vec<PathBuf>,
    ) -> Self {
        let module_paths: Vec<_> = module_paths
            .into_iter()
            .filter(|path| path.is_dir())
            .collect();
        let system = SYSTEM_PATHS.iter().map(PathBuf::from);
        let readable = system
            .chain(libraries)
            .chain(module_paths.iter().cloned())
            .chain([executable.clone()])
            // A prefix of `/` would open everything.
            .filter(|path| path.exists() && path.parent().is_some())
            .collect();
        let executables = loaders().chain([executable.clone()]).collect();
        let devices = DEVICES
            .iter()
            .map(PathBuf::from)
            .filter(|path| path.exists())
            .collect();
        Interpreter {
            executable,
            version,
            module_paths,
            readable: outermost(readable),
            executables,
            devices,
        }
    }
}

async fn inspect(python: &Path) -> Result<Output, InterpreterError> {
    let mut command = Command::new(python);
    command
        .args(["-I", "-c", INSPECT])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    match tokio::time::timeout(INSPECT_WITHIN, command.output()).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(source)) if source.kind() == io::ErrorKind::NotFound => {
            Err(InterpreterError::Missing {
                python: python.into(),
                source,
            })
        }
        Ok(Err(source)) => Err(InterpreterError::Start {
            python: python.into(),
            source,
        }),
        Err(_) => Err(InterpreterError::NotPython {
            python: python.into(),
            detail: format!("no answer within {} s", INSPECT_WITHIN.as_secs()),
        }),
    }
}

/// The beginning of what a program says: one that is no Python may repeat all that it was asked.
fn beginning(said: &str) -> String {
    /// Characters of a sentence on what is wrong.
    const MOST: usize = 80;
    match said.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &said[..end]),
        None => said.to_owned(),
    }
}

/// Dynamic loaders: executing a program executes its loader as well.
fn loaders() -> impl Iterator<Item = PathBuf> {
    ["/lib", "/lib64"]
        .iter()
        .filter_map(|directory| std::fs::read_dir(directory).ok())
        .flatten()
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("ld-"))
        .filter_map(|entry| entry.path().canonicalize().ok())
}

/// Drops paths that lie below others.
fn outermost(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    paths.dedup_by(|later, earlier| later.starts_with(&*earlier));
    paths
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn nested_paths_collapse() {
        let paths = [
            "/usr/lib/python3",
            "/lib",
            "/usr/lib",
            "/usr/lib",
            "/usr/lib64",
            "/lib/x",
        ];
        let kept = outermost(paths.iter().map(PathBuf::from).collect());
        assert_eq!(kept, ["/lib", "/usr/lib", "/usr/lib64"].map(PathBuf::from));
    }

    #[test]
    fn a_prefix_of_root_does_not_open_the_machine() {
        let found = Interpreter::with_files(
            PathBuf::from("/bin/sh"),
            "3.11.0".to_owned(),
            vec![PathBuf::from("/")],
            vec![PathBuf::from("/")],
        );
        assert!(!found.readable.contains(&PathBuf::from("/")));
    }

    #[tokio::test]
    async fn what_is_not_python_is_named() {
        let missing = Interpreter::find(Path::new("/nonexistent/python"))
            .await
            .unwrap_err();
        assert!(matches!(missing, InterpreterError::Missing { .. }));
        // The second one names the file that it was to show: the whole question.
        for program in ["/bin/true", "/bin/ls"] {
            let other = Interpreter::find(Path::new(program)).await.unwrap_err();
            assert!(
                matches!(other, InterpreterError::NotPython { .. }),
                "{other}"
            );
            let said = other.to_string();
            assert!(said.chars().count() < 160, "{said}");
        }
    }
}
