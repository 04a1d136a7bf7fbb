use std::collections::BTreeMap;

use harness::folder::{check_file, check_folder};
use harness::{FolderError, Harness, from_files, to_files, warnings};
use proptest::prelude::*;

use crate::world;

/// The error of the rich harness's folder after a change.
fn error(change: impl FnOnce(&mut BTreeMap<String, String>)) -> FolderError {
    let mut files = to_files(&world::rich());
    change(&mut files);
    from_files(&files).unwrap_err()
}

fn with(file: &str, text: &str) -> FolderError {
    error(|files| {
        files.insert(file.to_owned(), text.to_owned());
    })
}

#[test]
fn the_layout_is_what_a_person_expects() {
    let files = to_files(&world::rich());
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "harness.yaml",
            "memory.yaml",
            "middleware.yaml",
            "prompts/examples/01-apples.md",
            "prompts/final_answer.md",
            "prompts/system.md",
            "prompts/task.md",
            "skills/unit-check/SKILL.md",
            "skills/unit-check/skill.py",
            "tools/python.yaml",
        ]
    );
    let example = "## problem\n\nAnn has 3 apples and buys 4. How many?\n\n## say\n\nI add.\n\n\
                   ## call python\n\n```code\nprint(3 + 4)\n```\n\n## result\n\n7\n\n\
                   ## answer\n\nThe answer is \\boxed{7}.\n";
    assert_eq!(files["prompts/examples/01-apples.md"], example);
    let skill = "---\nname: unit-check\ndescription: Keeps units apart.\ntriggers:\n  - miles\n\
                 ---\n\nConvert first.\n";
    assert_eq!(files["skills/unit-check/SKILL.md"], skill);
    assert_eq!(
        files["skills/unit-check/skill.py"],
        "def miles(km):\n    return km / 1.609344\n"
    );
    assert_eq!(files["prompts/task.md"], "{{ problem }}\n");
    assert_eq!(
        files["memory.yaml"],
        "kind: notes\ncapacity: 4\nshown: 2\neviction: oldest\nentries:\n  - Check units.\n"
    );
}

#[test]
fn unknown_files_are_refused() {
    for file in [
        "README.md",
        "prompts/other.md",
        "prompts/examples/apples.md",
        "prompts/examples/1-apples.md",
        "tools/python.yml",
        "tools/a b.yaml",
        "tools/x/y.yaml",
        "skills/a/notes.md",
        "skills/a/b/SKILL.md",
        "../harness.yaml",
    ] {
        let error = with(file, "x");
        assert!(
            matches!(&error, FolderError::Unknown { file: named, .. } if named == file),
            "{error}"
        );
    }
    let error = with(
        "prompts/examples/01-pears.md",
        "## problem\nx\n## answer\ny\n",
    );
    assert!(
        error.to_string().contains("another example has number 1"),
        "{error}"
    );
}

#[test]
fn names_can_be_judged_before_anything_is_read() {
    for file in to_files(&world::rich()).keys() {
        assert_eq!(check_file(file), Ok(()));
        for (slash, _) in file.match_indices('/') {
            assert_eq!(check_folder(&file[..slash]), Ok(()));
        }
    }
    let error = check_file("prompts/.system.md.swp").unwrap_err();
    assert_eq!(
        error.to_string(),
        "prompts/.system.md.swp isn't part of a harness: no file of this name is read"
    );
    for folder in [".git", "prompts/old", "tools/tools", "skills/a/b", ""] {
        let error = check_folder(folder).unwrap_err().to_string();
        assert!(
            error.ends_with("no folder of this name is read"),
            "{folder}: {error}"
        );
    }
}

#[test]
fn missing_files_are_named() {
    for file in [
        "harness.yaml",
        "prompts/system.md",
        "middleware.yaml",
        "memory.yaml",
    ] {
        let error = error(|files| {
            files.remove(file);
        });
        assert_eq!(error.to_string(), format!("{file} is missing"));
    }
}

