use std::collections::VecDeque;
use std::sync::Mutex;

use rollout::{BoxFuture, Event, Split};
use serde_json::json;

use super::*;
use crate::cluster::cluster;
use crate::critic::{Critic, RulesCritic};
use crate::propose::propose;
use crate::testing::{Build, failed, patched, start};

/// Plays replies and keeps the questions.
struct Script {
    replies: Mutex<VecDeque<Result<ChatReply, ChatError>>>,
    asked: Mutex<Vec<ChatRequest>>,
}

impl Script {
    fn new(texts: &[&str]) -> Self {
        let reply = |text: &&str| {
            Ok(ChatReply {
                text: (*text).to_owned(),
                is_cut: false,
                usage: Usage {
                    prompt_tokens: 100,
                    completion_tokens: 10,
                    ..Usage::default()
                },
            })
        };
        Script {
            replies: Mutex::new(texts.iter().map(reply).collect()),
            asked: Mutex::default(),
        }
    }

    fn asked(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        let last = |request: &ChatRequest| request.messages.last().unwrap().content.clone();
        asked.iter().map(last).collect()
    }

    /// Checks that each conversation is one that any chat template takes.
    fn assert_turns_alternate(&self) {
        for request in self.asked.lock().unwrap().iter() {
            let roles: Vec<Role> = request.messages.iter().map(|said| said.role).collect();
            let (first, turns) = roles.split_first().unwrap();
            assert_eq!(*first, Role::System);
            for (at, role) in turns.iter().enumerate() {
                let expected = [Role::User, Role::Assistant][at % 2];
                assert_eq!(*role, expected, "{roles:?}");
            }
            assert_eq!(roles.last(), Some(&Role::User));
        }
    }
}

impl Chat for Script {
    fn name(&self) -> &str {
        "script"
    }

    fn ask(&self, request: ChatRequest) -> BoxFuture<'_, Result<ChatReply, ChatError>> {
        self.asked.lock().unwrap().push(request);
        let reply = self.replies.lock().unwrap().pop_front();
        Box::pin(async move { reply.expect("the script has a reply") })
    }
}

/// A harness with a note, and two rollouts that repeat its number in a way no rule sees.
fn noted() -> (Harness, Vec<Trajectory>) {
    let note = r#"[{"op":"replace","path":"memory.kind","value":"notes"},
        {"op":"replace","path":"memory.capacity","value":4},
        {"op":"add","path":"memory.entries","value":"Boats count double."}]"#;
    let rollout = |seed| {
        failed(seed)
            .call("print(2 * 12)")
            .result("24", None)
            .answered("24")
    };
    (patched(&start(), "M", note), vec![rollout(1), rollout(2)])
}

fn finding() -> serde_json::Value {
    json!({"name": "boats", "root_cause": "memory_overflow", "harness_dim": "M",
        "severity": "high",
        "evidence": [{"rollout": "R1", "step": 3, "quote": "print(2 * 12)"},
                     {"rollout": "R2", "step": 3, "quote": "print(2 * 12)"}],
        "diff_suggestion": [{"op": "remove", "path": "memory.entries[0]"}],
        "fixes": ["R1", "R2"], "risks": ["S1"]})
}

fn run(
    script: &Script,
    harness: &Harness,
    trajectories: &[Trajectory],
    options: LlmOptions,
) -> Critique {
    let records = RulesCritic::default()
        .diagnose(harness, trajectories)
        .records;
    let clusters = cluster(&records, trajectories);
    let critic = LlmCritic {
        chat: script,
        options,
        seed: 1,
    };
    let critique = critic.critique(harness, trajectories, &records, &clusters);
    // The script never waits.
    let mut critique = Box::pin(critique);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match critique.as_mut().poll(&mut context) {
        std::task::Poll::Ready(critique) => critique,
        std::task::Poll::Pending => panic!("the script waits"),
    }
}

fn ask(texts: &[&str]) -> (Critique, Script) {
    let (harness, trajectories) = noted();
    let script = Script::new(texts);
    let critique = run(&script, &harness, &trajectories, LlmOptions::default());
    (critique, script)
}

