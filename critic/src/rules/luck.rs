//! Right answers that the tool didn't give.

use harness::Harness;
use rollout::Trajectory;

use super::text::{is_rounding, numbers, values};
use super::view::View;

/// Whether a rollout that called tools came to its answer without them: none of the results gave the
/// number that was answered, or all of them were errors. Learning from it would teach to ignore
/// results. What can't be told, such as an answer or a result without numbers, isn't luck.
pub fn is_lucky(harness: &Harness, trajectory: &Trajectory) -> bool {
    let view = View::new(harness, trajectory);
    let Some(answer) = view.value() else {
        return false;
    };
    if view.results().next().is_none() {
        return false;
    }
    if view.last_good_result().is_none() {
        return true;
    }
    let answered = values(answer);
    let shown: Vec<f64> = view
        .good_results()
        .flat_map(|result| numbers(view.output(result)))
        .collect();
    let is_given = |exact: &f64| answered.iter().any(|answer| is_rounding(*exact, *answer));
    !answered.is_empty() && !shown.is_empty() && !shown.iter().any(is_given)
}

#[cfg(test)]
mod tests {
    use rollout::Event;
    use sandbox::Exit;

    use super::*;
    use crate::testing::{Build, failed, start};

    fn is_luck(trajectory: Trajectory) -> bool {
        is_lucky(&start(), &trajectory)
    }

    #[test]
    fn an_answer_that_no_result_gives_is_luck() {
        let called = || failed(1).call("print(5 * 7)").result("35", None);
        assert!(is_luck(called().answered("12")));
        assert!(!is_luck(called().answered("35")));
        assert!(!is_luck(called().answered("35.0 kites")));
        // The first of two programs, a longer output, fewer digits, a fraction.
        let again = called().call("print(5 - 7)").result("-2", None);
        assert!(!is_luck(again.answered("35")));
        let long = failed(1).call("code").result("x = 12\ny = 3.14159", None);
        assert!(!is_luck(long.clone().answered("12")));
        assert!(!is_luck(long.clone().answered("3.14")));
        assert!(is_luck(long.answered("7")));
        let half = failed(1).call("code").result("0.5", None);
        assert!(!is_luck(half.answered("\\frac{1}{2}")));
    }

    #[test]
    fn an_answer_beside_errors_alone_is_luck_and_one_without_tools_is_not() {
        let error = || {
            let exit = Exit::Code(1);
            let event = Event::ToolError { exit };
            failed(1)
                .call("print(x)")
                .result("[error] NameError: name 'x' is not defined", Some(event))
        };
        assert!(is_luck(error().answered("12")));
        let mended = error().call("print(12)").result("12", None);
        assert!(!is_luck(mended.answered("12")));
        assert!(!is_luck(failed(1).answered("12")));
        assert!(!is_luck(
            failed(1).call("code").result("True", None).answered("12")
        ));
        assert!(!is_luck(
            failed(1).call("code").result("12", None).answered("even")
        ));
    }
}
