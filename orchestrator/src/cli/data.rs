//! `coharness data`: what is trained on, to be looked at and moved.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use harness::{Harness, HarnessId};
use model::chat_template::ChatTemplate;
use model::tokenizer::{TokenStream, Tokenizer};
use registry::Registry;
use serde_json::Value;
use trainer::Row;
use trainer::conversation::Encoder;

use super::paint::{ColorChoice, Paint, Tone, shown};
use super::{RunName, STANDARD_INPUT, environment, inspect, print, say};
use crate::base_model::BaseModel;
use crate::chat_rows::{self, Form};
use crate::config::Loaded;
use crate::counted::{are, counted};
use crate::error::RunError;
use crate::run::{Saved, registry_path};
use crate::store::{Store, TrajectoryFilter};

/// Training data.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Show rows as the model is trained on them: the rendered text, with what counts for the loss
    /// marked.
    Inspect(InspectArgs),
    /// Print a run's rollouts as JSON lines of messages.
    Export(ExportArgs),
    /// Turn training data of other forms into JSON lines of messages.
    Import(ImportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// JSON lines of messages, or of another form that `import` reads; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Configuration whose model's template and tokenizer are used.
    #[arg(long, value_name = "FILE", default_value = "quickstart.yaml")]
    config: String,
    /// Override a field of the configuration, as in --set model.path=FILE. May be repeated.
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Rows shown; 0 shows all. All are checked.
    #[arg(long, value_name = "N", default_value_t = 3)]
    limit: usize,
    /// When to use colours; without them, what counts stands between ⟦ and ⟧.
    #[arg(long, value_enum, default_value = "auto")]
    color: ColorChoice,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    run: RunName,
    /// Only rollouts first made in this round; 0 is the baseline.
    #[arg(long, value_name = "N")]
    round: Option<u32>,
    /// Wrong rollouts too, and those whose harness isn't kept, without tools.
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// JSON lines; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Their form.
    #[arg(long, value_enum, default_value = "auto")]
    form: Form,
}

