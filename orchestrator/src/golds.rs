//! Gold answers that their verifier can't read, which nothing ever matches.

use std::sync::Arc;

use rollout::task::Task;
use rollout::verifier::{Verifier, VerifierKind, build};

use crate::config::Loaded;
use crate::counted::counted;
use crate::error::RunError;
use crate::splits::Splits;

/// A verifier and the problems that it judges.
struct Judged<'a> {
    /// Where the configuration names it.
    field: String,
    verifier: Arc<dyn Verifier>,
    tasks: Vec<&'a Task>,
}

impl Judged<'_> {
    fn can_read(&self, task: &Task) -> bool {
        self.verifier.can_read(&task.answer)
    }

    /// A warning about the gold answers that can't be read.
    fn warning(&self) -> Option<String> {
        const NAMED: usize = 3;
        let unread = self.tasks.iter().filter(|task| !self.can_read(task));
        let unread: Vec<&str> = unread.map(|task| task.id.as_str()).collect();
        let more = match unread.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let names = unread.iter().take(NAMED).copied();
        let names = names.collect::<Vec<_>>().join(", ");
        (!unread.is_empty()).then(|| {
            let answers = counted(unread.len(), "gold answer");
            let field = &self.field;
            format!("{field} can't read {answers}, which nothing will match: {names}{more}")
        })
    }
}

/// The run's own problems, and those of each suite.
fn judged<'a>(loaded: &Loaded, splits: &'a Splits) -> Vec<Judged<'a>> {
    // Reading a gold answer runs no program.
    let verifier = |kind: &VerifierKind| build(&loaded.resolve_verifier(kind), None);
    let own = &loaded.config.tasks.verifier;
    let tasks = splits.evolve.iter().chain(&splits.gate).chain(&splits.test);
    let mut all = vec![Judged {
        field: "tasks.verifier".to_owned(),
        verifier: verifier(own),
        tasks: tasks.collect(),
    }];
    all.extend(splits.suites.iter().map(|suite| Judged {
        field: format!("retention: {}: verifier", suite.config.name),
        verifier: verifier(suite.config.verifier.as_ref().unwrap_or(own)),
        tasks: suite.tasks.iter().collect(),
    }));
    all
}

/// Check that each verifier can read one gold answer at least.
///
/// # Errors
/// [`RunError::NoGold`] for the first one that can read none: none of its problems would ever be solved.
pub(crate) fn check(loaded: &Loaded, splits: &Splits) -> Result<(), RunError> {
    for judged in judged(loaded, splits) {
        let is_blind = !judged.tasks.iter().any(|task| judged.can_read(task));
        if let (true, Some(task)) = (is_blind, judged.tasks.first()) {
            return Err(RunError::NoGold {
                task: task.id.to_string(),
                field: judged.field,
            });
        }
    }
    Ok(())
}

/// What a person should know of the gold answers that can't be read.
pub(crate) fn warnings(loaded: &Loaded, splits: &Splits) -> Vec<String> {
    let all = judged(loaded, splits);
    all.iter().filter_map(Judged::warning).collect()
}
