//! Ways in which a text misleads, and the kinds of text that can.
//!
//! What can be said wrongly can be said in a prompt, a tool's description, a skill, a hook's message
//! and a note, so a way makes a rule in each of the five dimensions. A further one is an entry of
//! [`EVERYWHERE`]. The older ones stand among the faults of each dimension, where some differ from
//! what is said here.
//!
//! Names and explanations are templates: `{name}` and `{text}` are what the kind of text is called in
//! them, `{s}` ends a verb, and `{its}` says whose.

use super::told::{self, blamed};
use super::{Fault, Rule, calls, memory, middleware, obeyed, prompts, skill_code, skills, tools};
use crate::record::RootCause;
use crate::repairs as repair;

pub(super) const AGAINST_TOOL: Fault = Fault {
    name: "{name}_against_tool",
    explain: "{Text} speak{s} against a tool that the harness offers or say{s} that it is out of use, and \
              the model didn't call it.",
    repairs: &[],
    look: |view| blamed(view, obeyed::speaks_against_tool),
};

pub(super) const ALTERS_ANSWER: Fault = Fault {
    name: "{name}_alters_answer",
    explain: "The answer is what {text} make{s} of the number that the tool printed, or that number in \
              another notation.",
    repairs: &[],
    look: |view| blamed(view, obeyed::alters_answer),
};

pub(super) const MISLEADS: Fault = Fault {
    name: "{name}_misleads",
    explain: "{Text} say{s} how to calculate on a topic, and every problem of that topic fails by a \
              program of the same form.",
    repairs: &[],
    look: |view| blamed(view, obeyed::misleads),
};

pub(super) const NAMES_UNKNOWN_TOOL: Fault = Fault {
    name: "{name}_names_unknown_tool",
    explain: "The model called a tool or gave an argument that doesn't exist, by a name that {text} \
              give{s}.",
    repairs: &[],
    look: |view| blamed(view, obeyed::names_unknown_tool),
};

pub(super) const NAMES_MISSING_CODE: Fault = Fault {
    name: "{name}_names_missing_code",
    explain: "A program failed over a name that Python doesn't know and that {text} give{s}.",
    repairs: &[],
    look: |view| blamed(view, obeyed::names_missing_code),
};

pub(super) const ASKS_FOR_LENGTH: Fault = Fault {
    name: "{name}_asks_for_length",
    explain: "{Text} ask{s} for a long text, and a reply reached its token limit before it came to a \
              call or an answer.",
    repairs: &[],
    look: |view| blamed(view, obeyed::asks_for_length),
};

pub(super) const ASKS_FOR_WORDS: Fault = Fault {
    name: "{name}_asks_for_words",
    explain: "{Text} ask{s} for the answer in words, for one of some words such as yes and no, or for \
              none, and no answer could be read.",
    repairs: &[],
    look: |view| blamed(view, obeyed::asks_for_words),
};

/// Ways that every dimension has as they stand here.
const EVERYWHERE: &[Fault] = &[
    Fault {
        name: "{name}_asks_for_more",
        explain: "{Text} ask{s} for further calls, and the rollout had a result and went on calling \
                  without an answer.",
        repairs: &[],
        look: |view| blamed(view, obeyed::asks_for_more),
    },
    Fault {
        name: "{name}_gives_unread_marks",
        explain: "{Text} give{s} marks for programs that the loop doesn't read, and the model put its \
                  program between them instead of calling the tool.",
        repairs: &[],
        look: |view| blamed(view, obeyed::gives_unread_mark),
    },
    Fault {
        name: "{name}_misguides_print",
        explain: "{Text} say{s} that a program needn't print or is to be a function, and one printed \
                  nothing; or to print more than the result, and the answer is the last of several \
                  numbers.",
        repairs: &[],
        look: |view| blamed(view, obeyed::misguides_print),
    },
    Fault {
        name: "{name}_asks_for_several",
        explain: "{Text} ask{s} for more than one answer, and of those that the model marked none, or \
                  another than the printed number, was read.",
        repairs: &[],
        look: |view| blamed(view, obeyed::asks_for_several),
    },
    Fault {
        name: "{name}_sends_answer_to_tool",
        explain: "{Text} ask{s} for the answer to be handed over by a call, and the model called a tool with the \
                  printed number alone and stated no answer.",
        repairs: &[],
        look: |view| blamed(view, obeyed::sends_answer_to_tool),
    },
    Fault {
        name: "{name}_limits_calls",
        explain: "{Text} limit{s} the calls, and the model made so many, and answered with numbers of the \
                  problem unused or without a result.",
        repairs: &[],
        look: |view| blamed(view, obeyed::limits_calls),
    },
    Fault {
        name: "{name}_asks_first",
        explain: "{Text} ask{s} to find something out from somebody first, and the model asked and \
                  solved nothing.",
        repairs: &[],
        look: |view| blamed(view, obeyed::asks_first),
    },
    Fault {
        name: "{name}_encodes_programs",
        explain: "{Text} ask{s} for programs that are escaped or encoded, and one that was couldn't be \
                  run.",
        repairs: &[],
        look: |view| blamed(view, obeyed::encodes_programs),
    },
    Fault {
        name: "{name}_spoils_formula",
        explain: "{Text} give{s} a formula that isn't Python as it stands, since a sign got lost or is \
                  another than Python's, and a program that took it over failed. The suggestion puts the \
                  sign right.",
        repairs: &[],
        look: |view| told::corrected(view, obeyed::mended_formula),
    },
    Fault {
        name: "{name}_lends_numbers",
        explain: "{Text} give{s} numbers to read and not to calculate with, such as a reference, a date or \
                  those of an example, and programs calculated with them in the place of the problem's.",
        repairs: &[],
        look: |view| blamed(view, obeyed::lends_numbers),
    },
];

