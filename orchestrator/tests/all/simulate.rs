//! `coharness gate simulate`.

use insta::assert_snapshot;

use crate::Place;

#[test]
fn the_gate_is_simulated_with_the_same_result_for_the_same_seed() {
    let place = Place::new();
    let simulate = |more: &[&str]| {
        let arguments = ["gate", "simulate", "--json"];
        let few = if more.contains(&"--decisions") {
            &[][..]
        } else {
            &["--decisions", "40"]
        };
        let arguments: Vec<&str> = arguments.iter().chain(few).chain(more).copied().collect();
        let output = place.command(&arguments).output().expect("runs");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        json
    };
    let all = simulate(&[]);
    let patches = &[-0.05, 0.0, 0.05, 0.1, 0.2, 0.4][..];
    let losses = &[-0.3, -0.2, -0.15, -0.1, -0.05, 0.0][..];
    for (mode, expected) in [
        ("paper", patches),
        ("confirmed", patches),
        ("sequential", patches),
        ("removal", &[-0.2, -0.1, -0.05, 0.0, 0.05][..]),
        ("retention", losses),
        ("reference", losses),
    ] {
        let cells = all[mode].as_array().expect("a list");
        let effects: Vec<f64> = cells.iter().filter_map(|c| c["effect"].as_f64()).collect();
        assert_eq!(effects, expected, "{mode}");
        for cell in cells {
            let share = |name: &str| cell[name].as_f64().expect("a number");
            let sum = share("accepted") + share("rejected") + share("inconclusive");
            assert!((sum - 1.0).abs() < 1e-9, "{cell}");
            assert!(share("rollouts") >= 120.0, "{cell}");
        }
    }
    assert_eq!(
        simulate(&["--mode", "sequential"])["sequential"],
        all["sequential"]
    );
    let other = simulate(&["--mode", "sequential", "--seed", "1"]);
    assert_ne!(other["sequential"], all["sequential"]);
    assert!(other.get("paper").is_none());

    // Several candidates are for the modes that have them, and take an arm each.
    let four = simulate(&["--candidates", "4", "--effects", "0.4"]);
    assert!(four.get("retention").is_none() && four.get("removal").is_some());
    assert_eq!(four["paper"][0]["rollouts"], 300.0);

    // Only decisions on patches have two sides, which may differ in the effect.
    let sides = ["--effects", "0.2", "--effect-out", "-0.3"];
    let torn = simulate(&sides);
    let modes: Vec<&String> = torn.as_object().expect("modes").keys().collect();
    assert_eq!(modes, ["confirmed", "paper", "sequential"]);
    assert_eq!(torn["sequential"][0]["effect"], 0.2);
    let accepted = torn["sequential"][0]["accepted"].as_f64();
    assert!(accepted.expect("a share") < 0.2, "{torn}");
    let table = place.run(&[&["gate", "simulate", "--decisions", "4"][..], &sides].concat());
    assert!(table.contains("in +20, out -30 points"), "{table}");

    // A pool that hardly fills one side takes fewer rollouts than two full ones.
    let small = simulate(&["--pool", "30", "--rate", "0.9", "--effects", "0.05"]);
    let rollouts = small["paper"][0]["rollouts"].as_f64();
    assert!(rollouts.expect("a number") < 100.0, "{small}");

    // Under greedy decoding the looks end with the problems, in every mode.
    let greedy = simulate(&["--greedy", "--effects", "0"]);
    for (mode, most) in [
        ("sequential", 120.0),
        ("removal", 120.0),
        ("retention", 200.0),
    ] {
        let rollouts = greedy[mode][0]["rollouts"].as_f64().expect("a number");
        assert!(rollouts <= most, "{mode}: {rollouts}");
    }

    // Where too few answers can be judged nothing is accepted, in runs either.
    let unclear = ["--undecided", "0.5", "--effects", "0.4"];
    assert_eq!(simulate(&unclear)["sequential"][0]["accepted"], 0.0);
    let table = place.run(&[&["gate", "simulate", "--decisions", "4"][..], &unclear].concat());
    assert!(
        table.contains(", 50.0% of the rollouts undecided"),
        "{table}"
    );
    let run = [
        "--proposals",
        "30",
        "--decisions",
        "4",
        "--undecided",
        "0.5",
    ];
    assert_eq!(simulate(&run)["found"], 0.0);

    // The more the arms share their luck, the fewer pairs it takes to let an idle patch go.
    let idle = |alike: &str| {
        let idle = ["--mode", "removal", "--effects", "0", "--alike", alike];
        let cells = simulate(&idle)["removal"].clone();
        cells[0]["rollouts"].as_f64().expect("a number")
    };
    assert!(idle("1") < 0.5 * idle("0"));
    // A larger suite shows a loss to be one more often.
    let shown = |problems: &str| {
        let loss = [
            "--mode",
            "retention",
            "--effects=-0.2",
            "--problems",
            problems,
        ];
        let cells = simulate(&loss)["retention"].clone();
        cells[0]["rejected"].as_f64().expect("a share")
    };
    assert!(shown("200") > shown("20"));
    // As `retention.max_drop_points` may be.
    let none = simulate(&["--mode", "retention", "--margin", "0", "--decisions", "40"]);
    assert!(none["retention"].is_array(), "{none}");

    let few = simulate(&["--proposals", "12", "--decisions", "2"]);
    assert_eq!(few["real"], 2);
    let run = simulate(&["--proposals", "30", "--real", "5", "--decisions", "4"]);
    assert_eq!((&run["proposals"], &run["real"]), (&30.into(), &5.into()));
    assert!(run["found"].as_f64().expect("a share") > 0.5, "{run}");
}

#[test]
fn the_simulation_explains_its_settings_and_refuses_impossible_ones() {
    let place = Place::new();
    assert_snapshot!(
        "help_of_gate_simulate",
        place.run(&["gate", "simulate", "--help"])
    );
    let refused = [
        &["--rate", "1.5"][..],
        &["--spread", "0,1"],
        &["--spread", "1"],
        &["--tasks", "1"],
        &["--effects", "0,20"],
        &["--level", "0"],
        &["--alike", "2"],
        &["--margin", "0"],
        &["--effects", "-0.05,-2"],
        &["--margin", "51", "--mode", "retention"],
        &["--proposals", "5", "--real", "6"],
        &["--candidates", "4", "--mode", "paper,retention"],
        &["--candidates", "4", "--proposals", "50"],
        &["--effect-out", "-5"],
        &["--effect-out", "-0.05", "--mode", "removal"],
        &["--effect-out", "-0.05", "--proposals", "50"],
        &["--pool", "80", "--mode", "reference"],
        &["--greedy", "--proposals", "50"],
        &["--undecided", "1.5"],
    ]
    .map(|settings| place.run(&[&["gate", "simulate"][..], settings].concat()));
    assert_snapshot!("impossible_simulations", refused.concat());
}