#[test]
fn a_yaml_error_names_file_line_and_column() {
    let error = with("memory.yaml", "kind: none\ncapacity: many\n");
    assert!(
        error.to_string().starts_with("memory.yaml:2:11: "),
        "{error}"
    );
    let error = with("memory.yaml", "kind: none\ncapacity: 3\nsize: 4\n");
    assert!(
        error.to_string().starts_with("memory.yaml:3:1: "),
        "{error}"
    );
    assert!(error.to_string().contains("size"), "{error}");
    let error = with(
        "skills/unit-check/SKILL.md",
        "---\nname: unit-check\ndescription: [x]\n---\nb",
    );
    assert!(
        error
            .to_string()
            .starts_with("skills/unit-check/SKILL.md:3:14: "),
        "{error}"
    );
    let error = with("skills/unit-check/SKILL.md", "Convert first.\n");
    assert!(error.to_string().contains("front matter"), "{error}");
    for empty in ["---\n---\nb\n", "---\n\n---\nb\n"] {
        assert_eq!(
            with("skills/unit-check/SKILL.md", empty).to_string(),
            "skills/unit-check/SKILL.md:2:1: the front matter is empty"
        );
    }
    let windows = "---\r\nname: unit-check\r\ndescription: Units.\r\n---\r\nb\r\n";
    let error = with("skills/unit-check/SKILL.md", windows).to_string();
    assert!(
        error.starts_with("skills/unit-check/SKILL.md:1:4: the line ends in a carriage return"),
        "{error}"
    );
    let error = with("middleware.yaml", "").to_string();
    assert!(error.ends_with(": the file is empty"), "{error}");
}

#[test]
fn an_error_inside_a_hook_names_the_field() {
    let text =
        to_files(&world::rich())["middleware.yaml"].replace("max_chars: 500", "max_chars: x");
    let hook_line = text
        .lines()
        .position(|line| line.contains("truncate_output"))
        .unwrap()
        + 1;
    let error = with("middleware.yaml", &text);
    let FolderError::Malformed { line, reason, .. } = error else {
        panic!("{error}")
    };
    assert!(
        reason.contains("field `max_chars` of `truncate_output`"),
        "{reason}"
    );
    assert!(
        (line as usize).abs_diff(hook_line) <= 2,
        "line {line}, hook at {hook_line}"
    );
}

#[test]
fn an_example_error_names_the_line() {
    let reason = |text: &str| with("prompts/examples/01-apples.md", text).to_string();
    let at = |line: u64| format!("prompts/examples/01-apples.md:{line}:1: ");
    let error = reason("# Apples\n");
    assert!(error.starts_with(&at(1)), "{error}");
    let error =
        reason("## problem\n\np\n\n## call python\n\nprint(1)\n\n## result\n\n1\n\n## answer\n");
    assert!(
        error.starts_with(&at(7)) && error.contains("fenced argument"),
        "{error}"
    );
    let error = reason("## problem\np\n## call python\n```code\nprint(1)\n## answer\n");
    assert!(
        error.starts_with(&at(4)) && error.contains("isn't closed"),
        "{error}"
    );
    let error = reason("## problem\np\n## result\n1\n");
    assert!(
        error.starts_with(&at(3)) && error.contains("found `## result`"),
        "{error}"
    );
    let error = reason("## problem\np\n");
    assert!(error.contains("found the end"), "{error}");
    let error = reason("## problem\np\n## answer\na\n## say\nmore\n");
    assert!(
        error.starts_with(&at(5)) && error.contains("after the answer"),
        "{error}"
    );
    let error =
        reason("## problem\np\n## call py thon\n```code\n1\n```\n## result\n1\n## answer\n");
    assert!(
        error.starts_with(&at(3)) && error.contains("isn't a tool name"),
        "{error}"
    );
}

#[test]
fn loose_example_files_are_read_as_meant() {
    let mut files = to_files(&world::rich());
    let text = "## problem\np\n## call python\n```code\nx = '''\n## result\n'''\n```\n## result\n1\n## answer\na";
    files.insert("prompts/examples/07-loose.md".to_owned(), text.to_owned());
    let harness = from_files(&files).unwrap();
    let example = &harness.prompts.examples[1];
    assert_eq!(
        (example.title.as_str(), example.problem.as_str()),
        ("loose", "p")
    );
    assert_eq!(
        example.steps[0].arguments["code"],
        "x = '''\n## result\n'''"
    );
    assert_eq!(
        (example.steps[0].result.as_str(), example.answer.as_str()),
        ("1", "a")
    );
}

