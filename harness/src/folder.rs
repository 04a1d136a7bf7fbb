//! The harness as a folder of text files. Callers do the reading and writing: here a folder is a map
//! from relative path (with `/`) to content.
//!
//! ```text
//! harness.yaml                    format, name, description
//! prompts/system.md               and task.md, final_answer.md
//! prompts/examples/01-title.md    solved problems, in the order of their numbers
//! tools/<name>.yaml
//! skills/<name>/SKILL.md          front matter, then the body
//! skills/<name>/skill.py          the skill's Python, where it has some
//! middleware.yaml
//! memory.yaml
//! ```
//!
//! A text file holds its text and one line feed more, as editors write it; an empty text is an empty
//! file. So every text comes back exactly, with any line feeds of its own.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::document::{Example, Harness, Prompts, Skill, Tool, ToolName};
use crate::validate::{Problem, validate};
use crate::{example_markdown, skill_markdown, yaml};

const HARNESS: &str = "harness.yaml";
const MIDDLEWARE: &str = "middleware.yaml";
const MEMORY: &str = "memory.yaml";
const SYSTEM: &str = "prompts/system.md";
const TASK: &str = "prompts/task.md";
const FINAL_ANSWER: &str = "prompts/final_answer.md";

/// Why a folder isn't a harness.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FolderError {
    /// A file can't be read as what its place says it is.
    #[error("{file}:{line}:{column}: {reason}")]
    Malformed {
        /// The file.
        file: String,
        /// Line, from 1.
        line: u64,
        /// Column, from 1.
        column: u64,
        /// What is wrong there.
        reason: String,
    },
    /// A file that every harness has isn't there.
    #[error("{file} is missing")]
    Missing {
        /// The file.
        file: String,
    },
    /// A file that has no place in a harness.
    #[error("{file} isn't part of a harness: {reason}")]
    Unknown {
        /// The file.
        file: String,
        /// Why not.
        reason: String,
    },
    /// The document breaks rules of [`validate`].
    #[error("{}", join_problems(problems))]
    Invalid {
        /// All broken rules, at least one, each with the file that holds the field.
        problems: Vec<(String, Problem)>,
    },
}

/// Words that YAML read as a comment although they look like text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{file}:{line}:{column}: `{text}` is a comment and not part of the text before it; quote the text to keep it"
)]
pub struct FolderWarning {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: u64,
    /// Column, from 1.
    pub column: u64,
    /// The comment.
    pub text: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    format: u32,
    name: String,
    description: String,
}

/// The files of a harness that has passed [`validate`].
pub fn to_files(harness: &Harness) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let head = Head {
        format: harness.format,
        name: harness.name.clone(),
        description: harness.description.clone(),
    };
    files.insert(HARNESS.to_owned(), yaml::to_string(&head));
    files.insert(SYSTEM.to_owned(), write_text(&harness.prompts.system));
    files.insert(TASK.to_owned(), write_text(&harness.prompts.task));
    files.insert(
        FINAL_ANSWER.to_owned(),
        write_text(&harness.prompts.final_answer),
    );
    for (index, example) in harness.prompts.examples.iter().enumerate() {
        let file = format!("prompts/examples/{:02}-{}.md", index + 1, example.title);
        files.insert(file, example_markdown::write(example));
    }
    for (name, tool) in &harness.tools {
        files.insert(format!("tools/{name}.yaml"), yaml::to_string(tool));
    }
    for (name, skill) in &harness.skills {
        files.insert(
            format!("skills/{name}/SKILL.md"),
            skill_markdown::write(skill),
        );
        if !skill.python.is_empty() {
            files.insert(format!("skills/{name}/skill.py"), write_text(&skill.python));
        }
    }
    files.insert(MIDDLEWARE.to_owned(), yaml::to_string(&harness.middleware));
    files.insert(MEMORY.to_owned(), yaml::to_string(&harness.memory));
    files
}

