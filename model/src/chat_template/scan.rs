//! A first pass over the template source: rewrites `{% generation %}` blocks, which the engine
//! does not know, and lists what the template uses, so that a construct the engine lacks is
//! reported when the template is loaded instead of in the middle of a run.

use super::ChatTemplateError;

/// The filter that the body of a generation block is passed through.
pub(super) const GENERATION_FILTER: &str = "mark_generation";

/// What a template names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `value | name`
    Filter,
    /// `value is name`
    Test,
    /// `value.name(…)`
    Method,
    /// `name(…)`
    Function,
    /// `{% name … %}`
    Tag,
    /// `name is defined`, which guards the use of a name that may be missing
    Guard,
}

/// One use of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) line: usize,
}

/// The result of the pass.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// The source with generation blocks rewritten; line numbers are unchanged.
    pub(super) source: String,
    pub(super) uses: Vec<Use>,
}

/// Scans `source`. Text that is no valid template passes through for the engine to reject.
///
/// # Errors
/// Generation tags that do not pair up.
pub(super) fn scan(source: &str) -> Result<Scan, ChatTemplateError> {
    // Jinja2 reads every kind of line end as a line feed.
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut scan = Scan::default();
    let mut open_generation: Vec<usize> = Vec::new();
    let mut rest = source.as_str();
    let mut line = 1;
    while let Some(start) = rest.find('{') {
        let (before, tag) = rest.split_at(start);
        scan.source.push_str(before);
        line += newlines(before);
        let length = match tag.as_bytes().get(1) {
            Some(b'#') => tag.find("#}").map_or(tag.len(), |end| end + 2),
            Some(b'{') => {
                let (tokens, length) = tokenize(tag, "}}", line);
                collect_uses(&tokens, &mut scan.uses);
                length
            }
            Some(b'%') => {
                let (tokens, length) = tokenize(tag, "%}", line);
                match tokens.as_slice() {
                    [Token { text: "raw", .. }] => length + raw_length(&tag[length..]),
                    [
                        Token {
                            text: name @ ("generation" | "endgeneration"),
                            ..
                        },
                    ] => {
                        if *name == "generation" {
                            open_generation.push(line);
                        } else if open_generation.pop().is_none() {
                            return Err(unpaired(line, "endgeneration without generation"));
                        }
                        scan.source.push_str(&rewrite(&tag[..length], name));
                        line += newlines(&tag[..length]);
                        rest = &tag[length..];
                        continue;
                    }
                    tokens => {
                        collect_tag(tokens, &mut scan.uses);
                        length
                    }
                }
            }
            _ => 1,
        };
        scan.source.push_str(&tag[..length]);
        line += newlines(&tag[..length]);
        rest = &tag[length..];
    }
    scan.source.push_str(rest);
    match open_generation.pop() {
        Some(line) => Err(unpaired(line, "generation without endgeneration")),
        None => Ok(scan),
    }
}

fn unpaired(line: usize, construct: &str) -> ChatTemplateError {
    ChatTemplateError::Unsupported {
        line,
        construct: construct.to_owned(),
    }
}

fn newlines(text: &str) -> usize {
    text.matches('\n').count()
}

/// A generation tag as a filter block that keeps the tag's white space control. The inner `with`
/// gives the block a scope of its own, as Jinja2's call blocks have.
fn rewrite(tag: &str, name: &str) -> String {
    let inner = &tag[2..tag.len() - 2];
    let control = |c: Option<char>| c.filter(|c| matches!(c, '-' | '+')).map(String::from);
    let left = control(inner.chars().next()).unwrap_or_default();
    let right = control(inner.chars().next_back()).unwrap_or_default();
    let lines = "\n".repeat(newlines(tag));
    if name == "generation" {
        format!("{{%{left} filter {GENERATION_FILTER}{lines} %}}{{% with {right}%}}")
    } else {
        format!("{{%{left} endwith{lines} %}}{{% endfilter {right}%}}")
    }
}

/// The length of the body and end tag of a raw block.
fn raw_length(body: &str) -> usize {
    let mut position = 0;
    while let Some(start) = body[position..].find("{%") {
        let tag = &body[position + start..];
        let name = tag[2..].trim_start_matches(['-', '+']).trim_start();
        if name.starts_with("endraw") {
            return position + start + tag.find("%}").map_or(tag.len(), |end| end + 2);
        }
        position += start + 2;
    }
    body.len()
}

#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

impl Token<'_> {
    fn is_name(&self) -> bool {
        self.text
            .starts_with(|c: char| c == '_' || c.is_alphabetic())
    }
}

/// The tokens of a tag that starts with two delimiter bytes and ends with `end`, and its length.
/// Strings are kept as one token, quotes included.
fn tokenize<'a>(tag: &'a str, end: &str, first_line: usize) -> (Vec<Token<'a>>, usize) {
    let mut tokens = Vec::new();
    let mut line = first_line;
    let mut depth = 0usize;
    let mut position = 2;
    while let Some(character) = tag[position..].chars().next() {
        let rest = &tag[position..];
        if depth == 0 && rest.starts_with(end) {
            return (tokens, position + end.len());
        }
        let length = match character {
            '"' | '\'' => string_length(rest),
            '_' => name_length(rest),
            _ if character.is_alphanumeric() => name_length(rest),
            _ => character.len_utf8(),
        };
        match character {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let is_control = matches!(character, '-' | '+')
            && (position == 2 || (depth == 0 && rest[1..].starts_with(end)));
        if !character.is_whitespace() && !is_control {
            tokens.push(Token {
                text: &rest[..length],
                line,
            });
        }
        line += newlines(&rest[..length]);
        position += length;
    }
    (tokens, tag.len())
}

fn name_length(text: &str) -> usize {
    text.find(|c: char| c != '_' && !c.is_alphanumeric())
        .unwrap_or(text.len())
}

fn string_length(text: &str) -> usize {
    let quote = text.as_bytes()[0];
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            _ if byte == quote => return index + 1,
            _ => {}
        }
    }
    text.len()
}

