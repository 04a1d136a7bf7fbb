//! Tables for the terminal.

mod narrow;

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle, presets};

use self::narrow::Sheet;
use super::paint::terminal_columns;
use crate::counted::{are, counted};
use crate::gate::decide::Verdict;
use crate::gate::evidence::PassRate;
use crate::gate::spend::{Spend, Spending, digits};
use crate::report::{Likeness, Matrix, Report, SaturationRow, Tally};
use crate::trained_weights::short;

/// Rules above, below and under the header.
const RULED: TableStyle = TableStyle::new()
    .top_border(LineStyle::none().fill('─').junction('─'))
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

fn plain(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(header.to_vec());
    table
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(RULED).set_header(header.to_vec());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn percent(value: f64) -> String {
    format!("{:.1}%", 100.0 * value)
}

fn cell(rate: Option<PassRate>) -> String {
    match rate {
        Some(rate) => format!(
            "{} [{:.1}, {:.1}]",
            percent(rate.pass_at_1),
            100.0 * rate.ci95[0],
            100.0 * rate.ci95[1]
        ),
        None => "not measured yet".into(),
    }
}

/// Figures under a header, the first column their names.
pub(crate) fn figures(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = table(header);
    for row in rows {
        table.add_row(row);
    }
    table.to_string()
}

/// The whole report as text.
pub(crate) fn report(report: &Report) -> String {
    let mut out = String::new();
    let mut rows = table(&[
        "sealed test",
        "pass@1",
        "95% interval",
        "solved",
        "harness",
        "weights",
    ]);
    let mut add = |label: String, rate: PassRate, version: &str, adapter: Option<&str>| {
        rows.add_row([
            label,
            percent(rate.pass_at_1),
            format!("{:.1} to {:.1}", 100.0 * rate.ci95[0], 100.0 * rate.ci95[1]),
            format!("{} of {}", rate.correct, rate.n),
            version.to_owned(),
            weights(adapter),
        ]);
    };
    if let Some(baseline) = report.test.baseline {
        add("baseline".into(), baseline, "v1", None);
    }
    for round in &report.test.rounds {
        let crate::report::RoundCell {
            pass_at_1,
            ci95,
            correct,
            n,
            ..
        } = *round;
        let rate = PassRate {
            pass_at_1,
            ci95,
            correct,
            n,
        };
        add(
            format!("round {}", round.round),
            rate,
            &round.version,
            round.adapter.as_deref(),
        );
    }
    out.push_str(&format!(
        "run {}{}\n\n",
        report.run,
        if report.is_finished {
            ""
        } else {
            " (not finished)"
        }
    ));
    out.push_str(&format!("{rows}\n\n"));
    // Of a run in progress the last round that was scored is one among several.
    let of = match report.test.rounds.last() {
        Some(last) if !report.is_finished => {
            format!("pass@1 after round {}, same problems", last.round)
        }
        _ => "pass@1, same problems".to_owned(),
    };
    let mut matrix = table(&[of.as_str(), "old harness", "new harness"]);
    let m = &report.matrix;
    matrix.add_row([
        "old weights".into(),
        cell(m.old_weights_old_harness),
        cell(m.old_weights_new_harness),
    ]);
    matrix.add_row([
        "new weights".into(),
        cell(m.new_weights_old_harness),
        cell(m.new_weights_new_harness),
    ]);
    out.push_str(&format!("{matrix}\n\n"));
    out.push_str(&by_round(report));
    if let Some(debt) = m.harness_debt {
        out.push_str(&format!(
            "harness debt: under the old harness the new weights solve {:.1} points {}\n",
            100.0 * debt.abs(),
            if debt < 0.0 { "more" } else { "less" }
        ));
    }
    let tally = |tally: &Tally| {
        let mut text = format!("{} accepted, {} rejected", tally.accepted, tally.rejected);
        if tally.inconclusive > 0 {
            text.push_str(&format!(", {} inconclusive", tally.inconclusive));
        }
        text
    };
    out.push_str(&format!(
        "patches: {}; weight updates: {}\n",
        tally(&report.patches),
        tally(&report.weights)
    ));
    let rollouts = counted(report.gate.rollouts, "rollout");
    match report.gate.rollouts_per_acceptance {
        Some(each) => out.push_str(&format!(
            "the gate took {rollouts}, {each:.0} for each accepted change\n"
        )),
        None if report.gate.rollouts > 0 => {
            let so_far = if report.is_finished { "" } else { " so far" };
            out.push_str(&format!(
                "the gate took {rollouts}, and accepted nothing{so_far}\n"
            ));
        }
        None => {}
    }
    if report.gate.decisions > 0 {
        out.push_str(&format!(
            "the gate's problems have served {}, the sealed test none\n",
            counted(report.gate.decisions, "decision")
        ));
    }
    for row in &report.failures {
        out.push_str(&format!("{}\n", row.outline()));
    }
    for row in &report.saturation {
        let SaturationRow {
            round,
            rollouts: [before, after],
            at_most,
            ..
        } = row;
        match row.verdict {
            Likeness::Different => {}
            Likeness::Alike => out.push_str(&format!(
                "round {round} began with the failures of the round before (at most {:.0}% end otherwise): \
                 training may be saturated\n",
                100.0 * at_most
            )),
            Likeness::TooFew => {
                let needed = row.needed.map_or_else(String::new, |needed| {
                    format!(
                        "; with shares like these it takes {needed} in each round \
                         (harness_loop.diagnose_tasks)"
                    )
                });
                out.push_str(&format!(
                    "round {round}: {before} and {after} diagnosed rollouts are too few to tell whether \
                     training still changes what fails{needed}\n"
                ));
            }
        }
    }
    let tried = report.removals.iter().filter(|row| !row.is_untested);
    let removed = tried.clone().filter(|row| row.version.is_some());
    let removed: Vec<&str> = removed.map(|row| row.removes.as_str()).collect();
    let tried = tried.count();
    if tried > 0 {
        out.push_str(&format!(
            "accepted patches tried without: {tried}; removed: {}\n",
            if removed.is_empty() {
                "none".to_owned()
            } else {
                removed.join(", ")
            }
        ));
    }
    // Each time names all that it can't try; the last one is what is left.
    let last = report.removals.iter().map(|row| row.round).max();
    let untested = report.removals.iter().filter(|row| row.is_untested);
    for row in untested.filter(|row| Some(row.round) == last) {
        out.push_str(&format!(
            "round {}: not tried without {} ({} {}): {}\n",
            row.round,
            row.removes,
            row.dimension,
            row.summary,
            row.verdict.objection().unwrap_or_default()
        ));
    }
    for row in &report.retention {
        out.push_str(&format!("round {}: {}\n", row.round, row.outline()));
    }
    for row in &report.references {
        out.push_str(&format!("round {}: {}\n", row.round, row.outline()));
    }
    for row in &report.rollbacks {
        out.push_str(&format!("round {}: {}\n", row.round, row.outline()));
    }
    for row in &report.left_out_rows {
        for told in [row.told(), row.told_of_ends()].into_iter().flatten() {
            out.push_str(&format!("round {}: {told}\n", row.round));
        }
    }
    if report.left_out > 0 {
        out.push_str(&format!(
            "{} {} left out: policy or sandbox failed each time\n",
            counted(report.left_out, "rollout"),
            are(report.left_out)
        ));
    }
    if let Some(foresight) = &report.foresight {
        out.push_str(&format!(
            "accepted patches: {} predicted to be fixed, {} of them fixed ({:.1} by chance, {} in all); {} at risk, {} of \
             them broke ({:.1} by chance, {} in all); {:+} net\n",
            counted(foresight.fixes_predicted, "failure"),
            foresight.fixes_foreseen,
            foresight.fixes_by_chance,
            foresight.fixes,
            counted(foresight.risks_predicted, "solved problem"),
            foresight.breaks_foreseen,
            foresight.breaks_by_chance,
            foresight.breaks,
            foresight.net
        ));
    }
    if let Some(critic) = &report.critic {
        out.push_str(&format!(
            "the critic's model took {}, {} read and {} written{}; {}, {} with rules{}\n",
            counted(critic.calls, "request"),
            counted(critic.prompt_tokens, "token"),
            critic.completion_tokens,
            critic
                .cost
                .map_or_else(String::new, |cost| format!(", cost {}", digits(cost))),
            counted(critic.records, "record"),
            counted(critic.disagreements, "disagreement"),
            match critic.skipped {
                0 => String::new(),
                skipped => format!(", {} skipped", counted(skipped, "critique")),
            }
        ));
    }
    out.push_str(&format!(
        "{}, {}, {} of running",
        counted(report.rollouts, "rollout"),
        counted(report.generated_tokens, "generated token"),
        duration(report.wall_s)
    ));
    if let Some(baseline) = report.test.baseline {
        out.push_str(&format!(
            "; pass@1 is one attempt at each of {}, sampled as the harness says",
            counted(baseline.n, "problem")
        ));
    }
    out
}

/// What the arms of every decision took, a rollout on average; none where nothing was measured.
pub(crate) fn spending(report: &Report) -> Option<String> {
    let patches = report.patch_decisions.iter().map(|row| {
        let (round, cycle) = (row.round, row.iteration);
        let what = format!("round {round}.{cycle} {} {}", row.dimension, row.summary);
        (what, &row.verdict, row.spending)
    });
    let removals = report.removals.iter().map(|row| {
        let what = format!("round {} without {}", row.round, row.removes);
        (what, &row.verdict, row.spending)
    });
    let trained = report.weight_decisions.iter().map(|row| {
        let what = format!(
            "round {} weights {}",
            row.round,
            weights(Some(row.adapter.as_str()))
        );
        (what, &row.verdict, row.spending)
    });
    let decisions: Vec<(String, &Verdict, Spending)> = patches
        .chain(removals)
        .chain(trained)
        .filter_map(|(what, verdict, spending)| Some((what, verdict, spending?)))
        .collect();
    if decisions.is_empty() {
        return None;
    }
    let has_prices = decisions
        .iter()
        .any(|(_, _, spending)| spending.candidate.cost.is_some());
    let mut header = vec![
        "a rollout takes, before → with it",
        "decision",
        "seconds",
        "prompt tokens",
        "generated tokens",
    ];
    if has_prices {
        header.push("cost");
    }
    let rows = decisions.into_iter().map(|(what, verdict, spending)| {
        let both = |mean: fn(&Spend) -> Option<f64>| {
            let shown = |spend: &Spend| mean(spend).map_or_else(|| "-".to_owned(), digits);
            let (before, after) = (shown(&spending.incumbent), shown(&spending.candidate));
            format!("{before} → {after}")
        };
        let mut row = vec![
            what,
            verdict.name().to_owned(),
            both(Spend::seconds_per_problem),
            both(Spend::prompt_tokens_per_problem),
            both(Spend::tokens_per_problem),
        ];
        if has_prices {
            row.push(both(Spend::cost_per_problem));
        }
        row
    });
    let sheet = Sheet {
        style: table,
        header: &header,
        rows: rows.collect(),
        text: Some(header[0]),
        spare: &[],
    };
    Some(sheet.laid_out(terminal_columns()))
}

/// The 2×2 of every round, where that of trained weights is known of more than the last one.
fn by_round(report: &Report) -> String {
    let rounds = &report.test.rounds;
    let mut latest_first = rounds.iter().rev();
    let last = latest_first.next().map(|round| &round.matrix);
    // Cells of a round that ended like the last one are known without having been made.
    let is_another =
        |matrix: &Matrix| matrix.harness_debt.is_some() && last.is_some_and(|last| last != matrix);
    if !latest_first.any(|round| is_another(&round.matrix)) {
        return String::new();
    }
    let mut all = table(&["pass@1", "new harness", "new weights", "both", "debt"]);
    let known = |rate: Option<PassRate>| rate.map_or("-".into(), |rate| cell(Some(rate)));
    for round in rounds {
        let m = &round.matrix;
        all.add_row([
            format!("round {}", round.round),
            known(m.old_weights_new_harness),
            known(m.new_weights_old_harness),
            known(m.new_weights_new_harness),
            m.harness_debt
                .map_or("-".into(), |debt| format!("{:+.1}", 100.0 * debt)),
        ]);
    }
    format!("{all}\n\n")
}

/// `base`, or the beginning of the adapter's id.
fn weights(adapter: Option<&str>) -> String {
    adapter.map_or_else(|| "base".to_owned(), short)
}

/// Seconds as `1 h 02 min` or `3 min 20 s`.
pub(crate) fn duration(seconds: i64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest} s"),
        (0, _) => format!("{minutes} min {rest:02} s"),
        _ => format!("{hours} h {minutes:02} min"),
    }
}

