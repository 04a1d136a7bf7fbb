use super::amounts::converts;
use super::*;
use crate::testing::start;

#[test]
fn what_speaks_against_a_tool() {
    let harness = start();
    for sentence in [
        "Never use tools like python.",
        "Work it out in your head.",
        "It is quicker to do sums in your head.",
        "Do not call python for small numbers.",
        "Never use it for calculations.",
        "The tool is not for calculations.",
        "Solve this without any tool, please.",
        "Don’t use the tool: solve it yourself.",
        "You must not write any code here.",
        "Avoid the python tool.",
        "Use no tools.",
        "The tool isn't meant for arithmetic.",
        "Code is not needed for this.",
        "The interpreter and its code are unavailable today.",
        "Until further notice the tool is out of order.",
        "Python has been switched off after the move.",
        "Since the update the tool no longer responds.",
        "The tools are down for now.",
        "The python tool doesn't work before Monday.",
    ] {
        assert!(forbids_tool(&harness, sentence), "{sentence}");
    }
}

#[test]
fn what_only_says_how_a_tool_is_used() {
    let harness = start();
    for sentence in [
        "Numbers are calculated with the python tool, never in the head.",
        "Never calculate in your head.",
        "Do not work it out by hand.",
        "Call the tool instead of doing it mentally.",
        "Never answer without calling the python tool.",
        "Use it for every calculation and print the result.",
        "You may use the python tool to compute things.",
        "Do not use abbreviations.",
        "Avoid long texts.",
        "Do not call the tool again once it has printed the number.",
        "Never call the tool more than three times.",
        "Do not use python packages.",
        "Avoid comments in the program.",
        "Do not write a program that reads input.",
        "If no tool fits, answer directly.",
        "Code that prints is needed.",
        "Comments in the code are not needed.",
        "The tool is meant for arithmetic, not for prose.",
        "The tool is called python; there is no other tool.",
        "The tool was down on Monday and is back.",
        "If the tool is down, say so.",
        "Write the numbers down in the program.",
        "The network is unreachable from a program.",
        "The program is off by one where it counts from zero.",
        "Code that doesn't run is written again.",
    ] {
        assert!(!forbids_tool(&harness, sentence), "{sentence}");
    }
}

#[test]
fn what_asks_for_further_calls() {
    for sentence in [
        "Run every program three times.",
        "Call the tool again to be sure.",
    ] {
        assert!(asks_for_more(sentence), "{sentence}");
    }
    for sentence in [
        "Do not call the tool again.",
        "Call the tool again if it fails.",
        "Several kites fly.",
        "Call the tool.",
    ] {
        assert!(!asks_for_more(sentence), "{sentence}");
    }
}

#[test]
fn what_withholds_an_answer() {
    for sentence in [
        "Do not state the result.",
        "Never reveal the number.",
        "Keep the number to yourself.",
        "Don't answer yet.",
    ] {
        assert!(withholds_answer(sentence), "{sentence}");
    }
    for sentence in [
        "Never answer without calling the tool.",
        "Do not write anything else than the number.",
        "Do not give units with the number.",
        "Give the answer in a box.",
    ] {
        assert!(!withholds_answer(sentence), "{sentence}");
    }
    assert!(names_other_form("Give the result with its unit."));
    assert!(!names_other_form("Give the result without units."));
}

#[test]
fn what_asks_for_a_bare_answer() {
    for sentence in [
        "Reply with the number only.",
        "Answer immediately.",
        "Give nothing but the number.",
    ] {
        assert!(asks_for_bare_answer(sentence), "{sentence}");
    }
    for sentence in [
        "Answer only after the program has run.",
        "Write only one program.",
        "Do not just answer.",
        "Give the answer in a box.",
    ] {
        assert!(!asks_for_bare_answer(sentence), "{sentence}");
    }
}

#[test]
fn what_alters_an_answer() {
    let rounding = "Round the answer to the nearest ten.";
    assert!(alters(rounding, 37.0, 40.0));
    assert!(!alters(rounding, 37.0, 39.0));
    assert!(!alters(rounding, 37.0, 90.0));
    assert!(alters(
        "Add one to every number that is printed.",
        37.0,
        38.0
    ));
    assert!(alters("The answer is half of the output.", 38.0, 19.0));
    assert!(alters(
        "The answer is one more than the output.",
        38.0,
        39.0
    ));
    assert!(!alters("Give the answer in a box.", 37.0, 38.0));
    // An arithmetic rule that speaks of no answer tells how to calculate, not what to reply.
    assert!(!alters("Divide by 2 for pairs.", 38.0, 19.0));
    // Amounts that nothing is to be done with, when the model is off by as much.
    for sentence in [
        "The answer is one number, without units.",
        "Give no more than one number as the answer.",
        "Double-check the number before you answer.",
        "Turn around the two numbers of the result.",
    ] {
        assert!(!alters(sentence, 37.0, 38.0), "{sentence}");
        assert!(!alters(sentence, 37.0, 39.0), "{sentence}");
    }
    assert!(!alters("Check the number twice.", 37.0, 39.0));
}

#[test]
fn names_and_words_that_only_sound_like_them() {
    for sentence in [
        "Since Monday the tool is called calc.",
        "Call calc for every calculation.",
        "Call the calc with a program.",
        "Use `calc` first.",
        "The calc tool comes first.",
        "Write calc(program).",
    ] {
        assert!(names_tool(sentence, "calc"), "{sentence}");
    }
    let plain = "Call the tool and then give the answer in a box.";
    assert!(!names_tool(plain, "answer"));
    assert!(!names_tool(plain, "box"));
    for sentence in [
        "Start with import helpers.",
        "Calculate with the module helpers.",
        "It ends with print(helpers).",
        "Call helpers() first.",
        "Use helpers.total for sums.",
        "Set helpers = 5 first.",
    ] {
        assert!(names_code(sentence, "helpers"), "{sentence}");
    }
    for sentence in ["Ask the helpers.", "A program is a text of helpers"] {
        assert!(!names_code(sentence, "helpers"), "{sentence}");
    }
    assert!(!names_code("A program prints a number.", "a"));
}

