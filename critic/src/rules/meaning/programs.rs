//! How a sentence has programs written so that an interpreter can't make anything of them, and programs
//! that were.

use super::{NEGATIONS, begin_with, has, plain, tokens};

/// Whether a sentence asks for programs, or for their lines and signs, in another form than they are run
/// in: escaped, encoded, or within quotes.
pub(in crate::rules) fn asks_to_encode(sentence: &str) -> bool {
    const STEMS: [&str; 6] = [
        "escap",
        "encod",
        "base64",
        "backslash",
        "serialis",
        "serializ",
    ];
    const PHRASES: [&str; 8] = [
        "html entities",
        "in quotes",
        "within quotes",
        "between quotes",
        "in quotation marks",
        "as a string",
        "as one string",
        "as a json string",
    ];
    const WRITTEN: &str = "line lines break breaks linebreak linebreaks newline newlines quote quotes \
                           character characters symbol symbols sign signs bracket brackets blank blanks \
                           code program programs script scripts source python call calls argument \
                           arguments";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    let is_form = |at: usize| {
        let is_stem = STEMS.iter().any(|stem| tokens[at].starts_with(stem));
        is_stem || begin_with(&tokens[at..], &PHRASES)
    };
    let is_asked = |at: usize| is_form(at) && !has(&tokens[..at], NEGATIONS);
    has(&tokens, WRITTEN) && (0..tokens.len()).any(is_asked)
}

/// Whether a program is in such a form: signs of its lines are spelled out, or it is nothing but a text.
pub(in crate::rules) fn is_encoded(program: &str) -> bool {
    const ENTITIES: [&str; 5] = ["&lt;", "&gt;", "&quot;", "&amp;", "&#"];
    const OF_ADDRESSES: [&str; 5] = ["%0A", "%0a", "%20", "%22", "%28"];
    const SHORTEST: usize = 12;
    let program = program.trim();
    let has_any = |marks: &[&str]| marks.iter().any(|mark| program.contains(mark));
    let is_address = !program.contains(char::is_whitespace) && has_any(&OF_ADDRESSES);
    let has_case = |is_case: fn(&char) -> bool| program.chars().any(|c| is_case(&c));
    let is_base64 = program.len() >= SHORTEST
        && program.len().is_multiple_of(4)
        && has_case(char::is_ascii_uppercase)
        && has_case(char::is_ascii_lowercase)
        && program
            .trim_end_matches('=')
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '/'));
    has_any(&ENTITIES) || is_address || is_base64 || is_text(program) || has_escape(program)
}

/// Whether a program is one string and no more.
fn is_text(program: &str) -> bool {
    let quote = program.chars().next().filter(|c| matches!(c, '"' | '\''));
    quote.is_some_and(|quote| {
        let inner = program[1..].strip_suffix(quote);
        inner.is_some_and(|inner| !inner.replace(&format!("\\{quote}"), "").contains(quote))
    })
}

/// Whether an escaped sign stands outside of strings, where Python has none.
fn has_escape(program: &str) -> bool {
    let mut within = None;
    let mut signs = program.chars().peekable();
    while let Some(sign) = signs.next() {
        match (within, sign) {
            (None, '\\') if signs.peek().is_some_and(|next| "nrt\"'".contains(*next)) => {
                return true;
            }
            (Some(_), '\\') => {
                signs.next();
            }
            (None, '"' | '\'') => within = Some(sign),
            (Some(quote), sign) if sign == quote || sign == '\n' => within = None,
            _ => {}
        }
    }
    false
}

/// Whether a sentence asks for programs that only define something, such as a function. One that says to
/// call or to print it doesn't.
pub(in crate::rules) fn asks_to_define(sentence: &str) -> bool {
    const DEFINED: &str = "function functions method methods class classes procedure procedures \
                           subroutine subroutines module modules lambda def";
    const VERBS: &str = "write written define defined wrap wrapped put place placed make made turn pack \
                         give organise organize structure express form be is are consist consists \
                         return returns returning";
    const USED: &str = "call calls called calling print prints printed printing run runs use uses using \
                        loaded already";
    let plain = plain(sentence);
    let tokens = tokens(&plain);
    let is_other = has(&tokens, USED) || has(&tokens, NEGATIONS);
    has(&tokens, DEFINED) && has(&tokens, VERBS) && !is_other
}

