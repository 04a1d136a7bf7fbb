//! Results that never become an answer: given to a tool, or in a form that isn't a number's.

use harness::{Dimension, ToolName};
use rollout::{Message, Role, ToolCall};
use serde_json::{Map, Value};

use super::*;
use crate::repairs::checked_patch;

/// A call of a tool, in the steps and in the messages.
fn call_of(mut rollout: Trajectory, tool: &str, argument: &str, text: &str) -> Trajectory {
    let mut message = Message::new(Role::Assistant, "");
    message.tool_calls.push(ToolCall {
        id: String::new(),
        tool: tool.to_owned(),
        arguments: Map::from_iter([(argument.to_owned(), Value::from(text))]),
    });
    rollout.messages.push(message);
    rollout.with(StepKind::ToolCall, text, None)
}

#[test]
fn a_tool_that_takes_the_answer_away() {
    let tool = r#"[{"op":"add","path":"tools.conclude","value":{"description":"Concludes.",
        "parameters":{"type":"object","properties":{"total":{"type":"string"}},"required":["total"]},
        "backend":"python"}}]"#;
    let two = patched(&start(), "T", tool);
    let counted = call_of(failed(1), "python", "code", "print(5 + 7)").result("12", None);
    let silent = |rollout: Trajectory| rollout.result("[no output]", Some(Event::EmptyOutput));
    let taken = silent(call_of(counted.clone(), "conclude", "total", "12"));
    let record = fires("answer_tool", &two, &taken);
    let patch = checked_patch(&two, Dimension::T, record.diff_suggestion, "").unwrap();
    let left: Vec<ToolName> = patch.apply(&two).unwrap().tools.into_keys().collect();
    assert_eq!(left, [ToolName::new("python").unwrap()]);
    let loop_is_blamed = fires("no_answer_after_result", &two, &taken);
    assert_eq!(loop_is_blamed.severity, Medium);
    // The same tool, another number, an answer after all.
    let again = silent(call_of(counted.clone(), "python", "code", "12"));
    let other = silent(call_of(counted, "conclude", "total", "13"));
    for rollout in [again, other, taken.answered("12")] {
        is_quiet("answer_tool", &two, &rollout);
    }
    // Programs go to the tool that speaks of them, whatever the tools are called.
    let repairs = super::super::rule("answer_tool").unwrap().repairs;
    let patch = repairs[0].patch(&two, Dimension::T).unwrap();
    assert_eq!(patch.ops[0].path.to_string(), "tools.conclude");
    assert!(repairs[0].patch(&start(), Dimension::T).is_none());
}

#[test]
fn fences_that_fit_several_tools() {
    let tool = |description: &str| {
        format!(
            r#"{{"description":"{description}","parameters":{{"type":"object",
            "properties":{{"code":{{"type":"string"}}}},"required":["code"]}},"backend":"python"}}"#
        )
    };
    let (charts, runner) = (
        tool("Draws charts by Python."),
        tool("Runs it; print the sum."),
    );
    let ops = format!(
        r#"[{{"op":"remove","path":"tools.python"}},
        {{"op":"add","path":"tools.charts","value":{charts}}},
        {{"op":"add","path":"tools.runner","value":{runner}}}]"#
    );
    let fenced = r#"[{"op":"replace","path":"middleware.protocol.call_format","value":"fenced"}]"#;
    let one = patched(&start(), "Mid", fenced);
    let two = patched(&one, "T", &ops);
    let written = |word: &str| {
        failed(1).reply(
            &format!("```{word}\nprint(5 + 7)\n```"),
            Some(Event::NoToolCall),
        )
    };
    let rule = "fence_fits_several_tools";
    let record = fires(rule, &two, &written("python"));
    assert_eq!(
        (record.severity, record.evidence.quote.as_str()),
        (High, "```python")
    );
    let patch = checked_patch(&two, Dimension::T, record.diff_suggestion, "").unwrap();
    let left: Vec<ToolName> = patch.apply(&two).unwrap().tools.into_keys().collect();
    assert_eq!(left, [ToolName::new("runner").unwrap()]);
    let missing = fires("example_missing", &two, &written("python"));
    assert_eq!(missing.severity, Medium);
    let rename = super::super::rule(rule).unwrap().repairs[1];
    let renamed = rename.patch(&two, Dimension::T).unwrap();
    let renamed = renamed.apply(&two).unwrap();
    // One of them is called so, which is the one that the block goes to.
    for harness in [&renamed, &one, &start()] {
        is_quiet(rule, harness, &written("python"));
    }
    is_quiet(rule, &two, &written("ruby"));
    is_quiet(
        rule,
        &two,
        &failed(1).reply("It is 13.", Some(Event::NoToolCall)),
    );
}

