//! Tools that keep their variables from call to call.

use harness::{CallFormat, ToolState};
use rollout::ExitReason;
use sandbox::{Execution, Exit};

use crate::world::{Script, printed, reply, script};

fn stateful() -> Script {
    script(CallFormat::Fenced).with(|script| {
        for tool in script.harness.tools.values_mut() {
            tool.state = ToolState::Stateful;
        }
    })
}

#[tokio::test]
async fn calls_of_one_rollout_share_an_interpreter() {
    let outcome = stateful()
        .reply(reply("```python\nx = 6\n```"))
        .run(printed(""))
        .reply(reply("```python\nprint(x * 7)\n```"))
        .run(printed("42\n"))
        .reply(reply("The answer is \\boxed{42}."))
        .play()
        .await;
    assert_eq!(outcome.trajectory.exit, ExitReason::Answered);
    assert_eq!(outcome.programs, ["(session)", "x = 6", "print(x * 7)"]);
    assert!(!outcome.said().iter().any(|text| text.contains("lost")));
}

#[tokio::test]
async fn the_policy_is_told_that_its_variables_are_lost() {
    let late = Execution {
        exit: Exit::TimedOut,
        ..printed("")
    };
    let outcome = stateful()
        .reply(reply("```python\nx = 6\n```"))
        .run(late)
        .reply(reply("```python\nprint(2)\n```"))
        .run(printed("2\n"))
        .reply(reply("The answer is \\boxed{2}."))
        .play()
        .await;
    let result = outcome.said()[1];
    assert!(result.starts_with("[error] timed out after"), "{result}");
    assert!(
        result.ends_with("[error] the interpreter was restarted: all variables are lost"),
        "{result}"
    );
    assert_eq!(outcome.programs, ["(session)", "x = 6", "print(2)"]);
}

#[tokio::test]
async fn stateless_tools_open_no_session() {
    let outcome = script(CallFormat::Fenced)
        .reply(reply("```python\nprint(1)\n```"))
        .run(printed("1\n"))
        .reply(reply("The answer is \\boxed{1}."))
        .play()
        .await;
    assert_eq!(outcome.programs, ["print(1)"]);
}
