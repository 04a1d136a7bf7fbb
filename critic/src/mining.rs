//! Mining: programs that keep working become a skill or an example, those that keep failing a hint.
//!
//! A program's *form* is what is left of it when the problem's numbers are replaced by letters in the
//! order in which the problem has them: `print(300 * 15 / 100)` for "What is 15 percent of 300?" is
//! `print(b * a / 100)`. Solved rollouts of problems that share a word which other problems don't
//! have (a *topic*), with one form, are know-how; failed ones on the same topic with another form are
//! what it could mend. Nothing here knows a right answer, only which rollouts were solved.

use std::collections::{BTreeMap, BTreeSet};

use harness::{Example, ExampleStep, Harness, PatchOp, Skill};
use rollout::{StepKind, Trajectory};

use crate::catalogue::program_tool;
use crate::record::{Evidence, Record, RootCause, Severity};
use crate::repairs::{path, skills, value};
use crate::rules::{is_among, is_failure, numbers, problem_of};

/// The rule of a mined skill's records.
pub const SKILL_RULE: &str = "mined_skill";
/// The rule of a mined example's records.
pub const EXAMPLE_RULE: &str = "mined_example";

/// Solved tasks that make know-how of a form.
const FEWEST_SOLVED: usize = 3;
/// Failed tasks on the topic that make it worth saying.
const FEWEST_FAILED: usize = 2;
/// Share of a topic's solved rollouts that must have the form.
const CLEAR_SHARE: f64 = 0.6;
/// Share of all problems that a topic may cover: a word that most have says nothing.
const WIDEST_TOPIC: f64 = 0.75;
/// Topics that are looked at.
const MOST_TOPICS: usize = 3;
/// Longest program that is shown.
const MOST_LINES: usize = 6;
/// Most characters of a task's name in an example's title.
const TITLE_CHARS: usize = 40;
/// Shortest word that can be a topic.
const TOPIC_CHARS: usize = 5;

/// One rollout with a program, read for mining.
struct Course<'a> {
    trajectory: &'a Trajectory,
    problem: &'a str,
    /// Its last program and the step that it stands in.
    program: &'a str,
    step: usize,
    form: String,
}

/// Records that suggest what solved rollouts among `trajectories` have shown. Their evidence is the
/// failed program that the suggestion could mend.
pub fn mine(harness: &Harness, trajectories: &[Trajectory]) -> Vec<Record> {
    let courses = |is_wanted: fn(&Trajectory) -> bool| -> Vec<Course<'_>> {
        let wanted = trajectories.iter().filter(|t| is_wanted(t));
        wanted.filter_map(|t| Course::read(t, harness)).collect()
    };
    let solved = courses(|trajectory| trajectory.verdict.correct);
    let failed = courses(is_failure);
    let mut records = Vec::new();
    for topic in topics(&solved, &failed) {
        let on_topic = |course: &&Course<'_>| words(course.problem).contains(&topic);
        let solved: Vec<&Course<'_>> = solved.iter().filter(on_topic).collect();
        let Some(form) = clear_form(&solved) else {
            continue;
        };
        let failed: Vec<&Course<'_>> = failed
            .iter()
            .filter(on_topic)
            .filter(|course| course.form != form)
            .collect();
        let tasks: BTreeSet<_> = failed
            .iter()
            .map(|course| &course.trajectory.task)
            .collect();
        if tasks.len() < FEWEST_FAILED {
            continue;
        }
        let shown = solved.iter().find(|course| course.form == form);
        let example = shown.and_then(|course| example(harness, course));
        for course in &failed {
            records.extend(
                skill(harness, &topic, &form, &failed)
                    .map(|ops| course.record(SKILL_RULE, RootCause::SkillMissing, ops)),
            );
            records.extend(
                example
                    .clone()
                    .map(|ops| course.record(EXAMPLE_RULE, RootCause::PromptAmbiguity, ops)),
            );
        }
    }
    records
}

impl<'a> Course<'a> {
    fn read(trajectory: &'a Trajectory, harness: &'a Harness) -> Option<Self> {
        let problem = problem_of(trajectory, harness)?;
        let mut steps = trajectory.steps.iter().enumerate();
        let (step, call) = steps.rfind(|(_, step)| step.kind == StepKind::ToolCall)?;
        let program = call.text.trim();
        let is_short = !program.is_empty() && program.lines().count() <= MOST_LINES;
        is_short.then(|| Course {
            trajectory,
            problem,
            program,
            step,
            form: form(program, problem),
        })
    }

    fn record(&self, rule: &str, cause: RootCause, ops: Vec<PatchOp>) -> Record {
        let last = self.program.lines().next_back().unwrap_or(self.program);
        Record {
            root_cause: cause,
            harness_dim: cause.harness_dim(),
            severity: Severity::Medium,
            evidence: Evidence {
                trajectory: self.trajectory.id.clone(),
                step: self.step,
                quote: last.trim().to_owned(),
            },
            diff_suggestion: ops,
            rule: rule.to_owned(),
        }
    }
}

