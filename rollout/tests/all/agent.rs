//! The loop itself: answers, calls and anomalies.

use std::time::Duration;

use harness::{CallFormat, Example, ExampleStep, MemoryKind, Skill, ToolName};
use rollout::{Event, ExitReason, NativeCall, Role, RolloutId, RolloutKey, StepKind};
use sandbox::Exit;

use crate::world::{GOLD, code, failed, printed, reply, script};

const FENCED: CallFormat = CallFormat::Fenced;

#[tokio::test]
async fn a_call_and_an_answer() {
    let outcome = script(FENCED)
        .reply(reply("Let me see.\n```python\nprint(987654)\n```"))
        .run(printed("987654\n"))
        .reply(reply("The answer is \\boxed{987654}."))
        .play()
        .await;
    let trajectory = &outcome.trajectory;
    assert_eq!(trajectory.exit, ExitReason::Answered);
    assert_eq!(trajectory.answer.as_deref(), Some(GOLD));
    assert!(trajectory.verdict.correct);
    assert_eq!(trajectory.verdict.rule, "boxed");
    assert_eq!(outcome.events(), []);
    assert_eq!(outcome.programs, ["print(987654)"]);
    let kinds: Vec<StepKind> = trajectory.steps.iter().map(|step| step.kind).collect();
    use StepKind::{Assistant, Final, System, ToolCall, ToolResult, User};
    assert_eq!(
        kinds,
        [
            System, User, Assistant, ToolCall, ToolResult, Assistant, Final
        ]
    );
    let trained: Vec<bool> = trajectory
        .messages
        .iter()
        .map(|message| message.train)
        .collect();
    assert_eq!(trained, [false, false, true, false, true]);
    assert_eq!(trajectory.messages[2].tool_calls[0].id, "call_1");
    assert_eq!(trajectory.usage.completion_tokens, 20);
    // The second call continues the first one's ids, and has a seed of its own.
    let first = &trajectory.model_calls[0];
    let prior = [first.prompt_ids.clone(), first.output_ids.clone()].concat();
    assert_eq!(outcome.requests[1].prior, Some(prior));
    assert_ne!(outcome.requests[0].seed, outcome.requests[1].seed);
}

#[tokio::test]
async fn the_policy_is_asked_to_sample_as_the_harness_says() {
    let outcome = script(FENCED)
        .with(|script| {
            script.harness.middleware.sampling = harness::Sampling {
                temperature: 0.9,
                top_p: 0.8,
                top_k: 40,
                min_p: 0.05,
            };
        })
        .reply(reply("The answer is \\boxed{987654}."))
        .play()
        .await;
    let [request] = outcome.requests.as_slice() else {
        panic!("one call, not {}", outcome.requests.len());
    };
    assert_eq!((request.temperature, request.top_p), (0.9, 0.8));
    assert_eq!((request.top_k, request.min_p), (40, 0.05));
}

#[tokio::test]
async fn a_trajectory_reads_back_equal_and_unknown_fields_are_refused() {
    let outcome = script(FENCED).reply(reply("Hm.")).play().await;
    let json = serde_json::to_value(&outcome.trajectory).expect("json");
    let back: rollout::Trajectory = serde_json::from_value(json.clone()).expect("trajectory");
    assert_eq!(back, outcome.trajectory);
    let mut more = json;
    more["more"] = 1.into();
    assert!(serde_json::from_value::<rollout::Trajectory>(more).is_err());
}

#[tokio::test]
async fn the_gold_answer_is_nowhere_before_the_policy_finds_it() {
    let outcome = script(FENCED).reply(reply("The answer is 3.")).play().await;
    let trajectory = &outcome.trajectory;
    assert!(!trajectory.verdict.correct);
    assert!(
        !serde_json::to_string(trajectory)
            .expect("json")
            .contains(GOLD)
    );
    assert!(
        outcome
            .requests
            .iter()
            .all(|request| !format!("{request:?}").contains(GOLD))
    );
}

#[tokio::test]
async fn an_imagined_result_is_cut_with_its_ids() {
    let kept = "```python\nprint(1)\n```";
    let outcome = script(FENCED)
        .reply(reply(&format!("{kept}\nOutput: 5\nThe answer is 5.")))
        .run(printed("1\n"))
        .reply(reply("The answer is 1."))
        .play()
        .await;
    assert_eq!(outcome.events(), [Event::TextAfterCall { characters: 26 }]);
    assert_eq!(outcome.said(), [kept, "1", "The answer is 1."]);
    let call = &outcome.trajectory.model_calls[0];
    assert_eq!(
        (call.output_ids.len(), call.logprobs.len()),
        (kept.len(), kept.len())
    );
    // The critic sees all of it.
    assert!(
        outcome.trajectory.steps[2]
            .text
            .ends_with("The answer is 5.")
    );
}

