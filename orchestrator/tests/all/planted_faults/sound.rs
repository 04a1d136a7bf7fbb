//! The working harnesses of all lists: no text of theirs is blamed.

use std::collections::BTreeSet;

use super::*;

/// What a text is blamed for beside a rollout that went as it says. The other rules on texts look at
/// whether rollouts fail.
const WAYS: [&str; 16] = [
    "tool_forbidden",
    "_against_tool",
    "_alters_answer",
    "_names_unknown_tool",
    "_names_missing_code",
    "_asks_for_words",
    "_asks_for_more",
    "_gives_unread_marks",
    "_misguides_print",
    "_asks_for_several",
    "_sends_answer_to_tool",
    "_limits_calls",
    "_asks_first",
    "_encodes_programs",
    "_spoils_formula",
    "_lends_numbers",
];
/// Rules that look at what was called and what came of it.
const OTHERS: [&str; 4] = [
    "answer_tool",
    "fence_fits_several_tools",
    "skill_code_shapes_result",
    "skill_code_shadows",
];
/// Problems of each harness, enough for what several rollouts show.
const PROBLEMS: usize = 8;

/// Also the solved rollouts are read as if they had failed: what a good text has a model do is no fault.
#[tokio::test(flavor = "multi_thread")]
async fn the_critic_blames_no_text_of_a_working_harness() {
    let place = Place::new();
    let tools = Remembering::new(open_sandbox(&place).await);
    let lists = [
        planted::faults(),
        reworded::faults(),
        unusual::faults(),
        everyday::faults(),
        handover::faults(),
    ];
    let mut seen = BTreeSet::new();
    for fault in lists.into_iter().flatten() {
        let harness = Arc::new((fault.working)());
        let name = format!("{} {:?}", harness.id(), fault.kinds);
        if !seen.insert(name) {
            continue;
        }
        let directory = place.path().join(format!("sound-{}", seen.len()));
        let scene = Scene {
            config: CONFIG,
            splits: splits(&fault),
            directory: &directory,
            is_aloud: false,
        };
        let workshop = scene.with_tools(&harness, Arc::new(tools.clone())).await;
        let policy: Arc<dyn Policy> = Arc::new(Reader::new());
        let trials = trials(&workshop.splits().evolve[..PROBLEMS]);
        let rolled = workshop
            .roll("evolve", &policy, &harness, Split::Evolve, &trials)
            .await
            .expect("rollouts");
        let mut rolled: Vec<Trajectory> = rolled.into_iter().flatten().collect();
        for trajectory in &mut rolled {
            trajectory.verdict.correct = false;
        }
        let critic = RulesCritic {
            follows_grammars: true,
        };
        for record in critic.diagnose(&harness, &rolled).records {
            let rule = record.rule.as_str();
            let is_blame = WAYS.iter().any(|way| rule.ends_with(way)) || OTHERS.contains(&rule);
            assert!(
                !is_blame,
                "{}: {rule}: {}",
                fault.name, record.evidence.quote
            );
        }
    }
    println!("{} working harnesses", seen.len());
}
