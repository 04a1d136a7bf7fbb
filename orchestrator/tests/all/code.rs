//! Programs as answers, in the real sandbox: the verifier `code` alone, by `verify-answer`, and in an
//! evaluation.

use std::path::PathBuf;
use std::sync::Arc;

use rollout::tools::ToolRunner;
use rollout::verifier::code::CodeLimits;
use rollout::verifier::{Assessment, Failure, Outcome, Verifier, VerifierKind, build};
use sandbox::{HelperCommand, Sandbox, SandboxOptions, Start};
use serde_json::{Value, json};

use crate::Place;
use crate::server::{self, Answer};

/// The verifier in a box of its own, and the box's place.
struct Court {
    verifier: Arc<dyn Verifier>,
    _scratch: tempfile::TempDir,
}

async fn court(start: Start, timeout_ms: u64) -> Court {
    let scratch = tempfile::tempdir().expect("a directory");
    let options = SandboxOptions {
        start,
        ..SandboxOptions::default()
    };
    let helper = HelperCommand::new(env!("CARGO_BIN_EXE_coharness"));
    let root = scratch.path().to_owned();
    let sandbox = Sandbox::with_options(helper, PathBuf::from("python3"), root, options);
    let runner: Arc<dyn ToolRunner> = Arc::new(sandbox.await.expect("a sandbox"));
    let limits = CodeLimits {
        timeout_ms,
        memory_mib: 256,
    };
    Court {
        verifier: build(&VerifierKind::Code(limits), Some(runner)),
        _scratch: scratch,
    }
}

impl Court {
    async fn judge(&self, tests: &Value, program: &str) -> Assessment {
        let text = format!("```python\n{program}\n```");
        self.verifier.assess(&tests.to_string(), &text).await
    }

    #[track_caller]
    fn expect(&self, program: &str, assessment: &Assessment, failed: Option<(usize, Failure)>) {
        let test = assessment.failed_test;
        let is_as_expected = test.map(|test| (test.number, test.failure)) == failed;
        assert!(is_as_expected, "{program}\n{assessment:?}");
        let outcome = match failed {
            None => Outcome::Equal,
            Some(_) => Outcome::Different,
        };
        assert_eq!(assessment.outcome, Some(outcome), "{program}");
    }
}