#[tokio::test]
async fn prose_without_a_call_is_an_event_and_may_hold_an_answer() {
    let outcome = script(FENCED)
        .reply(reply("It makes 12 in all."))
        .play()
        .await;
    assert_eq!(outcome.events(), [Event::NoToolCall]);
    assert_eq!(outcome.trajectory.exit, ExitReason::Answered);
    assert_eq!(outcome.trajectory.verdict.rule, "last_number");

    let outcome = script(FENCED).reply(reply("I don't know.")).play().await;
    assert_eq!(outcome.events(), [Event::NoToolCall, Event::NoFinalAnswer]);
    assert_eq!(outcome.trajectory.exit, ExitReason::NoAnswer);
    assert_eq!(outcome.trajectory.answer, None);
}

#[tokio::test]
async fn calls_that_cannot_be_run_are_told_to_the_policy() {
    let outcome = script(CallFormat::Json)
        .reply(reply(
            r#"{"name": "python", "arguments": {"code": "print(1)",}}"#,
        ))
        .reply(reply(
            r#"{"name": "calculator", "arguments": {"code": "1"}}"#,
        ))
        .reply(reply(
            r#"{"name": "python", "arguments": {"program": "1"}}"#,
        ))
        .reply(reply("The answer is 1."))
        .play()
        .await;
    let events = outcome.events();
    assert!(matches!(&events[0], Event::UnparsableCall { reason } if reason.contains("trailing")));
    assert_eq!(
        events[1],
        Event::UnknownTool {
            name: "calculator".into()
        }
    );
    let reason = "the argument `code` is missing".to_owned();
    assert_eq!(events[2], Event::BadArguments { reason });
    assert_eq!(events.len(), 3);
    let said = outcome.said();
    assert!(said[1].starts_with("[error] the call can't be read: "));
    assert_eq!(said[3], "[error] there is no tool calculator, only python");
    assert_eq!(said[5], "[error] the argument `code` is missing");
    assert!(outcome.programs.is_empty());
}

#[tokio::test]
async fn failures_silence_and_floods_of_a_program_are_events() {
    let flood = format!("{}{}", "x".repeat(1500), "y".repeat(1500));
    let outcome = script(FENCED)
        .reply(code("a"))
        .run(failed("Traceback\nNameError: name 'a' is not defined\n"))
        .reply(code("b = 1"))
        .run(printed("\n"))
        .reply(code("print('x' * 3000)"))
        .run(printed(&flood))
        .reply(code("b = 1"))
        .run(printed(""))
        .play()
        .await;
    assert_eq!(
        outcome.events(),
        [
            Event::ToolError {
                exit: Exit::Code(1)
            },
            Event::EmptyOutput,
            Event::OutputTruncated,
            Event::RepeatedCall,
            Event::EmptyOutput,
            Event::TurnLimit,
            Event::NoFinalAnswer,
        ]
    );
    let said = outcome.said();
    assert_eq!(said[1], "[error] NameError: name 'a' is not defined");
    assert_eq!(said[3], "[no output]");
    let (head, tail) = (&flood[..1000], &flood[2000..]);
    assert_eq!(
        said[5],
        format!("{head}\n[output cut: 1000 characters left out here]\n{tail}")
    );
    assert_eq!(outcome.trajectory.exit, ExitReason::TurnLimit);
    assert_eq!(outcome.programs.len(), 4);
}

#[tokio::test]
async fn calls_through_the_policys_own_interface_take_the_harness_format() {
    let mut native = reply("");
    native.tool_calls.push(NativeCall {
        tool: "python".into(),
        arguments: serde_json::json!({"code": "print(1)"}),
    });
    let outcome = script(FENCED)
        .reply(native)
        .run(printed("1"))
        .reply(reply("The answer is 1."))
        .play()
        .await;
    assert_eq!(outcome.said()[0], "```python\nprint(1)\n```");
    assert_eq!(outcome.requests[1].prior, None);
    assert_eq!(outcome.events(), []);
}

#[tokio::test]
async fn calls_that_arent_run_are_counted() {
    let mut native = reply("");
    for number in 1..=3 {
        native.tool_calls.push(NativeCall {
            tool: "python".into(),
            arguments: serde_json::json!({"code": format!("print({number})")}),
        });
    }
    let outcome = script(FENCED)
        .reply(native)
        .run(printed("1"))
        .reply(reply("The answer is 1."))
        .play()
        .await;
    assert_eq!(outcome.programs, ["print(1)"]);
    assert_eq!(outcome.events(), [Event::CallsNotRun { count: 2 }]);
}

#[tokio::test]
async fn a_policy_without_a_tool_interface_gets_tags_in_place_of_native_calls() {
    let call = "<tool_call>\n{\"name\": \"python\", \"arguments\": {\"code\": \"print(1)\"}}\n</tool_call>";
    let outcome = script(CallFormat::Native)
        .reply(reply(call))
        .run(printed("1"))
        .reply(reply("The answer is 1."))
        .play()
        .await;
    assert_eq!(outcome.programs, ["print(1)"]);
    assert_eq!(outcome.said()[0], call);
    assert!(outcome.requests[0].tools.is_empty());
    assert!(
        outcome.requests[0].messages[0]
            .content
            .contains("<tool_call>")
    );
}

