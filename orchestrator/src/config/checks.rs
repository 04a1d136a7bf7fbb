//! What is out of range in a configuration, and what doesn't fit together. The sections know their own
//! ranges.

use registry::RunId;

use super::{
    AdapterDelivery, BudgetConfig, Config, DeviceKind, HarnessLoopConfig, MethodKind, PolicyConfig,
    PriceConfig, RunConfig, retention,
};
use crate::workshop::run_name;

/// A field, and what is wrong with it.
type Wrong<Reason> = (&'static str, Reason);

impl Config {
    /// The first field that is out of range or doesn't fit another one, and what would be right.
    pub(super) fn check(&self) -> Result<(), Wrong<String>> {
        let Config {
            run,
            model: _,
            policy,
            tasks,
            harness: _,
            budget,
            objective,
            prices,
            faults,
            gate,
            retention: suites,
            critic,
            harness_loop,
            model_loop,
        } = self;
        run.check()
            .and_then(|()| policy.check())
            .and_then(|()| tasks.check())
            .and_then(|()| budget.check(prices.as_ref()))
            .and_then(|()| faults.check())
            .map_err(owned)?;
        if let Some(prices) = prices {
            let fields = ["prices.prompt_per_million", "prices.completion_per_million"];
            prices.check(fields).map_err(owned)?;
        }
        objective
            .check(prices.as_ref())
            .map_err(|reason| owned(("objective", reason)))?;
        gate.check()
            .and_then(|()| model_loop.sft.check())
            .map_err(owned)?;
        critic.check()?;
        retention::check(suites)?;
        harness_loop
            .check()
            .and_then(|()| self.check_training())
            .and_then(|()| model_loop.check())
            .map_err(owned)
    }

    /// Whether the policy can do with what training needs and gives.
    fn check_training(&self) -> Result<(), Wrong<&'static str>> {
        let sft = &self.model_loop.sft;
        match &self.policy {
            PolicyConfig::Local { .. } if sft.device == DeviceKind::Cuda => Err((
                "model_loop.sft.device",
                "policy local decodes on the CPU and shares its weights with training; use cpu, or a server as policy",
            )),
            PolicyConfig::Openai {
                adapters: AdapterDelivery::Vllm,
                ..
            } if sft.method == MethodKind::Full => Err((
                "model_loop.sft.method",
                "a server is given adapters, not full sets of weights; use lora, or policy local",
            )),
            PolicyConfig::Local { .. } | PolicyConfig::Openai { .. } => Ok(()),
        }
    }
}

fn owned((field, reason): Wrong<&str>) -> Wrong<String> {
    (field, reason.to_owned())
}

impl RunConfig {
    fn check(&self) -> Result<(), Wrong<&'static str>> {
        let Self { name, rounds, .. } = self;
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_odd = name.starts_with(['.', '-']) || name.contains("..") || name.is_empty();
        if is_odd || !name.chars().all(is_part) {
            return Err((
                "run.name",
                "a letter or digit, then letters, digits, '-', '_' and single '.' make a name",
            ));
        }
        // Whatever else the registry asks of it, the name has by now.
        if RunId::new(run_name(self)).is_err() {
            return Err((
                "run.name",
                "the run's directory, <name>-seed<seed>, has a name of at most 128 characters",
            ));
        }
        if *rounds == 0 {
            return Err(("run.rounds", "at least 1 round is needed"));
        }
        Ok(())
    }
}

impl BudgetConfig {
    fn check(&self, prices: Option<&PriceConfig>) -> Result<(), Wrong<&'static str>> {
        if self.tokens_per_problem == 0 || self.seconds_per_problem == 0 {
            return Err(("budget", "a problem needs at least 1 token and 1 second"));
        }
        let counts = [
            (
                self.run_seconds,
                "budget.run_seconds",
                "must be at least 1; left out, the run may take any time",
            ),
            (
                self.run_rollouts,
                "budget.run_rollouts",
                "must be at least 1; left out, the run may make any number",
            ),
            (
                self.run_tokens,
                "budget.run_tokens",
                "must be at least 1; left out, the run may take any number",
            ),
        ];
        if let Some((_, field, reason)) = counts.into_iter().find(|(count, ..)| *count == Some(0)) {
            return Err((field, reason));
        }
        match self.run_cost {
            Some(cost) if !cost.is_finite() || cost <= 0.0 => Err((
                "budget.run_cost",
                "must be a number above 0; left out, the run may cost anything",
            )),
            Some(_) if prices.is_none() => Err((
                "budget.run_cost",
                "needs prices, by which the cost is counted",
            )),
            _ => Ok(()),
        }
    }
}

impl HarnessLoopConfig {
    fn check(&self) -> Result<(), Wrong<&'static str>> {
        if self.diagnose_tasks == 0 {
            return Err(("harness_loop.diagnose_tasks", "must be at least 1"));
        }
        if self.candidates == 0 {
            return Err(("harness_loop.candidates", "must be at least 1"));
        }
        Ok(())
    }
}
