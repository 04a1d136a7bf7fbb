//! Faults that were reported for other projects, where their lists lie beside this one: each case has tests of
//! what is right, here or in the crate that it is about. A case without tests is an error, and so is a test
//! that isn't there.

use std::path::Path;

use serde_json::Value;

/// A test: its file from the workspace's root, and its name.
type Test = (&'static str, &'static str);

/// A reported fault and the tests of what is right.
struct Case {
    id: &'static str,
    tests: &'static [Test],
}

const CHAT_TEMPLATE: &str = "model/src/chat_template/tests.rs";
const LOSS: &str = "model/src/transformer/loss.rs";
const WEIGHTS: &str = "model/tests/all/weights.rs";
const CONVERSATION: &str = "trainer/src/conversation.rs";
const RESUME: &str = "trainer/tests/all/resume.rs";
const LEFT_OUT: &str = "orchestrator/tests/all/full_training/left_out.rs";
const UNATTENDED: &str = "orchestrator/tests/all/unattended.rs";

/// Lists, of which each has its cases.
const LISTS: [(&str, &[Case]); 4] = [
    ("candle", &CANDLE),
    ("sft_masks_templates", &MASKS),
    ("resume_checkpoints", &CHECKPOINTS),
    ("evolution", &EVOLUTION),
];

const CANDLE: [Case; 5] = [
    Case {
        id: "cnd-01",
        tests: &[
            (
                "trainer/src/self_check.rs",
                "the_self_check_names_a_parameter_without_gradient",
            ),
            (
                "model/tests/all/golden.rs",
                "losses_and_gradients_equal_pytorchs",
            ),
        ],
    },
    Case {
        id: "cnd-03",
        tests: &[
            (
                WEIGHTS,
                "what_is_missing_left_over_or_of_another_shape_is_named",
            ),
            (
                WEIGHTS,
                "a_tied_head_may_be_repeated_but_not_an_untied_one_left_out",
            ),
            (WEIGHTS, "shards_are_joined_and_each_of_the_index_is_needed"),
        ],
    },
    Case {
        id: "cnd-04",
        tests: &[(LOSS, "what_does_not_count_does_not_thin_the_mean")],
    },
    Case {
        id: "cnd-05",
        tests: &[(
            RESUME,
            "a_run_stopped_after_any_step_ends_in_the_same_bytes",
        )],
    },
    Case {
        id: "cnd-06",
        tests: &[("trainer/src/optimizer.rs", "small_updates_do_not_vanish")],
    },
];

const MASKS: [Case; 7] = [
    Case {
        id: "sft-01",
        tests: &[
            (
                "trainer/src/dataset.rs",
                "a_row_without_targets_is_refused_by_name_and_too_many_stop_the_run",
            ),
            (LOSS, "what_does_not_count_does_not_thin_the_mean"),
            (
                "orchestrator/src/training_rows.rs",
                "rows_in_which_nothing_counts_add_to_what_is_refused_unless_their_replies_were_cut",
            ),
        ],
    },
    Case {
        id: "sft-02",
        tests: &[(
            LOSS,
            "a_token_counts_by_the_prediction_before_it_and_no_other",
        )],
    },
    Case {
        id: "sft-03",
        tests: &[
            (CHAT_TEMPLATE, "the_mask_belongs_to_the_final_rendering"),
            (
                CONVERSATION,
                "what_a_template_marks_counts_though_it_drops_earlier_reasoning",
            ),
        ],
    },
    Case {
        id: "sft-06",
        tests: &[
            (
                "model/src/tokenizer/tests.rs",
                "a_rendered_start_token_is_never_doubled",
            ),
            (CONVERSATION, "a_second_start_token_is_refused"),
            (
                LEFT_OUT,
                "prompts_that_a_server_gave_two_start_tokens_are_not_learnt_from",
            ),
        ],
    },
    Case {
        id: "sft-07",
        tests: &[
            (
                CONVERSATION,
                "the_token_that_the_template_ends_turns_with_counts_and_another_is_none",
            ),
            (
                "trainer/src/dataset.rs",
                "rows_in_which_no_end_of_a_turn_counts_are_refused_together",
            ),
            (LEFT_OUT, "where_no_end_of_a_turn_counts_nothing_is_trained"),
        ],
    },
    Case {
        id: "sft-09",
        tests: &[
            (CHAT_TEMPLATE, "generation_blocks_become_byte_ranges"),
            (CHAT_TEMPLATE, "string_methods_follow_python"),
            (CHAT_TEMPLATE, "refusals_carry_the_words_of_the_template"),
            (CHAT_TEMPLATE, "time_is_what_the_caller_says"),
            (
                CHAT_TEMPLATE,
                "missing_constructs_are_reported_when_loading_with_their_line",
            ),
        ],
    },
    Case {
        id: "sft-10",
        tests: &[(CHAT_TEMPLATE, "tojson_writes_what_python_writes")],
    },
];

