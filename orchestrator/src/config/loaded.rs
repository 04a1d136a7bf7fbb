//! A configuration's way from a name to what a run takes: found, read, overridden and checked.

use std::path::{Path, PathBuf};

use rollout::verifier::VerifierKind;

use super::{Config, ConfigError, overrides};
use crate::builtin;

/// A configuration and where it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// The file, as shown in messages.
    pub origin: String,
    /// Directory that relative paths start from; none for a built-in file.
    pub base: Option<PathBuf>,
}

impl Loaded {
    /// Find and read a configuration, apply `--set` overrides and `--rounds`, and check it.
    ///
    /// # Errors
    /// When there is no such file, or a field is unknown, missing, or out of range.
    pub fn read(
        name: &str,
        overrides: &[String],
        rounds: Option<u32>,
    ) -> Result<Self, ConfigError> {
        let (text, origin, base) = find(name)?;
        let mut config: Config =
            harness::yaml::from_str(&text).map_err(|e| ConfigError::Syntax {
                path: origin.clone(),
                line: e.line,
                column: e.column,
                reason: e.reason,
            })?;
        for setting in overrides {
            config = overrides::apply(&config, setting)?;
        }
        if let Some(rounds) = rounds {
            config.run.rounds = rounds;
        }
        config.check().map_err(|(field, reason)| {
            // Of several the last one counts.
            let mut settings = overrides.iter().rev();
            match settings.find(|setting| overrides::touches(setting, field)) {
                Some(setting) => ConfigError::Override {
                    setting: setting.clone(),
                    reason: format!("{field}: {reason}"),
                },
                None => ConfigError::Invalid {
                    path: origin.clone(),
                    field,
                    reason,
                },
            }
        })?;
        Ok(Self {
            config,
            origin,
            base,
        })
    }

    /// A path of the configuration, resolved.
    pub fn resolve(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        match &self.base {
            Some(base) if path.is_relative() => base.join(path),
            _ => path.to_owned(),
        }
    }

    /// A verifier of the configuration with its program's path resolved. A bare name stays one: it is looked
    /// up on `PATH`.
    pub(crate) fn resolve_verifier(&self, kind: &VerifierKind) -> VerifierKind {
        let mut resolved = kind.clone();
        if let VerifierKind::Command { program, .. } = &mut resolved
            && program.components().count() > 1
        {
            // Without dots between, which only make messages longer.
            *program = self.resolve(program.as_path()).components().collect();
        }
        resolved
    }
}

/// Text, name for messages and base directory of a configuration.
fn find(name: &str) -> Result<(String, String, Option<PathBuf>), ConfigError> {
    let candidates = [PathBuf::from(name), Path::new("configs").join(name)];
    for path in &candidates {
        if path.is_file() {
            let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
                path: path.clone(),
                source,
            })?;
            let base = path.parent().filter(|p| !p.as_os_str().is_empty());
            let base = base.unwrap_or(Path::new(".")).to_owned();
            return Ok((text, path.display().to_string(), Some(base)));
        }
    }
    if let Some((_, text)) = builtin::CONFIGS.iter().find(|(known, _)| *known == name) {
        return Ok(((*text).to_owned(), format!("{name} (built in)"), None));
    }
    let mut looked: Vec<String> = candidates.iter().map(|p| p.display().to_string()).collect();
    // An absolute path is the same below any folder.
    looked.dedup();
    Err(ConfigError::NotFound {
        name: name.to_owned(),
        looked,
    })
}
