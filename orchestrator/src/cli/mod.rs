//! The command line. Data goes to stdout, everything else to stderr; `docs/exit-codes.md` lists the
//! exit codes.

mod critic;
mod data;
mod doctor;
mod environment;
mod eval;
mod export;
mod gate;
mod inspect;
mod paint;
mod plan;
mod progress;
mod run;
mod serve_model;
mod table;
mod trajectories;
mod verify_answer;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::error::{RunError, told};

/// Co-evolve an agent's harness and its model, in rounds.
///
/// `coharness run` alternates a loop over harness patches (roll out, diagnose failures, propose, accept
/// what is measured to help) and a loop over weights (fine-tune on verified trajectories). Everything
/// is kept in the run's directory: give the same command again to go on after any interruption.
#[derive(Debug, Parser)]
#[command(name = "coharness", version, max_term_width = 100)]
struct Cli {
    /// Where runs are kept.
    #[arg(
        long,
        global = true,
        env = "COHARNESS_DIR",
        default_value = ".coharness/runs",
        value_name = "DIR"
    )]
    dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a run, or go on with it if it was interrupted.
    Run(run::RunArgs),
    /// Go on with an interrupted run under the configuration it was started with.
    Resume(run::ResumeArgs),
    /// Show where runs stand.
    Status(inspect::StatusArgs),
    /// Show what a run measured: the table, the 2×2, every decision.
    Report(inspect::ReportArgs),
    /// List the harness versions of a run, and what was rejected.
    History(inspect::HistoryArgs),
    /// Show one harness version: how it came about, and its files.
    Show(inspect::ShowArgs),
    /// Show which fields differ between two harness versions.
    Diff(inspect::DiffArgs),
    /// Score a harness on a file of problems: pass@1 and pass@k, cost, exit reasons.
    Eval(eval::EvalArgs),
    /// List the rollouts of a run, or read one.
    Trajectories(trajectories::TrajectoriesArgs),
    /// Look at training data, and move it in and out.
    #[command(subcommand)]
    Data(data::DataCommand),
    /// Write the model for other programs.
    #[command(subcommand)]
    Model(export::ModelCommand),
    /// Make an earlier harness version current again, as a new version.
    Rollback(inspect::RollbackArgs),
    /// Serve the local model over OpenAI's chat API.
    ///
    /// Prints the address, then answers until it is stopped. The base model and what was trained are
    /// served under their own names; without a name in the request the base model answers.
    ServeModel(serve_model::ServeModelArgs),
    /// Judge answers with a verifier, line by line.
    ///
    /// Reads lines of {"gold": …, "pred": …}, where pred is an answer or a whole response, and answers
    /// each with a line {"equal": …, "verdict": …, "rule": …, "answer": …}. The verdict is equal,
    /// different, unreadable, undecided or no_answer; a line that can't be read is answered with the
    /// verdict error. For the kind code, gold is a list of tests.
    VerifyAnswer(verify_answer::VerifyAnswerArgs),
    /// Ask what the critic looks for.
    #[command(subcommand)]
    Critic(critic::CriticCommand),
    /// Ask what the gate accepts, by simulation.
    #[command(subcommand)]
    Gate(gate::GateCommand),
    /// Check this machine: sandbox, Python, model.
    Doctor(doctor::DoctorArgs),
    /// Print the JSON Schema of the configuration, of a harness, or of a critic's record.
    Schema {
        /// Which one.
        #[arg(value_enum, default_value = "config")]
        of: SchemaOf,
    },
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SchemaOf {
    /// The run's configuration.
    Config,
    /// The harness document.
    Harness,
    /// The critic's record of one fault.
    Record,
}

/// Which run a command is about.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunName {
    /// The run; without it, the one that was active last.
    #[arg(long, value_name = "NAME")]
    pub(crate) run: Option<String>,
}

