//! Skills and notes that are missing, wrong or not used.

use super::*;

#[test]
fn skills() {
    let wrong = failed(1)
        .call("print(7 - 5)")
        .result("2", None)
        .answered("2");
    fires("equation_skill_missing", &start(), &wrong);
    fires("print_skill_missing", &start(), &silent());
    is_quiet("debugging_skill_missing", &start(), &error(Exit::Code(1)));
    let twice = error(Exit::Code(1)).call("print(y)");
    let twice = twice.result(
        "NameError: y",
        Some(Event::ToolError {
            exit: Exit::Code(1),
        }),
    );
    fires("debugging_skill_missing", &start(), &twice);
    let skill = |name: &str| {
        let ops = format!(
            r#"[{{"op":"add","path":"skills.{name}","value":{{"name":"{name}",
                "description":"About {name}.","triggers":["flying"],"body":"Count strings."}}}}]"#
        );
        patched(&start(), "S", &ops)
    };
    let record = fires("skill_not_triggered", &skill("kites"), &prose());
    assert_eq!(
        record.diff_suggestion[0].path.to_string(),
        "skills.kites.triggers"
    );
    is_quiet("skill_not_triggered", &skill("boats"), &prose());
    let shown = prose().system("Solve.\n\nCount strings.");
    is_quiet("skill_not_triggered", &skill("kites"), &shown);
}

#[test]
fn skills_by_topic() {
    let percent = "What is 15 percent of 200 kites?";
    let wrong = |system: &str| {
        failed(1)
            .system(system)
            .problem(percent)
            .call("print(15 * 200)")
            .result("3000", None)
            .answered("3000")
    };
    let record = fires("topic_skill_missing", &start(), &wrong("Solve."));
    assert_eq!(record.diff_suggestion[0].path.to_string(), "skills.percent");
    let skill = r#"[{"op":"add","path":"skills.shares","value":{"name":"shares",
        "description":"Shares.","triggers":["percent"],"body":"Multiply both."}}]"#;
    let misled = patched(&start(), "S", skill);
    is_quiet("topic_skill_missing", &misled, &wrong("Multiply both."));
    let record = fires("skill_misleads", &misled, &wrong("Multiply both."));
    assert_eq!(
        record.diff_suggestion[0].path.to_string(),
        "skills.shares.body"
    );
    is_quiet("skill_misleads", &misled, &wrong("Solve."));
}

#[test]
fn notes_with_wrong_facts() {
    let noted = say_in("M", "A dozen is 20 things.");
    let used = |code: &str| {
        failed(1)
            .system("Solve. A dozen is 20 things.")
            .call(code)
            .result("140", None)
            .answered("140")
    };
    let record = fires("stale_number", &noted, &used("print(7 * 20)"));
    assert_eq!(record.evidence.quote, "print(7 * 20)");
    is_quiet("stale_number", &noted, &used("print(7 * 12)"));
    is_quiet("stale_number", &start(), &used("print(7 * 20)"));
}

#[test]
fn memory() {
    let noted = patched(&start(), "M", NOTE_17);
    fires("memory_full", &noted, &prose());
    is_quiet("memory_full", &start(), &prose());
    let told = "Solve. The last answer was 17.";
    let stale = failed(1).system(told).answered("17");
    let record = fires("stale_note", &noted, &stale);
    assert_eq!(
        record.diff_suggestion[0].path.to_string(),
        "memory.entries[0]"
    );
    let calculated = failed(1)
        .system(told)
        .call("print(17)")
        .result("17", None)
        .answered("17");
    is_quiet("stale_note", &noted, &calculated);
    let mut filled = noted.clone();
    let long = "kites ".repeat(1000);
    let full = |system: &str| {
        let reply = failed(1).system(system).reply("Hm.", None);
        reply.exit(ExitReason::ContextLimit)
    };
    filled.memory.entries = vec![long.clone()];
    fires("notes_fill_context", &filled, &full(&long));
    // Of many notes a few are shown.
    is_quiet("notes_fill_context", &filled, &full("Solve."));
    fires("print_lesson_not_kept", &start(), &silent());
    fires("protocol_lesson_not_kept", &start(), &prose());
}
