use harness::{Example, ExampleStep, PatchOp};
use rollout::{Columns, TaskId, Trajectory, load_tasks};
use serde_json::json;

use super::*;
use crate::mining::mine;
use crate::repairs::{path, value};
use crate::testing::{Build, failed, start};

const LONG: &str = "Ida keeps 12 hens, 130 ducks and 25 geese. How many birds does Ida keep?";
const SHORT: &str = "Work out 31 * 47.";

fn task(problem: &str, answer: &str) -> Task {
    Task {
        id: TaskId::new(problem),
        problem: problem.to_owned(),
        answer: answer.to_owned(),
    }
}

fn guard(held_out: &[Task], open: &[Task]) -> LeakGuard {
    LeakGuard::new(held_out.iter(), open.iter())
}

fn check(text: &str) -> Result<(), Leak> {
    let guard = guard(&[task(LONG, "167"), task(SHORT, "1457")], &[]);
    guard.check(&note(&json!(text)))
}

fn note(value: &Value) -> Patch {
    let text = format!(
        r#"{{"dimension":"M","ops":[{{"op":"add","path":"memory.entries","value":{value}}}]}}"#
    );
    Patch::from_json(&text).unwrap()
}

#[test]
fn whole_problems_and_parts_are_refused() {
    assert!(matches!(check(LONG), Err(Leak::Words { .. })));
    assert!(check(&LONG.to_uppercase().replace(' ', "\n-- ")).is_err());
    assert!(check("so: ducks and 25 geese how many birds does").is_err());
    assert!(check("First WORK OUT (31*47), then say it.").is_err());
}

#[test]
fn numbers_are_refused_in_any_order_and_among_a_few_others() {
    for text in [
        "A pond with 12 frogs, 130 newts, 25 snails",
        "25 frogs, 130 newts, 12 snails",
        "25 frogs and 130 newts are 155. With 12 snails",
        "print(130 + 25)\nprint(155 + 12.0)",
    ] {
        let leak = check(text);
        assert!(
            matches!(leak, Err(Leak::Numbers { .. })),
            "{text}: {leak:?}"
        );
    }
    for text in [
        "25 frogs and 12 snails",
        "25 frogs, 1, 2, 3, 130 newts, 4, 5, 6, 12 snails",
    ] {
        assert_eq!(check(text), Ok(()), "{text}");
    }
    // Round numbers are everybody's, but not in a certain order.
    let round = [task("100 of 200 and 300 of 400?", "")];
    let check = |text: &str| guard(&round, &[]).check(&note(&json!(text)));
    assert_eq!(check("400, 300, 200, 100"), Ok(()));
    assert!(check("100, 200, 300, 400").is_err());
}

#[test]
fn words_that_rust_takes_for_numbers_are_none() {
    let guard = guard(&[task("Nan has 130 ducks, 25 inf, 1e5?", "")], &[]);
    let check = |text: &str| guard.check(&note(&json!(text)));
    assert_eq!(check("nan of 130 and 25, inf and 1e5"), Ok(()));
    assert_eq!(check("130 by nan gives 25"), Ok(()));
}

#[test]
fn answers_are_refused_where_they_are_telling() {
    let surd = r"$2 + 3\sqrt{17} - \pi$ over seven";
    let held_out = [
        task("a", "2,772"),
        task("b", "250"),
        task("c", "12000"),
        task("d", "(3.50, 1234)"),
        task("e", surd),
        task("f", "x = 5"),
    ];
    let guard = guard(&held_out, &[]);
    let check = |text: &str| guard.check(&note(&json!(text)));
    for text in [
        "It was 2772.",
        "so $2,772.00",
        "3.5 and 1234",
        &surd.to_uppercase(),
    ] {
        let leak = check(text);
        assert!(matches!(leak, Err(Leak::Answer { .. })), "{text}: {leak:?}");
    }
    for text in ["12772", "250 of 12000", "1234", "x = 5", "2 + 3 sqrt 17"] {
        assert_eq!(check(text), Ok(()), "{text}");
    }
    // A limit is no text.
    let limit = r#"{"dimension":"Mid","ops":[{"op":"replace",
        "path":"middleware.protocol.max_tokens_per_turn","value":2772}]}"#;
    assert_eq!(guard.check(&Patch::from_json(limit).unwrap()), Ok(()));
}