/// The binary: parse, do, explain failures.
pub fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    // The sandbox re-executes this program; that must come before threads or anything else.
    if arguments.get(1).map(|a| a.as_os_str()) == Some(OsStr::new(sandbox::helper::ARGUMENT)) {
        return sandbox::helper::main(arguments.into_iter().skip(2));
    }
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // clap prints help to stdout and errors to stderr.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    start_log();
    model::memory::keep_freed();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            say(&format!("error: cannot start the runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(dispatch(cli)).and_then(written) {
        Ok(code) => code,
        Err(error) => explain(&error),
    }
}

async fn dispatch(cli: Cli) -> Result<ExitCode, RunError> {
    let root = cli.dir;
    match cli.command {
        Command::Run(args) => run::run(&root, args).await,
        Command::Resume(args) => run::resume(&root, args).await,
        Command::Status(args) => inspect::status(&root, args).await,
        Command::Report(args) => inspect::report(&root, args).await,
        Command::History(args) => inspect::history(&root, args).await,
        Command::Show(args) => inspect::show(&root, args).await,
        Command::Diff(args) => inspect::diff(&root, args),
        Command::Eval(args) => eval::eval(&root, args).await,
        Command::Trajectories(args) => trajectories::trajectories(&root, args).await,
        Command::Data(command) => data::data(&root, command).await,
        Command::Model(command) => export::model(&root, command),
        Command::Rollback(args) => inspect::rollback(&root, args).await,
        Command::ServeModel(args) => serve_model::serve_model(args).await,
        Command::VerifyAnswer(args) => verify_answer::verify_answer(&args).await,
        Command::Critic(command) => Ok(critic::critic(&command)),
        Command::Gate(command) => gate::gate(command),
        Command::Doctor(args) => doctor::doctor(args).await,
        Command::Schema { of } => {
            let schema = match of {
                SchemaOf::Config => crate::config::json_schema(),
                SchemaOf::Harness => harness::json_schema(),
                SchemaOf::Record => ::critic::record_schema(),
            };
            print(&format!("{schema:#}"));
            Ok(ExitCode::SUCCESS)
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "coharness", &mut script);
            print(String::from_utf8_lossy(&script).trim_end());
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// `COHARNESS_LOG=debug` and the like turn on diagnostics on stderr.
fn start_log() {
    if let Ok(filter) = tracing_subscriber::EnvFilter::try_from_env("COHARNESS_LOG") {
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .init();
    }
}

/// Print an error with its causes and what to do about it; returns the exit code.
fn explain(error: &RunError) -> ExitCode {
    say(&format!("error: {}", told(error)));
    if let Some(hint) = error.hint() {
        say(&format!("hint: {hint}"));
    }
    ExitCode::from(error.exit_code())
}

/// What messages call the files that have no path.
const STANDARD_INPUT: &str = "standard input";
const STANDARD_OUTPUT: &str = "standard output";

/// Why the first line of data that got lost could not be written.
static LOST: Mutex<Option<std::io::Error>> = Mutex::new(None);

/// A line of data.
fn print(text: &str) {
    use std::io::Write;
    let Err(error) = writeln!(std::io::stdout(), "{text}") else {
        return;
    };
    // A reader that closed the pipe early has what it wanted.
    if error.kind() != std::io::ErrorKind::BrokenPipe
        && let Ok(mut lost) = LOST.lock()
        && lost.is_none()
    {
        *lost = Some(error);
    }
}

/// The command's exit code, if all its data was written: half a file must not pass for a whole one.
fn written(code: ExitCode) -> Result<ExitCode, RunError> {
    let lost = LOST.lock().ok().and_then(|mut lost| lost.take());
    match lost {
        None => Ok(code),
        Some(source) => Err(RunError::Io {
            path: STANDARD_OUTPUT.into(),
            source,
        }),
    }
}

/// A line for the person.
fn say(text: &str) {
    use std::io::Write;
    // Nothing can be done about a closed stderr.
    let _ = writeln!(std::io::stderr(), "{text}");
}
