//! Text on terminals that are too narrow for it. Nothing that matters is cut: columns that can be missed are
//! left out, and a text that has no room beside its row stands in lines of its own.

use comfy_table::{ColumnConstraint, Table, Width};

use crate::cli::paint::wrap;

/// Columns that a text beside its row has, at least: in fewer it is hard to read.
const LEAST: usize = 40;

/// Rows under a header that are to be laid out.
pub(super) struct Sheet<'a> {
    /// Makes an empty table under a header.
    pub(super) style: fn(&[&str]) -> Table,
    pub(super) header: &'a [&'a str],
    pub(super) rows: Vec<Vec<String>>,
    /// The column that may stand in lines of its own: above the rest of its row where it is the first one,
    /// which says what the row is about, else below.
    pub(super) text: Option<&'a str>,
    /// Columns that can be missed, the first of them first.
    pub(super) spare: &'a [&'a str],
}

impl Sheet<'_> {
    /// The table in lines of at most `width` columns, where that is known and can be had.
    pub(super) fn laid_out(&self, width: Option<usize>) -> String {
        let all: Vec<usize> = (0..self.header.len()).collect();
        let Some(width) = width else {
            return self.table(&all).to_string();
        };
        let is_spare = |at: usize, missed: usize| self.spare[..missed].contains(&self.header[at]);
        // Ever fewer columns.
        let ways: Vec<Vec<usize>> = (0..=self.spare.len())
            .map(|missed| {
                let columns = all.iter().copied();
                columns.filter(|at| !is_spare(*at, missed)).collect()
            })
            .collect();
        let mut whole = ways.iter().map(|columns| self.table(columns));
        if let Some(table) = whole.find(|table| breadth(table) <= width) {
            return table.to_string();
        }
        let text = self
            .text
            .and_then(|text| self.header.iter().position(|name| *name == text));
        let wrapped = text.and_then(|text| {
            ways.iter()
                .find_map(|columns| self.wrapped(columns, text, width))
        });
        if let Some(table) = wrapped {
            return table.to_string();
        }
        let mut rest = all;
        for columns in ways {
            rest = columns;
            rest.retain(|at| Some(*at) != text);
            if breadth(&self.table(&rest)) <= width {
                break;
            }
        }
        match text {
            Some(text) => self.apart(&self.table(&rest), text, width),
            None => self.table(&rest).to_string(),
        }
    }

    fn table(&self, columns: &[usize]) -> Table {
        let header: Vec<&str> = columns.iter().map(|at| self.header[*at]).collect();
        let mut table = (self.style)(&header);
        for row in &self.rows {
            table.add_row(columns.iter().filter_map(|at| row.get(*at)));
        }
        table
    }

    /// The table with its text in several lines beside the rest, where there is room for that.
    fn wrapped(&self, columns: &[usize], text: usize, width: usize) -> Option<Table> {
        let mut table = self.table(columns);
        let index = columns.iter().position(|at| *at == text)?;
        let excess = breadth(&table).saturating_sub(width);
        let longest = usize::from(*table.column_max_content_widths().get(index)?);
        let kept = longest.checked_sub(excess).filter(|kept| *kept >= LEAST)?;
        let column = table.column_mut(index)?;
        let kept = u16::try_from(kept + usize::from(column.padding_width())).ok()?;
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(kept)));
        Some(table)
    }

    /// The rest of the table, with the texts in lines of their own.
    fn apart(&self, rest: &Table, text: usize, width: usize) -> String {
        let lines: Vec<String> = rest.lines().collect();
        // Where there are rules, one stands above the header and one below it.
        let has_rules = lines.len() > self.rows.len() + 1;
        let (header, first) = if has_rules { (1, 3) } else { (0, 1) };
        let margin = if text == 0 { " " } else { "     " };
        let room = width.saturating_sub(margin.len()).max(10);
        let mut out = Vec::new();
        for (at, line) in lines.into_iter().enumerate() {
            let row = at.checked_sub(first).and_then(|row| self.rows.get(row));
            let said = match row.and_then(|row| row.get(text)) {
                Some(said) => said.as_str(),
                None if at == header => self.header[text],
                None => "",
            };
            let said = said.lines().flat_map(|line| wrap(line, room));
            let said = said.map(|line| format!("{margin}{line}"));
            if text == 0 {
                out.extend(said);
                out.push(line);
            } else {
                out.push(line);
                out.extend(said);
            }
        }
        out.join("\n")
    }
}

/// Columns that a table takes: all its lines are equally long.
fn breadth(table: &Table) -> usize {
    let first = table.lines().next();
    first.map_or(0, |line| line.chars().count())
}