#[test]
fn findings_become_records_and_proposals() {
    let (harness, mut trajectories) = noted();
    let mut solved = failed(3).answered("12");
    solved.verdict.correct = true;
    trajectories.push(solved);
    let script = Script::new(&[&json!({"findings": [finding()]}).to_string()]);
    let critique = run(&script, &harness, &trajectories, LlmOptions::default());
    assert_eq!(critique.records.len(), 2, "{critique:?}");
    assert_eq!(critique.records[0].rule, "llm/boats");
    assert_eq!(critique.cost.calls, 1);
    assert_eq!(critique.cost.usage.prompt_tokens, 100);
    assert_eq!(
        critique.risks["llm/boats"],
        BTreeSet::from([TaskId::new("task-3")])
    );
    let clusters = cluster(&critique.records, &trajectories);
    let proposals = propose(&harness, &clusters, &[]);
    assert_eq!(proposals.len(), 1);
    assert_eq!(proposals[0].patch.ops, critique.records[0].diff_suggestion);
    assert_eq!(proposals[0].predicted.fixes.len(), 2);
}

#[test]
fn what_the_model_predicts_is_what_the_proposal_promises() {
    let (harness, mut trajectories) = noted();
    trajectories.push(failed(3).answered("9"));
    let mut solved = failed(4).answered("12");
    solved.verdict.correct = true;
    trajectories.push(solved);
    let proposed = |fixes: serde_json::Value| {
        let mut finding = finding();
        finding["fixes"] = fixes;
        let script = Script::new(&[&json!({"findings": [finding]}).to_string()]);
        let critique = run(&script, &harness, &trajectories, LlmOptions::default());
        let mut clusters = cluster(&critique.records, &trajectories);
        critique.foretell(&mut clusters);
        propose(&harness, &clusters, &[]).swap_remove(0).predicted
    };
    let tasks = |numbers: &[u64]| -> BTreeSet<TaskId> {
        let name = |number| TaskId::new(format!("task-{number}"));
        numbers.iter().map(name).collect()
    };
    // One that the quotes don't come from may be named, and one of them left out.
    let predicted = proposed(json!(["R3", " r1"]));
    assert_eq!(predicted.fixes, tasks(&[1, 3]));
    assert_eq!(predicted.at_risk, tasks(&[4]));
    // Names that nobody has count for nothing, nor do solved rollouts.
    assert_eq!(
        proposed(json!(["R3", "R9", "S1", "task-2"])).fixes,
        tasks(&[3])
    );
    // Without any that is known it is the cluster's tasks.
    assert_eq!(proposed(json!(["R9", "everything"])).fixes, tasks(&[1, 2]));
    assert_eq!(proposed(json!([])).fixes, tasks(&[1, 2]));
}

#[test]
fn a_critique_of_before_is_read_without_predicted_fixes() {
    let mut kept = serde_json::to_value(Critique::default()).unwrap();
    kept.as_object_mut().unwrap().remove("fixes");
    let read: Critique = serde_json::from_value(kept).unwrap();
    assert_eq!(read, Critique::default());
}

#[test]
fn excerpts_are_shown_on_request_and_not_for_ever() {
    let wants = r#"{"excerpts": [{"rollout": "R2", "from": 2, "to": 4}]}"#;
    let found = json!({"findings": [finding()]}).to_string();
    let (critique, script) = ask(&[wants, &found]);
    assert_eq!(critique.records.len(), 2);
    let asked = script.asked();
    assert!(asked[0].contains("Boats count double."), "{}", asked[0]);
    assert!(asked[1].contains("[step 3] call that was read from it\nprint(2 * 12)"));
    assert!(asked[1].contains("ask for other excerpts"));

    // One that never says anything has found nothing out, which is another thing than nothing.
    let (critique, script) = ask(&[wants, wants, wants, wants]);
    assert_eq!((critique.cost.calls, critique.cost.unusable), (4, 2));
    assert!(critique.skipped.unwrap().contains("asks for excerpts"));
    let asked = script.asked();
    assert!(asked[2].contains("no further excerpts"), "{}", asked[2]);
    assert!(asked[3].contains("no more can be shown"), "{}", asked[3]);
    let (critique, _) = ask(&[wants, wants, wants, &found]);
    assert_eq!(critique.records.len(), 2, "{critique:?}");
    assert_eq!((critique.skipped, critique.cost.unusable), (None, 1));
}

