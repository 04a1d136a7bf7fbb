//! Conversations as a chat template's text: the same for decoding and for training.

use model::chat_template::{ChatTemplate, ChatTemplateError, RenderInput, Rendered};
use model::tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

use crate::trajectory::{Message, Role, ToolCall};

/// A chat template with what it needs besides the messages.
pub struct Renderer {
    template: ChatTemplate,
    variables: Map<String, Value>,
    special_tokens: Vec<String>,
    knows_tools: bool,
}

impl std::fmt::Debug for Renderer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renderer")
            .field("knows_tools", &self.knows_tools)
            .finish_non_exhaustive()
    }
}

impl Renderer {
    /// Tool results go out under the role `tool` if the template speaks of it and takes it, else
    /// as the user's words.
    ///
    /// # Errors
    /// When `template` is not one.
    pub fn new(
        tokenizer: &Tokenizer,
        template: &str,
        variables: Map<String, Value>,
    ) -> Result<Self, ChatTemplateError> {
        let template = ChatTemplate::new(template)?;
        let special_tokens = tokenizer.special_tokens();
        let mut renderer = Self {
            template,
            variables,
            special_tokens,
            knows_tools: true,
        };
        let source = renderer.template.source();
        let speaks_of_tools = source.contains("'tool'") || source.contains("\"tool\"");
        let probe = [
            Message::new(Role::User, "1"),
            Message::new(Role::Assistant, "2"),
            Message::new(Role::Tool, "3"),
        ];
        renderer.knows_tools = speaks_of_tools && renderer.render(&probe, None, true).is_ok();
        Ok(renderer)
    }

    /// The template.
    pub fn template(&self) -> &ChatTemplate {
        &self.template
    }

    /// A conversation as text, with the start of the next reply if `is_open`. Special tokens inside
    /// messages are marked as plain text.
    ///
    /// # Errors
    /// What the template can't render.
    pub fn render(
        &self,
        messages: &[Message],
        tools: Option<&Value>,
        is_open: bool,
    ) -> Result<Rendered, ChatTemplateError> {
        let messages: Vec<Value> = messages
            .iter()
            .map(|message| self.written(message))
            .collect();
        self.template.render_marked(&RenderInput {
            messages: &messages,
            tools,
            add_generation_prompt: is_open,
            variables: &self.variables,
            special_tokens: &self.special_tokens,
        })
    }

    /// A message as the template reads it.
    pub fn written(&self, message: &Message) -> Value {
        let content = &message.content;
        match message.role {
            Role::System => json!({"role": "system", "content": content}),
            Role::User => json!({"role": "user", "content": content}),
            Role::Assistant if message.is_native => {
                let call = |call: &ToolCall| {
                    let function = json!({"name": call.tool, "arguments": call.arguments});
                    json!({"type": "function", "function": function})
                };
                let calls: Vec<Value> = message.tool_calls.iter().map(call).collect();
                json!({"role": "assistant", "content": content, "tool_calls": calls})
            }
            Role::Assistant => json!({"role": "assistant", "content": content}),
            Role::Tool if self.knows_tools => json!({"role": "tool", "content": content}),
            Role::Tool => json!({"role": "user", "content": super::local::tool_output(content)}),
        }
    }
}