/// Sentences, each a line, in lines of at most `width` columns where that is known; what goes on is indented.
/// Tables among them stay as they are: their lines begin with a space or a rule.
pub(super) fn sentences(text: &str, width: Option<usize>) -> String {
    const INDENT: &str = "  ";
    let Some(width) = width else {
        return text.to_owned();
    };
    let fit = |line: &str| {
        if line.chars().count() <= width || line.starts_with([' ', '─']) {
            return line.to_owned();
        }
        let room = width.saturating_sub(INDENT.len()).max(10);
        wrap(line, room).join(&format!("\n{INDENT}"))
    };
    text.split('\n').map(fit).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::table;

    const REASON: &str = "P say in the system prompt that the tool comes first (stage 1: δ_in is -5.0 points, not above 0)";

    /// A text's words with one space between them, wherever its lines end.
    fn words(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn fits(text: &str, width: usize) -> bool {
        text.lines().all(|line| line.chars().count() <= width)
    }

    fn history(width: Option<usize>) -> String {
        let row = |cells: [&str; 5]| cells.map(str::to_owned).to_vec();
        let sheet = Sheet {
            style: table::plain,
            header: &["version", "commit", "change", "δ_in", "δ_out"],
            rows: vec![
                row(["v1", "b3681e3c9136", "the starting harness", "", ""]),
                row([
                    "small-seed2/1-2",
                    "e036dd74185a",
                    REASON,
                    "-5.0 [-17.0, +7.9]",
                    "+0.0 [-13.2, +22.3]",
                ]),
            ],
            text: Some("change"),
            spare: &["commit"],
        };
        sheet.laid_out(width)
    }

    #[test]
    fn a_row_is_a_line_where_there_is_no_terminal_or_a_wide_one() {
        let whole = history(None);
        assert_eq!(whole.lines().count(), 3, "{whole}");
        assert!(whole.contains(REASON), "{whole}");
        assert_eq!(history(Some(300)), whole);
    }

    #[test]
    fn a_column_that_can_be_missed_goes_first_and_the_text_is_wrapped() {
        let breadth = history(None)
            .lines()
            .next()
            .map(|line| line.chars().count());
        let narrower = history(breadth.map(|breadth| breadth - 1));
        assert!(!narrower.contains("commit"), "{narrower}");
        assert_eq!(narrower.lines().count(), 3, "{narrower}");
        let wrapped = history(Some(130));
        assert!(
            fits(&wrapped, 130) && wrapped.contains("commit"),
            "{wrapped}"
        );
        assert!(wrapped.lines().count() > 3, "{wrapped}");
        for word in REASON.split_whitespace() {
            assert!(wrapped.contains(word), "{word} in {wrapped}");
        }
    }

    #[test]
    fn on_eighty_columns_nothing_is_cut() {
        let shown = history(Some(80));
        assert!(fits(&shown, 80), "{shown}");
        for part in [
            "δ_out change v1",
            "the starting harness small-seed2/1-2",
            "+0.0 [-13.2, +22.3] P say",
            REASON,
        ] {
            assert!(words(&shown).contains(part), "{part} in {shown}");
        }
        // The commit has room again.
        assert!(shown.contains("e036dd74185a"), "{shown}");
    }

    #[test]
    fn what_a_row_is_about_stands_above_it() {
        let row = |what: &str| {
            let cells = [
                what,
                "rejected",
                "22.41 → 20.93",
                "169.8 → 178.8",
                "102.7 → 94.70",
            ];
            cells.map(str::to_owned).to_vec()
        };
        let sheet = Sheet {
            style: table::table,
            header: &[
                "a rollout takes",
                "decision",
                "seconds",
                "prompt tokens",
                "generated tokens",
            ],
            rows: vec![row("round 1.1 Mid call tools with tags"), row(REASON)],
            text: Some("a rollout takes"),
            spare: &[],
        };
        assert_eq!(sheet.laid_out(None).lines().count(), 6);
        let shown = sheet.laid_out(Some(80));
        assert!(fits(&shown, 80), "{shown}");
        let last = format!("94.70 {REASON} rejected");
        for part in [
            "─ a rollout takes decision",
            "─ round 1.1 Mid call tools with tags rejected 22.41",
            last.as_str(),
        ] {
            assert!(words(&shown).contains(part), "{part} in {shown}");
        }
        assert!(shown.ends_with('─'), "{shown}");
    }

    #[test]
    fn sentences_are_wrapped_and_tables_beside_them_are_not() {
        let rule = "─".repeat(40);
        let text = format!(
            "{rule}\n one   two   three   four   five   six   sev\n{rule}\n\nshort\n{REASON}"
        );
        assert_eq!(sentences(&text, None), text);
        let shown = sentences(&text, Some(30));
        let (kept, wrapped) = shown.split_at(text.len() - REASON.len());
        assert_eq!(kept, &text[..kept.len()]);
        assert!(fits(wrapped, 30) && wrapped.contains("\n  "), "{shown}");
        assert_eq!(words(wrapped), REASON);
    }
}
