//! What several rollouts show together, and none by itself.
//!
//! One answer that isn't the printed number may be a slip; ten that are all a hundredth of it were asked
//! for. One wrong program may be a misreading; one form of program that fails on every problem of a
//! topic is something that the model wasn't told, or was told wrongly.

use std::collections::{BTreeMap, BTreeSet};

use harness::Harness;
use rollout::{RolloutId, TaskId, Trajectory};

use super::is_failure;
use super::meaning::{self, Amounts};
use super::skills::{is_shown, wrong_program};
use super::text::{is_near, last_line, mentions, numbers};
use super::told::{self, Place, Sentence};
use super::view::{ANSWER_FORMS, View};
use crate::mining::{form, words};

/// Distinct tasks that make a pattern.
const FEWEST_TASKS: usize = 3;
/// One in this many solved beside the failed ones is too many for a pattern.
const MOST_SOLVED: usize = 4;
/// Share of the answers that differ from the printed number which have to differ in the same way.
const CLEAR_SHARE: f64 = 0.6;
/// Least score of a sentence that is blamed for what became of the printed numbers.
const LEAST_SCORE: u32 = 4;

/// What was found in the rollouts of one harness.
pub(crate) struct Facts {
    /// The sentence that explains what became of a printed number, by rollout.
    altered: BTreeMap<RolloutId, (Place, String)>,
    misunderstood: BTreeMap<RolloutId, Misunderstanding>,
    /// Skills whose triggers stand in no problem.
    idle_skills: BTreeSet<String>,
    /// Whether at least half of the rollouts failed.
    is_failing: bool,
}

/// Problems of one topic that all fail by programs of one form.
#[derive(Clone, Debug)]
pub(crate) struct Misunderstanding {
    /// Words that the problems share.
    pub(crate) topics: BTreeSet<String>,
    /// The programs with letters for the problems' numbers.
    pub(crate) form: String,
}

/// What was done to a printed number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alteration {
    /// The answer has no number at all.
    NoNumber,
    /// A number was printed, and nothing is stated as the answer.
    NoAnswer,
    /// The answer has words beside the printed number.
    Worded,
    /// The answer is this one, whatever was printed.
    Constant(i64),
    More(i64),
    Times(u32),
    Parts(u32),
    /// A multiple of this.
    Rounded(u32),
    /// So many digits that aren't zero.
    Digits(u32),
    /// The same digits, with something between them.
    Parted,
}

impl Facts {
    /// Nothing: for a rollout that is looked at alone.
    pub(crate) const fn none() -> Self {
        Facts {
            altered: BTreeMap::new(),
            misunderstood: BTreeMap::new(),
            idle_skills: BTreeSet::new(),
            is_failing: false,
        }
    }

    pub(crate) fn of(harness: &Harness, trajectories: &[Trajectory]) -> Self {
        let views: Vec<View<'_>> = trajectories
            .iter()
            .filter(|trajectory| trajectory.verdict.correct || is_failure(trajectory))
            .map(|trajectory| View::new(harness, trajectory))
            .collect();
        let failed = views.iter().filter(|view| !view.trajectory.verdict.correct);
        let failed = failed.count();
        Facts {
            is_failing: failed >= FEWEST_TASKS && 2 * failed >= views.len(),
            altered: altered(&views),
            misunderstood: misunderstood(&views),
            idle_skills: idle_skills(harness, &views),
        }
    }

    /// Whether `sentence` explains what became of the number that was printed in the rollout.
    pub(super) fn explains(&self, view: &View<'_>, sentence: &Sentence<'_>) -> bool {
        let blamed = self.altered.get(&view.trajectory.id);
        blamed.is_some_and(|(place, text)| *place == sentence.place && text == sentence.text)
    }

    pub(super) fn misunderstanding(&self, view: &View<'_>) -> Option<&Misunderstanding> {
        self.misunderstood.get(&view.trajectory.id)
    }

    pub(super) fn is_failing(&self) -> bool {
        self.is_failing
    }

    pub(super) fn is_idle(&self, skill: &str) -> bool {
        self.idle_skills.contains(skill)
    }
}