#[test]
fn a_broken_rule_names_the_file_that_holds_the_field() {
    let error = with("prompts/task.md", "Solve it.\n");
    assert!(
        error
            .to_string()
            .starts_with("prompts/task.md: prompts.task: "),
        "{error}"
    );
    let error = with("prompts/system.md", "Hello.\r\nSolve it.\r\n");
    assert!(
        error
            .to_string()
            .contains("control character U+000D in line 1 of the text"),
        "{error}"
    );
    let example = "## problem\n\n\u{c}\n\n## answer\n\na\n";
    let error = with("prompts/examples/01-apples.md", example);
    assert!(
        error
            .to_string()
            .starts_with("prompts/examples/01-apples.md: "),
        "{error}"
    );
}

#[test]
fn python_belongs_to_a_skill() {
    let error = with("skills/other/skill.py", "x = 1\n").to_string();
    assert_eq!(
        error,
        "skills/other/skill.py isn't part of a harness: there is no SKILL.md beside it"
    );
    let error = with("skills/unit-check/skill.py", "x = '\u{c}'\n").to_string();
    assert!(
        error.starts_with("skills/unit-check/skill.py: skills.unit-check.python: "),
        "{error}"
    );
    // Without any, the document is what it was before there was such a field.
    let mut harness = world::rich();
    harness.skills.get_mut("unit-check").unwrap().python.clear();
    let skill = &harness.to_value()["skills"]["unit-check"];
    assert!(skill.get("python").is_none());
    assert!(!to_files(&harness).contains_key("skills/unit-check/skill.py"));
}

#[test]
fn text_lost_to_a_comment_is_warned_about() {
    let mut files = to_files(&world::rich());
    let tool = files["tools/python.yaml"].replace("prints.", "prints in step #1 and a #c");
    files.insert("tools/python.yaml".to_owned(), tool);
    let skill =
        "---\nname: unit-check # fine\ndescription: Use a table # of units\n---\nb # kept\n";
    files.insert("skills/unit-check/SKILL.md".to_owned(), skill.to_owned());
    files.insert(
        "memory.yaml".to_owned(),
        "kind: none # nothing yet\ncapacity: 0\n".to_owned(),
    );
    let warnings: Vec<String> = warnings(&files).iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings[0].starts_with("skills/unit-check/SKILL.md:3:26: `# of units`"),
        "{warnings:?}"
    );
    assert!(
        warnings[1].starts_with("tools/python.yaml:1:71: `#1 and a #c`"),
        "{warnings:?}"
    );
    assert_eq!(
        from_files(&files).unwrap().skills["unit-check"].body,
        "b # kept"
    );
    assert_eq!(harness::warnings(&to_files(&world::rich())), []);
}

#[test]
fn texts_come_back_exactly() {
    let mut harness = world::rich();
    for text in [
        "",
        "\n",
        "\n\n",
        "a",
        "a\n",
        "\na\n\n",
        "\\frac{1}{2} # not a comment {{x}}",
        "## answer",
        "\\## answer\n\\\\## say\n##\n### deeper",
        "```\n````code\n```",
        "  indented\n\ttab\n trailing  ",
        "---\nname: x\n---",
        "no",
        "é∑😀\u{2028}\u{feff}",
    ] {
        let filled = format!("x{text}");
        harness.prompts.system = text.to_owned();
        harness.prompts.final_answer = text.to_owned();
        let example = &mut harness.prompts.examples[0];
        example.problem = filled.clone();
        example.answer = text.to_owned();
        example.steps[0].say = text.to_owned();
        example.steps[0].result = text.to_owned();
        example.steps[0]
            .arguments
            .insert("code".to_owned(), text.to_owned());
        let skill = harness.skills.get_mut("unit-check").unwrap();
        skill.body = format!("{text}x{text}");
        skill.python = text.to_owned();
        harness.tools.get_mut("python").unwrap().description = filled.clone();
        harness.memory.entries[0] = filled;
        let read = from_files(&to_files(&harness)).unwrap();
        assert_eq!(read, harness, "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_harness_round_trips_through_its_folder(harness in world::harness()) {
        let files = to_files(&harness);
        let read: Harness = from_files(&files).unwrap();
        prop_assert_eq!(read.id(), harness.id());
        prop_assert_eq!(&read, &harness);
        prop_assert_eq!(to_files(&read), files);
        prop_assert_eq!(warnings(&to_files(&harness)), []);
    }
}