#[test]
fn what_asks_for_words_and_what_only_has_some() {
    for sentence in [
        "Write the final answer in words.",
        "Give each number spelled out.",
        "The result in Roman numerals, please.",
    ] {
        assert!(asks_for_words(sentence), "{sentence}");
    }
    for sentence in [
        "Explain in words how you found the answer.",
        "Do not write the answer in words.",
        "Write the answer in a box.",
    ] {
        assert!(!asks_for_words(sentence), "{sentence}");
    }
    assert!(asks_for_length("Explain it in at least 300 words."));
    assert!(!asks_for_length("Write at least one program."));
}

#[test]
fn what_speaks_against_printing() {
    for sentence in [
        "The value is shown by itself, so print is no longer needed.",
        "There is no need to print anything.",
        "Do not print; the last value comes back.",
        "Never use print.",
        "End with the value instead of printing it.",
        "Printing is unnecessary here.",
    ] {
        assert!(forbids_print(sentence), "{sentence}");
    }
    for sentence in [
        "A program shows only what it prints, so it ends with print(result).",
        "What a program does not print is lost.",
        "If you don't print, there is no output.",
        "Do not print anything else.",
        "Don't print the intermediate values.",
        "Never end a program without printing.",
        "Don't forget to print the value.",
        "Do not answer instead of printing.",
        "The value is no longer needed.",
    ] {
        assert!(!forbids_print(sentence), "{sentence}");
    }
}

#[test]
fn what_asks_to_print_more_than_the_result() {
    for sentence in [
        "Print the total, then the number of boxes.",
        "Programs print all intermediate values.",
        "Finish by printing every input below the outcome.",
    ] {
        assert!(asks_to_print_more(sentence), "{sentence}");
    }
    for sentence in [
        "Take every step by itself, and print the result.",
        "First run the program, then print the value.",
        "Print only the result of all steps.",
        "Show all steps.",
    ] {
        assert!(!asks_to_print_more(sentence), "{sentence}");
    }
}

#[test]
fn which_version_of_python_is_meant() {
    for sentence in [
        "Runs Python 2 code.",
        "It is python2.7.",
        "Use the print statement.",
    ] {
        assert!(names_older_version(sentence), "{sentence}");
    }
    for sentence in ["Runs Python 3 code.", "Run Python 2 times.", "Python 3.12"] {
        assert!(!names_older_version(sentence), "{sentence}");
    }
}

#[test]
fn marks_and_the_programs_behind_them() {
    let found: Vec<&str> = marks("Put [CODE] before it, <run> after; 3 < 4 {{ n }}.").collect();
    assert_eq!(found, ["[CODE]", "<run>"]);
    assert!(has_program_behind(
        "So:\n[CODE]\nprint(12)\n[/CODE]",
        "[CODE]"
    ));
    assert!(has_program_behind("<run> print(12) </run>", "<run>"));
    assert!(!has_program_behind(
        "<think>\nx = 5 + 7\n</think>\nIt is 12.",
        "<think>"
    ));
    assert!(!has_program_behind("[A]\nNo.\n[B]\nprint(12)", "[A]"));
    assert!(!has_program_behind("print(12)", "[CODE]"));
}

#[test]
fn what_stands_between_digits() {
    for sentence in [
        "Set off thousands by a dot.",
        "We write large numbers with spaces, as in 12 500.",
        "Use an apostrophe as the thousands separator.",
    ] {
        assert!(parts_digits(sentence), "{sentence}");
    }
    for sentence in [
        "Write numbers without commas.",
        "Come to the point.",
        "Kites come in thousands.",
    ] {
        assert!(!parts_digits(sentence), "{sentence}");
    }
    assert!(is_parted("12500", "12.500") && is_parted("1234567", "1 234 567"));
    for (printed, answer) in [
        ("12500", "12500"),
        ("12500", "12.50"),
        ("12501", "12.500"),
        ("12", "1.2"),
        ("1234500", "1234.500"),
    ] {
        assert!(!is_parted(printed, answer), "{printed} {answer}");
    }
}

/// What repairs put into a harness misleads in none of these ways.
#[test]
fn what_the_catalogue_says_is_harmless() {
    let harness = start();
    let shipped = [
        include_str!("../../../catalogue/texts.yaml"),
        include_str!("../../../catalogue/skills.yaml"),
        include_str!("../../../catalogue/notes.yaml"),
    ];
    let sentences = shipped.iter().flat_map(|text| text.split([':', '.', '\n']));
    for sentence in sentences {
        let misleads = asks_for_several(sentence)
            || hands_over(&harness, sentence, true)
            || limits_calls(sentence).is_some()
            || asks_first(sentence)
            || asks_to_encode(sentence)
            || asks_to_define(sentence)
            || forbids_tool(&harness, sentence);
        assert!(!misleads, "{sentence}");
    }
}

#[test]
fn units_that_convert() {
    assert!(converts("That is in minutes; report hours.", 60.0));
    assert!(converts("Metres become kilometres.", 1000.0));
    assert!(!converts("That is in minutes; report hours.", 100.0));
    assert!(!converts("Pay cents for hours.", 36.0));
    assert!(!converts("Report whole euros.", 100.0));
    // As something asked for.
    assert_eq!(Amounts::exactly(100.0).weight("Pounds, not pence."), 4);
    assert_eq!(Amounts::exactly(100.0).weight("The kite is in a box."), 0);
}