#[tokio::test]
async fn a_memory_that_shows_few_notes_shows_those_about_the_problem() {
    let outcome = script(FENCED)
        .with(|script| {
            script.task.problem = "What percent of 4 is 3?".into();
            let memory = &mut script.harness.memory;
            memory.kind = MemoryKind::Notes;
            memory.shown = 1;
            memory.entries = vec!["A percent is a hundredth.".into(), "Boats are slow.".into()];
        })
        .reply(reply("The answer is 75."))
        .play()
        .await;
    let system = &outcome.requests[0].messages[0].content;
    assert!(
        system.contains("- A percent") && !system.contains("Boats"),
        "{system}"
    );
}

#[tokio::test]
async fn the_opening_has_notes_skills_tools_and_examples_in_the_current_format() {
    for (format, call) in [
        (
            CallFormat::Json,
            r#"{"name": "python", "arguments": {"code": "print(1+1)"}}"#,
        ),
        (CallFormat::Fenced, "```python\nprint(1+1)\n```"),
        (
            CallFormat::Xml,
            "<tool_call>\n{\"name\": \"python\", \"arguments\": {\"code\": \"print(1+1)\"}}\n</tool_call>",
        ),
    ] {
        let fill = |script: &mut crate::world::Script| {
            let harness = &mut script.harness;
            harness.memory.kind = MemoryKind::Notes;
            harness.memory.entries = vec!["Money has two decimals.".into()];
            let skill = |name: &str, trigger: &str| Skill {
                name: name.into(),
                description: String::new(),
                triggers: vec![trigger.into()],
                body: format!("Skill {name}."),
                python: String::new(),
            };
            harness
                .skills
                .insert("counting".into(), skill("counting", "many"));
            harness
                .skills
                .insert("percent".into(), skill("percent", "percent"));
            let code = [("code".to_owned(), "print(1+1)".to_owned())];
            harness.prompts.examples = vec![Example {
                title: "sum".into(),
                problem: "1+1?".into(),
                steps: vec![ExampleStep {
                    say: "I compute.".into(),
                    tool: ToolName::new("python").expect("name"),
                    arguments: code.into(),
                    result: "2\n".into(),
                }],
                answer: "The answer is 2.".into(),
            }];
        };
        let outcome = script(format)
            .with(fill)
            .reply(reply("The answer is 1."))
            .play()
            .await;
        let messages = &outcome.requests[0].messages;
        let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
        use Role::{Assistant, System, Tool, User};
        assert_eq!(roles, [System, User, Assistant, Tool, Assistant, User]);
        let system = &messages[0].content;
        let places = [
            "You are",
            "- Money",
            "Skill counting.",
            "python",
            "Put your final",
        ];
        let places = places.map(|part| system.rfind(part).expect(part));
        assert!(places.is_sorted(), "{system}");
        assert!(!system.contains("Skill percent."));
        assert_eq!(messages[2].content, format!("I compute.\n{call}"));
        assert_eq!(messages[3].content, "2");
        assert!(messages.iter().all(|message| !message.train));
        // Examples are the harness's, not something that happened.
        assert_eq!(outcome.trajectory.steps.len(), 4);
    }
}

#[tokio::test]
async fn the_id_depends_on_every_input_and_on_nothing_else() {
    let one = script(FENCED).reply(reply("1")).play().await.trajectory;
    let two = script(FENCED).reply(reply("2")).play().await.trajectory;
    assert_eq!(one.id, two.id);
    let budget = |max_tokens| rollout::RolloutBudget {
        max_tokens,
        wall: Duration::from_secs(20),
    };
    let id = |seed, budget: &rollout::RolloutBudget, level: &str| {
        RolloutId::of(&RolloutKey {
            policy: &one.policy,
            harness: &one.harness,
            task_hash: &one.task_hash,
            seed,
            budget,
            sandbox_level: level,
        })
    };
    assert_eq!(id(7, &budget(1000), "test"), one.id);
    for other in [
        id(8, &budget(1000), "test"),
        id(7, &budget(1), "test"),
        id(7, &budget(1000), "x"),
    ] {
        assert_ne!(other, one.id);
    }
}

#[test]
fn exit_reasons_have_their_names_in_json() {
    for name in ExitReason::NAMES {
        let mut written = serde_json::json!({"type": name});
        if name == "infrastructure" {
            written["reason"] = "a fault".into();
            written["is_retryable"] = true.into();
        }
        let exit: ExitReason = serde_json::from_value(written).expect("an exit reason");
        assert_eq!(exit.name(), name);
    }
}
