//! Finding the program of a text: the last fenced block that is marked as Python.
//!
//! Blocks are those of CommonMark (section 4.5): a fence has three backquotes or tildes at least, and
//! is closed by a line with nothing but as many or more of the same. So a fence with a word inside a
//! program's string closes nothing. A text that ends inside a block ends the block.

use super::super::{Extracted, ExtractionRule};
use crate::protocol::masking_reasoning;

/// A fenced block.
struct Block {
    language: String,
    text: String,
}

/// The program that a text gives as its answer: the last block marked as Python; if there is none,
/// the last block without a mark.
pub(super) fn last_program(text: &str) -> Option<Extracted> {
    let blocks = blocks(&masking_reasoning(text));
    let last = |is_meant: fn(&str) -> bool| {
        let mut blocks = blocks.iter().rev();
        blocks.find(|block| is_meant(&block.language) && !block.text.trim().is_empty())
    };
    let is_python = |language: &str| matches!(language, "python" | "py" | "python3");
    let (block, rule) = match last(is_python) {
        Some(block) => (block, ExtractionRule::PythonBlock),
        None => (last(str::is_empty)?, ExtractionRule::CodeBlock),
    };
    Some(Extracted {
        answer: block.text.clone(),
        rule,
    })
}

/// Languages in which a block may say something itself.
const PROSE: [&str; 9] = [
    "",
    "latex",
    "tex",
    "math",
    "markdown",
    "md",
    "text",
    "txt",
    "plaintext",
];

/// The text with blanks in the place of fenced blocks in any other language: of programs, and of what
/// they print.
pub(in crate::verifier) fn without_programs(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut open: Option<Fence<'_>> = None;
    for line in text.split_inclusive('\n') {
        let fence = open.take().map_or_else(
            || Fence::opened_by(line).map(|fence| (fence, true)),
            |fence| Some((fence, false)),
        );
        let Some((fence, is_first)) = fence else {
            plain.push_str(line);
            continue;
        };
        let is_prose = PROSE.contains(&fence.language.as_str());
        if is_prose {
            plain.push_str(line);
        } else {
            let length = line.trim_end_matches(['\r', '\n']).len();
            plain.extend(std::iter::repeat_n(' ', length));
            plain.push_str(&line[length..]);
        }
        open = (is_first || !fence.is_closed_by(line)).then_some(fence);
    }
    plain
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(fence) = Fence::opened_by(line) else {
            continue;
        };
        let mut text = String::new();
        for line in lines.by_ref() {
            if fence.is_closed_by(line) {
                break;
            }
            text.push_str(line.strip_prefix(fence.indent).unwrap_or(line));
            text.push('\n');
        }
        blocks.push(Block {
            language: fence.language,
            text,
        });
    }
    blocks
}

struct Fence<'a> {
    mark: char,
    length: usize,
    /// Blanks before it, which the block's lines have too.
    indent: &'a str,
    /// First word after it, in lower case.
    language: String,
}

impl<'a> Fence<'a> {
    fn opened_by(line: &'a str) -> Option<Self> {
        let trimmed = line.trim_start();
        let indent = &line[..line.len() - trimmed.len()];
        let mark = trimmed.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let info = trimmed.trim_start_matches(mark);
        let length = trimmed.len() - info.len();
        // Backquotes after it make it text in a line.
        if length < 3 || (mark == '`' && info.contains('`')) {
            return None;
        }
        let word = info.split_whitespace().next().unwrap_or_default();
        // `{.python}` and `python:main.py` are ways to write it too.
        let word = word.trim_start_matches(['{', '.']);
        let end = word
            .find(|c: char| !c.is_alphanumeric())
            .unwrap_or(word.len());
        Some(Fence {
            mark,
            length,
            indent,
            language: word[..end].to_lowercase(),
        })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.length && line.chars().all(|c| c == self.mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<(String, &'static str)> {
        last_program(text).map(|found| (found.answer, found.rule.name()))
    }

    fn is(answer: &str, rule: &'static str) -> Option<(String, &'static str)> {
        Some((answer.to_owned(), rule))
    }

    #[test]
    fn the_last_block_marked_as_python_counts() {
        assert_eq!(
            found("First:\n```python\nprint(1)\n```\nbetter:\n```py\nprint(2)\n```\nso it is."),
            is("print(2)\n", "python_block")
        );
        assert_eq!(
            found("```Python\nprint(1)\n```\nIts output:\n```\n1\n```\n```text\n2\n```"),
            is("print(1)\n", "python_block")
        );
        assert_eq!(
            found("```\nprint(1)\n```\n```\nprint(2)\n```"),
            is("print(2)\n", "code_block")
        );
        assert_eq!(
            found("```{.python}\nprint(1)\n```"),
            is("print(1)\n", "python_block")
        );
        assert_eq!(
            found("~~~ python title=\"x\"\r\nprint(1)\r\n~~~"),
            is("print(1)\n", "python_block")
        );
    }

    #[test]
    fn a_block_ends_where_its_own_fence_does() {
        let program = "s = '''\n```python\n'''\nprint(s)\n";
        assert_eq!(
            found(&format!("````python\n{program}````")),
            is(program, "python_block")
        );
        assert_eq!(
            found(&format!("```python\n{program}```")),
            is(program, "python_block"),
        );
        assert_eq!(
            found("```python\nprint(1)"),
            is("print(1)\n", "python_block")
        );
        assert_eq!(
            found("  ```python\n  x = 1\n  ```"),
            is("x = 1\n", "python_block")
        );
        assert_eq!(
            found("1. So:\n   ```python\n   if x:\n       y()\n   ```"),
            is("if x:\n    y()\n", "python_block")
        );
    }

    #[test]
    fn what_is_no_program_is_no_answer() {
        for text in [
            "",
            "print(1)",
            "`print(1)`",
            "Use ```python``` for it.",
            "```bash\nls\n```",
            "```pythonista\nx\n```",
            "```python\n\n```",
            "<think>\n```python\nprint(1)\n```\n</think>\nDone.",
            "``\nx\n``",
        ] {
            assert_eq!(found(text), None, "{text:?}");
        }
    }
}