fn collect_tag(tokens: &[Token<'_>], uses: &mut Vec<Use>) {
    let Some((tag, arguments)) = tokens.split_first() else {
        return;
    };
    uses.push(Use {
        kind: Kind::Tag,
        name: tag.text.to_owned(),
        line: tag.line,
    });
    match (tag.text, arguments) {
        // The name of a macro is declared here, not called.
        ("macro", [_name, parameters @ ..]) => collect_uses(parameters, uses),
        ("filter", [name, more @ ..]) => {
            uses.push(Use {
                kind: Kind::Filter,
                name: name.text.to_owned(),
                line: name.line,
            });
            // Whatever comes first belongs to the filter; its name must not be read as a call.
            collect_uses(more, uses);
        }
        _ => collect_uses(arguments, uses),
    }
}

fn collect_uses(tokens: &[Token<'_>], uses: &mut Vec<Use>) {
    for (index, token) in tokens.iter().enumerate() {
        if !token.is_name() {
            continue;
        }
        let before = |distance: usize| {
            index
                .checked_sub(distance)
                .map_or("", |position| tokens[position].text)
        };
        let after = |distance: usize| tokens.get(index + distance).map_or("", |token| token.text);
        let kind = match (before(2), before(1)) {
            (_, "|") => Kind::Filter,
            ("is", "not") => Kind::Test,
            (_, "is") if token.text != "not" => Kind::Test,
            (_, ".") if after(1) == "(" => Kind::Method,
            (_, ".") => continue,
            _ if after(1) == "(" && !is_keyword(token.text) => Kind::Function,
            _ if after(1) == "is" && (after(2) == "defined" || after(3) == "defined") => {
                Kind::Guard
            }
            _ => continue,
        };
        uses.push(Use {
            kind,
            name: token.text.to_owned(),
            line: token.line,
        });
    }
}

/// Words that may stand before a parenthesis without calling anything.
fn is_keyword(word: &str) -> bool {
    matches!(
        word,
        "and" | "or" | "not" | "in" | "is" | "if" | "else" | "elif" | "set" | "call"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(source: &str) -> Vec<(Kind, String, usize)> {
        let scan = scan(source).expect("valid");
        scan.uses
            .into_iter()
            .map(|found| (found.kind, found.name, found.line))
            .collect()
    }

    #[test]
    fn names_are_found_with_their_lines() {
        let source = "{# {{ a|no }} #}\n{{ x|upper ~ 'a|no' }}\n{%- if not (y is not string) -%}\n\
                      {{ z.strip()\n .lstrip('}}') }}{% raw %}{{ a|no }}{% endraw %}{{ f({}) }}";
        assert_eq!(
            uses(source),
            [
                (Kind::Filter, "upper".to_owned(), 2),
                (Kind::Tag, "if".to_owned(), 3),
                (Kind::Test, "string".to_owned(), 3),
                (Kind::Method, "strip".to_owned(), 4),
                (Kind::Method, "lstrip".to_owned(), 5),
                (Kind::Function, "f".to_owned(), 5),
            ]
        );
        assert_eq!(
            uses("{% if g is not defined %}{% macro m(a) %}{% endmacro %}{% filter trim %}"),
            [
                (Kind::Tag, "if".to_owned(), 1),
                (Kind::Guard, "g".to_owned(), 1),
                (Kind::Test, "defined".to_owned(), 1),
                (Kind::Tag, "macro".to_owned(), 1),
                (Kind::Tag, "endmacro".to_owned(), 1),
                (Kind::Tag, "filter".to_owned(), 1),
                (Kind::Filter, "trim".to_owned(), 1),
            ]
        );
    }

    #[test]
    fn generation_tags_keep_white_space_control_and_lines() {
        let scan = scan("a\r\n{%- generation +%}b{% endgeneration -%}\n{{ '{% generation %}' }}");
        assert_eq!(
            scan.expect("valid").source,
            "a\n{%- filter mark_generation %}{% with +%}b{% endwith %}{% endfilter -%}\n\
             {{ '{% generation %}' }}"
        );
    }

    #[test]
    fn unpaired_generation_tags_are_errors_with_a_line() {
        for (source, expected) in [
            ("\n{% generation %}x", 2),
            ("\n\n{% endgeneration %}", 3),
            ("{%generation%}", 1),
        ] {
            match scan(source) {
                Err(ChatTemplateError::Unsupported { line, .. }) => assert_eq!(line, expected),
                other => panic!("{source:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn broken_templates_pass_through() {
        for source in [
            "{",
            "{{",
            "{% if",
            "{{ 'x",
            "{% raw %}{{",
            "{#",
            "a { b } {{ {{ }}",
        ] {
            assert_eq!(scan(source).expect("valid").source, source);
        }
    }
}
