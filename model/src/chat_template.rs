//! Chat templates: a conversation to the exact text a model was trained on.
//!
//! Templates are written for Jinja2 as transformers sets it up
//! (`transformers/utils/chat_template_utils.py`: trimmed blocks, loop controls, `tojson` in the
//! style of `json.dumps`, `raise_exception`, `strftime_now`, `{% generation %}`). This module gives
//! minijinja the same surroundings and output. What the engine lacks is reported when a template
//! is loaded, with its line.
//!
//! Parts: `scan` looks through the source, `python` and `json` supply the Python behaviour, `clock`
//! the date, `marks` the byte ranges of generation blocks and of special tokens inside messages.

mod clock;
mod json;
mod marks;
mod python;
mod scan;

use std::ops::Range;
use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, context};
use serde_json::{Map, Value};

use clock::Clock;
use marks::Marks;
use scan::{GENERATION_FILTER, Kind, Scan, Use};

/// The name under which the only template of the environment is kept.
const NAME: &str = "chat_template";
/// The context variable that holds the marks of this rendering: open, close, literal.
const MARKS: &str = "__marks";

/// Why a template could not be loaded or rendered.
#[derive(Debug, thiserror::Error)]
pub enum ChatTemplateError {
    /// The source is not a template.
    #[error("syntax error in line {line} of the chat template")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The template needs something that is not available here.
    #[error("unsupported in line {line} of the chat template: {construct}")]
    Unsupported {
        /// The line, from 1.
        line: usize,
        /// What is missing.
        construct: String,
    },
    /// The template itself refused the conversation, through `raise_exception`.
    #[error("the chat template refused the conversation: {message}")]
    Refused {
        /// The template's own words.
        message: String,
    },
    /// Rendering failed.
    #[error("cannot render line {line} of the chat template")]
    Render {
        /// The line, from 1; 0 if it is not known.
        line: usize,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The template took only a part of what a generation block put out, so there is no telling
    /// which text the model wrote.
    #[error("the chat template cuts the output of a generation block in half")]
    BrokenGeneration,
}

/// What one rendering takes.
#[derive(Debug, Clone, Copy)]
pub struct RenderInput<'a> {
    /// The messages, as objects with `role`, `content` and whatever else the template reads.
    pub messages: &'a [Value],
    /// The list of tools. `None` is passed on as `none`, as transformers does.
    pub tools: Option<&'a Value>,
    /// Whether to end with the beginning of an assistant turn.
    pub add_generation_prompt: bool,
    /// Further variables: `bos_token`, `eos_token`, `enable_thinking` and the like.
    pub variables: &'a Map<String, Value>,
    /// Special tokens that are plain text where they occur in messages and tools; see
    /// [`Rendered::literal`]. [`Tokenizer::special_tokens`](crate::tokenizer::Tokenizer::special_tokens)
    /// lists a model's.
    pub special_tokens: &'a [String],
}

/// A rendered conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The text.
    pub text: String,
    /// The byte ranges that generation blocks put out, in order: what the model is trained on.
    /// Empty if the template has no such blocks.
    pub generation: Vec<Range<usize>>,
    /// The byte ranges of special tokens that stood in a message or tool and therefore are not
    /// the template's, in order.
    /// [`Tokenizer::encode_rendered`](crate::tokenizer::Tokenizer::encode_rendered) keeps them text.
    pub literal: Vec<Range<usize>>,
}

/// A chat template, ready to render. Shared between threads by reference.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    has_generation: bool,
}