const CHECKPOINTS: [Case; 3] = [
    Case {
        id: "res-01",
        tests: &[
            (
                RESUME,
                "a_damaged_newest_checkpoint_is_set_aside_for_the_one_before",
            ),
            (
                RESUME,
                "a_save_that_was_killed_anywhere_leaves_the_checkpoint_before_it",
            ),
        ],
    },
    Case {
        id: "res-03",
        tests: &[(
            RESUME,
            "a_stop_in_the_second_pass_serves_what_is_left_of_it",
        )],
    },
    Case {
        id: "res-05",
        tests: &[(RESUME, "a_training_whose_directory_was_moved_goes_on")],
    },
];

const EVOLUTION: [Case; 5] = [
    Case {
        id: "evo-01",
        tests: &[
            (
                "orchestrator/src/gate/simulate/tests.rs",
                "the_sequential_gate_keeps_noise_out_finds_ten_points_and_spends_less_than_a_fixed_design",
            ),
            (
                "orchestrator/src/gate/sequential.rs",
                "a_single_pair_never_decides_for_a_candidate",
            ),
            (
                "orchestrator/src/gate/contest/tests.rs",
                "one_pair_on_v_in_decides_nothing_in_the_fixed_modes",
            ),
        ],
    },
    Case {
        id: "evo-03",
        tests: &[
            (
                "rollout/src/verifier/command.rs",
                "what_is_no_verdict_is_not_taken_for_one",
            ),
            ("rollout/tests/all/limits.rs", "budgets_end_a_rollout"),
            (
                "orchestrator/src/gate/decide.rs",
                "what_measured_nothing_gains_nothing",
            ),
        ],
    },
    Case {
        id: "evo-05",
        tests: &[
            (
                UNATTENDED,
                "a_run_stops_at_each_of_its_limits_and_comes_to_the_same_with_more",
            ),
            (
                "orchestrator/tests/all/ahead.rs",
                "a_run_that_is_stopped_stores_what_is_in_flight_and_makes_nothing_again",
            ),
        ],
    },
    Case {
        id: "evo-07",
        tests: &[
            (
                UNATTENDED,
                "a_run_stops_at_each_of_its_limits_and_comes_to_the_same_with_more",
            ),
            (UNATTENDED, "what_a_killed_process_has_stored_is_counted"),
            (UNATTENDED, "tokens_that_a_server_leaves_out_are_estimated"),
            (
                UNATTENDED,
                "a_run_whose_process_is_frozen_is_stale_until_it_goes_on",
            ),
        ],
    },
    Case {
        id: "evo-08",
        tests: &[
            (
                "orchestrator/tests/all/config.rs",
                "a_problem_that_stands_twice_would_cross_splits",
            ),
            (
                "rollout/src/task.rs",
                "the_hash_ignores_spacing_punctuation_and_markup",
            ),
            (
                "orchestrator/tests/all/golds.rs",
                "right_answers_reach_no_prompt_and_no_program_and_held_out_problems_no_critic",
            ),
            (
                "orchestrator/src/report.rs",
                "every_decision_that_used_the_gates_problems_is_counted",
            ),
        ],
    },
];

fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the workspace")
}

/// Whether a function of this name is a test there.
fn is_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let head = format!("fn {name}(");
    let place = lines.iter().position(|line| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.starts_with(&head)
    });
    let before = &lines[..place.unwrap_or(0)];
    let lines = before.iter().rev();
    let mut attributes = lines.take_while(|line| line.starts_with("#["));
    attributes.any(|line| line.contains("test"))
}

#[test]
fn every_reported_case_has_its_tests() {
    for (list, cases) in LISTS {
        for Case { id, tests } in cases {
            assert!(!tests.is_empty(), "no test for {id}");
            for (file, name) in *tests {
                let source = std::fs::read_to_string(root().join(file)).expect(file);
                assert!(is_test(&source, name), "{id}: no test {name} in {file}");
            }
        }
        let path = root().join(format!("../shared/cases/{list}.jsonl"));
        let Ok(reported) = std::fs::read_to_string(path) else {
            println!("skipped: the list of cases {list} is not here");
            continue;
        };
        for line in reported.lines() {
            let case: Value = serde_json::from_str(line).expect("JSON");
            let id = case["id"].as_str().expect("an id");
            assert!(cases.iter().any(|case| case.id == id), "no test for {id}");
        }
    }
}