/// The beginning of a text, so that a row stays a line.
pub(crate) fn shorten(text: &str, characters: usize) -> String {
    if text.chars().count() <= characters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(characters - 1).collect();
    format!("{}…", kept.trim_end())
}

/// Rows under a header, for `history` and `status`. On a terminal that is too narrow for them the column `text`
/// stands in lines of its own.
pub(crate) fn rows(header: &[&str], rows: Vec<Vec<String>>, text: Option<&str>) -> String {
    listing(header, rows, text, &[])
}

/// The same, where the columns `spare` can be missed on such a terminal.
pub(crate) fn listing(
    header: &[&str],
    rows: Vec<Vec<String>>,
    text: Option<&str>,
    spare: &[&str],
) -> String {
    let sheet = Sheet {
        style: plain,
        header,
        rows,
        text,
        spare,
    };
    sheet.laid_out(terminal_columns())
}

/// Sentences, each a line, as wide as the terminal; tables among them stay as they are.
pub(crate) fn sentences(text: &str) -> String {
    narrow::sentences(text, terminal_columns())
}

#[cfg(test)]
mod tests {
    use critic::Foresight;

    use super::*;
    use crate::report::{RoundCell, kind};
    use crate::store::Store;

    #[tokio::test]
    async fn what_fails_with_new_weights_is_shown_beside_what_failed_before() {
        let here = tempfile::tempdir().expect("directory");
        let store = Store::open(here.path()).await.expect("a store");
        for (number, policy) in ["m", "m+abc"].into_iter().enumerate() {
            let row = serde_json::json!({"round": number + 1, "version": "v1", "policy": policy, "rollouts": 8,
                "failed": 4 - number, "dropped_records": 0, "causes": {"agent_error": 4 - number}, "clusters": []});
            let recorded = store.record_step(policy, kind::DIAGNOSE, 1, &row, 0).await;
            recorded.expect("a step");
        }
        let text = report(&Report::read(&store).await.expect("a report"));
        for failed in [4, 3] {
            let line = format!("failed {failed} of 8 diagnosed rollouts: {failed} agent_error\n");
            assert!(text.contains(&line), "{text}");
        }
    }

