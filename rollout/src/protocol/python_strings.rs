//! Strings over several lines in a Python program.

use std::ops::Range;

/// Where the strings between three quotes stand in a program that begins at `start`, in order; one that
/// never ends is none.
pub(super) fn long_strings(text: &str, start: usize) -> Vec<Range<usize>> {
    const MARKS: [&[u8]; 2] = [b"\"\"\"", b"'''"];
    let bytes = text.as_bytes();
    let mut strings = Vec::new();
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'#' => at = end_of_line(bytes, at),
            b'"' | b'\'' => {
                let mark = MARKS.iter().find(|mark| bytes[at..].starts_with(mark));
                match mark.map(|mark| end_of_long_string(bytes, at, mark)) {
                    Some(Some(end)) => {
                        strings.push(at..end);
                        at = end;
                    }
                    Some(None) => return strings,
                    None => at = end_of_short_string(bytes, at),
                }
            }
            _ => at += 1,
        }
    }
    strings
}

fn end_of_line(bytes: &[u8], at: usize) -> usize {
    let length = bytes[at..].iter().position(|byte| *byte == b'\n');
    length.map_or(bytes.len(), |length| at + length)
}

/// Where a string that begins with three quotes ends.
fn end_of_long_string(bytes: &[u8], start: usize, mark: &[u8]) -> Option<usize> {
    let mut at = start + mark.len();
    while let Some(byte) = bytes.get(at) {
        if *byte == b'\\' {
            at += 2;
        } else if bytes[at..].starts_with(mark) {
            return Some(at + mark.len());
        } else {
            at += 1;
        }
    }
    None
}

/// Where a string within a line ends, or that line.
fn end_of_short_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'\n' => return at,
            byte if *byte == bytes[start] => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_strings_are_found_and_nothing_else() {
        let found = |text: &str| -> Vec<String> {
            let ranges = long_strings(text, 0).into_iter();
            ranges.map(|range| text[range].to_owned()).collect()
        };
        for (text, strings) in [
            ("s = \"\"\"a\nb\"\"\"\n", vec!["\"\"\"a\nb\"\"\""]),
            (r"'''é\'''x''' + '#'", vec![r"'''é\'''x'''"]),
            ("# don't \"\"\"\nx = 'it\\'s'", vec![]),
            ("x = \"\"\"never", vec![]),
            ("x = 'a\n\"\"\"b\"\"\"", vec!["\"\"\"b\"\"\""]),
            ("\"\" + ''", vec![]),
        ] {
            assert_eq!(found(text), strings, "{text}");
        }
    }
}
