//! Text for a person's terminal: colours where they are wanted, lines that fit, nothing that a
//! program printed being taken for the terminal's own commands.

use std::io::IsTerminal;

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What a text is, as far as its colour goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Names of things.
    Heading,
    /// What matters less.
    Faint,
    /// The policy.
    Assistant,
    /// Tools.
    Tool,
    /// Good news.
    Good,
    /// Bad news.
    Bad,
    /// Something remarkable.
    Note,
}

/// How to write for one terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    has_color: bool,
    /// Columns.
    pub(crate) width: usize,
}

/// Columns where nothing is known.
const WIDTH: usize = 80;
/// Longer lines are hard to read.
const WIDEST: usize = 110;

impl Paint {
    /// For standard output. NO_COLOR follows no-color.org: set to anything but nothing.
    pub(crate) fn for_stdout(choice: ColorChoice) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let is_dumb = set("TERM").is_some_and(|term| term == "dumb");
        Paint {
            has_color: match choice {
                ColorChoice::Auto => is_terminal && !is_dumb && set("NO_COLOR").is_none(),
                ColorChoice::Always => true,
                ColorChoice::Never => false,
            },
            width: columns(is_terminal).unwrap_or(WIDTH).clamp(20, WIDEST),
        }
    }

    /// Whether there are colours.
    pub(crate) fn has_color(self) -> bool {
        self.has_color
    }

    /// The text in its colour.
    pub(crate) fn tone(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Heading => "1",
            Tone::Faint => "2",
            Tone::Assistant => "36",
            Tone::Tool => "35",
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Note => "33",
        };
        if self.has_color && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// A rule with a title.
    pub(crate) fn rule(self, tone: Tone, title: &str) -> String {
        let length = self.width.saturating_sub(title.chars().count() + 4);
        let line = self.tone(Tone::Faint, &"─".repeat(length));
        let start = self.tone(Tone::Faint, "──");
        format!("{start} {} {line}", self.tone(tone, title))
    }

    /// The text in lines that fit, each behind `margin`.
    pub(crate) fn wrapped(self, text: &str, margin: &str) -> String {
        let width = self.width.saturating_sub(margin.chars().count()).max(10);
        let lines = text
            .trim_end()
            .lines()
            .flat_map(|line| wrap(&shown(line), width));
        let lines = lines.map(|line| format!("{margin}{line}").trim_end().to_owned());
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Columns of the terminal that standard output goes to; none where it goes to a file or to another program,
/// which are to get everything.
pub(crate) fn terminal_columns() -> Option<usize> {
    let is_terminal = std::io::stdout().is_terminal();
    columns(is_terminal).filter(|_| is_terminal)
}

/// Columns by the environment, else by the terminal where standard output is one.
fn columns(is_terminal: bool) -> Option<usize> {
    let said = set("COLUMNS").and_then(|text| text.to_str()?.parse().ok());
    said.or_else(|| {
        let (width, _) = terminal_size::terminal_size()?;
        is_terminal.then_some(usize::from(width.0))
    })
}

/// A variable of the environment that is set to something.
fn set(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The text with control characters made visible.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => shown.push_str("    "),
            '\u{0}'..='\u{1f}' => {
                // The pictures of the control characters come in their order.
                shown.extend(char::from_u32(0x2400 + u32::from(c)));
            }
            '\u{7f}' => shown.push('\u{2421}'),
            // Controls of the second half, and marks that turn the direction of writing.
            '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                shown.push('\u{fffd}');
            }
            c => shown.push(c),
        }
    }
    shown
}

/// A line in pieces of at most `width` characters, broken between words where that is possible.
/// Pieces after the first keep the line's indentation.
pub(crate) fn wrap(line: &str, width: usize) -> Vec<String> {
    let indent: String = line.chars().take_while(|c| *c == ' ').collect();
    let indent = if indent.len() * 2 > width {
        String::new()
    } else {
        indent
    };
    let mut pieces = Vec::new();
    let mut rest: Vec<char> = line.chars().collect();
    while rest.len() > width {
        // Not before the first word: a piece of blanks says nothing.
        let start = rest.iter().position(|c| *c != ' ').unwrap_or(0);
        let space = (start + 1..=width).rev().find(|at| rest[*at] == ' ');
        let at = space.unwrap_or(width);
        pieces.push(rest[..at].iter().collect());
        let skipped = at + rest[at..].iter().take_while(|c| **c == ' ').count();
        rest = indent.chars().chain(rest.drain(skipped..)).collect();
    }
    pieces.push(rest.into_iter().collect());
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paint(has_color: bool, width: usize) -> Paint {
        Paint { has_color, width }
    }

    #[test]
    fn lines_fit_and_lose_nothing_but_blanks() {
        let text =
            "The quick brown fox\n    if x: return_a_name_that_is_far_too_long_for_it(x)\n\nend";
        let wrapped = paint(false, 24).wrapped(text, "│ ");
        assert!(
            wrapped.lines().all(|line| line.chars().count() <= 24),
            "{wrapped}"
        );
        let bare = |text: &str| text.replace(['│', ' ', '\n'], "");
        assert_eq!(bare(&wrapped), bare(text));
        assert!(wrapped.contains("\n│     if x:\n"), "{wrapped}");
        assert_eq!(paint(false, 80).wrapped("", "  "), "");
    }

    #[test]
    fn nothing_that_was_printed_commands_the_terminal() {
        let hostile = "\u{1b}]0;title\u{7}\u{1b}[31mred\r\u{9b}2J\u{202e}x\u{7f}";
        let shown = paint(true, 80).wrapped(hostile, "");
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
        assert!(shown.contains("␛[31mred␍"));
    }

    #[test]
    fn colours_are_there_only_when_wanted() {
        assert_eq!(paint(true, 80).tone(Tone::Bad, "x"), "\u{1b}[31mx\u{1b}[0m");
        assert_eq!(paint(false, 80).tone(Tone::Bad, "x"), "x");
        assert_eq!(paint(true, 80).tone(Tone::Bad, ""), "");
    }
}