    #[tokio::test]
    async fn cells_of_a_run_in_progress_are_shown_as_they_come() {
        let here = tempfile::tempdir().expect("directory");
        let store = Store::open(here.path()).await.expect("a store");
        let mut shown = Report::read(&store).await.expect("a report");
        let missing = |text: &str| text.matches("not measured yet").count();
        let before = report(&shown);
        assert_eq!(missing(&before), 4);
        // Nothing is said of what there isn't.
        assert!(before.ends_with("\n0 rollouts, 0 generated tokens, 0 s of running"));
        assert!(!before.contains("the gate took"), "{before}");
        let rate = PassRate {
            pass_at_1: 0.5,
            ci95: [0.2, 0.8],
            correct: 5,
            n: 10,
        };
        shown.matrix = Matrix {
            old_weights_old_harness: Some(rate),
            new_weights_new_harness: Some(rate),
            ..Matrix::default()
        };
        shown.test.rounds.push(RoundCell {
            round: 3,
            version: "v2".into(),
            policy: "m".into(),
            adapter: None,
            pass_at_1: rate.pass_at_1,
            ci95: rate.ci95,
            correct: rate.correct,
            n: rate.n,
            matrix: shown.matrix.clone(),
        });
        let text = report(&shown);
        assert!(text.contains("pass@1 after round 3, same"), "{text}");
        assert_eq!(missing(&text), 2, "{text}");
        assert_eq!(text.matches("50.0% [20.0, 80.0]").count(), 2, "{text}");
        shown.test.baseline = Some(rate);
        assert!(report(&shown).contains("; pass@1 is one attempt at each of 10 problems"));
        shown.gate.decisions = 1;
        shown.gate.rollouts = 400;
        let text = report(&shown);
        assert!(text.contains("have served 1 decision, the"), "{text}");
        let nothing = "the gate took 400 rollouts, and accepted nothing";
        assert!(text.contains(&format!("{nothing} so far\n")), "{text}");
        shown.saturation.push(SaturationRow {
            round: 2,
            rollouts: [24, 24],
            distance: 0.04,
            at_most: 0.28,
            verdict: Likeness::TooFew,
            needed: Some(32),
        });
        let text = report(&shown);
        assert!(
            text.contains("24 and 24 diagnosed rollouts are too few to tell")
                && text.contains("it takes 32 in each round"),
            "{text}"
        );
        shown.foresight = Some(Foresight {
            fixes_predicted: 6,
            fixes: 4,
            fixes_foreseen: 3,
            fixes_by_chance: 2.5,
            breaks: 1,
            net: 3,
            ..Foresight::default()
        });
        let text = report(&shown);
        let line = "6 failures predicted to be fixed, 3 of them fixed (2.5 by chance, 4 in all); 0 solved problems at \
                    risk, 0 of them broke (0.0 by chance, 1 in all); +3 net\n";
        assert!(text.contains(line), "{text}");
        shown.is_finished = true;
        let text = report(&shown);
        assert!(text.contains("pass@1, same problems"), "{text}");
        assert!(text.contains(&format!("{nothing}\n")), "{text}");
    }
}