/// Ways to read two lines of numbers from the standard input.
const READERS: [&str; 10] = [
    "a = list(map(int, input().split()))\nb = list(map(int, input().split()))",
    "import sys\na, b = [list(map(int, line.split())) for line in sys.stdin]",
    "import sys\na, b = [list(map(int, line.split())) for line in sys.stdin.read().splitlines()]",
    "import sys\na, b = [list(map(int, line.split())) for line in sys.stdin.buffer.read().splitlines()]",
    "a, b = [list(map(int, line.split())) for line in open(0)]",
    "a, b = [list(map(int, line.split())) for line in open(0, 'rb').read().splitlines()]",
    "import os\na, b = [list(map(int, line.split())) for line in os.read(0, 10**6).splitlines()]",
    "import os, io\ninput = io.BytesIO(os.read(0, os.fstat(0).st_size)).readline\n\
     a, b = [list(map(int, input().split())) for _ in '12']",
    "from sys import stdin\na = list(map(int, stdin.readline().split()))\nb = list(map(int, stdin.readline().split()))",
    "import fileinput\na, b = [list(map(int, line.split())) for line in fileinput.input('-')]",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_of_reading_the_input_finds_it() {
    let tests = json!([
        {"stdin": "1 2 3\n4 5 6\n", "stdout": "5 7 9\n"},
        {"stdin": "-1\n1", "stdout": "0"},
    ]);
    for start in [Start::Warm, Start::Cold] {
        let court = court(start, 10_000).await;
        for reader in READERS {
            let program = format!("{reader}\nprint(*(x + y for x, y in zip(a, b)))");
            court.expect(&program, &court.judge(&tests, &program).await, None);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inputs_arrive_as_they_are() {
    let court = court(Start::Warm, 10_000).await;
    let texts = [
        "",
        "\n",
        "ünïcödé \u{1f600} \"quotes\" 'and' \\ back\\slashes\n",
        "\u{0}\u{1}\r\n\ttabs",
        &"long line ".repeat(200_000),
    ];
    for text in texts {
        let expected = format!("{} {}", text.len(), sum_of_bytes(text));
        let tests = json!([{"stdin": text, "stdout": expected}]);
        let program = "data = open(0, 'rb').read()\nprint(len(data), sum(data))";
        court.expect(program, &court.judge(&tests, program).await, None);
    }
    // At its end there is nothing more.
    let program = "print(input())\ntry:\n    input()\nexcept EOFError:\n    print('end')";
    let tests = json!([{"stdin": "one", "stdout": "one\nend"}]);
    court.expect(program, &court.judge(&tests, program).await, None);
}

fn sum_of_bytes(text: &str) -> u64 {
    text.bytes().map(u64::from).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_programs_are_wrong() {
    let court = court(Start::Warm, 1_000).await;
    let tests = json!([{"stdin": "2", "stdout": "4"}, {"stdin": "3", "stdout": "9"}]);
    court.expect(
        "",
        &court.judge(&tests, "print(int(input()) ** 2)").await,
        None,
    );
    for (program, number, failure) in [
        ("print(2 * int(input()))", 2, Failure::WrongOutput),
        ("print(4)", 2, Failure::WrongOutput),
        (
            "n = int(input())\nprint(n ** 2, end='!')",
            1,
            Failure::WrongOutput,
        ),
        ("pass", 1, Failure::WrongOutput),
        ("print(int(input()) ** 2); exit(3)", 1, Failure::Error),
        (
            "print(int(input()) ** 2); raise ValueError",
            1,
            Failure::Error,
        ),
        ("print(", 1, Failure::Error),
        ("import os; os.kill(os.getpid(), 9)", 1, Failure::Error),
        ("while True: pass", 1, Failure::TimedOut),
        ("import time; time.sleep(60)", 1, Failure::TimedOut),
        ("x = ' ' * (1 << 30)", 1, Failure::OutOfMemory),
        ("while True: print('x' * 9999)", 1, Failure::TooMuchOutput),
    ] {
        let assessment = court.judge(&tests, program).await;
        court.expect(program, &assessment, Some((number, failure)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_are_called_by_tests() {
    let court = court(Start::Warm, 10_000).await;
    let tests = json!([
        {"code": "print(add(1, 2))", "stdout": "3"},
        {"code": "print(add('a', 'b'))\nprint(__name__)", "stdout": "ab\nsolution"},
        {"stdin": "5", "code": "print(add(int(input()), 1))", "stdout": "6"},
    ]);
    for (program, failed) in [
        ("def add(a, b):\n    return a + b", None),
        // What it prints itself doesn't count, and it isn't the main program.
        (
            "from __future__ import annotations\nfrom dataclasses import dataclass\n\
             @dataclass\nclass Pair:\n    a: int\n    b: ClassVar = 0\n\
             def add(a, b):\n    return a + b\nprint('example:', add(1, 2))\n\
             if __name__ == '__main__':\n    print(input())",
            None,
        ),
        (
            "def add(a, b):\n    return a - b",
            Some((1, Failure::WrongOutput)),
        ),
        (
            "def sum(a, b):\n    return a + b",
            Some((1, Failure::Error)),
        ),
        // Ending before the call isn't passing it.
        (
            "import sys\ndef add(a, b):\n    sys.exit(0)",
            Some((1, Failure::WrongOutput)),
        ),
        ("import os\nos._exit(0)", Some((1, Failure::WrongOutput))),
        (
            "def add(a, b):\n    return int(a) + int(b)",
            Some((2, Failure::Error)),
        ),
    ] {
        court.expect(program, &court.judge(&tests, program).await, failed);
    }
}

/// Looks for a text everywhere a Python program can look.
const SEARCH: &str = r#"
import gc, os, sys
def places():
    yield " ".join(sys.argv)
    yield repr(dict(os.environ))
    for name in os.listdir("."):
        yield name
        yield open(name, errors="replace").read()
    for place in ("/proc/self/cmdline", "/proc/self/environ"):
        try:
            yield open(place, errors="replace").read()
        except OSError:
            pass
    frame = sys._getframe()
    while frame is not None:
        yield repr(frame.f_locals)
        yield repr(frame.f_globals)
        code = [frame.f_code]
        while code:
            one = code.pop()
            for constant in one.co_consts:
                yield repr(constant)
                if hasattr(constant, "co_consts"):
                    code.append(constant)
        frame = frame.f_back
    for thing in gc.get_objects():
        if isinstance(thing, (dict, list, tuple)):
            yield repr(thing)[:100000]
# Its own text has to be told from what it looks for.
print(any(first + "-" + second in place for place in places()))
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_expected_is_nowhere_in_the_sandbox() {
    for start in [Start::Warm, Start::Cold] {
        let court = court(start, 10_000).await;
        let program =
            |first: &str, second: &str| format!("first, second = {first:?}, {second:?}\n{SEARCH}");
        let expected = "answer-5f2c";
        let tests = json!([{"stdin": "given-77a1", "stdout": expected}]);
        // That the search finds what is there shows that it would find more.
        for (first, second, is_there) in [("given", "77a1", "True"), ("answer", "5f2c", "False")] {
            let found = json!([{"stdin": "given-77a1", "stdout": is_there}, tests[0]]);
            let program = program(first, second);
            let assessment = court.judge(&found, &program).await;
            court.expect(&program, &assessment, Some((2, Failure::WrongOutput)));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_finds_nothing_of_the_one_before() {
    let court = court(Start::Warm, 10_000).await;
    let program = "import os, builtins\nprint(os.listdir('.') == ['main.py'], hasattr(builtins, 'kept'))\n\
                   open('kept', 'w').write('x')\nbuiltins.kept = 1";
    let test = json!({"stdin": "", "stdout": "True False"});
    let tests = json!([test, test, test]);
    court.expect(program, &court.judge(&tests, program).await, None);
}

#[test]
fn verify_answer_judges_programs_line_by_line() {
    let place = Place::new();
    let program = "Thus:\n```python\nprint(int(input()) + 1)\n```\nwhich adds one.";
    let lines = [
        json!({"gold": [{"stdin": "1", "stdout": "2"}], "pred": program}),
        json!({"gold": {"inputs": ["1", "5"], "outputs": ["2", "7"]}, "pred": program}),
        json!({"gold": "[{\"input\": \"1\", \"output\": \"2\"}]", "pred": program}),
        json!({"gold": [{"stdout": "2"}], "pred": "It is 2."}),
        json!({"gold": [{"stdin": "1"}], "pred": program}),
        json!({"gold": "2", "pred": program}),
    ];
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    place.write("answers.jsonl", &lines);
    insta::assert_snapshot!(place.run(&[
        "verify-answer",
        "--jsonl",
        "answers.jsonl",
        "--kind",
        "code"
    ]));
}

/// Answers every request with a program: one that is right for even problems.
fn serve() -> String {
    server::serve(|request| {
        let text = request.to_string();
        assert!(
            !text.contains("secret"),
            "a test reached the policy: {text}"
        );
        let number = server::number(request);
        let added = number + number % 2;
        Answer::Says(format!(
            "```python\nword = input()\nprint(word, {added} + len(word))\n```"
        ))
    })
}

#[test]
fn an_evaluation_runs_programs_on_their_tests() {
    let url = serve();
    let place = Place::new();
    let tasks = (0..4).map(|i| {
        let stdout = format!("secret {}", i + 6);
        let tests = json!([{"stdin": "secret", "stdout": stdout}]);
        json!({"problem": format!("What is {i} + a word's length?"), "tests": tests}).to_string()
    });
    place.write("eval.jsonl", &tasks.collect::<Vec<_>>().join("\n"));
    let config = |verifier: &str| {
        let config = server::config(&url, "{evolve: 2, gate: 4, test: 2}", "");
        config.replace("verifier: integer", &format!("verifier: {verifier}"))
    };
    place.write("run.yaml", &config("code"));
    let eval = ["eval", "--config", "run.yaml", "--tasks", "eval.jsonl"];
    let output = place
        .command(&[&eval[..], &["--json"]].concat())
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", place.transcript(&output));
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(result["pass_at"][0]["estimate"], 0.5, "{result}");
    assert_eq!(result["exits"], json!({"answered": 4}));
    // The starting harness takes no fenced code for a call; one that does is warned of.
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!stderr.contains("tasks.verifier is code"), "{stderr}");

    place.write("run.yaml", &config("{code: {timeout_ms: 0}}"));
    let refused = place.run(&eval);
    assert!(
        refused.contains("tasks.verifier: code needs a timeout_ms")
            && refused.ends_with("exit 2\n"),
        "{refused}"
    );
}
