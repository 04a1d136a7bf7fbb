//! Runs that nobody watches: what they do without, and what they say of themselves.

use serde_json::{Value, json};

use crate::server::{Answer, config, number, serve};
use crate::{Place, tasks};

/// A critic's model that talks, and one that can't be had.
#[test]
fn a_run_goes_on_without_its_critics_model() {
    for (answer, reason) in [
        (
            Answer::Says("I'm sorry, I can't do that.".into()),
            "the reply holds no JSON object",
        ),
        (Answer::Status(401, ""), "status 401"),
    ] {
        let critic = serve(move |_| answer.clone());
        // The tool is never called, which the rules have patches for.
        let policy = serve(|request| {
            let number = number(request);
            let answer = number + 1 + u32::from(number.is_multiple_of(3));
            Answer::Says(format!("I think it is \\boxed{{{answer}}}."))
        });
        let place = Place::new();
        place.write("tasks.jsonl", &tasks(30));
        let more = format!(
            "gate: {{mode: paper, tasks: 4, retest_every: 0, reference_every: 0}}
harness_loop: {{iterations: 1, diagnose_tasks: 10, candidates: 1}}
critic: {{llm: {{base_url: '{critic}', model: c}}}}
"
        );
        let splits = "{evolve: 10, gate: 10, test: 10}";
        place.write("run.yaml", &config(&policy, splits, &more));
        let output = place
            .command(&["run", "--config", "run.yaml", "--json"])
            .output()
            .expect("runs");
        let messages = place.transcript(&output);
        assert!(output.status.success(), "{messages}");
        let told = "the critic's model is passed over: ";
        assert!(
            messages.contains(told) && messages.contains(reason),
            "{messages}"
        );
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let critic = &report["critic"];
        assert_eq!(
            (&critic["critiques"], &critic["skipped"]),
            (&json!(1), &json!(1))
        );
        let decided = report["patch_decisions"].as_array().expect("a list");
        assert!(!decided.is_empty(), "{report}");
    }
}