const SUSPECTED: Fault = Fault {
    name: "{name}_suspected",
    explain: "Most rollouts fail, nothing explains this one, and {text} may be why: the gate can \
              tell, with the shipped text or none in {its} place.",
    repairs: &[],
    look: told::suspected,
};

/// A kind of text that the model is told, and the rules of its dimension.
pub(super) struct Text {
    cause: RootCause,
    name: &'static str,
    text: &'static str,
    is_plural: bool,
    /// Repairs of what such a text is blamed for, most promising first, unless others are named.
    repairs: &'static [repair::Repair],
    faults: &'static [&'static [Fault]],
    /// The last of its rules.
    suspected: Fault,
}

pub(super) static TEXTS: [Text; 5] = [
    Text {
        cause: RootCause::PromptAmbiguity,
        name: "prompt",
        text: "the prompts",
        is_plural: true,
        repairs: &[
            repair::prompts::TASK_PLAIN,
            repair::prompts::SYSTEM_USE_TOOL,
        ],
        faults: &[prompts::FAULTS],
        suspected: SUSPECTED.repaired_by(&[
            repair::prompts::FINAL_BOXED,
            repair::prompts::TASK_PLAIN,
            repair::prompts::SYSTEM_USE_TOOL,
        ]),
    },
    Text {
        cause: RootCause::ToolSchemaError,
        name: "tool_description",
        text: "a tool's description",
        is_plural: false,
        repairs: &[repair::tools::DESCRIPTION_WHEN],
        faults: &[tools::FAULTS],
        suspected: SUSPECTED
            .repaired_by(&[repair::tools::DESCRIPTION_WHEN, repair::tools::PLAIN_SCHEMA]),
    },
    Text {
        cause: RootCause::SkillMissing,
        name: "skill",
        text: "a skill",
        is_plural: false,
        repairs: &[
            repair::skills::SHIPPED_BODIES,
            repair::skills::REMOVE_TRIGGERED,
        ],
        faults: &[skill_code::FAULTS, skills::FAULTS],
        suspected: Fault {
            explain: "Most rollouts fail, nothing explains this one, and a skill that was shown may be \
                      why: the gate can tell, with the shipped text or none in its place.",
            ..SUSPECTED
        },
    },
    Text {
        cause: RootCause::MiddlewareMismatch,
        name: "message",
        text: "a hook's message",
        is_plural: false,
        repairs: &[
            repair::hooks::SHIPPED_MESSAGES,
            repair::hooks::DROP_MESSAGES,
        ],
        faults: &[calls::FAULTS, middleware::FAULTS],
        suspected: SUSPECTED,
    },
    Text {
        cause: RootCause::MemoryOverflow,
        name: "note",
        text: "a note",
        is_plural: false,
        repairs: &[repair::memory::CLEAR],
        faults: &[memory::FAULTS],
        suspected: Fault {
            explain: "Most rollouts fail, nothing explains this one, and the notes may be why: the gate \
                      can tell, with the shipped text or none in their place.",
            ..SUSPECTED
        },
    },
];

impl Text {
    /// The rules of the text's dimension, in the order in which they are shown.
    pub(super) fn rules(&self) -> impl Iterator<Item = Rule> {
        let own = self.faults.iter().copied().flatten();
        let told = EVERYWHERE.iter().chain([&self.suspected]);
        own.chain(told).map(move |fault| self.rule(fault))
    }

    fn rule(&self, fault: &Fault) -> Rule {
        let repairs = match fault.repairs {
            [] => self.repairs,
            named => named,
        };
        let filled = Fault {
            name: self.filled(fault.name),
            explain: self.filled(fault.explain),
            repairs,
            look: fault.look,
        };
        filled.rule(self.cause)
    }

    /// A template with what this kind of text is called. There is one set of rules, which lives as long
    /// as the process.
    fn filled(&self, template: &'static str) -> &'static str {
        if !template.contains('{') {
            return template;
        }
        let (first, rest) = self.text.split_at(1);
        let (s, its) = match self.is_plural {
            true => ("", "their"),
            false => ("s", "its"),
        };
        let filled = template
            .replace("{name}", self.name)
            .replace("{Text}", &(first.to_uppercase() + rest))
            .replace("{text}", self.text)
            .replace("{s}", s)
            .replace("{its}", its);
        filled.leak()
    }
}