fn idle_skills(harness: &Harness, views: &[View<'_>]) -> BTreeSet<String> {
    let skills = harness.skills.values();
    skills
        .filter(|skill| !skill.triggers.is_empty() && !skill.body.trim().is_empty())
        .filter(|skill| views.iter().all(|view| !is_shown(view, skill)))
        .map(|skill| skill.name.clone())
        .collect()
}

fn altered(views: &[View<'_>]) -> BTreeMap<RolloutId, (Place, String)> {
    // What a check or a cut made of an answer is no sentence's doing.
    let is_whole = |view: &&View<'_>| !view.is_output_cut() && !view.has_fired("verify");
    let read: Vec<(&View<'_>, Vec<Alteration>)> = views
        .iter()
        .filter(is_whole)
        .filter_map(|view| Some((view, alterations(view)?)))
        .collect();
    let differing = read.iter().filter(|(_, found)| !found.is_empty()).count();
    let mut tasks: BTreeMap<Alteration, BTreeSet<&TaskId>> = BTreeMap::new();
    for (view, found) in &read {
        for alteration in found {
            let tasks = tasks.entry(*alteration).or_default();
            tasks.insert(&view.trajectory.task);
        }
    }
    let most = tasks.values().map(BTreeSet::len).max().unwrap_or(0);
    if most < FEWEST_TASKS || (most as f64) < CLEAR_SHARE * differing as f64 {
        return BTreeMap::new();
    }
    // The same answers may be explained in several ways, of which one was asked for.
    let mut clearest = tasks.iter().rev().filter(|(_, tasks)| tasks.len() == most);
    let found = clearest.find_map(|(alteration, _)| {
        let (with, without): (Vec<_>, Vec<_>) = read
            .iter()
            .partition(|(_, found)| found.contains(alteration));
        let with: Vec<&View<'_>> = with.into_iter().map(|(view, _)| *view).collect();
        let without: Vec<&View<'_>> = without.into_iter().map(|(view, _)| *view).collect();
        Some((blamed(*alteration, &with, &without)?, with))
    });
    let Some((sentence, with)) = found else {
        return BTreeMap::new();
    };
    with.into_iter()
        .map(|view| (view.trajectory.id.clone(), sentence.clone()))
        .collect()
}

/// What may have been done to the number that was printed; nothing where the answer is that number, and
/// `None` where one of the two is missing.
fn alterations(view: &View<'_>) -> Option<Vec<Alteration>> {
    const AMOUNTS: [u32; 14] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 60, 100, 1000, 1_000_000];
    const UNITS: [u32; 5] = [5, 10, 50, 100, 1000];
    const MOST_MORE: f64 = 1e9;
    let printed = view.printed_number()?;
    if !view.states_answer() && !view.answers_with_program() {
        return Some(vec![Alteration::NoAnswer]);
    }
    let value = view.value()?;
    if view.answer_has_words() && view.differing_numbers().is_none() {
        return Some(vec![Alteration::Worded]);
    }
    let result = view.last_good_result()?;
    let is_parted = meaning::is_parted(last_line(view.output(result))?, value);
    if numbers(value).is_empty() {
        let alteration = match is_parted {
            true => Alteration::Parted,
            false => Alteration::NoNumber,
        };
        return Some(vec![alteration]);
    }
    let Some((_, answer)) = view.differing_numbers() else {
        return Some(Vec::new());
    };
    let mut found = Vec::new();
    if is_parted {
        found.push(Alteration::Parted);
    }
    let (more, is_whole) = (answer - printed, is_near(answer, answer.round()));
    if is_whole && answer.abs() < 1e9 {
        found.push(Alteration::Constant(answer as i64));
    }
    if more.abs() <= MOST_MORE && is_near(more, more.round()) {
        found.push(Alteration::More(more.round() as i64));
    }
    for amount in AMOUNTS {
        let factor = f64::from(amount);
        let part = printed / factor;
        if is_near(printed * factor, answer) {
            found.push(Alteration::Times(amount));
        }
        let roundings = [part, part.floor(), part.round(), part.ceil()];
        if answer != 0.0 && roundings.iter().any(|part| is_near(*part, answer)) {
            found.push(Alteration::Parts(amount));
        }
    }
    let is_multiple = |unit: f64| is_near(answer / unit, (answer / unit).round());
    for unit in UNITS {
        if more.abs() < f64::from(unit) && is_multiple(f64::from(unit)) {
            found.push(Alteration::Rounded(unit));
        }
    }
    for digits in 1..=3 {
        let length = printed.abs().max(1.0).log10().floor() as i32 + 1;
        let unit = 10f64.powi(length - digits);
        if unit > 1.0 && more.abs() < unit && is_multiple(unit) {
            found.push(Alteration::Digits(digits as u32));
        }
    }
    Some(found)
}

/// The sentence that says most of it, among those that all altered rollouts were told and that were not
/// said more often where nothing was altered.
fn blamed(
    alteration: Alteration,
    with: &[&View<'_>],
    without: &[&View<'_>],
) -> Option<(Place, String)> {
    let amounts = match alteration {
        Alteration::NoNumber
        | Alteration::NoAnswer
        | Alteration::Worded
        | Alteration::Constant(_)
        | Alteration::Parted => Amounts::NONE,
        Alteration::More(amount) => Amounts::exactly(amount.unsigned_abs() as f64),
        Alteration::Times(amount) | Alteration::Parts(amount) => Amounts::exactly(amount.into()),
        Alteration::Rounded(unit) => Amounts::rounding(unit.into()),
        Alteration::Digits(digits) => Amounts::rounding(digits.into()),
    };
    let is_form = amounts == Amounts::NONE;
    // A missing answer or a unit is the model's own habit, unless a sentence says otherwise.
    let is_habit = matches!(alteration, Alteration::NoAnswer | Alteration::Worded);
    let score = |sentence: &Sentence<'_>| {
        let is_closest = match sentence.place {
            Place::Message(..) | Place::FinalAnswer => 2,
            Place::Task => 1,
            _ => 0,
        };
        let is_about = u32::from(meaning::is_about_answer(sentence.text)) * 2;
        let is_telling = match (is_form, alteration) {
            (_, Alteration::Parted) => u32::from(meaning::parts_digits(sentence.text)) * 4,
            (true, _) => u32::from(is_about > 0 && meaning::names_other_form(sentence.text)) * 4,
            (false, _) => amounts.weight(sentence.text),
        };
        // That there is to be an answer, and where, changes none.
        let is_usual = is_habit || mentions(sentence.text, &ANSWER_FORMS);
        if is_usual && is_telling == 0 {
            return 0;
        }
        is_closest + is_about + is_telling
    };
    let is_said = |views: &[&View<'_>], sentence: &Sentence<'_>| {
        let views = views.iter();
        views
            .filter(|view| view.said(sentence.text).is_some())
            .count()
    };
    let first = with.first()?;
    let mut best: Option<(u32, Sentence<'_>)> = None;
    for sentence in told::sentences(first) {
        let score = score(&sentence);
        let is_shared =
            is_said(with, &sentence) == with.len() && is_said(without, &sentence) <= with.len();
        let is_better = best.as_ref().is_none_or(|(most, _)| score > *most);
        if is_shared && is_better && score >= LEAST_SCORE {
            best = Some((score, sentence));
        }
    }
    best.map(|(_, sentence)| (sentence.place, sentence.text.to_owned()))
}

fn misunderstood(views: &[View<'_>]) -> BTreeMap<RolloutId, Misunderstanding> {
    struct Group {
        rollouts: Vec<RolloutId>,
        tasks: BTreeSet<TaskId>,
    }
    let mut solved: BTreeMap<String, usize> = BTreeMap::new();
    let mut groups: BTreeMap<(String, String), Group> = BTreeMap::new();
    for view in views {
        let Some(problem) = view.problem() else {
            continue;
        };
        if view.trajectory.verdict.correct {
            for word in words(problem) {
                *solved.entry(word).or_default() += 1;
            }
            continue;
        }
        let program = view.calls().next_back().map(|call| call.text().trim());
        let (Some(program), Some(_)) = (program, wrong_program(view)) else {
            continue;
        };
        for word in words(problem) {
            let key = (form(program, problem), word);
            let group = groups.entry(key).or_insert(Group {
                rollouts: Vec::new(),
                tasks: BTreeSet::new(),
            });
            group.rollouts.push(view.trajectory.id.clone());
            group.tasks.insert(view.trajectory.task.clone());
        }
    }
    let mut found: BTreeMap<RolloutId, Misunderstanding> = BTreeMap::new();
    for ((form, topic), group) in groups {
        let solved = solved.get(&topic).copied().unwrap_or(0);
        if group.tasks.len() < FEWEST_TASKS || MOST_SOLVED * solved > group.tasks.len() {
            continue;
        }
        for rollout in group.rollouts {
            let known = found.entry(rollout).or_insert_with(|| Misunderstanding {
                topics: BTreeSet::new(),
                form: form.clone(),
            });
            known.topics.insert(topic.clone());
        }
    }
    found
}