impl ChatTemplate {
    /// Loads a template.
    ///
    /// # Errors
    /// Syntax errors, and filters, tests, functions, methods and tags that are not available.
    pub fn new(source: &str) -> Result<Self, ChatTemplateError> {
        let Scan {
            source: rewritten,
            uses,
        } = scan::scan(source)?;
        let has_generation = rewritten.contains(GENERATION_FILTER);
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        environment.set_syntax(syntax.map_err(syntax_error)?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        python::install(&mut environment);
        environment.add_filter(GENERATION_FILTER, mark_generation);
        environment.add_function("raise_exception", raise_exception);
        environment
            .add_template_owned(NAME, rewritten)
            .map_err(syntax_error)?;
        check(&environment, &uses)?;
        Ok(Self {
            environment,
            source: source.to_owned(),
            has_generation,
        })
    }

    /// Sets the time that `strftime_now` tells, in UTC. Without it the function does not exist:
    /// templates that ask for it (`strftime_now is defined`) use the date written in them, others
    /// fail. The clock is never read here, since a prompt that changes from day to day makes runs
    /// incomparable.
    #[must_use]
    pub fn with_now(mut self, now: SystemTime) -> Self {
        let clock = Clock::new(now);
        self.environment
            .add_function("strftime_now", move |format: &str| clock.format(format));
        self
    }

    /// The source, as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the template marks what the model writes.
    pub fn has_generation(&self) -> bool {
        self.has_generation
    }

    /// Renders to text alone.
    ///
    /// # Errors
    /// As [`render_marked`](Self::render_marked).
    pub fn render(
        &self,
        messages: &[Value],
        tools: Option<&Value>,
        add_generation_prompt: bool,
        variables: &Map<String, Value>,
    ) -> Result<String, ChatTemplateError> {
        let input = RenderInput {
            messages,
            tools,
            add_generation_prompt,
            variables,
            special_tokens: &[],
        };
        Ok(self.render_marked(&input)?.text)
    }

    /// Renders to text with the ranges of generation blocks and of special tokens in messages.
    ///
    /// # Errors
    /// What the template refuses, operations it cannot do (such as reading a field of something
    /// undefined), and a generation block whose output the template cut.
    pub fn render_marked(&self, input: &RenderInput<'_>) -> Result<Rendered, ChatTemplateError> {
        let mut messages = Value::from(input.messages);
        let mut tools = input.tools.cloned().unwrap_or_default();
        let variables = Value::from(input.variables.clone());
        let marks = Marks::choose(&self.source, &[&messages, &tools, &variables]);
        if !input.special_tokens.is_empty() {
            messages = marks.mark_special(&messages, input.special_tokens);
            tools = marks.mark_special(&tools, input.special_tokens);
        }
        let context = context! {
            messages => minijinja::Value::from(Serde(messages)),
            tools => minijinja::Value::from(Serde(tools)),
            add_generation_prompt => input.add_generation_prompt,
            __marks => [marks.open, marks.close, marks.literal].iter().collect::<String>(),
            ..minijinja::Value::from(Serde(variables))
        };
        let template = self.environment.get_template(NAME).map_err(syntax_error)?;
        let marked = template.render(context).map_err(render_error)?;
        marks.remove(&marked, input.special_tokens)
    }
}

/// The filter behind `{% generation %}`.
fn mark_generation(state: &State, body: &str) -> String {
    let marks = state.lookup(MARKS).unwrap_or_default().to_string();
    let mut marks = marks.chars().map(String::from);
    let (open, close) = (
        marks.next().unwrap_or_default(),
        marks.next().unwrap_or_default(),
    );
    format!("{open}{body}{close}")
}

/// The error behind `raise_exception`, carried through the engine as a source.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct RaisedException(String);

fn raise_exception(message: &minijinja::Value) -> Result<String, Error> {
    let raised = RaisedException(message.to_string());
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(raised))
}

fn syntax_error(error: Error) -> ChatTemplateError {
    ChatTemplateError::Syntax {
        line: error.line().unwrap_or(0),
        source: error.into(),
    }
}

fn render_error(error: Error) -> ChatTemplateError {
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    while let Some(current) = cause {
        if let Some(RaisedException(message)) = current.downcast_ref() {
            return ChatTemplateError::Refused {
                message: message.clone(),
            };
        }
        cause = current.source();
    }
    ChatTemplateError::Render {
        line: error.line().unwrap_or(0),
        source: error.into(),
    }
}

/// Checks that everything a template names is there. The engine itself would notice only when it
/// reaches the place.
fn check(environment: &Environment<'static>, uses: &[Use]) -> Result<(), ChatTemplateError> {
    let undeclared = environment
        .get_template(NAME)
        .map_err(syntax_error)?
        .undeclared_variables(false);
    let is_guarded = |name: &str| uses.iter().any(|u| u.kind == Kind::Guard && u.name == name);
    for Use { kind, name, line } in uses {
        let missing = match kind {
            Kind::Filter => (!exists(environment, "filter", name)).then_some("filter"),
            Kind::Test => (!exists(environment, "test", name)).then_some("test"),
            Kind::Method => (!python::METHODS.contains(&name.as_str())).then_some("method"),
            Kind::Function => {
                // The time is set after loading, the others exist only inside certain blocks.
                let is_known = ["strftime_now", "caller", "loop", "super"].contains(&name.as_str())
                    || environment.globals().any(|(global, _)| global == name)
                    || !undeclared.contains(name)
                    || is_guarded(name);
                (!is_known).then_some("function")
            }
            Kind::Tag => ["include", "import", "from", "extends"]
                .contains(&name.as_str())
                .then_some("tag that needs another template"),
            Kind::Guard => None,
        };
        if let Some(what) = missing {
            let construct = format!("{what} {name:?}");
            return Err(ChatTemplateError::Unsupported {
                line: *line,
                construct,
            });
        }
    }
    Ok(())
}

/// Whether the environment has a filter or test of this name.
fn exists(environment: &Environment<'static>, kind: &str, name: &str) -> bool {
    environment
        .compile_expression_owned(format!("name is {kind}"))
        .and_then(|expression| expression.eval(context! { name }))
        .is_ok_and(|found| found.is_true())
}

#[cfg(test)]
mod tests;
