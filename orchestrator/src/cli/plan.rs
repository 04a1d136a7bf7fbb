//! `coharness run --dry-run`: what a run would do, and what would keep it from doing it.

use std::path::Path;
use std::process::ExitCode;

use super::{environment, print, say};
use crate::base_model::locate;
use crate::budget::Terms;
use crate::config::{
    Config, DeviceKind, GateConfig, GateMode, LlmCriticConfig, Loaded, MatrixKind, MethodKind,
    ModelLoopConfig, Objective, PolicyConfig, RecomputeKind, SplitConfig, StartKind,
};
use crate::counted::counted;
use crate::error::{RunError, told};
use crate::gate::outlook;
use crate::golds;
use crate::judges;
use crate::serving;
use crate::splits::Splits;
use crate::workshop::{check_asked, read_harness, run_name};

/// Print the plan; problems go to stderr and make the exit code that of the first.
pub(crate) async fn dry_run(loaded: &Loaded, root: &Path) -> Result<ExitCode, RunError> {
    let environment = environment::read()?;
    let config = &loaded.config;
    let harness = read_harness(loaded)?;
    let mut problems: Vec<RunError> = Vec::new();
    let source = loaded.resolve(&config.harness);
    if let Err(error) = check_asked(&harness, &source, &config.policy) {
        problems.push(error);
    }
    let mut sizes = config.tasks.splits;
    let mut warnings = Vec::new();
    let tasks = match Splits::read(loaded) {
        Ok(splits) => {
            sizes = sizes.fitted(splits.available);
            match golds::check(loaded, &splits) {
                Ok(()) => warnings.extend(golds::warnings(loaded, &splits)),
                Err(error) => problems.push(error),
            }
            counted(splits.available, "problem")
        }
        Err(error) => {
            problems.push(error.into());
            "not usable, see below".into()
        }
    };
    if let Err(error) = judges::try_all(loaded) {
        problems.push(error);
    }
    let found = locate(loaded, &environment.cache);
    let mut lines = vec![
        format!(
            "run        {} in {}",
            run_name(&config.run),
            root.join(run_name(&config.run)).display()
        ),
        format!(
            "tasks      {} ({tasks}): {} evolve, {} gate, {} sealed test",
            config.tasks.path, sizes.evolve, sizes.gate, sizes.test
        ),
        format!(
            "harness    {} ({}), id {}",
            config.harness,
            harness.name,
            harness.id()
        ),
        format!(
            "budget     {} and {} s a problem",
            counted(config.budget.tokens_per_problem, "token"),
            config.budget.seconds_per_problem
        ),
    ];
    if let Some(limits) = Terms::of(config).limits() {
        lines.push(format!("           the whole run: at most {limits}"));
    }
    if let Objective::AccuracyUnder(limits) = &config.objective {
        lines.push(format!("objective  accuracy under {limits} on average"));
    }
    match &config.policy {
        PolicyConfig::Local { cache_mib } => lines.push(format!(
            "policy     local: {} decoded in this process, {cache_mib} MiB for keys and values",
            found.path.display()
        )),
        PolicyConfig::Openai {
            base_url,
            model,
            api_key_env,
            ..
        } => {
            let key = api_key_env
                .as_ref()
                .map_or("no key".into(), |name| format!("key from {name}"));
            lines.push(format!(
                "policy     {model} at {base_url}: POST {}/chat/completions, {key}",
                base_url.trim_end_matches('/')
            ));
            if let Err(error) =
                check_server(base_url, model, api_key_env.as_deref(), environment.key).await
            {
                problems.push(error);
            }
        }
    }
    if let Some(llm) = &config.critic.llm {
        let key = llm.api_key_env.as_ref();
        lines.push(format!(
            "critic     rules, then {} at {}, {}",
            llm.model,
            llm.base_url,
            key.map_or("no key".into(), |name| format!("key from {name}"))
        ));
        if let Err(error) = check_critic(llm, environment.key).await {
            problems.push(error);
        }
    }
    let needs_weights =
        matches!(config.policy, PolicyConfig::Local { .. }) || serving::trains(config);
    if needs_weights {
        lines.push(format!("weights    {}", found.path.display()));
        if let Err(error) = found.check() {
            problems.push(error);
        }
    }
    let device = config.model_loop.sft.device;
    if serving::trains(config) && device == DeviceKind::Cuda && cfg!(not(feature = "cuda")) {
        problems.push(RunError::NoCuda);
    }
    lines.push(String::new());
    let is_greedy = harness.middleware.sampling.temperature == 0.0;
    lines.extend(steps(config, sizes, is_greedy));
    warnings.extend(outlook::warning(&config.gate, sizes.gate, is_greedy));
    print(&lines.join("\n"));
    for warning in &warnings {
        say(&format!("warning: {warning}"));
    }
    let Some(first) = problems.first() else {
        return Ok(ExitCode::SUCCESS);
    };
    let code = first.exit_code();
    say("");
    say("the run would stop:");
    for problem in &problems {
        say(&format!("  error: {}", told(problem)));
        if let Some(hint) = problem.hint() {
            say(&format!("  hint: {hint}"));
        }
    }
    Ok(ExitCode::from(code))
}

