//! What a sentence says of giving the answer.

use harness::Harness;

use super::{NEGATIONS, TOOL_WORDS, begin_with, has, is_tool_word, plain, tokens, tool_names};
use crate::rules::text::{has_any, is_among};

/// What an answer is called.
const ABOUT: &str = "answer answers result results output amount amounts number numbers figure figures \
                     value values total totals outcome outcomes sum sums quantity quantities solution \
                     solutions boxed reply report state finish quote printed prints";

/// Whether a sentence may be about how to give the answer.
pub(in crate::rules) fn is_about_answer(sentence: &str) -> bool {
    has_any(&sentence.to_lowercase(), ABOUT)
}

/// Whether a sentence names a form that isn't a plain number.
pub(in crate::rules) fn names_other_form(sentence: &str) -> bool {
    const FORMS: &str = "letter letters option options choice choices word words spelled roman \
                         numerals binary hexadecimal json yaml xml table sentence sentences yes \
                         category label interval percent confidence symbols unit units equation \
                         formula currency noun estimate rhyme";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    // "Yes or no" refuses nothing.
    let is_refused = (0..tokens.len())
        .any(|at| is_among(tokens[at], NEGATIONS) && !is_alternative(&tokens, at, "or /"));
    // "A number without units", or a program that is written.
    let is_other = is_refused || has(&tokens, TOOL_WORDS);
    !is_other && has_any(&plain, FORMS)
}

/// Whether what stands at a place has one of `signs` beside it.
fn is_alternative(tokens: &[&str], at: usize, signs: &str) -> bool {
    let is_sign = |at: usize| tokens.get(at).is_some_and(|token| is_among(token, signs));
    is_sign(at + 1) || at > 0 && is_sign(at - 1)
}

/// Whether a sentence offers several answers of which `word` is one, or begins with it.
pub(in crate::rules) fn offers(sentence: &str, word: &str) -> bool {
    /// Words that begin a reply and are no answer.
    const IDLE: &str = "so it the a an this that these there i we you then and as here";
    const MARKS: [char; 4] = ['"', '`', '*', '\''];
    let plain = plain(sentence);
    let bare: Vec<&str> = tokens(&plain)
        .into_iter()
        .map(|token| token.trim_matches(MARKS))
        .filter(|token| !token.is_empty())
        .collect();
    let is_word = |at: usize| bare[at] == word && is_alternative(&bare, at, "or / | ,");
    has(&bare, "or / |") && !is_among(word, IDLE) && (0..bare.len()).any(is_word)
}

/// Whether a sentence has the model say whether something is so.
pub(in crate::rules) fn asks_whether(sentence: &str) -> bool {
    const VERBS: &str = "say state tell reply report give write decide judge conclude answer";
    /// Verbs that ask for no word about it.
    const OTHERS: &str = "check see verify test look know sure matter matters depends ask";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    let Some(at) = tokens.iter().position(|token| *token == "whether") else {
        return false;
    };
    let mut before = tokens[..at].iter().rev();
    let verb = before.find(|token| is_among(token, VERBS) || is_among(token, OTHERS));
    verb.is_some_and(|verb| is_among(verb, VERBS)) && !has(&tokens[..at], NEGATIONS)
}

/// Whether a sentence asks not to give the answer.
pub(in crate::rules) fn withholds_answer(sentence: &str) -> bool {
    const VERBS: &str = "state give answer reveal tell write report show mention reply box say";
    const OTHER: &str =
        "else than unit units explain words without before unless if again comments";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    let mut pairs = tokens.windows(2);
    let is_refused =
        pairs.any(|pair| is_among(pair[0], "not don't never") && is_among(pair[1], VERBS));
    let mut triples = tokens.windows(3);
    let is_kept = triples.any(|words| words == ["to", "yourself", "."])
        || tokens.ends_with(&["to", "yourself"]);
    let is_other = has(&tokens, OTHER) || has(&tokens, TOOL_WORDS);
    (is_refused || is_kept) && !is_other && is_about_answer(sentence)
}

