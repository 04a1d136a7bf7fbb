//! The text of `skills/<name>/SKILL.md`: YAML front matter between `---` lines, an empty line, and
//! the body.

use serde::{Deserialize, Serialize};

use crate::document::Skill;
use crate::yaml::{self, YamlError};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FrontMatter {
    name: String,
    description: String,
    #[serde(default)]
    triggers: Vec<String>,
}

pub(crate) fn write(skill: &Skill) -> String {
    let front_matter = yaml::to_string(&FrontMatter {
        name: skill.name.clone(),
        description: skill.description.clone(),
        triggers: skill.triggers.clone(),
    });
    format!("---\n{front_matter}---\n\n{}\n", skill.body)
}

pub(crate) fn read(text: &str) -> Result<Skill, YamlError> {
    let front = |line| YamlError {
        line,
        column: 1,
        reason: "expected front matter between two lines `---`".to_owned(),
    };
    if text.starts_with("---\r\n") {
        return Err(YamlError {
            line: 1,
            column: 4,
            reason: "the line ends in a carriage return; save the file with Unix line ends"
                .to_owned(),
        });
    }
    let inner = text.strip_prefix("---\n").ok_or_else(|| front(1))?;
    let (front_matter, body) = match inner.strip_prefix("---\n") {
        Some(body) => ("", body),
        None => match inner.split_once("\n---\n") {
            Some(parts) => parts,
            // The body may be missing together with its line feed.
            None => (inner.strip_suffix("\n---").ok_or_else(|| front(1))?, ""),
        },
    };
    if front_matter.trim().is_empty() {
        return Err(YamlError {
            line: 2,
            column: 1,
            reason: "the front matter is empty".to_owned(),
        });
    }
    // One more line stands before the front matter.
    let read: FrontMatter = yaml::from_str(front_matter).map_err(|error| YamlError {
        line: error.line.max(1) + 1,
        ..error
    })?;
    let body = body.strip_prefix('\n').unwrap_or(body);
    let body = body.strip_suffix('\n').unwrap_or(body);
    Ok(Skill {
        name: read.name,
        description: read.description,
        triggers: read.triggers,
        body: body.to_owned(),
        // In a file of its own.
        python: String::new(),
    })
}
