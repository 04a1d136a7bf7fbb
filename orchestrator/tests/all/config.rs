//! What a person gets for a configuration that can't be used: the place, the field, a way out.

use coharness::config::{Config, Objective};
use insta::assert_snapshot;

use crate::{CONFIG, Place, tasks, write_harness};

fn run_with(config: &str) -> String {
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(8));
    place.write("run.yaml", config);
    place.run(&["run", "--config", "run.yaml"])
}

#[test]
fn unknown_key() {
    assert_snapshot!(run_with(
        &CONFIG.replace("harness: naive", "harnes: naive\nharness: naive")
    ));
}

#[test]
fn wrong_type() {
    assert_snapshot!(run_with(&CONFIG.replace("evolve: 2", "evolve: two")));
}

#[test]
fn key_given_twice() {
    assert_snapshot!(run_with(
        &CONFIG.replace("harness: naive", "harness: naive\nharness: other")
    ));
}

#[test]
fn value_out_of_range() {
    assert_snapshot!(run_with(&CONFIG.replace("gate: 4", "gate: 1")));
}

#[test]
fn a_tolerance_that_lets_no_fraction_pass_or_any() {
    for tolerance in ["-1", "1", "1.0e+9"] {
        let said = run_with(&CONFIG.replace("1.0e-4", tolerance));
        assert_eq!(
            said,
            "--- stderr\nerror: run.yaml: tasks.verifier: numeric needs a tolerance of at least 0 and below 1\n\
             --- exit 2\n"
        );
    }
}

#[test]
fn a_count_that_leaves_nothing_to_do() {
    let seconds = "seconds_per_problem: 60";
    let limited = |limit: &str| CONFIG.replace(seconds, &format!("{seconds}, {limit}"));
    let refused = [
        (
            limited("run_seconds: 0"),
            "budget.run_seconds: must be at least 1; left out",
        ),
        (
            limited("run_rollouts: 0"),
            "budget.run_rollouts: must be at least 1; left out",
        ),
        (
            limited("run_tokens: 0"),
            "budget.run_tokens: must be at least 1; left out",
        ),
        (
            limited("run_cost: 0"),
            "budget.run_cost: must be a number above 0; left out",
        ),
        (
            limited("run_cost: 2.5"),
            "budget.run_cost: needs prices, by which",
        ),
        (
            format!("{CONFIG}harness_loop: {{diagnose_tasks: 0}}\n"),
            "harness_loop.diagnose_tasks: must be at least 1",
        ),
        (
            format!("{CONFIG}model_loop: {{gather_tasks: 0}}\n"),
            "model_loop.gather_tasks: must be at least 1; is_enabled: false",
        ),
        (
            format!("{CONFIG}model_loop: {{sft: {{max_tokens: 0}}}}\n"),
            "model_loop.sft.max_tokens: must be at least 1",
        ),
        (
            format!("{CONFIG}model_loop: {{sft: {{checkpoint_steps: 0}}}}\n"),
            "model_loop.sft.checkpoint_steps: must be at least 1",
        ),
    ];
    for (config, reason) in refused {
        let said = run_with(&config);
        assert!(
            said.starts_with(&format!("--- stderr\nerror: run.yaml: {reason}")),
            "{said}"
        );
        assert!(said.ends_with("--- exit 2\n"), "{said}");
    }
    // Nothing is gathered for a loop that is off.
    let off = "model_loop: {is_enabled: false, gather_tasks: 0}\n";
    let taken = run_with(&format!("{CONFIG}{off}"));
    assert!(taken.contains("model.gguf does not exist"), "{taken}");
    let prices = "prices: {prompt_per_million: 1, completion_per_million: 2}\n";
    let taken = run_with(&format!("{}{prices}", limited("run_cost: 2.5")));
    assert!(taken.contains("model.gguf does not exist"), "{taken}");
}