/// Words that set some problems apart, those with the most failures first.
fn topics(solved: &[Course<'_>], failed: &[Course<'_>]) -> Vec<String> {
    let mut counts: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for (side, courses) in [solved, failed].into_iter().enumerate() {
        for course in courses {
            for word in words(course.problem) {
                counts.entry(word).or_default()[side] += 1;
            }
        }
    }
    let all = (solved.len() + failed.len()) as f64;
    counts.retain(|_, [solved, failed]| {
        let share = (*solved + *failed) as f64 / all;
        *solved >= FEWEST_SOLVED && *failed >= FEWEST_FAILED && share <= WIDEST_TOPIC
    });
    let mut topics: Vec<(String, [usize; 2])> = counts.into_iter().collect();
    // Stable: of equals the first in the alphabet stays first.
    topics.sort_by_key(|(_, [solved, failed])| std::cmp::Reverse((*failed, *solved)));
    topics.truncate(MOST_TOPICS);
    topics.into_iter().map(|(word, _)| word).collect()
}

/// The form that most of the solved rollouts have.
fn clear_form(solved: &[&Course<'_>]) -> Option<String> {
    let mut tasks: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for course in solved {
        let tasks = tasks.entry(&course.form).or_default();
        tasks.insert(course.trajectory.task.as_str());
    }
    let (form, count) = tasks
        .into_iter()
        .map(|(form, tasks)| (form, tasks.len()))
        .max_by_key(|(_, count)| *count)?;
    let is_clear = count >= FEWEST_SOLVED && count as f64 >= CLEAR_SHARE * solved.len() as f64;
    is_clear.then(|| form.to_owned())
}

/// A skill that tells the form for problems on the topic, and which form has failed.
fn skill(
    harness: &Harness,
    topic: &str,
    form: &str,
    failed: &[&Course<'_>],
) -> Option<Vec<PatchOp>> {
    let name = format!("mined-{topic}");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for course in failed {
        *counts.entry(&course.form).or_default() += 1;
    }
    let worst = counts.into_iter().max_by_key(|(_, count)| *count);
    let hint = worst
        .filter(|(form, count)| *count >= FEWEST_FAILED && !form.contains('\n'))
        .map_or_else(String::new, |(form, _)| format!("\nNot like this: {form}"));
    let skill = Skill {
        name: name.clone(),
        description: format!("Problems that speak of {topic}."),
        triggers: vec![topic.to_owned()],
        body: format!(
            "With a, b, c for the numbers of the problem in their order, the program is:\n{form}{hint}"
        ),
        python: String::new(),
    };
    match harness.skills.get(&name) {
        Some(known) if *known == skill => None,
        Some(_) => Some(vec![PatchOp::replace(
            path("skills").join(name.as_str()),
            value(skill),
        )]),
        None => Some(skills::add(&skill)),
    }
}

/// The solved rollout as a worked example, if one call and its result are all of it.
fn example(harness: &Harness, course: &Course<'_>) -> Option<Vec<PatchOp>> {
    let (name, tool) = program_tool(harness)?;
    let argument = tool.code_argument()?.to_owned();
    let of_kind = |kind| {
        let steps = course.trajectory.steps.iter();
        steps
            .filter(move |step| step.kind == kind)
            .map(|step| step.text.trim())
    };
    let results: Vec<&str> = of_kind(StepKind::ToolResult).collect();
    let [result] = results.as_slice() else {
        return None;
    };
    let answer = of_kind(StepKind::Assistant).next_back()?;
    let task = slug(course.trajectory.task.as_str(), "-", TITLE_CHARS);
    let title = format!("solved-{task}");
    let shown = &harness.prompts.examples;
    let is_known = shown
        .iter()
        .any(|example| example.title == title || example.problem == course.problem);
    let example = Example {
        title,
        problem: course.problem.to_owned(),
        steps: vec![ExampleStep {
            say: String::new(),
            tool: name.clone(),
            arguments: BTreeMap::from([(argument, course.program.to_owned())]),
            result: (*result).to_owned(),
        }],
        answer: answer.to_owned(),
    };
    (!is_known).then(|| vec![PatchOp::add(path("prompts.examples"), value(example))])
}

/// Lower-case letters and digits, with `mark` between words.
pub(crate) fn slug(text: &str, mark: &str, most_chars: usize) -> String {
    let text = text.to_lowercase();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(mark).chars().take(most_chars).collect()
}

/// Words of a problem that can be a topic.
pub(crate) fn words(problem: &str) -> BTreeSet<String> {
    const GENERAL: &str = "about after altogether another answer before every first found given have \
                           into many more much number other there these they total what which \
                           would";
    problem
        .split(|c: char| !c.is_alphabetic())
        .map(str::to_lowercase)
        .filter(|word| word.chars().count() >= TOPIC_CHARS && !is_among(word, GENERAL))
        .collect()
}

/// The program with letters for the numbers of the problem.
pub(crate) fn form(program: &str, problem: &str) -> String {
    let mut known: Vec<f64> = Vec::new();
    for number in numbers(problem) {
        if !known.contains(&number) {
            known.push(number);
        }
    }
    let letter = |number: f64| {
        let at = known.iter().position(|known| *known == number)?;
        let letters = 'a'..='z';
        letters.into_iter().nth(at)
    };
    let mut out = String::with_capacity(program.len());
    let mut rest = program;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let before = rest[..start].chars().next_back();
        let end = rest[start..]
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
            .map_or(rest.len(), |length| start + length);
        let digits = rest[start..end].trim_end_matches('.');
        let end = start + digits.len();
        out.push_str(&rest[..start]);
        // A digit of a name such as `x1` is no number.
        let is_name = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let number = digits.replace('_', "").parse::<f64>().ok();
        match number.filter(|_| !is_name).and_then(letter) {
            Some(letter) => out.push(letter),
            None => out.push_str(digits),
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use super::*;
    use crate::cluster::cluster;
    use crate::propose::propose;
    use crate::record::check_evidence;
    use crate::testing::{Build, failed, start};

    fn percent(seed: u64, code: &str, is_solved: bool) -> Trajectory {
        let (a, b) = (10 + seed, 100 * (20 + seed));
        let code = code
            .replace('A', &a.to_string())
            .replace('B', &b.to_string());
        let mut trajectory = failed(seed)
            .problem(&format!("What is {a} percent of {b}?"))
            .call(&code)
            .result("7", None)
            .answered("7");
        trajectory.verdict.correct = is_solved;
        trajectory
    }

    fn sums(seed: u64) -> Trajectory {
        let mut trajectory = failed(seed)
            .problem(&format!("Ada buys {seed} cards and 12 more."))
            .call(&format!("print({seed} + 12)"))
            .result("7", None)
            .answered("7");
        trajectory.verdict.correct = true;
        trajectory
    }

    const RIGHT: &str = "print(B * A / 100)";
    const WRONG: &str = "print(A * B)";

    fn mixed(solved: u64, wrong: u64) -> Vec<Trajectory> {
        (1..=solved)
            .map(|seed| percent(seed, RIGHT, true))
            .chain((20..20 + wrong).map(|seed| percent(seed, WRONG, false)))
            .chain((40..46).map(sums))
            .collect()
    }

    #[test]
    fn letters_stand_for_the_numbers_of_the_problem() {
        let problem = "Take 15 percent of 1,200 and add 15.";
        assert_eq!(
            form("print(1200 * 15 / 100)", problem),
            "print(b * a / 100)"
        );
        assert_eq!(
            form("x15 = 15\nprint(x15 + 2.5)", problem),
            "x15 = a\nprint(x15 + 2.5)"
        );
        assert_eq!(form("n = 1_200", problem), "n = b");
    }

    #[test]
    fn what_keeps_working_becomes_a_skill_and_an_example() {
        let trajectories = mixed(4, 3);
        let records = mine(&start(), &trajectories);
        for record in &records {
            let id = &record.evidence.trajectory;
            let trajectory = trajectories.iter().find(|t| t.id == *id).unwrap();
            assert_eq!(check_evidence(record, trajectory), Ok(()));
            assert!(record.evidence.quote.starts_with("print("));
        }
        let clusters = cluster(&records, &trajectories);
        let proposals = propose(&start(), &clusters, &[]);
        let find = |rule: &str| proposals.iter().find(|p| p.rule == rule).unwrap();
        let skill = find(SKILL_RULE).patch.apply(&start()).unwrap();
        let skill = &skill.skills["mined-percent"];
        assert!(skill.body.contains("print(b * a / 100)"), "{}", skill.body);
        assert!(skill.body.ends_with("Not like this: print(a * b)"));
        assert_eq!(find(SKILL_RULE).predicted.fixes.len(), 3);
        let shown = find(EXAMPLE_RULE).patch.apply(&start()).unwrap();
        let example = &shown.prompts.examples[0];
        assert_eq!(example.problem, "What is 11 percent of 2100?");
        assert_eq!(example.steps[0].result, "7");
        // What is there already isn't suggested again.
        let again = mine(
            &find(SKILL_RULE).patch.apply(&start()).unwrap(),
            &trajectories,
        );
        assert!(again.iter().all(|record| record.rule != SKILL_RULE));
    }

    #[test]
    fn little_evidence_and_no_difference_give_nothing() {
        assert_eq!(mine(&start(), &mixed(2, 3)), []);
        assert_eq!(mine(&start(), &mixed(4, 1)), []);
        // The same form fails and works: it isn't the program.
        let mut same = mixed(4, 0);
        same.extend((20..24).map(|seed| percent(seed, RIGHT, false)));
        assert_eq!(mine(&start(), &same), []);
        // A word that nearly all problems have is no topic.
        let mut only: Vec<Trajectory> = mixed(4, 3);
        only.truncate(7);
        assert_eq!(mine(&start(), &only), []);
    }
}
