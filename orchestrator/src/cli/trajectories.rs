//! `coharness trajectories`: rollouts of a run, to be read by a person.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use registry::Registry;
use rollout::trajectory::{
    Event, ExitReason, Message, ModelCall, Role, Step, StepKind, ToolCall, Trajectory,
};

use super::paint::{ColorChoice, Paint, Tone, shown};
use super::{RunName, inspect, print, say, table};
use crate::config::Loaded;
use crate::counted::counted;
use crate::error::RunError;
use crate::run::{Saved, registry_path};
use crate::splits;
use crate::store::{Store, TrajectoryFilter, TrajectoryRow};

/// Rollouts of a run.
#[derive(Debug, Args)]
pub(crate) struct TrajectoriesArgs {
    #[command(subcommand)]
    command: TrajectoriesCommand,
}

#[derive(Debug, Subcommand)]
enum TrajectoriesCommand {
    /// List rollouts.
    List(ListArgs),
    /// Show one rollout: what was said, called and printed, and how it was judged.
    Show(ShowArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    run: RunName,
    /// Only rollouts on problems of this split.
    #[arg(long, value_enum)]
    split: Option<SplitName>,
    /// Only rollouts first made in this round; 0 is the baseline, or an evaluation.
    #[arg(long, value_name = "N")]
    round: Option<u32>,
    /// Only rollouts with this outcome.
    #[arg(long, value_enum)]
    outcome: Option<Outcome>,
    /// Only rollouts that ended like this.
    #[arg(long, value_name = "REASON", value_parser = PossibleValuesParser::new(ExitReason::NAMES))]
    exit: Option<String>,
    /// Only rollouts on this problem.
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// Only rollouts under this harness, as the list names it: v3, or the beginning of an id.
    #[arg(long, value_name = "VERSION")]
    harness: Option<String>,
    /// Most rollouts listed; 0 lists all.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// The beginning of a rollout's id.
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    run: RunName,
    /// Show the conversation as the policy saw it at the end, examples included.
    #[arg(long)]
    messages: bool,
    /// When to use colours.
    #[arg(long, value_enum, default_value = "auto")]
    color: ColorChoice,
    /// As JSON: the whole record.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SplitName {
    Evolve,
    Gate,
    Test,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Outcome {
    /// The problem was solved.
    Correct,
    /// It wasn't.
    Wrong,
}

pub(crate) async fn trajectories(
    root: &Path,
    args: TrajectoriesArgs,
) -> Result<ExitCode, RunError> {
    match args.command {
        TrajectoriesCommand::List(args) => list(root, args).await,
        TrajectoriesCommand::Show(args) => show(root, args).await,
    }
}

async fn list(root: &Path, args: ListArgs) -> Result<ExitCode, RunError> {
    let directory = inspect::find_run(root, &args.run)?;
    let versions = Versions::read(&directory);
    let store = Store::look_at(&directory).await?;
    let harness = match &args.harness {
        Some(name) => Some(harness_id(&directory, &store, name).await?),
        None => None,
    };
    let filter = TrajectoryFilter {
        split: args.split.map(|split| format!("{split:?}").to_lowercase()),
        round: args.round,
        correct: args.outcome.map(|outcome| outcome == Outcome::Correct),
        exit: args.exit,
        task: args.task,
        harness,
        id_prefix: None,
    };
    let mut rows = store.trajectories(&filter).await?;
    store.close().await;
    let total = rows.len();
    if args.limit > 0 {
        rows.truncate(args.limit);
    }
    if args.json {
        print(&serde_json::to_string_pretty(&rows).unwrap_or_default());
        return Ok(ExitCode::SUCCESS);
    }
    if rows.is_empty() {
        say("no such rollouts");
        return Ok(ExitCode::SUCCESS);
    }
    let cells = rows.iter().map(|row| cells(row, &versions)).collect();
    let header = [
        "id", "round", "split", "harness", "weights", "problem", "outcome", "exit", "tokens",
        "seconds",
    ];
    let problem = header.iter().position(|name| *name == "problem");
    print(&table::rows(&header, cells, problem));
    if rows.len() < total {
        say(&format!("{} of {total}; --limit 0 lists all", rows.len()));
    }
    Ok(ExitCode::SUCCESS)
}

fn cells(row: &TrajectoryRow, versions: &Versions) -> Vec<String> {
    let outcome = match (row.correct, row.exit.as_str()) {
        (true, _) => "correct",
        (false, "infrastructure") => "left out",
        (false, _) => "wrong",
    };
    vec![
        row.id.chars().take(12).collect(),
        row.round
            .map_or_else(|| "-".to_owned(), |round| round.to_string()),
        row.split.clone(),
        versions.name(&row.harness),
        weights(&row.policy),
        table::shorten(&shown(&row.task), 28),
        outcome.to_owned(),
        row.exit.clone(),
        row.completion_tokens.to_string(),
        format!("{:.1}", row.wall_ms as f64 / 1000.0),
    ]
}

/// `base`, or the beginning of the adapter's id; a server's adapter is its model.
fn weights(policy: &str) -> String {
    let adapter = policy.split_once('+').map(|(_, adapter)| adapter);
    let adapter = adapter.or_else(|| {
        let name = policy.strip_prefix("openai:")?.split('@').next()?;
        let is_id = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then_some(name)
    });
    adapter.map_or_else(|| "base".to_owned(), |id| id.chars().take(8).collect())
}

/// Names of harness versions by their content id.
struct Versions(BTreeMap<String, String>);

impl Versions {
    /// Those of a run; none where it has no registry yet.
    fn read(directory: &Path) -> Self {
        let mut names = BTreeMap::new();
        if let Ok(registry) = Registry::open_read_only(&registry_path(directory)) {
            for entry in registry.rejected().unwrap_or_default() {
                names.insert(entry.harness.to_hex(), entry.name.to_string());
            }
            for version in registry.history().unwrap_or_default() {
                if let Some(harness) = version.harness {
                    names
                        .entry(harness.to_hex())
                        .or_insert(version.name.to_string());
                }
            }
        }
        Versions(names)
    }

    /// The version's name, or the beginning of the id.
    fn name(&self, harness: &str) -> String {
        match self.0.get(harness) {
            Some(name) => name.rsplit("rejected/").next().unwrap_or(name).to_owned(),
            None => harness.chars().take(8).collect(),
        }
    }
}

/// The id of a harness by a version's name, or by the beginning of its id where it is no version: a run
/// gathers under its head at another temperature, and an evaluation has no versions at all.
async fn harness_id(directory: &Path, store: &Store, name: &str) -> Result<String, RunError> {
    let version = Registry::open_read_only(&registry_path(directory))
        .and_then(|registry| registry.load(name));
    let unknown = match version {
        Ok((_, harness)) => return Ok(harness.id().to_hex()),
        Err(error) => error,
    };
    let beginning = name.to_ascii_lowercase();
    let rows = store.trajectories(&TrajectoryFilter::default()).await?;
    let ids = rows.into_iter().map(|row| row.harness);
    let ids: BTreeSet<String> = ids.filter(|id| id.starts_with(&beginning)).collect();
    let mut ids = ids.into_iter();
    match (ids.next(), ids.next()) {
        (Some(id), None) if beginning.len() >= 4 => Ok(id),
        _ => Err(unknown.into()),
    }
}

async fn show(root: &Path, args: ShowArgs) -> Result<ExitCode, RunError> {
    let directory = inspect::find_run(root, &args.run)?;
    let store = Store::look_at(&directory).await?;
    let filter = TrajectoryFilter {
        id_prefix: Some(args.id.to_lowercase()),
        ..TrajectoryFilter::default()
    };
    let fitting = store.trajectories(&filter).await?;
    let row = match &fitting[..] {
        [row] => row,
        [] => {
            let reason = format!(
                "no rollout of {} has an id that begins with {}",
                inspect::name_of(&directory),
                shown(&args.id)
            );
            return Err(RunError::NoTrajectory { reason });
        }
        several => {
            let ids: Vec<&str> = several
                .iter()
                .take(8)
                .filter_map(|row| row.id.get(..16))
                .collect();
            let reason = format!(
                "{} rollouts have an id that begins with {}: {}{}",
                several.len(),
                args.id,
                ids.join(", "),
                if several.len() > ids.len() {
                    ", …"
                } else {
                    ""
                }
            );
            return Err(RunError::NoTrajectory { reason });
        }
    };
    let Some(trajectory) = store.trajectory_of(&row.id).await? else {
        let reason = format!("rollout {} is gone", row.id);
        return Err(RunError::NoTrajectory { reason });
    };
    let gold = gold(&store, &trajectory).await;
    store.close().await;
    if args.json {
        print(&serde_json::to_string_pretty(&trajectory).unwrap_or_default());
        return Ok(ExitCode::SUCCESS);
    }
    let page = Page {
        paint: Paint::for_stdout(args.color),
        trajectory: &trajectory,
        row,
        harness: Versions::read(&directory).name(&row.harness),
        gold,
    };
    print(&page.text(args.messages));
    Ok(ExitCode::SUCCESS)
}

/// What a rollout was judged by, with its name. The run's database has no right answers but in its problem
/// files, which may be gone or have others by now; an evaluation doesn't know its file. The rollout can be
/// read without.
async fn gold(store: &Store, trajectory: &Trajectory) -> Option<String> {
    let Saved { config, base, .. } = Saved::read(store).await.ok()??;
    let basis = store.basis(&trajectory.id).await.ok()??;
    let loaded = Loaded {
        config,
        origin: "the run's own configuration".into(),
        base,
    };
    let gold = splits::gold_of(&loaded, &trajectory.task_hash, &basis)?;
    let name = match basis.verifier.runs_programs() {
        true => "tests",
        false => "right answer",
    };
    Some(format!("{name} {}", table::shorten(&shown(&gold), 60)))
}

/// One rollout as a page of text.
struct Page<'a> {
    paint: Paint,
    trajectory: &'a Trajectory,
    row: &'a TrajectoryRow,
    harness: String,
    /// What it was judged by, where that is known.
    gold: Option<String>,
}

impl Page<'_> {
    fn text(&self, has_messages: bool) -> String {
        let mut parts = vec![self.head()];
        if has_messages {
            parts.extend(
                self.trajectory
                    .messages
                    .iter()
                    .map(|message| self.message(message)),
            );
        } else {
            parts.extend(self.steps());
        }
        parts.push(self.verdict());
        parts.join("\n\n")
    }