/// Whether a sentence asks for the answer in words, which no verifier reads as a number.
pub(in crate::rules) fn asks_for_words(sentence: &str) -> bool {
    const FORMS: [&str; 5] = [
        "in words",
        "as words",
        "in letters",
        "spelled out",
        "in roman numerals",
    ];
    const ANSWERS: &str = "answer answers result results number numbers";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    (1..tokens.len()).any(|at| {
        let is_said = begin_with(&tokens[at..], &FORMS) && is_among(tokens[at - 1], ANSWERS);
        is_said && !has(&tokens[..at], NEGATIONS)
    })
}

/// Whether a sentence asks for more than one answer, or for one in more than one form.
pub(in crate::rules) fn asks_for_several(sentence: &str) -> bool {
    const PHRASES: [&str; 15] = [
        "both",
        "each in",
        "each with",
        "each of them",
        "each of the",
        "each inside",
        "each within",
        "one each",
        "as well as",
        "along with",
        "together with",
        "in addition",
        "followed by",
        "either as",
        "also",
    ];
    const COUNTS: &str = "two three four several multiple different alternative all";
    const COUNTED: &str = "answers results numbers figures values solutions boxes forms versions units \
                           amounts estimates";
    const FORMS: &str = "exact precise rounded approximate rough decimal fraction percentage estimate \
                         estimated lower upper minimum maximum total intermediate range net gross";
    const LISTS: &str = "and or then plus";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    let is_about = is_about_answer(sentence) || plain.contains("box") || has(&tokens, COUNTED);
    if !is_about || has(&tokens, "not never don't without only single") {
        return false;
    }
    let is_said = (0..tokens.len()).any(|at| begin_with(&tokens[at..], &PHRASES));
    let is_counted = tokens.windows(3).any(|words| {
        is_among(words[0], COUNTS) && words[1..].iter().any(|word| is_among(word, COUNTED))
    });
    let forms = tokens.iter().filter(|token| is_among(token, FORMS)).count();
    // "In metres and in feet."
    let mut places = 3..tokens.len();
    let is_in_two = places
        .any(|at| tokens[at] == "in" && is_among(tokens[at - 1], LISTS) && tokens[at - 3] == "in");
    is_said || is_counted || is_in_two || forms > 1 && has(&tokens, LISTS)
}