#[test]
fn functions_of_skills_that_give_no_number() {
    let skill = |python: &str| {
        let ops = format!(
            r#"[{{"op":"add","path":"skills.shares","value":{{"name":"shares","description":"Shares.",
            "triggers":["percent"],"body":"Use share(x, y).","python":"{python}"}}}}]"#
        );
        patched(&start(), "S", &ops)
    };
    let harness = skill("def share(x, y):\\n    return f'{y * x / 100:.0f} EUR'\\n");
    let called = |code: &str, result: &str| {
        failed(1)
            .system("Solve. Use share(x, y).")
            .problem("What is 15 percent of 1300 kites?")
            .call(code)
            .result(result, None)
    };
    let rule = "skill_code_shapes_result";
    let code = "print(share(15, 1300))";
    for result in ["195 EUR", "None", "0.2k", "~195"] {
        let record = fires(rule, &harness, &called(code, result).reply("Hm.", None));
        assert_eq!(
            (record.severity, record.evidence.quote.as_str()),
            (High, result)
        );
        let patch = checked_patch(&harness, Dimension::S, record.diff_suggestion, "").unwrap();
        let mended = patch.apply(&harness).unwrap();
        assert!(mended.skills.values().all(|skill| skill.python.is_empty()));
    }
    let lost = called(code, "0.2k");
    fires(rule, &harness, &lost.clone().answered("0.2"));
    let severity = |harness: &Harness| fires("no_answer_after_result", harness, &lost).severity;
    assert_eq!((severity(&harness), severity(&start())), (Medium, High));
    for rollout in [
        called(code, "195"),
        called(code, "1,950.5"),
        called(code, "39/2"),
        // What the program made of it, or without it.
        called("print(f'{share(15, 1300)} EUR')", "195 EUR"),
        called("print(mean(15, 1300))", "195 EUR"),
        called(code, "195 EUR").answered("200"),
    ] {
        is_quiet(rule, &harness, &rollout);
    }
    is_quiet(rule, &start(), &lost);
}

#[test]
fn skills_that_take_pythons_own_functions() {
    let rule = "skill_code_shadows";
    let skill = |python: &str, body: &str| {
        let python = Value::from(python);
        let ops = format!(
            r#"[{{"op":"add","path":"skills.pace","value":{{"name":"pace","description":"Pace.",
            "triggers":[],"body":"{body}","python":{python}}}}}]"#
        );
        patched(&start(), "S", &ops)
    };
    let called = |code: &str| failed(1).system("Solve. Go slowly.").call(code);
    let silent = |code: &str| called(code).result("[no output]", Some(Event::EmptyOutput));
    for python in [
        "def print(*parts):\n    pass\n",
        "print = id\n",
        "from quiet import print\n",
        "import io, sys\nsys.stdout = io.StringIO()\n",
        "raise SystemExit\n",
    ] {
        let harness = skill(python, "Go slowly.");
        let record = fires(rule, &harness, &silent("print(5 + 7)"));
        assert_eq!(
            (record.severity, record.evidence.quote.as_str()),
            (High, "print(5 + 7)")
        );
        // The text needs no Python, and stays.
        let patch = checked_patch(&harness, Dimension::S, record.diff_suggestion, "").unwrap();
        let mended = patch.apply(&harness).unwrap();
        let pace = &mended.skills["pace"];
        assert_eq!(
            (pace.body.as_str(), pace.python.as_str()),
            ("Go slowly.", "")
        );
        is_quiet(rule, &harness, &silent("x = 5 + 7"));
        is_quiet(rule, &harness, &called("print(5 + 7)").result("12", None));
    }
    let counts = skill("def sum(parts):\n    return len(parts)\n", "Go slowly.");
    let wrong = called("print(sum([5, 7]))").result("2", None).answered("2");
    fires(rule, &counts, &wrong);
    let own = called("print(7 - 5)").result("2", None).answered("2");
    let harmless = skill("def rate(x, y):\n    return x / y\n", "Go slowly.");
    for (harness, rollout) in [
        (&counts, &own),
        (&counts, &silent("print(5 + 7)")),
        (&harmless, &wrong),
        (&start(), &wrong),
    ] {
        is_quiet(rule, harness, rollout);
    }
    // What printed needn't be told to print.
    let severity = |code| fires("print_not_described", &start(), &silent(code)).severity;
    assert_eq!(
        (severity("print(5 + 7)"), severity("x = 5 + 7")),
        (Low, High)
    );
    // A text that calls what is gone goes too.
    let body = "Go slowly. Use rest(x).";
    let harness = skill("def rest(x):\n    return x\n\n\nprint = id\n", body);
    let told = failed(1)
        .system(&format!("Solve. {body}"))
        .call("print(12)");
    let told = told.result("[no output]", Some(Event::EmptyOutput));
    let ops = fires(rule, &harness, &told).diff_suggestion;
    assert_eq!(ops[0].path.to_string(), "skills.pace");
}

#[test]
fn totals_that_run_on() {
    let text = "The count goes on from 40812.";
    let rollouts: Vec<Trajectory> = (1..=4)
        .map(|seed| {
            let called = failed(seed)
                .system(&format!("Solve. {text}"))
                .call("print(n)");
            let printed = 100 + 7 * seed * seed;
            let result = called.result(&printed.to_string(), None);
            result.answered(&(40_812 + printed).to_string())
        })
        .collect();
    for (dim, rule) in ALTERS {
        assert_eq!(
            named(&say_in(dim, text), &rollouts, rule).len(),
            4,
            "{rule}"
        );
        assert!(named(&start(), &rollouts, rule).is_empty(), "{rule}");
    }
}