#[test]
fn a_name_that_is_too_long_for_a_directory_of_the_registry() {
    let named = |length: usize| {
        let name = format!("{{name: {}}}", "a".repeat(length));
        run_with(&CONFIG.replace("{name: small}", &name))
    };
    // With `-seed0` behind it.
    assert_eq!(
        named(123),
        "--- stderr\nerror: run.yaml: run.name: the run's directory, <name>-seed<seed>, has a name of at most 128 \
         characters\n--- exit 2\n"
    );
    let taken = named(122);
    assert!(taken.contains("model.gguf does not exist"), "{taken}");
}

#[test]
fn missing_configuration() {
    assert_snapshot!(Place::new().run(&["run", "--config", "nothing.yaml"]));
}

#[test]
fn missing_problem_file() {
    assert_snapshot!(run_with(&CONFIG.replace("tasks.jsonl", "absent.jsonl")));
}

#[test]
fn missing_model() {
    assert_snapshot!(run_with(CONFIG));
}

#[test]
fn missing_known_model() {
    assert_snapshot!(run_with(
        &CONFIG.replace("model.gguf", "SmolLM2-135M-Instruct")
    ));
}

#[test]
fn missing_harness() {
    assert_snapshot!(run_with(
        &CONFIG.replace("harness: naive", "harness: absent")
    ));
}

#[test]
fn overrides() {
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(8));
    place.write("run.yaml", CONFIG);
    let set = |setting: &str| place.run(&["run", "--config", "run.yaml", "--set", setting]);
    assert_snapshot!("override_of_an_unknown_field", set("run.sed=7"));
    assert_snapshot!("override_of_a_wrong_type", set("run.seed=seven"));
    assert_snapshot!("override_out_of_range", set("gate.tasks=1"));
    assert_snapshot!("override_of_the_kind_of_policy", set("policy.kind=openai"));
    assert_snapshot!("override_without_a_value", set("run.seed"));
    assert_snapshot!(
        "override_of_a_field_of_a_value",
        set("objective.accuracy_under.seconds_per_problem=12")
    );
    assert_snapshot!(
        "override_in_short_form",
        set("objective={accuracy_under: {hours_per_problem: 1}}")
    );
}

#[test]
fn a_setting_is_to_blame_for_the_field_that_it_touches_alone() {
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(8));
    place.write("run.yaml", &CONFIG.replace("gate: 4", "gate: 1"));
    let run = |settings: [&str; 2]| {
        let [first, second] = settings;
        let arguments = [
            "run", "--config", "run.yaml", "--set", first, "--set", second,
        ];
        place.run(&arguments)
    };
    let reason = "tasks.splits: evolve and test need at least 1 problem, gate at least 4\n";
    for (settings, blamed) in [
        (["run.seed=1", "tasks.path=tasks.jsonl"], "run.yaml"),
        (
            ["tasks.splits.gate=2", "tasks.splits.gate=3"],
            "--set tasks.splits.gate=3",
        ),
        (
            ["tasks.splits.gate=2", "run.seed=1"],
            "--set tasks.splits.gate=2",
        ),
    ] {
        let said = run(settings);
        assert!(
            said.contains(&format!("error: {blamed}: {reason}")),
            "{said}"
        );
        assert!(said.ends_with("--- exit 2\n"), "{said}");
    }
}

#[test]
fn a_policys_server_has_an_address_and_a_model() {
    let (bare, whole) = ("127.0.0.1:1/v1", "http://127.0.0.1:1/v1");
    for (base_url, model, reason) in [
        (
            bare,
            "m",
            "policy.base_url: must start with http:// or https://",
        ),
        (
            whole,
            " ",
            "policy.model: the server has to know which model is meant",
        ),
    ] {
        let policy = format!("{{kind: openai, base_url: '{base_url}', model: '{model}'}}");
        assert_eq!(
            run_with(&format!("{CONFIG}policy: {policy}\n")),
            format!("--- stderr\nerror: run.yaml: {reason}\n--- exit 2\n")
        );
    }
}