/// Whether a sentence has the answer handed over by a call; a tool's own description needn't name one.
pub(in crate::rules) fn hands_over(harness: &Harness, sentence: &str, is_of_tool: bool) -> bool {
    const VERBS: &str = "hand hands handed submit submits submitted submitting pass passes passed deliver \
                         delivers delivered send sends sent enter enters entered file files filed \
                         register registers registered record records recorded receives takes accepts";
    const OTHERS: &str =
        "give gives given return returns report reports put puts write post state turn";
    const TOWARDS: &str = "to into through via by with using as on";
    const CALLS: &str = "call calls calling";
    const BETWEEN: &str = "the a an your another one last final more further extra second";
    const ANSWER: &str = "answer result output outcome solution figure number value total";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    if has(&tokens, NEGATIONS) {
        return false;
    }
    let names = tool_names(harness);
    let is_call = |token: &str| is_tool_word(token, &names) || is_among(token, CALLS);
    let is_answer = |token: &str| is_among(token, ABOUT);
    // "Sends back what was printed."
    let is_sent = |at: usize| is_among(tokens[at], VERBS) && tokens.get(at + 1) != Some(&"back");
    let leads_to = |at: usize, is_meant: &dyn Fn(&str) -> bool| {
        let after = &tokens[at + 1..];
        let object = after.iter().find(|token| !is_among(token, BETWEEN));
        // "Write it as one Python expression."
        let is_other = tokens[at] == "as" && !has(after, CALLS);
        is_among(tokens[at], TOWARDS) && !is_other && object.is_some_and(|word| is_meant(word))
    };
    (0..tokens.len()).any(|at| {
        let (before, after) = (&tokens[..at], &tokens[at + 1..]);
        let is_given = is_sent(at) || is_among(tokens[at], OTHERS);
        let answer = after.iter().position(|token| is_answer(token));
        // "Submit the number by a call", and "the tool with the final number".
        let is_by_call = is_given
            && answer.is_some_and(|answer| {
                let mut later = at + 1 + answer..tokens.len();
                later.any(|later| leads_to(later, &is_call))
            });
        let is_called_with = is_call(tokens[at])
            && !after.is_empty()
            && leads_to(at + 1, &|word| is_among(word, ANSWER));
        let is_for_it = is_sent(at)
            && answer.is_some()
            && before.last() == Some(&"to")
            && before.iter().any(|token| is_call(token));
        is_by_call || is_called_with || is_for_it || is_of_tool && is_sent(at) && answer.is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start;

    #[test]
    fn what_asks_for_several_answers() {
        for sentence in [
            "Box both the net and the gross amount.",
            "Give the result in metres and in feet.",
            "State a lower and an upper bound for the value.",
            "Report the number as well as its square.",
            "Finish with two numbers, one in each box.",
        ] {
            assert!(asks_for_several(sentence), "{sentence}");
        }
        for sentence in [
            "For each question give the value that is printed.",
            "Write the final answer as \\boxed{number}.",
            "Give one of the two numbers only.",
            "Both sisters fly kites.",
            "Do not give both values.",
        ] {
            assert!(!asks_for_several(sentence), "{sentence}");
        }
    }

    #[test]
    fn what_offers_answers_that_are_no_numbers() {
        for (sentence, word) in [
            ("Say in \\boxed{} which it is: right or wrong.", "wrong"),
            ("Reply with TRUE/FALSE.", "false"),
            ("Label it refund, shipping or other.", "refund"),
            ("Close with \"pass\" or 'fail'.", "fail"),
            ("Verdict: [keep|drop]", "drop"),
        ] {
            assert!(offers(sentence, word), "{sentence}");
            assert!(!offers(sentence, "kites"), "{sentence}");
        }
        for (sentence, word) in [
            ("Say so or go on.", "so"),
            ("Close with a pass.", "pass"),
            ("Pass, then close.", "pass"),
        ] {
            assert!(!offers(sentence, word), "{sentence}");
        }
        for sentence in [
            "Write down whether a sum is even.",
            "After a check, tell the reader whether it fits.",
        ] {
            assert!(asks_whether(sentence), "{sentence}");
        }
        for sentence in [
            "Before you answer, check whether the number is right.",
            "Do not say whether you are sure.",
            "It doesn't matter whether a program is long.",
            "Say how many there are.",
        ] {
            assert!(!asks_whether(sentence), "{sentence}");
        }
        assert!(names_other_form("The answer is yes or no."));
        assert!(!names_other_form("The answer is no option."));
    }

    #[test]
    fn what_has_an_answer_handed_over_by_a_call() {
        let harness = start();
        for (sentence, is_of_tool) in [
            ("Submits the answer.", true),
            ("Submit the result by a call of the tool.", false),
            ("Call the tool with the final number.", false),
            ("Use python to hand in the answer.", false),
            ("Put your solution into another call.", false),
            ("State the total as a tool call.", false),
        ] {
            assert!(hands_over(&harness, sentence, is_of_tool), "{sentence}");
        }
        for (sentence, is_of_tool) in [
            ("The final number is sent to whoever asked.", false),
            ("Call the tool with a short program.", false),
            ("Write the amounts as one Python expression.", false),
            ("Sends back the number that was printed.", true),
            ("Runs a program and returns what it prints.", true),
            (
                "Turn it into a Python program, and pass on the value.",
                false,
            ),
            ("Run the script, and give the figure that it shows.", false),
            ("Never submit the answer by a call.", false),
        ] {
            assert!(!hands_over(&harness, sentence, is_of_tool), "{sentence}");
        }
    }
}