/// How a definition begins.
const HEADS: [&str; 4] = ["def ", "class ", "async def ", "@"];

/// Whether a program prints, as far as can be seen, outside of what it only defines.
pub(in crate::rules) fn prints(program: &str) -> bool {
    let mut is_within = false;
    program.lines().any(|line| {
        let is_outer = !line.trim().is_empty() && !line.starts_with([' ', '\t']);
        if is_outer {
            is_within = HEADS.iter().any(|head| line.starts_with(head));
        }
        let is_comment = line.trim_start().starts_with('#');
        !is_within && !is_comment && line.contains("print(")
    })
}

/// Whether a program defines something and does nothing else.
pub(in crate::rules) fn only_defines(program: &str) -> bool {
    const BESIDE: [&str; 4] = ["import ", "from ", "#", ")"];
    let is_lambda = |line: &str| line.contains("= lambda");
    let is_head = |line: &str| HEADS.iter().any(|head| line.starts_with(head)) || is_lambda(line);
    let is_beside = |line: &str| BESIDE.iter().any(|head| line.starts_with(head));
    let is_within = |line: &str| line.trim().is_empty() || line.starts_with([' ', '\t']);
    let lines = || program.lines().map(str::trim_end);
    lines().any(is_head) && lines().all(|line| is_head(line) || is_beside(line) || is_within(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asks_for_programs_in_another_form() {
        for sentence in [
            "Every newline of the code is written as an escaped \\n.",
            "Encode the program in base64.",
            "Write < and > of a script as HTML entities.",
            "The source is handed over as a JSON string.",
        ] {
            assert!(asks_to_encode(sentence), "{sentence}");
        }
        for sentence in [
            "Do not escape line breaks.",
            "Write the program on several lines, without encoding anything.",
            "A program is a text that ends with print(result).",
            "No one escapes from this castle.",
        ] {
            assert!(!asks_to_encode(sentence), "{sentence}");
        }
    }

    #[test]
    fn programs_in_another_form() {
        for program in [
            "total = 5 + 7\\nprint(total)",
            "print(\\\"12\\\")",
            "print(5 &lt; 7)",
            "print%285%20+%207%29",
            "cHJpbnQoNSArIDcp",
            "\"print(5 + 7)\"",
        ] {
            assert!(is_encoded(program), "{program}");
        }
        for program in [
            "total = 5 + 7\nprint(total)",
            "print('5\\n7')",
            "print(\"it's\", \"a\\tb\")",
            "total = 5 + \\\n    7\nprint(total)",
            "print(25 %20)",
            "print('5' + '7')",
            "print(total)",
        ] {
            assert!(!is_encoded(program), "{program}");
        }
    }

    #[test]
    fn what_asks_for_definitions_and_what_uses_them() {
        for sentence in [
            "Wrap the code into a method named total().",
            "A script is one function that returns the value.",
            "Put everything in a class Solution.",
        ] {
            assert!(asks_to_define(sentence), "{sentence}");
        }
        for sentence in [
            "Write a function and call it in the last line.",
            "The function share_of(x, y) is defined already.",
            "Define a function, and print what it returns.",
            "Never write a function.",
            "Write a short program.",
        ] {
            assert!(!asks_to_define(sentence), "{sentence}");
        }
        assert!(only_defines(
            "import math\n\ndef total():\n    print(5 + 7)"
        ));
        assert!(only_defines("total = lambda: 5 + 7"));
        for program in [
            "def total():\n    return 12\nprint(total())",
            "def total():\n    print(12)\n\ntotal()",
            "x = 5 + 7",
            "import math",
        ] {
            assert!(!only_defines(program), "{program}");
        }
        for program in ["print(12)", "for n in (5, 7):\n    print(n)"] {
            assert!(prints(program), "{program}");
        }
        for program in [
            "x = 12\nx",
            "def total():\n    print(12)\n",
            "# print(12)\n12",
        ] {
            assert!(!prints(program), "{program}");
        }
    }
}