    fn head(&self) -> String {
        let (paint, trajectory) = (self.paint, self.trajectory);
        let round = match self.row.round {
            Some(0) => "outside the rounds".to_owned(),
            Some(round) => format!("round {round}"),
            None => "round unknown".to_owned(),
        };
        let usage = &trajectory.usage;
        let about = if usage.is_estimated { "about " } else { "" };
        let replies = counted(trajectory.model_calls.len(), "reply");
        let facts = [
            ("rollout", trajectory.id.as_str().to_owned()),
            (
                "problem",
                format!("{} · {} · {round}", trajectory.task, self.row.split),
            ),
            ("harness", self.harness.clone()),
            (
                "policy",
                format!("{} · seed {}", trajectory.policy, trajectory.seed),
            ),
            ("sandbox", trajectory.sandbox_level.clone()),
            (
                "cost",
                format!(
                    "{about}{} generated ({} reasoning), {} of prompts, {replies}, {}.{:03} s",
                    counted(usage.completion_tokens, "token"),
                    usage.reasoning_tokens,
                    usage.prompt_tokens,
                    trajectory.wall_ms / 1000,
                    trajectory.wall_ms % 1000,
                ),
            ),
        ];
        let lines = facts.iter().map(|(name, value)| {
            format!(
                "{} {}",
                paint.tone(Tone::Faint, &format!("{name:<8}")),
                shown(value)
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// What happened, step by step; what belongs to the step before it stands below that.
    fn steps(&self) -> Vec<String> {
        let mut calls = self.trajectory.model_calls.iter();
        let mut parts: Vec<String> = Vec::new();
        let mut last_reply = "";
        for step in &self.trajectory.steps {
            let call = (step.kind == StepKind::Assistant)
                .then(|| calls.next())
                .flatten();
            if step.kind == StepKind::Assistant {
                last_reply = &step.text;
            }
            if step.text.is_empty() && !matches!(step.kind, StepKind::Assistant | StepKind::Hook) {
                let note = step.event.as_ref().map(|event| self.note(event));
                match (parts.last_mut(), note) {
                    (Some(part), Some(note)) => {
                        part.push('\n');
                        part.push_str(&note);
                    }
                    (None, Some(note)) => parts.push(note),
                    (_, None) => {}
                }
                continue;
            }
            parts.push(self.step(step, call, last_reply));
        }
        parts
    }

    fn step(&self, step: &Step, call: Option<&ModelCall>, last_reply: &str) -> String {
        let paint = self.paint;
        let (tone, title) = match step.kind {
            StepKind::System => (Tone::Heading, "system".to_owned()),
            StepKind::User => (Tone::Heading, "user".to_owned()),
            StepKind::Assistant => {
                let tokens = call.map(|call| counted(call.usage.completion_tokens, "token"));
                let tokens = tokens.map(|tokens| format!(" · {tokens}"));
                (
                    Tone::Assistant,
                    format!("assistant{}", tokens.unwrap_or_default()),
                )
            }
            StepKind::ToolCall => (Tone::Tool, "calls the tool".to_owned()),
            StepKind::ToolResult => (Tone::Tool, "result".to_owned()),
            StepKind::Hook => {
                let hook = step.event.as_ref().map_or("hook", Event::name);
                let text = paint.wrapped(&step.text, "  ");
                return format!(
                    "{}\n{text}",
                    paint.tone(Tone::Note, &format!("▸ hook {hook}"))
                );
            }
            StepKind::Final => (Tone::Heading, "answer".to_owned()),
        };
        let mut lines = vec![paint.rule(tone, &title)];
        if let Some(call) = call.filter(|call| !call.reasoning.is_empty()) {
            let reasoning = paint.wrapped(&call.reasoning, "  ┊ ");
            lines.push(paint.tone(Tone::Faint, &reasoning));
        }
        let is_program_above = step.kind == StepKind::ToolCall && last_reply.contains(&step.text);
        if is_program_above {
            lines.push(paint.tone(Tone::Faint, "  with the program above"));
        } else if !step.text.is_empty() {
            let margin = if step.kind == StepKind::ToolCall {
                "  │ "
            } else {
                "  "
            };
            lines.push(paint.wrapped(&step.text, margin));
        }
        if let Some(word) = call.and_then(|call| call.finish_reason.as_deref()) {
            let note = format!("▸ the server ended it with {}", shown(word));
            lines.push(paint.tone(Tone::Note, &note));
        }
        lines.extend(step.event.as_ref().map(|event| self.note(event)));
        lines.join("\n")
    }

    fn note(&self, event: &Event) -> String {
        let detail = match event {
            Event::UnparsableCall { reason } | Event::BadArguments { reason } => {
                format!(": {reason}")
            }
            Event::UnknownTool { name } => format!(": {name}"),
            Event::CallsNotRun { count } => format!(": {}", counted(count, "call")),
            Event::TextAfterCall { characters } => {
                format!(": {}", counted(characters, "character"))
            }
            Event::ToolError { exit } => format!(": {exit:?}"),
            _ => String::new(),
        };
        let text = format!("▸ {}{}", event.name().replace('_', " "), shown(&detail));
        self.paint.tone(Tone::Note, &text)
    }

    fn message(&self, message: &Message) -> String {
        let paint = self.paint;
        let (tone, role) = match message.role {
            Role::System => (Tone::Heading, "system"),
            Role::User => (Tone::Heading, "user"),
            Role::Assistant => (Tone::Assistant, "assistant"),
            Role::Tool => (Tone::Tool, "tool"),
        };
        let title = match (message.role, message.train) {
            (Role::Assistant, false) => format!("{role} · not the policy's own, or cut"),
            _ => role.to_owned(),
        };
        let mut lines = vec![paint.rule(tone, &title)];
        if !message.content.is_empty() {
            lines.push(paint.wrapped(&message.content, "  "));
        }
        let native: &[ToolCall] = if message.is_native {
            &message.tool_calls
        } else {
            &[]
        };
        for call in native {
            lines.push(paint.tone(Tone::Tool, &format!("  → {}", shown(&call.tool))));
            for (name, value) in &call.arguments {
                let text = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                lines.push(paint.tone(Tone::Faint, &format!("    {}:", shown(name))));
                lines.push(paint.wrapped(&text, "    │ "));
            }
        }
        lines.join("\n")
    }

    fn verdict(&self) -> String {
        let (paint, trajectory) = (self.paint, self.trajectory);
        let verdict = &trajectory.verdict;
        let (tone, word) = match (verdict.correct, &trajectory.answer) {
            (true, _) => (Tone::Good, "✓ correct"),
            _ if trajectory.exit.is_infrastructure() => (Tone::Faint, "– left out"),
            _ if verdict.undecided => (Tone::Faint, "? undecided"),
            (false, Some(_)) => (Tone::Bad, "✗ wrong"),
            (false, None) => (Tone::Bad, "✗ no answer"),
        };
        let answer = trajectory.answer.as_deref().map(|answer| {
            format!(
                " · answer {} (found by {})",
                table::shorten(&shown(answer), 60),
                verdict.rule
            )
        });
        let reason = match &trajectory.exit {
            ExitReason::Infrastructure { reason, .. } => format!(": {}", shown(reason)),
            _ => String::new(),
        };
        let exit = format!(" · exit {}{reason}", trajectory.exit.name());
        let rest = format!("{}{exit}", answer.unwrap_or_default());
        let gold = self.gold.as_ref().map(|gold| format!("\n  {gold}"));
        format!(
            "{}{rest}{}",
            paint.tone(tone, word),
            gold.unwrap_or_default()
        )
    }
}