#[test]
fn where_there_are_no_excerpts_the_first_question_says_so() {
    let wants = r#"{"excerpts": [{"rollout": "R2", "from": 2, "to": 4}]}"#;
    let none = LlmOptions {
        excerpt_rounds: 0,
        ..LlmOptions::default()
    };
    let (harness, trajectories) = noted();
    let script = Script::new(&[wants, r#"{"findings": []}"#]);
    let critique = run(&script, &harness, &trajectories, none);
    // Nothing to report is an answer.
    assert_eq!((critique.skipped, critique.cost.unusable), (None, 1));
    assert!(script.asked()[0].contains("No excerpts can be shown"));
    let (_, script) = ask(&[r#"{"findings": []}"#]);
    assert!(!script.asked()[0].contains("No excerpts"));
}

#[test]
fn an_unusable_reply_is_asked_for_once_more_and_then_skipped() {
    let found = json!({"findings": [finding()]}).to_string();
    let cut = &found[..found.len() / 2];
    let (critique, script) = ask(&[cut, &found]);
    assert_eq!((critique.cost.calls, critique.cost.unusable), (2, 1));
    assert_eq!(critique.records.len(), 2);
    assert!(script.asked()[1].contains("breaks off"));

    let (critique, _) = ask(&[cut, cut]);
    assert_eq!((critique.cost.calls, critique.cost.unusable), (2, 2));
    assert_eq!(critique.records, []);
    assert!(critique.skipped.unwrap().contains("breaks off"));

    let none = LlmOptions {
        retries: 0,
        ..LlmOptions::default()
    };
    let (harness, trajectories) = noted();
    let script = Script::new(&["No idea."]);
    let critique = run(&script, &harness, &trajectories, none);
    assert!(critique.skipped.unwrap().contains("no JSON"));
}

#[test]
fn speakers_take_turns_whatever_becomes_of_the_replies() {
    let wants = r#"{"excerpts": [{"rollout": "R2", "from": 2, "to": 4}]}"#;
    let found = json!({"findings": [finding()]}).to_string();
    let (harness, trajectories) = noted();
    let patient = LlmOptions {
        retries: 3,
        ..LlmOptions::default()
    };
    let script = Script::new(&["No idea.", "", wants, "Hm.", &found]);
    let critique = run(&script, &harness, &trajectories, patient);
    assert_eq!((critique.cost.calls, critique.cost.unusable), (5, 3));
    assert_eq!(critique.records.len(), 2);
    script.assert_turns_alternate();
    let asked = script.asked();
    // Each says what was wrong with the reply before, and no more.
    let told = |text: &str| text.matches("can't be used").count();
    let counts: Vec<usize> = asked.iter().map(|text| told(text)).collect();
    assert_eq!(counts, [0, 1, 1, 0, 1]);
    assert!(asked[1].contains("Boats count double."), "{}", asked[1]);
    assert!(asked[4].contains("[step 3]"), "{}", asked[4]);
    assert!(!asked.iter().any(|text| text.contains("No idea.")));
}

#[test]
fn a_small_context_holds_every_request() {
    let (noted, _) = noted();
    let long = "Mind the boats and whatever floats. ".repeat(300);
    let ops = json!([{"op": "replace", "path": "prompts.system", "value": long}]);
    let harness = patched(&noted, "P", &ops.to_string());
    let talk = "word ".repeat(1000);
    let rollout = |seed| {
        failed(seed)
            .call("print(2 * 12)")
            .result(&talk, None)
            .reply(&talk, Some(Event::NoToolCall))
    };
    let trajectories: Vec<Trajectory> = (1..40).map(rollout).collect();
    let wants: Vec<serde_json::Value> = (1..9)
        .map(|number| json!({"rollout": format!("R{number}"), "from": 0, "to": 9}))
        .collect();
    let wants = json!({"excerpts": wants}).to_string();
    let thought = format!("<think>{talk}</think>{wants}");
    for (context_tokens, max_tokens, excerpt_rounds) in [(4096, 1024, 2), (16_384, 2048, 3)] {
        let options = LlmOptions {
            excerpt_rounds,
            retries: 1,
            prompt_tokens: context_tokens - max_tokens,
            ..LlmOptions::default()
        };
        let mut replies = vec![thought.as_str(); excerpt_rounds as usize];
        replies.push(&talk);
        replies.push(r#"{"findings": []}"#);
        let script = Script::new(&replies);
        let critique = run(&script, &harness, &trajectories, options);
        assert_eq!((critique.skipped, critique.cost.unusable), (None, 1));
        script.assert_turns_alternate();
        let asked = script.asked.lock().unwrap();
        assert_eq!(asked.len(), replies.len());
        let tokens: Vec<usize> = asked
            .iter()
            .map(|request| room::prompt_tokens(&request.messages))
            .collect();
        let most = context_tokens - max_tokens;
        assert!(tokens.iter().all(|tokens| *tokens <= most), "{tokens:?}");
        // And the room is used.
        assert!(tokens[excerpt_rounds as usize] > most * 2 / 3, "{tokens:?}");
    }
}

#[test]
fn a_server_that_fails_skips_the_critique() {
    let script = Script::new(&[]);
    let error = ChatError::Failed {
        reason: "connection refused".into(),
    };
    script.replies.lock().unwrap().push_back(Err(error));
    let (harness, trajectories) = noted();
    let critique = run(&script, &harness, &trajectories, LlmOptions::default());
    assert!(critique.skipped.unwrap().contains("connection refused"));
}

#[test]
fn quotes_that_are_not_there_are_dropped() {
    let mut invented = finding();
    invented["evidence"][0]["quote"] = "print(3 * 12)".into();
    invented["evidence"][1]["rollout"] = "R9".into();
    let (critique, _) = ask(&[&json!({"findings": [invented]}).to_string()]);
    assert_eq!(critique.records, []);
    assert_eq!(critique.dropped.len(), 2, "{:?}", critique.dropped);
    // No evidence, no predictions.
    assert!(critique.risks.is_empty() && critique.fixes.is_empty());

    let mut misplaced = finding();
    misplaced["evidence"][0]["step"] = 9.into();
    misplaced["evidence"][0]["quote"] = "Boats count double.".into();
    misplaced["evidence"][1]["step"] = 9.into();
    misplaced["evidence"][1]["quote"] = "answer is".into();
    let (critique, _) = ask(&[&json!({"findings": [misplaced]}).to_string()]);
    // The system message of these rollouts was written by hand and doesn't show the note.
    assert_eq!(critique.records.len(), 1, "{critique:?}");
    assert_eq!(critique.records[0].evidence.step, 5);
    assert_eq!(critique.mended[&Mended::Step], 1);
}

#[test]
fn suggestions_that_do_not_apply_leave_the_diagnosis() {
    for (ops, word) in [
        (
            json!([{"op": "remove", "path": "memory.entries[7]"}]),
            "entries",
        ),
        (json!([{"op": "remove", "path": "../../etc"}]), "etc"),
        (
            json!([{"op": "replace", "path": "budget.tokens", "value": 9}]),
            "dimension",
        ),
        (
            json!([{"op": "replace", "path": "prompts.system", "value": "x"}]),
            "dimension M",
        ),
        (
            json!([{"op": "replace", "path": "memory.capacity", "value": 4}]),
            "nothing",
        ),
        (
            json!([{"op": "replace", "path": "memory.capacity", "value": -4}]),
            "capacity",
        ),
    ] {
        let mut finding = finding();
        finding["diff_suggestion"] = ops;
        let (critique, _) = ask(&[&json!({"findings": [finding]}).to_string()]);
        assert_eq!(critique.records.len(), 2);
        assert!(critique.records[0].diff_suggestion.is_empty());
        assert!(critique.dropped[0].contains(word), "{:?}", critique.dropped);
    }
}

#[test]
fn a_cause_in_a_foreign_dimension_is_no_finding() {
    let mut foreign = finding();
    foreign["harness_dim"] = "T".into();
    let (critique, _) = ask(&[&json!({"findings": [foreign]}).to_string()]);
    assert_eq!(critique.records, []);
    assert!(critique.dropped[0].contains("belongs to M"));
}

#[test]
fn contradictions_between_rules_and_model_are_kept() {
    let prose = |seed| failed(seed).reply("It is 13.", Some(Event::NoToolCall));
    let trajectories = vec![prose(1), prose(2)];
    let claim = |rollout: &str, cause: &str, dim: &str| {
        json!({"name": "x", "root_cause": cause, "harness_dim": dim, "severity": "low",
            "evidence": [{"rollout": rollout, "step": 2, "quote": "It is 13."}]})
    };
    let reply = json!({"findings": [
        claim("R1", "prompt_ambiguity", "P"),
        claim("R2", "agent_error", "none"),
    ]});
    let script = Script::new(&[&reply.to_string()]);
    let critique = run(&script, &start(), &trajectories, LlmOptions::default());
    let [disagreement] = critique.disagreements.as_slice() else {
        panic!("{:?}", critique.disagreements);
    };
    assert_eq!(disagreement.trajectory, trajectories[1].id);
    assert_eq!(disagreement.llm, BTreeSet::from([RootCause::AgentError]));
    assert!(disagreement.rules.contains(&RootCause::PromptAmbiguity));
}

#[test]
fn only_the_evolve_split_is_looked_at() {
    let (harness, mut trajectories) = noted();
    trajectories[0].split = Split::Gate;
    trajectories[1].split = Split::Test;
    let script = Script::new(&[]);
    let critique = run(&script, &harness, &trajectories, LlmOptions::default());
    assert_eq!(critique.cost.calls, 0);
}