#[test]
fn a_server_is_given_no_full_sets_of_weights() {
    let served =
        "policy: {kind: openai, base_url: 'http://127.0.0.1:1/v1', model: m, adapters: vllm}\n";
    let full = "model_loop: {sft: {method: full}}\n";
    let refused = run_with(&format!("{CONFIG}{served}{full}"));
    assert!(refused.contains("model_loop.sft.method"), "{refused}");
    assert!(refused.ends_with("--- exit 2\n"), "{refused}");
    // Without training there is nothing to be given.
    let taken = run_with(&format!("{CONFIG}{full}"));
    assert!(taken.contains("model.gguf does not exist"), "{taken}");
}

#[test]
fn a_server_is_given_no_harness_that_needs_grammars() {
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(8));
    write_harness(&place, "held", |text| {
        text.replace("  max_turns:", "  constrained: true\n  max_turns:")
    });
    let held = CONFIG.replace("harness: naive", "harness: held");
    let served = "policy: {kind: openai, base_url: 'http://127.0.0.1:1/v1', model: m}\n";
    let run = ["run", "--config", "run.yaml"];
    let plan = [&run[..], &["--dry-run"]].concat();
    let eval = ["eval", "--config", "run.yaml", "--harness", "held"];
    let reason = "held: middleware.protocol.constrained: a server isn't given grammars; leave the field out of \
                  middleware.yaml, or take policy local\n";

    place.write("run.yaml", &format!("{held}{served}"));
    for arguments in [&run[..], &plan[..]] {
        let refused = place.run(arguments);
        assert!(
            refused.contains(&format!("error: harness: ./{reason}")),
            "{refused}"
        );
        assert!(refused.ends_with("--- exit 2\n"), "{refused}");
    }
    place.write("run.yaml", &format!("{CONFIG}{served}"));
    let refused = place.run(&eval);
    assert!(
        refused.contains(&format!("error: harness: {reason}")),
        "{refused}"
    );
    assert!(refused.ends_with("--- exit 2\n"), "{refused}");

    place.write("run.yaml", &held);
    let taken = place.run(&run);
    assert!(taken.contains("model.gguf does not exist"), "{taken}");
}

#[test]
fn prices_are_positive_numbers() {
    let priced = |prices: &str| run_with(&format!("{CONFIG}prices: {prices}\n"));
    let refused = priced("{prompt_per_million: -1, completion_per_million: 2}");
    assert!(
        refused.contains("prices.prompt_per_million: must be a number from 0 on"),
        "{refused}"
    );
    assert!(refused.ends_with("--- exit 2\n"), "{refused}");
    let half = priced("{prompt_per_million: 1}");
    assert!(half.contains("completion_per_million"), "{half}");
    let taken = priced("{prompt_per_million: 0, completion_per_million: 2.5}");
    assert!(taken.contains("model.gguf does not exist"), "{taken}");
}

#[test]
fn an_objective_has_known_limits_above_zero() {
    let prices = "prices: {prompt_per_million: 1, completion_per_million: 2}\n";
    let run =
        |objective: &str, more: &str| run_with(&format!("{CONFIG}{more}objective: {objective}\n"));
    for (objective, words) in [
        ("speed", "speed"),
        (
            "{accuracy_under: {second_per_problem: 12}}",
            "second_per_problem",
        ),
        (
            "{accuracy_under: {}}",
            "objective: accuracy_under needs a limit",
        ),
        (
            "{accuracy_under: {seconds_per_problem: 0}}",
            "objective: a limit must be above 0",
        ),
        (
            "{accuracy_under: {tokens_per_problem: -3}}",
            "objective: a limit must be above 0",
        ),
        (
            "{accuracy_under: {cost_per_problem: 0.1}}",
            "objective: cost_per_problem needs prices",
        ),
    ] {
        let refused = run(objective, "");
        assert!(refused.contains(words), "{words} is missing in {refused}");
        assert!(refused.ends_with("--- exit 2\n"), "{refused}");
    }
    for (objective, more) in [
        ("accuracy", ""),
        (
            "{accuracy_under: {seconds_per_problem: 12.5, tokens_per_problem: 300}}",
            "",
        ),
        ("{accuracy_under: {cost_per_problem: 0.1}}", prices),
    ] {
        let taken = run(objective, more);
        assert!(taken.contains("model.gguf does not exist"), "{taken}");
    }
}