pub(crate) async fn data(root: &Path, command: DataCommand) -> Result<ExitCode, RunError> {
    match command {
        DataCommand::Inspect(args) => inspect_rows(&args),
        DataCommand::Export(args) => export(root, args).await,
        DataCommand::Import(args) => {
            for row in rows(&args.file, args.form)? {
                print(&row.to_string());
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn rows(file: &Path, form: Form) -> Result<Vec<Value>, RunError> {
    let (path, text) = if file.as_os_str() == "-" {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        (PathBuf::from(STANDARD_INPUT), read.map(|_| text))
    } else {
        (file.to_owned(), std::fs::read_to_string(file))
    };
    let text = match text {
        Ok(text) => text,
        Err(source) => return Err(RunError::Named { path, source }),
    };
    chat_rows::read(&text, form).map_err(|error| RunError::Data {
        path,
        reason: error.to_string(),
    })
}

fn inspect_rows(args: &InspectArgs) -> Result<ExitCode, RunError> {
    let found = rows(&args.file, Form::Auto)?;
    let loaded = Loaded::read(&args.config, &args.set, None)?;
    let base = BaseModel::load(&loaded, &environment::cache())?;
    let template = ChatTemplate::new(&base.template)?;
    let encoder = Encoder {
        tokenizer: &base.tokenizer,
        template: &template,
        variables: &base.variables,
        stop_tokens: &base.stop_tokens,
    };
    let paint = Paint::for_stdout(args.color);
    let (mut tokens, mut targets, mut longest, mut refused) = (0, 0, 0, 0);
    for (index, found) in found.iter().enumerate() {
        let id = match &found["id"] {
            Value::String(id) => id.clone(),
            Value::Null => format!("row {}", index + 1),
            id => id.to_string(),
        };
        let messages = found["messages"].as_array().map_or(&[][..], Vec::as_slice);
        match encoder.encode(&id, messages, found.get("tools")) {
            Ok(row) => {
                tokens += row.tokens.len();
                targets += row.targets();
                longest = longest.max(row.tokens.len());
                if args.limit == 0 || index < args.limit {
                    print(&text(&row, &base.tokenizer, paint));
                }
            }
            Err(error) => {
                refused += 1;
                let mut reason = error.to_string();
                if let Some(source) = std::error::Error::source(&error) {
                    reason = format!("{reason}: {source}");
                }
                say(&format!("refused {}: {reason}", shown(&id)));
            }
        }
    }
    say(&format!(
        "{}, {refused} refused; {}, {targets} of them count; the longest row has {longest}",
        counted(found.len(), "row"),
        counted(tokens, "token")
    ));
    Ok(if refused == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(2)
    })
}

/// A row's text, what counts in green or between marks.
fn text(row: &Row, tokenizer: &Tokenizer, paint: Paint) -> String {
    let title = format!(
        "{}: {}, {} of them count",
        shown(&row.id),
        counted(row.tokens.len(), "token"),
        row.targets()
    );
    let mut out = paint.tone(Tone::Heading, &title);
    out.push('\n');
    let mut at = 0;
    while at < row.tokens.len() {
        let counts = row.mask[at];
        let end = (at..row.tokens.len())
            .find(|next| row.mask[*next] != counts)
            .unwrap_or(row.tokens.len());
        let mut stream = TokenStream::new(false);
        let mut part: String = row.tokens[at..end]
            .iter()
            .map(|id| stream.push(tokenizer, *id))
            .collect();
        part.push_str(&stream.finish());
        let lines: Vec<String> = part.split('\n').map(shown).collect();
        let part = lines.join("\n");
        if !counts {
            out.push_str(&paint.tone(Tone::Faint, &part));
        } else if paint.has_color() {
            out.push_str(&paint.tone(Tone::Good, &part));
        } else {
            out.push_str(&format!("⟦{part}⟧"));
        }
        at = end;
    }
    out
}

async fn export(root: &Path, args: ExportArgs) -> Result<ExitCode, RunError> {
    let directory = inspect::find_run(root, &args.run)?;
    let filter = TrajectoryFilter {
        // Gate and test problems are not for training.
        split: Some("evolve".into()),
        round: args.round,
        correct: (!args.all).then_some(true),
        ..TrajectoryFilter::default()
    };
    let store = Store::look_at(&directory).await?;
    let rows = store.trajectories(&filter).await?;
    let harnesses = harnesses(&directory, &store).await?;
    let (mut written, mut unknown) = (0, 0);
    for row in &rows {
        if let Some(trajectory) = store.trajectory_of(&row.id).await? {
            let harness = harnesses.get(&trajectory.harness);
            unknown += usize::from(harness.is_none());
            if harness.is_some() || args.all {
                written += 1;
                print(&chat_rows::of_trajectory(&trajectory, harness).to_string());
            }
        }
    }
    store.close().await;
    say(&format!(
        "{} on evolve problems",
        counted(written, "rollout")
    ));
    if unknown > 0 {
        let are = are(unknown);
        let what = match args.all {
            true => format!("of them {are} written without tools"),
            false => format!("more {are} left out, --all writes them without tools"),
        };
        say(&format!(
            "{unknown} {what}: their harness was tried on a few problems and not kept"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// A run's harnesses by content id: its versions, these as the model loop gathers under them, at a
/// temperature of its own, and candidates that were turned down. One that failed a cheap check isn't
/// kept, although a problem or two may have been rolled out under it.
async fn harnesses(
    directory: &Path,
    store: &Store,
) -> Result<BTreeMap<HarnessId, Harness>, RunError> {
    let path = registry_path(directory);
    let mut found = BTreeMap::new();
    if !path.exists() {
        return Ok(found);
    }
    let saved = Saved::read(store).await?;
    let temperature = saved.and_then(|saved| saved.config.model_loop.temperature);
    let registry = Registry::open_read_only(&path)?;
    for version in registry.history()? {
        // A commit made by hand may hold no harness.
        if version.harness.is_none() {
            continue;
        }
        let (_, harness) = registry.load(&version.name.to_string())?;
        if let Some(temperature) = temperature {
            let mut explorer = harness.clone();
            explorer.middleware.sampling.temperature = temperature;
            found.insert(explorer.id(), explorer);
        }
        found.insert(harness.id(), harness);
    }
    for rejected in registry.rejected()? {
        let (_, harness) = registry.load(&rejected.name.to_string())?;
        found.insert(harness.id(), harness);
    }
    Ok(found)
}
