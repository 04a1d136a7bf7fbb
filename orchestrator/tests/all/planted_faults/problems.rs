//! Problems of several kinds, each with what it asks of a model or of a harness.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rollout::{Task, TaskId};

/// A kind of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One operation.
    Plain,
    /// Three numbers and two operations.
    Steps,
    /// The same, and the text asks for a plan.
    Plan,
    /// A percentage.
    Percent,
    /// Counting in dozens.
    Dozen,
    /// An average, for which models reach for a function that isn't there.
    Average,
    /// Two parts, which models solve by two programs.
    Parts,
    /// A text that makes models check what they did.
    Sure,
    /// A product of 24 digits.
    Long,
    /// A loop over half a million numbers.
    Search,
    /// A list that takes a hundred megabytes.
    Grid,
    /// A program that prints line after line.
    List,
    /// The way around a rectangle, which models take for its area.
    Fence,
}

const NAMES: [&str; 8] = ["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana"];
const THINGS: [&str; 8] = [
    "marbles", "stamps", "shells", "coins", "cards", "beads", "buttons", "ribbons",
];

/// `count` distinct problems: three of four of the kinds in `kinds`, the rest plain.
pub(crate) fn problems(kinds: &[Kind], count: usize, seed: u64) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::with_capacity(count);
    for number in 0..count {
        let kind = match number % 4 {
            3 => Kind::Plain,
            other => kinds[(number / 4 * 3 + other) % kinds.len()],
        };
        // By kind and number alone, so that sets share problems, and what was run for one need not
        // be run for another.
        let stream = seed ^ (number as u64) << 8 ^ (kind as u64) << 32;
        let mut random = ChaCha8Rng::seed_from_u64(stream);
        loop {
            let (problem, answer) = problem(kind, &mut random);
            let task = Task {
                id: TaskId::new(format!("{kind:?}-{number}").to_lowercase()),
                problem,
                answer,
            };
            let hash = task.content_hash();
            if tasks.iter().all(|known| known.content_hash() != hash) {
                tasks.push(task);
                break;
            }
        }
    }
    tasks
}

/// A text and its answer.
fn problem(kind: Kind, random: &mut ChaCha8Rng) -> (String, String) {
    let name = NAMES[random.random_range(0..NAMES.len())];
    let things = THINGS[random.random_range(0..THINGS.len())];
    let mut number = |low: u64, high: u64| random.random_range(low..high);
    match kind {
        Kind::Plain => match number(0, 3) {
            0 => {
                let (a, b) = (number(120, 900), number(40, 800));
                let text = format!(
                    "{name} has {a} {things} and buys {b} more. How many {things} does {name} have now?"
                );
                (text, (a + b).to_string())
            }
            1 => {
                let (a, b) = (number(500, 990), number(40, 480));
                let text = format!(
                    "{name} has {a} {things} and gives away {b} of them. How many {things} are left?"
                );
                (text, (a - b).to_string())
            }
            _ => {
                let (a, b) = (number(21, 99), number(12, 60));
                let text = format!(
                    "There are {a} {things} in each of {b} boxes. How many {things} are there in all?"
                );
                (text, (a * b).to_string())
            }
        },
        Kind::Sure => {
            let (a, b) = (number(120, 900), number(40, 800));
            let text = format!(
                "{name} has {a} {things} and buys {b} more. How many {things} does {name} have now? Make sure that the number is right."
            );
            (text, (a + b).to_string())
        }
        Kind::Steps | Kind::Plan => {
            let (a, b, c) = (number(12, 60), number(14, 70), number(15, 150));
            let plan = if kind == Kind::Plan {
                "Make a plan. "
            } else {
                ""
            };
            let text = format!(
                "{plan}A shop has {a} boxes with {b} {things} in each box and sells {c} {things}. How many {things} are left?"
            );
            (text, (a * b - c).to_string())
        }
        Kind::Percent => {
            let (share, whole) = (number(3, 98), 100 * number(3, 90));
            let text = format!("What is {share} percent of {whole} {things}?");
            (text, (share * whole / 100).to_string())
        }
        Kind::Dozen => {
            let count = number(13, 400);
            (
                format!("{name} has {count} dozen {things}. How many {things} is that?"),
                (count * 12).to_string(),
            )
        }
        Kind::Average => {
            let (a, b, middle) = (number(20, 300), number(20, 300), number(320, 500));
            let c = 3 * middle - a - b;
            (
                format!("What is the average of {a}, {b} and {c}?"),
                middle.to_string(),
            )
        }
        Kind::Parts => {
            let (a, b, c) = (number(12, 60), number(14, 70), number(15, 150));
            let text = format!(
                "Work in two parts. First multiply {a} by {b}. Then take {c} away from that. What comes out?"
            );
            (text, (a * b - c).to_string())
        }
        Kind::Long => {
            let (a, b) = (
                number(400_000_000_000, 999_999_999_999),
                number(400_000_000_000, 999_999_999_999),
            );
            (
                format!("Multiply {a} by {b}."),
                (u128::from(a) * u128::from(b)).to_string(),
            )
        }
        Kind::Search => {
            let (most, by, not) = (number(500_000, 520_000), number(3, 9), number(10, 20));
            let count = (1..=most).filter(|n| n % by == 0 && n % not != 0).count();
            let text = format!(
                "How many whole numbers from 1 to {most} can be divided by {by} but not by {not}?"
            );
            (text, count.to_string())
        }
        Kind::Grid => {
            let (rows, columns) = (number(4000, 4400), number(3000, 3300));
            let text = format!(
                "A grid has {rows} rows and {columns} columns. How many cells does it have?"
            );
            (text, (rows * columns).to_string())
        }
        Kind::List => {
            let (most, step) = (number(9000, 12_000), number(2, 5));
            let count = (1..=most)
                .step_by(usize::try_from(step).expect("small"))
                .count();
            let text = format!(
                "Count up from 1 to {most} in steps of {step}, line by line. How many numbers is that?"
            );
            (text, count.to_string())
        }
        Kind::Fence => {
            let (length, width) = (number(30, 400), number(12, 29));
            let text = format!(
                "A garden is a rectangle {length} metres long and {width} metres wide. How many metres of fence go around it?"
            );
            (text, (2 * (length + width)).to_string())
        }
    }
}