#[test]
fn the_papers_limit_on_an_evaluation_stands_ready_as_a_mean() {
    let aime = include_str!("../../../configs/aime.yaml");
    let limited = aime.replace("# objective:", "objective:");
    let config: Config = harness::yaml::from_str(&limited).expect("a configuration");
    let Objective::AccuracyUnder(limits) = config.objective else {
        panic!("{:?}", config.objective);
    };
    let (seconds, at_a_time, rollouts) = (12_000.0, 64.0, 60.0 * 16.0);
    let mean = seconds * at_a_time / rollouts;
    assert_eq!(limits.seconds_per_problem, Some(mean));
    let harness = harness::Shipped::named(&config.harness).expect("a built-in harness");
    let runtime = harness
        .read()
        .expect("the shipped harness")
        .middleware
        .runtime;
    assert_eq!(f64::from(runtime.parallel_rollouts), at_a_time);
}

fn run_on(problems: &str) -> String {
    let place = Place::new();
    place.write("tasks.jsonl", problems);
    place.write("run.yaml", CONFIG);
    place.run(&["run", "--config", "run.yaml"])
}

#[test]
fn no_problems() {
    assert_snapshot!(run_on("\n"));
}

#[test]
fn too_few_problems() {
    assert_snapshot!(run_on(&tasks(7)));
}

#[test]
fn a_problem_that_stands_twice_would_cross_splits() {
    let again = "{\"id\":\"again\",\"problem\":\"what is 3+1\",\"answer\":\"4\"}\n";
    assert_snapshot!(run_on(&(tasks(8) + again)));
}

#[test]
fn an_id_that_stands_in_two_files_is_refused_with_both_places() {
    let config = CONFIG.replace("  path: tasks", "  also: [more.jsonl]\n  path: tasks");
    let run_on = |more: &str, settings: &[&str]| {
        let place = Place::new();
        place.write("tasks.jsonl", &tasks(8));
        place.write("more.jsonl", more);
        place.write("run.yaml", &config);
        place.run(&[&["run", "--config", "run.yaml"][..], settings].concat())
    };
    let other = "\n{\"id\":\"t3\",\"problem\":\"What is 9 - 1?\",\"answer\":\"8\"}\n";
    let refused = run_on(other, &[]);
    assert!(
        refused.contains(
            "error: ./more.jsonl:2: id t3 was used in ./tasks.jsonl:4 already\nhint: Give one"
        ),
        "{refused}"
    );
    assert!(refused.ends_with("--- exit 2\n"), "{refused}");
    // As the hint says.
    let taken = run_on(other, &["--set", "tasks.columns.id=none"]);
    assert!(taken.contains("model.gguf does not exist"), "{taken}");
    // The same problem with its id is one that stands there twice.
    let again = run_on(&tasks(1), &[]);
    let words = "problems t0 (./tasks.jsonl:1) and t0 (./more.jsonl:1) have the same text";
    assert!(again.contains(words), "{again}");
    assert!(again.ends_with("--- exit 2\n"), "{again}");
}

#[test]
fn a_line_that_is_no_problem() {
    assert_snapshot!(run_on(&(tasks(8) + "{\"id\":\"x\",\"question\":3}\n")));
}

#[test]
fn damaged_models() {
    let place = Place::new();
    place.write("tasks.jsonl", &tasks(8));
    place.write("run.yaml", CONFIG);
    place.write("model.gguf", "GGUF, or so it says");
    assert_snapshot!("damaged_gguf", place.run(&["run", "--config", "run.yaml"]));

    let golden =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../trainer/tests/golden/llama_tied");
    for name in [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
    ] {
        let mut bytes = std::fs::read(golden.join(name)).expect("golden file");
        if name == "model.safetensors" {
            bytes.truncate(bytes.len() / 2);
        }
        std::fs::create_dir_all(place.path().join("hf")).expect("folder");
        std::fs::write(place.path().join("hf").join(name), bytes).expect("file");
    }
    let arguments = ["run", "--config", "run.yaml", "--set", "model.path=hf"];
    assert_snapshot!("damaged_safetensors", place.run(&arguments));
}
