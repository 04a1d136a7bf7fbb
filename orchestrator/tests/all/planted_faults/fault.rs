//! What all lists are made of: a fault, its working harness, and what there is to see of it.

use critic::RootCause;
use harness::Harness;

use super::problems::Kind;

/// Makes a harness that works.
type Working = fn() -> Harness;
/// Plants a fault in one.
type Plant = fn(&mut Harness);

/// A fault in a harness that works without it.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// The planted root cause; its dimension is the one that is changed.
    pub(crate) cause: RootCause,
    /// Another root cause that may be named as well, where something elsewhere would help as much.
    pub(crate) other_cause: Option<RootCause>,
    /// Kinds of problems on which it shows.
    pub(crate) kinds: &'static [Kind],
    /// By what it can be seen in a trajectory.
    pub(crate) shows: &'static str,
    pub(crate) working: Working,
    pub(crate) plant: Plant,
}

impl Fault {
    /// Makes faults of one root cause: of name, kinds of problems, what there is to see, the working
    /// harness, and what is planted.
    pub(super) fn of(
        cause: RootCause,
    ) -> impl Fn(&'static str, &'static [Kind], &'static str, Working, Plant) -> Fault {
        move |name, kinds, shows, working, plant| Fault {
            name,
            cause,
            other_cause: None,
            kinds,
            shows,
            working,
            plant,
        }
    }

    pub(super) fn or(self, cause: RootCause) -> Self {
        Fault {
            other_cause: Some(cause),
            ..self
        }
    }

    pub(super) fn is_named_by(&self, cause: RootCause) -> bool {
        cause == self.cause || Some(cause) == self.other_cause
    }

    /// Dimensions of the root causes, the planted one first.
    pub(super) fn dimensions(&self) -> String {
        let planted = self.cause.harness_dim();
        match self.other_cause {
            Some(other) => format!("{planted}/{}", other.harness_dim()),
            None => planted.to_string(),
        }
    }
}
