//! Names of the harnesses that rollouts were made under.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use registry::Registry;

use crate::cli::inspect;
use crate::error::RunError;
use crate::gate::CLASSIFY_TEMPERATURE;
use crate::run::{Saved, registry_path};
use crate::store::{Store, TrajectoryFilter};

/// Stands between a version and a temperature that isn't its own.
const AT: &str = " at ";

/// Names of harnesses by their content id.
pub(super) struct Versions(BTreeMap<String, String>);

impl Versions {
    /// Those of a run; none where it has no registry yet. The gate classifies problems under its head at a
    /// temperature of its own, and the model loop may gather so.
    pub(super) async fn read(directory: &Path, store: &Store) -> Self {
        let saved = Saved::read(store).await.ok().flatten();
        let gathering = saved.and_then(|saved| saved.config.model_loop.temperature);
        let mut names = BTreeMap::new();
        let Ok(registry) = Registry::open_read_only(&registry_path(directory)) else {
            return Self(names);
        };
        for entry in registry.rejected().unwrap_or_default() {
            let name = entry.name.to_string();
            names.insert(entry.harness.to_hex(), inspect::listed(&name).to_owned());
        }
        let versions = registry.history().unwrap_or_default();
        for version in &versions {
            if let Some(harness) = &version.harness {
                let name = names.entry(harness.to_hex());
                name.or_insert(version.name.to_string());
            }
        }
        for version in &versions {
            let name = version.name.to_string();
            let Ok((_, mut harness)) = registry.load(&name) else {
                continue;
            };
            let own = harness.middleware.sampling.temperature;
            let others = [Some(own.max(CLASSIFY_TEMPERATURE)), gathering];
            for temperature in others.into_iter().flatten() {
                harness.middleware.sampling.temperature = temperature;
                let name = format!("{name}{AT}{temperature}");
                names.entry(harness.id().to_hex()).or_insert(name);
            }
        }
        Self(names)
    }

    /// The version's name, or the beginning of the id.
    pub(super) fn name(&self, harness: &str) -> String {
        match self.0.get(harness) {
            Some(name) => name.clone(),
            None => harness.chars().take(8).collect(),
        }
    }

    /// Ids of what is called so, a version at every temperature.
    fn called(&self, wanted: &str) -> Vec<String> {
        let is_it = |name: &str| {
            let rest = name.strip_prefix(wanted);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(AT))
        };
        let found = self.0.iter().filter(|(_, name)| is_it(name));
        found.map(|(id, _)| id.clone()).collect()
    }

    /// Ids of the harnesses that `name` means: one as lists name it, any other name of a version, or the
    /// beginning of an id, which an evaluation has alone.
    pub(super) async fn find(
        &self,
        directory: &Path,
        store: &Store,
        name: &str,
    ) -> Result<Vec<String>, RunError> {
        let called = self.called(name);
        if !called.is_empty() {
            return Ok(called);
        }
        let beginning = name.to_ascii_lowercase();
        let version = Registry::open_read_only(&registry_path(directory))
            .and_then(|registry| registry.load(name));
        let unknown = match version {
            Ok((_, harness)) => {
                let id = harness.id().to_hex();
                return Ok(match self.0.get(&id) {
                    Some(listed) if !id.starts_with(&beginning) => self.called(listed),
                    _ => vec![id],
                });
            }
            Err(error) => error,
        };
        let rows = store.trajectories(&TrajectoryFilter::default()).await?;
        let ids = rows.into_iter().map(|row| row.harness);
        let ids: BTreeSet<String> = ids.filter(|id| id.starts_with(&beginning)).collect();
        match ids.len() {
            1 if beginning.len() >= 4 => Ok(ids.into_iter().collect()),
            _ => Err(unknown.into()),
        }
    }
}