async fn check_server(
    base_url: &str,
    model: &str,
    api_key_env: Option<&str>,
    key: fn(&str) -> Option<String>,
) -> Result<(), RunError> {
    let key = match api_key_env {
        Some(name) => Some(key(name).ok_or_else(|| RunError::NoKey {
            field: "policy.api_key_env",
            name: name.to_owned(),
        })?),
        None => None,
    };
    let served = serving::models(base_url, key.as_deref()).await?;
    if served.iter().any(|name| name == model) {
        return Ok(());
    }
    let reason = format!("does not serve {model}; it serves: {}", served.join(", "));
    Err(RunError::Server {
        url: base_url.to_owned(),
        reason,
    })
}

/// Whether the critic's server serves its model.
async fn check_critic(
    llm: &LlmCriticConfig,
    key: fn(&str) -> Option<String>,
) -> Result<(), RunError> {
    let name = llm.api_key_env.as_deref();
    check_server(&llm.base_url, &llm.model, name, key)
        .await
        .map_err(|error| match error {
            RunError::Server { url, reason } => RunError::CriticServer { url, reason },
            RunError::NoKey { name, .. } => RunError::NoKey {
                field: "critic.llm.api_key_env",
                name,
            },
            other => other,
        })
}

/// Rollouts and steps of each part, with upper bounds where measurements decide.
fn steps(config: &Config, sizes: SplitConfig, is_greedy: bool) -> Vec<String> {
    let Config {
        run,
        harness_loop: patches,
        model_loop: weights,
        ..
    } = config;
    let gate = &config.gate;
    let diagnose = patches.diagnose_tasks.min(sizes.evolve);
    let candidates = patches.candidates;
    let mut lines = vec![
        format!(
            "baseline   {} on the sealed test",
            counted(sizes.test, "rollout")
        ),
        match run.rounds {
            1 => "one round:".to_owned(),
            rounds => format!("each of {rounds} rounds:"),
        },
        format!(
            "  harness loop, up to {}, gate mode {}:",
            counted(patches.iterations, "cycle"),
            gate.mode.name()
        ),
        format!(
            "    diagnose   {} on evolve problems, rules critic{}",
            counted(diagnose, "rollout"),
            match &config.critic.llm {
                Some(llm) => format!(
                    ", then up to {} to {}",
                    counted(1 + llm.excerpt_rounds + llm.retries, "request"),
                    llm.model
                ),
                None => String::new(),
            }
        ),
        format!(
            "    classify   {} on gate problems, once a version",
            counted(sizes.gate, "rollout")
        ),
        format!(
            "    decide     {}",
            decide(gate, sizes, candidates, is_greedy)
        ),
    ];
    if serving::trains(config) {
        let gather = weights.gather_tasks.min(sizes.evolve) * weights.samples as usize;
        let sft = &weights.sft;
        lines.push("  model loop:".into());
        let heat = weights
            .temperature
            .map_or_else(String::new, |t| format!(" at temperature {t}"));
        let most = if weights.samples as usize > weights.max_per_task {
            "up to "
        } else {
            ""
        };
        lines.push(format!(
            "    gather     {most}{} on evolve problems{heat}",
            counted(gather, "rollout")
        ));
        lines.push(format!("    select     {}", selection(weights)));
        let parts = match sft.accumulate {
            1 => String::new(),
            batches => format!(" × {batches}"),
        };
        let dropout = if sft.dropout > 0.0 {
            format!(", dropout {}", sft.dropout)
        } else {
            String::new()
        };
        let aside = if sft.validation > 0.0 {
            format!(", {:.0}% of the problems held out", 100.0 * sft.validation)
        } else {
            String::new()
        };
        let within = sft
            .memory_mib
            .map_or_else(String::new, |mib| format!(" within {mib} MiB"));
        let twice = match sft.recompute {
            RecomputeKind::Auto => "",
            RecomputeKind::Always => ", blocks computed twice",
        };
        let device = match sft.device {
            DeviceKind::Cpu => "the CPU",
            DeviceKind::Cuda => "the first CUDA device",
        };
        let what = match sft.method {
            MethodKind::Lora if sft.rank_stabilised => {
                format!("rank-stabilised LoRA rank {}", sft.rank)
            }
            MethodKind::Lora => format!("LoRA rank {}", sft.rank),
            MethodKind::Full => "every weight".into(),
        };
        let from = match (sft.method, sft.start()) {
            (MethodKind::Lora, StartKind::Base) => "",
            (MethodKind::Lora, StartKind::Current) => " from the current adapter",
            (MethodKind::Full, StartKind::Base) => " from the base model's",
            (MethodKind::Full, StartKind::Current) => " from the current ones",
        };
        lines.push(format!(
            "    fine-tune  {what}{from}, {}, batch {}{parts}, learning rate {}{dropout}, on {device}{within}{twice}{aside}",
            counted(sft.epochs, "epoch"),
            sft.batch,
            sft.learning_rate()
        ));
        lines.push(format!(
            "    decide     {}",
            decide(gate, sizes, 1, is_greedy)
        ));
    } else {
        lines.push(
            "  model loop: off (policy.adapters is none, or model_loop.is_enabled is false)".into(),
        );
    }
    let happens = |every: u32| every > 0 && every <= run.rounds;
    let rounds = |every: u32| match every {
        1 => "round".to_owned(),
        several => format!("{several} rounds"),
    };
    if happens(gate.retest_every) {
        lines.push(format!(
            "  removal    every {}: each accepted patch tried without, up to {} rollouts a look for it \
             and the incumbent",
            rounds(gate.retest_every),
            2 * (2 * gate.tasks).min(sizes.gate)
        ));
    }
    for suite in &config.retention {
        lines.push(format!(
            "  retention  {}: {} rollouts where the round has changed something, at most {} while a loss of more \
             than {} seems likely",
            suite.name,
            2 * suite.tasks,
            2 * suite.tasks * suite.passes as usize,
            counted(suite.max_drop_points, "point")
        ));
    }
    if happens(gate.reference_every) {
        lines.push(format!(
            "  reference  every {}: {} rollouts of the head, the best so far and the start, more while the \
             head seems worse",
            rounds(gate.reference_every),
            3 * sizes.gate
        ));
    }
    lines.push(format!(
        "  test       {} on the sealed test",
        counted(sizes.test, "rollout")
    ));
    // Where the weights stay, all cells are in the table.
    if serving::trains(config) {
        let more = format!(
            "2×2        up to {} more rollouts on the sealed test",
            2 * sizes.test
        );
        lines.push(match run.matrix {
            MatrixKind::EachRound => format!("  {more}"),
            MatrixKind::Last => more,
        });
    }
    lines
}