#[test]
fn numbers_in_a_tools_parameters_are_looked_at_for_answers() {
    let guard = guard(
        &[task("a", "2772"), task("b", "250"), task("c", "12000")],
        &[],
    );
    let check = |op: &Value| {
        let text = json!({"dimension": "T", "ops": [op]}).to_string();
        guard.check(&Patch::from_json(&text).unwrap())
    };
    let parameters = |default: &Value| {
        json!({"type": "object", "properties": {"n": {"type": "number", "default": default,
            "minimum": 1, "maximum": 250, "multipleOf": 0.5, "enum": [default, 12000]}}})
    };
    let set = |path: &str, value: &Value| json!({"op": "replace", "path": path, "value": value});
    let tool = |default: &Value| {
        json!({"description": "Runs it.", "parameters": parameters(default), "backend": "python",
            "limits": {"timeout_ms": 2772, "memory_mib": 2772, "output_chars": 2772}})
    };
    let has_default = |default: &Value| {
        [
            set("tools.python.parameters", &parameters(default)),
            set("tools.python.parameters.properties.n.default", default),
            json!({"op": "add", "path": "tools.other", "value": tool(default)}),
        ]
    };
    for default in [json!(2772), json!(-2772), json!(2772.0)] {
        for op in has_default(&default) {
            let leak = check(&op);
            assert!(matches!(leak, Err(Leak::Answer { .. })), "{op}: {leak:?}");
        }
    }
    for default in [json!(250), json!(12000), json!(27720.5)] {
        for op in has_default(&default) {
            assert_eq!(check(&op), Ok(()), "{op}");
        }
    }
    // A name is shown too, and a setting isn't.
    let named = set("tools.python.parameters.properties[\"2772\"]", &json!({}));
    assert!(check(&named).is_err());
    let limit = set("tools.python.limits.timeout_ms", &json!(2772));
    assert_eq!(check(&limit), Ok(()));
}

#[test]
fn what_an_open_problem_has_too_is_no_secret() {
    let ask = |a: u32, b: u32| {
        format!("A farm has {a} hens and {b} ducks. How many more hens than ducks does it have?")
    };
    let held_out = [task(&ask(431, 257), "1741"), task("What is 3 + 4?", "7")];
    let open = [
        task(&ask(968, 257), "1741"),
        task("What is 3 + 4 + 5?", "12"),
    ];
    let closed = guard(&held_out, &[]);
    let guard = guard(&held_out, &open);
    for text in [
        ask(968, 257),
        "How many more hens than ducks does it have?".to_owned(),
        "It is 1741.".to_owned(),
        "What is 3 + 4?".to_owned(),
    ] {
        let patch = note(&json!(text));
        assert!(closed.check(&patch).is_err(), "{text}");
        assert_eq!(guard.check(&patch), Ok(()), "{text}");
    }
    for text in [ask(431, 257), "257 from 431".to_owned()] {
        assert!(guard.check(&note(&json!(text))).is_err(), "{text}");
    }
}

#[test]
fn a_problem_of_known_runs_is_guarded_as_a_whole() {
    let held_out = [task("one two three four five six seven eight nine", "1")];
    let open = [
        task("one two three four five six seven eight ten", "1"),
        task("zero two three four five six seven eight nine", "1"),
    ];
    let guard = guard(&held_out, &open);
    for task in &open {
        assert_eq!(guard.check(&note(&json!(task.problem))), Ok(()));
    }
    assert!(guard.check(&note(&json!(held_out[0].problem))).is_err());
}

#[test]
fn an_open_problem_that_differs_in_a_sign_gives_no_other_away() {
    let long =
        |sign: &str| format!("In a box are 4312 {sign} 2571 balls, how many are left in it?");
    let short = |sign: &str| format!("Compute 4312 {sign} 2571.");
    let held_out = [task(&long("+"), ""), task(&short("+"), "")];
    let open = [task(&long("-"), ""), task(&short("-"), "")];
    let guard = guard(&held_out, &open);
    for held_out in &held_out {
        for text in [
            held_out.problem.clone(),
            format!(
                "As in: {} Then answer.",
                held_out.problem.replace(" + ", "+")
            ),
        ] {
            let leak = guard.check(&note(&json!(text)));
            assert!(matches!(leak, Err(Leak::Words { .. })), "{text}: {leak:?}");
        }
    }
    for sign in ["-", "\u{2212}"] {
        for text in [long(sign), short(sign)] {
            assert_eq!(guard.check(&note(&json!(text))), Ok(()), "{text}");
        }
    }
}

#[test]
fn an_open_text_of_many_numbers_gives_away_what_stands_together_in_it_alone() {
    let pond = "A pond with 12 frogs, 130 newts, 2571 snails";
    let line = "Of 47 and 5,303 the sum";
    let many: Vec<u32> = (1000..1010)
        .chain([12])
        .chain(1010..1040)
        .chain([130])
        .chain(1040..1070)
        .chain([2571])
        .chain(1070..1090)
        .chain([5303, 47])
        .chain(1090..1100)
        .collect();
    let many: Vec<String> = many.iter().map(u32::to_string).collect();
    let many = many.join(" ");
    let held_out = [task(pond, ""), task(line, "")];
    let guard = guard(&held_out, &[task(&many, "")]);
    let check = |text: &str| guard.check(&note(&json!(text)));
    assert!(check("2571 by 130 by 12").is_err());
    assert_eq!(check("5303 by 47"), Ok(()));
    // Such a text is known by its words.
    let closed = LeakGuard::new([task(&many, "")].iter(), std::iter::empty());
    assert!(closed.numbers.0.is_empty() && closed.together.is_empty());
    assert!(closed.check(&note(&json!(many))).is_err());
}

#[test]
fn a_problem_over_several_fields_is_refused() {
    let guard = guard(&[task(LONG, "167")], &[]);
    let halves = json!(["Ida keeps 12 hens, 130 ducks", "and 25 geese"]);
    assert!(guard.check(&note(&halves)).is_err());
}