/// Reads and validates a harness.
///
/// # Errors
/// [`FolderError`]: a missing or unknown file, a file that can't be read (with line and column), or
/// the broken rules.
pub fn from_files(files: &BTreeMap<String, String>) -> Result<Harness, FolderError> {
    let mut tools = BTreeMap::new();
    let mut skills = BTreeMap::new();
    let mut examples = BTreeMap::new();
    for file in files.keys() {
        match place(file)? {
            Place::Fixed => {}
            Place::Tool(name) => {
                tools.insert(name, read_yaml::<Tool>(files, file)?);
            }
            Place::Skill(name) => {
                skills.insert(name.to_owned(), read_skill(files, file)?);
            }
            Place::SkillPython(name) => {
                if !files.contains_key(&format!("skills/{name}/SKILL.md")) {
                    return Err(FolderError::Unknown {
                        file: file.clone(),
                        reason: "there is no SKILL.md beside it".to_owned(),
                    });
                }
            }
            Place::Example(number, title) => {
                let example = read_example(files, file, title)?;
                if examples.insert(number, example).is_some() {
                    let reason = format!("another example has number {number}");
                    return Err(FolderError::Unknown {
                        file: file.clone(),
                        reason,
                    });
                }
            }
        }
    }
    let head: Head = read_yaml(files, HARNESS)?;
    let harness = Harness {
        format: head.format,
        name: head.name,
        description: head.description,
        prompts: Prompts {
            system: read_text(files, SYSTEM)?,
            task: read_text(files, TASK)?,
            final_answer: read_text(files, FINAL_ANSWER)?,
            examples: examples.into_values().collect(),
        },
        tools,
        skills,
        middleware: read_yaml(files, MIDDLEWARE)?,
        memory: read_yaml(files, MEMORY)?,
    };
    match validate(&harness) {
        Ok(()) => Ok(harness),
        Err(problems) => {
            let located = problems
                .into_iter()
                .map(|problem| (file_of(files, &problem), problem));
            Err(FolderError::Invalid {
                problems: located.collect(),
            })
        }
    }
}

/// Checks, before it is read, that a file of this path has a place in a harness.
///
/// # Errors
/// [`FolderError::Unknown`] if it hasn't.
pub fn check_file(file: &str) -> Result<(), FolderError> {
    place(file).map(drop)
}

/// The same for a folder inside the harness's own.
///
/// # Errors
/// [`FolderError::Unknown`] if no file in it has a place.
pub fn check_folder(folder: &str) -> Result<(), FolderError> {
    let skill = folder.strip_prefix("skills/");
    let is_of_skill = skill.is_some_and(|name| !name.contains('/'));
    if is_of_skill || ["prompts", "prompts/examples", "tools", "skills"].contains(&folder) {
        return Ok(());
    }
    Err(FolderError::Unknown {
        file: folder.to_owned(),
        reason: "no folder of this name is read".to_owned(),
    })
}

/// What a person may want to look at although the folder can be read.
pub fn warnings(files: &BTreeMap<String, String>) -> Vec<FolderWarning> {
    let mut warnings = Vec::new();
    for (file, text) in files {
        let (yaml, lines_before) = match text.strip_prefix("---\n") {
            Some(inner) if file.ends_with("/SKILL.md") => (
                inner
                    .split_once("\n---\n")
                    .map_or(inner, |(front, _)| front),
                1,
            ),
            _ if file.ends_with(".yaml") => (text.as_str(), 0),
            _ => continue,
        };
        warnings.extend(yaml::lost_text(yaml).into_iter().map(|lost| FolderWarning {
            file: file.clone(),
            line: lost.line + lines_before,
            column: lost.column,
            text: lost.text,
        }));
    }
    warnings
}