/// What is learnt from.
fn selection(weights: &ModelLoopConfig) -> String {
    let mut said = match weights.max_per_task {
        1 => "at most 1 right one a problem".to_owned(),
        most => format!("at most {most} right ones a problem"),
    };
    if weights.drop_lucky {
        said.push_str(", none by luck");
    }
    if weights.hard_weight > 1.0 {
        said.push_str(&format!(", hard ones count up to {}", weights.hard_weight));
    }
    if weights.replay > 0.0 {
        let share = 100.0 * weights.replay;
        said.push_str(&format!(", {share:.0}% from earlier rounds"));
    }
    said
}

/// Most rollouts of a decision on `candidates` and the incumbent.
fn decide(gate: &GateConfig, sizes: SplitConfig, candidates: usize, is_greedy: bool) -> String {
    // Both sides of a stage; the fixed modes fill a small side by up to four samples.
    let fixed = (2 * gate.tasks).min(4 * sizes.gate);
    let look = (2 * gate.tasks).min(sizes.gate);
    // Under greedy decoding the looks end when a side's problems do.
    let looks = if is_greedy {
        gate.max_samples.min(sizes.gate.div_ceil(gate.tasks))
    } else {
        gate.max_samples
    };
    let who = counted(candidates, "candidate");
    match gate.mode {
        GateMode::Paper => format!(
            "up to {} rollouts for {who} and the incumbent",
            fixed * (1 + candidates)
        ),
        GateMode::Confirmed => format!(
            "up to {} rollouts for {who} and the incumbent, {} more to confirm one",
            fixed * (1 + candidates),
            2 * fixed
        ),
        GateMode::Sequential => format!(
            "up to {} rollouts a look for {who} and the incumbent, at most {}",
            look * (1 + candidates),
            counted(looks, "look")
        ),
    }
}