#[test]
fn ordinary_texts_pass() {
    assert_eq!(check("How many birds does Ida keep?"), Ok(()));
    assert_eq!(check("Print the result."), Ok(()));
    let guard = guard(&[task("", ""), task("7", "7")], &[]);
    assert_eq!(guard.check(&note(&json!("7"))), Ok(()));
}

#[test]
fn words_are_normalised() {
    let text = "It's $1,200.50, or (3), 007 and 0.0!";
    let expected = ["it", "s", "1200.5", "or", "3", "7", "and", "0"];
    assert_eq!(words(text), expected);
    assert_eq!(signed(text), expected);
    let signs = "well-known: 12 \u{d7} (3+4) \u{2212} 5 ** x, -7 - and";
    assert_eq!(
        signed(signs),
        ["well", "known", "12", "*3", "+4", "-5", "**x", "-7", "and"]
    );
    assert_eq!(
        words(signs),
        ["well", "known", "12", "3", "4", "5", "x", "7", "and"]
    );
}

/// The shipped problems, dealt as a run deals them: the test set by hash, then evolve and gate.
fn shipped() -> (Vec<Task>, Vec<Task>) {
    let text = include_str!("../../../configs/tasks/arithmetic.jsonl");
    let mut tasks = load_tasks(text, "arithmetic", &Columns::default()).unwrap();
    tasks.sort_by_cached_key(|task| task.content_hash().as_str().to_owned());
    tasks.truncate(600);
    let evolve = tasks.drain(120..520).collect();
    (tasks, evolve)
}

/// The problem as the example that a solved rollout of it becomes.
fn example(task: &Task) -> Patch {
    let code = numbers(&words(&task.problem)).join(" + ");
    let example = Example {
        title: format!("solved-{}", task.id),
        problem: task.problem.clone(),
        steps: vec![ExampleStep {
            say: String::new(),
            tool: start().tools.keys().next().unwrap().clone(),
            arguments: BTreeMap::from([("code".to_owned(), format!("print({code})"))]),
            result: task.answer.clone(),
        }],
        answer: format!("The answer is \\boxed{{{}}}.", task.answer),
    };
    Patch {
        dimension: harness::Dimension::P,
        ops: vec![PatchOp::add(path("prompts.examples"), value(example))],
        summary: "as mined_example suggests: add prompts.examples".to_owned(),
    }
}

/// Problems from templates share most of their words, so that a third of these examples was refused for
/// the words of a template.
#[test]
fn what_the_critic_takes_from_evolve_problems_passes() {
    let (held_out, evolve) = shipped();
    let guard = guard(&held_out, &evolve);
    let refused = |patches: &[Patch]| {
        let leaks = patches.iter().filter_map(|patch| guard.check(patch).err());
        let leaks: Vec<String> = leaks.map(|leak| leak.to_string()).collect();
        (leaks.len(), leaks)
    };
    let single: Vec<Patch> = evolve.iter().map(example).collect();
    let (count, leaks) = refused(&single);
    assert!(100 * count <= single.len(), "{count} refused: {leaks:?}");
    // Several at once bring numbers together that don't belong together.
    let several: Vec<Patch> = single
        .chunks(5)
        .map(|patches| Patch {
            ops: patches.iter().flat_map(|patch| patch.ops.clone()).collect(),
            ..patches[0].clone()
        })
        .collect();
    let (count, leaks) = refused(&several);
    assert!(20 * count <= several.len(), "{count} refused: {leaks:?}");

    // What is mined of them, with half of them solved in one form and half failed in another.
    let rollout = |(seed, task): (u64, &Task)| -> Trajectory {
        let is_solved = seed.is_multiple_of(2);
        let sign = if is_solved { " + " } else { " * " };
        let code = numbers(&words(&task.problem)).join(sign);
        let mut trajectory = failed(seed)
            .problem(&task.problem)
            .call(&format!("print({code})"))
            .result(&task.answer, None)
            .answered(&task.answer);
        trajectory.verdict.correct = is_solved;
        trajectory
    };
    let trajectories: Vec<Trajectory> = (0..).zip(&evolve).map(rollout).collect();
    let records = mine(&start(), &trajectories);
    assert!(!records.is_empty());
    for record in records {
        let patch = Patch {
            dimension: record.harness_dim.dimension().unwrap(),
            ops: record.diff_suggestion,
            summary: String::new(),
        };
        assert_eq!(guard.check(&patch), Ok(()), "{}", record.rule);
    }
}

#[test]
fn every_held_out_problem_and_every_telling_answer_is_refused() {
    let (held_out, evolve) = shipped();
    let guard = guard(&held_out, &evolve);
    let mut telling = 0;
    for task in &held_out {
        assert!(guard.check(&example(task)).is_err(), "{}", task.problem);
        let answer = guard.check(&note(&json!(format!("It is {}.", task.answer))));
        telling += usize::from(answer.is_err());
    }
    assert!(telling >= 5, "{telling} answers are guarded");
}