/// What a file's path says that it holds.
enum Place<'a> {
    /// One of the files that every harness has.
    Fixed,
    Tool(ToolName),
    Skill(&'a str),
    SkillPython(&'a str),
    Example(u32, &'a str),
}

fn place(file: &str) -> Result<Place<'_>, FolderError> {
    let unknown = |reason: &str| FolderError::Unknown {
        file: file.to_owned(),
        reason: reason.to_owned(),
    };
    let inside = |folder: &str, end: &str| file.strip_prefix(folder)?.strip_suffix(end);
    if [HARNESS, MIDDLEWARE, MEMORY, SYSTEM, TASK, FINAL_ANSWER].contains(&file) {
        Ok(Place::Fixed)
    } else if let Some(stem) = inside("prompts/examples/", ".md") {
        let parts = stem.split_once('-').filter(|(digits, _)| {
            digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit())
        });
        let (digits, title) = parts.ok_or_else(|| unknown("expected a name like 01-title.md"))?;
        let number = digits
            .parse()
            .map_err(|_| unknown("expected a name like 01-title.md"))?;
        Ok(Place::Example(number, title))
    } else if let Some(name) = inside("tools/", ".yaml") {
        Ok(Place::Tool(
            ToolName::new(name).map_err(|error| unknown(&error.to_string()))?,
        ))
    } else if let Some(name) = inside("skills/", "/SKILL.md").filter(|name| !name.contains('/')) {
        Ok(Place::Skill(name))
    } else if let Some(name) = inside("skills/", "/skill.py").filter(|name| !name.contains('/')) {
        Ok(Place::SkillPython(name))
    } else {
        Err(unknown("no file of this name is read"))
    }
}

/// The file that holds the field of a problem, for the message; the head if it has none of its own.
fn file_of(files: &BTreeMap<String, String>, problem: &Problem) -> String {
    use crate::field_path::Segment::{Index, Key};
    let keyed = |at: usize| match problem.path.segments().get(at) {
        Some(Key(key)) => Some(key.as_str()),
        _ => None,
    };
    match (keyed(0), keyed(1), problem.path.segments().get(2)) {
        (Some("prompts"), Some("examples"), Some(Index(index))) => {
            let mut names = files
                .keys()
                .filter(|file| file.starts_with("prompts/examples/"));
            names
                .nth(*index)
                .cloned()
                .unwrap_or_else(|| "prompts/examples".to_owned())
        }
        (Some("prompts"), Some(name), _) => format!("prompts/{name}.md"),
        (Some("tools"), Some(name), _) => format!("tools/{name}.yaml"),
        (Some("skills"), Some(name), Some(Key(field))) if field == "python" => {
            format!("skills/{name}/skill.py")
        }
        (Some("skills"), Some(name), _) => format!("skills/{name}/SKILL.md"),
        (Some("middleware"), ..) => MIDDLEWARE.to_owned(),
        (Some("memory"), ..) => MEMORY.to_owned(),
        _ => HARNESS.to_owned(),
    }
}

fn content<'a>(files: &'a BTreeMap<String, String>, file: &str) -> Result<&'a str, FolderError> {
    let text = files.get(file).ok_or_else(|| FolderError::Missing {
        file: file.to_owned(),
    })?;
    Ok(text)
}

fn read_yaml<T: DeserializeOwned>(
    files: &BTreeMap<String, String>,
    file: &str,
) -> Result<T, FolderError> {
    yaml::from_str(content(files, file)?).map_err(|error| malformed(file, error))
}

/// A skill with the Python beside it.
fn read_skill(files: &BTreeMap<String, String>, file: &str) -> Result<Skill, FolderError> {
    let mut skill =
        skill_markdown::read(content(files, file)?).map_err(|error| malformed(file, error))?;
    let python = file.replace("SKILL.md", "skill.py");
    if files.contains_key(&python) {
        skill.python = read_text(files, &python)?;
    }
    Ok(skill)
}

fn read_example(
    files: &BTreeMap<String, String>,
    file: &str,
    title: &str,
) -> Result<Example, FolderError> {
    example_markdown::read(title, content(files, file)?).map_err(|error| FolderError::Malformed {
        file: file.to_owned(),
        line: error.line,
        column: 1,
        reason: error.reason,
    })
}

fn malformed(file: &str, error: yaml::YamlError) -> FolderError {
    let yaml::YamlError {
        line,
        column,
        reason,
    } = error;
    FolderError::Malformed {
        file: file.to_owned(),
        line,
        column,
        reason,
    }
}

fn write_text(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("{text}\n")
    }
}

fn read_text(files: &BTreeMap<String, String>, file: &str) -> Result<String, FolderError> {
    let text = content(files, file)?;
    Ok(text.strip_suffix('\n').unwrap_or(text).to_owned())
}

fn join_problems(problems: &[(String, Problem)]) -> String {
    let lines = problems
        .iter()
        .map(|(file, problem)| format!("{file}: {problem}"));
    lines.collect::<Vec<_>>().join("; ")
}
