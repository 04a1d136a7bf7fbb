//! Conversations as supervised rows: what the chat template puts out for trained messages counts.
//!
//! A conversation is rendered once and tokenised once. A trained message's part is what the template
//! marks as generated, or else what it adds to the rendering before it, from the first byte of the
//! content up to its end-of-turn token; without marks this needs a template that leaves earlier turns
//! as they were. Rows that can't be masked exactly are refused by name rather than masked nearly.

use model::chat_template::{ChatTemplate, ChatTemplateError, RenderInput, Rendered};
use model::tokenizer::{Tokenizer, TokenizerError};
use serde_json::{Map, Value};

use crate::dataset::Row;

/// Why a conversation gives no row.
#[derive(Debug, thiserror::Error)]
pub enum ConversationError {
    /// No message is trained on.
    #[error("no assistant message is to be trained on")]
    NothingTrained,
    /// The template changes what it wrote of earlier turns.
    #[error(
        "message {message}: the chat template rewrites earlier turns, so its place is not fixed"
    )]
    Rewritten {
        /// Index of the message.
        message: usize,
    },
    /// The end-of-turn token is missing.
    #[error(
        "message {message}: its rendering has no end-of-turn token, so nothing teaches when to stop"
    )]
    NoEnd {
        /// Index of the message.
        message: usize,
    },
    /// A token lies across one of the borders of what counts.
    #[error("message {message}: the token {token:?} lies across its border")]
    Straddled {
        /// Index of the message.
        message: usize,
        /// The token's text.
        token: String,
    },
    /// The chat template puts more than one start token first.
    #[error(transparent)]
    RepeatedStart(TokenizerError),
    /// The template can't render it.
    #[error("the chat template can't render it")]
    Template(#[from] ChatTemplateError),
    /// The text can't be tokenised.
    #[error("it can't be tokenised")]
    Tokenizer(#[from] TokenizerError),
}

/// What turns conversations of one model into rows.
#[derive(Debug)]
pub struct Encoder<'a> {
    /// The tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// The chat template.
    pub template: &'a ChatTemplate,
    /// What the template is given besides the messages.
    pub variables: &'a Map<String, Value>,
    /// Tokens that end a turn.
    pub stop_tokens: &'a [u32],
}

impl Encoder<'_> {
    /// The row of `messages` as chat templates read them. Assistant messages are trained on unless
    /// they say `"train": false`.
    ///
    /// # Errors
    /// When nothing is trained on, what counts can't be told exactly, or the row begins with more than
    /// one start token.
    pub fn encode(
        &self,
        id: &str,
        messages: &[Value],
        tools: Option<&Value>,
    ) -> Result<Row, ConversationError> {
        let found = self.find(messages, tools)?;
        if found.turns.is_empty() {
            return Err(ConversationError::NothingTrained);
        }
        for turn in &found.turns {
            turn.check(true)?;
        }
        Ok(found.row(id))
    }

    /// The same for a conversation that a policy had, and of which there is no better record: an
    /// ordinary token that lies across a border of what it wrote counts, since many a template ends
    /// the opening of a turn with a text that the reply's first token takes in. A special token is
    /// the template's alone and must not. Where nothing was written to be trained on, no token of the
    /// row counts.
    ///
    /// # Errors
    /// When the template rewrites earlier turns, puts out a turn without an end or more than one start
    /// token, lets what counts end or begin inside a special token, or can't render the conversation.
    pub fn encode_nearly(&self, id: &str, messages: &[Value]) -> Result<Row, ConversationError> {
        let found = self.find(messages, None)?;
        for turn in &found.turns {
            turn.check(false)?;
        }
        Ok(found.row(id))
    }

    /// The tokens of a conversation, and where its trained messages are among them.
    fn find(&self, messages: &[Value], tools: Option<&Value>) -> Result<Found, ConversationError> {
        let special_tokens = self.tokenizer.special_tokens();
        let render = |until: usize, is_open: bool| {
            self.template.render_marked(&RenderInput {
                messages: &messages[..until],
                tools,
                add_generation_prompt: is_open,
                variables: self.variables,
                special_tokens: &special_tokens,
            })
        };
        let whole = render(messages.len(), false)?;
        let encoded = self.tokenizer.encode_rendered(&whole)?;
        self.tokenizer
            .check_start(&encoded.ids)
            .map_err(ConversationError::RepeatedStart)?;
        let written: Vec<usize> = (0..messages.len())
            .filter(|message| messages[*message]["role"] == "assistant")
            .collect();
        let mut turns = Vec::new();
        for (nth, message) in written.iter().copied().enumerate() {
            if messages[message]["train"] == false {
                continue;
            }
            let after = render(message + 1, false)?;
            // The message's own mark, if each of those written has one.
            let is_marked = whole.generation.len() == written.len()
                && after.generation.len() == nth + 1
                && render(message, false)?.generation.len() == nth;
            let (start, end) = if is_marked {
                let mark = &whole.generation[nth];
                (mark.start, mark.end)
            } else {
                border(&whole, &render(message, true)?, &after)
                    .ok_or(ConversationError::Rewritten { message })?
            };
            let inside = |at: &usize| {
                let range = &encoded.ranges[*at];
                range.start < end && range.end > start
            };
            let is_end = |at: &usize| inside(at) && self.stop_tokens.contains(&encoded.ids[*at]);
            let mut tokens = 0..encoded.ids.len();
            let first = tokens.clone().find(inside);
            // What the template puts behind the end of a turn nobody wrote.
            let last = tokens.clone().find(is_end);
            let counted = first.zip(last.or_else(|| tokens.rfind(inside)));
            let reaches_out = |at: &usize| {
                let range = &encoded.ranges[*at];
                range.start < start || range.end > end
            };
            let straddling = |at: usize| Straddling {
                text: whole.text[encoded.ranges[at].clone()].to_owned(),
                is_special: self.tokenizer.is_special(encoded.ids[at]),
            };
            let borders = counted.into_iter().flat_map(|(first, last)| [first, last]);
            turns.push(Turn {
                message,
                has_end: last.is_some(),
                straddling: borders.filter(reaches_out).map(straddling).collect(),
                tokens: counted,
            });
        }
        Ok(Found {
            ids: encoded.ids,
            turns,
        })
    }
}

/// The tokens of a conversation, and its trained messages.
struct Found {
    ids: Vec<u32>,
    turns: Vec<Turn>,
}

/// A trained message among the tokens.
struct Turn {
    /// Its index.
    message: usize,
    /// Its first and its last token that counts; none where nothing of it was put out.
    tokens: Option<(usize, usize)>,
    has_end: bool,
    /// Its first and its last token, where they reach beyond it.
    straddling: Vec<Straddling>,
}

/// A token across a border.
struct Straddling {
    text: String,
    is_special: bool,
}

impl Turn {
    /// Whether it can be learnt from. If `is_exact`, no token may reach beyond it; else no special one.
    fn check(&self, is_exact: bool) -> Result<(), ConversationError> {
        let message = self.message;
        if !self.has_end {
            return Err(ConversationError::NoEnd { message });
        }
        let mut wrong = self.straddling.iter();
        match wrong.find(|token| is_exact || token.is_special) {
            None => Ok(()),
            Some(token) => Err(ConversationError::Straddled {
                message,
                token: token.text.clone(),
            }),
        }
    }
}

impl Found {
    fn row(self, id: &str) -> Row {
        let mut mask = vec![false; self.ids.len()];
        for (first, last) in self.turns.iter().filter_map(|turn| turn.tokens) {
            mask[first..=last].fill(true);
        }
        Row {
            id: id.to_owned(),
            tokens: self.ids,
            mask,
            weight: 1.0,
            group: None,
        }
    }
}

/// Where a message's own part begins and ends in the whole rendering, if the renderings before and
/// after it are beginnings of it.
fn border(whole: &Rendered, before: &Rendered, after: &Rendered) -> Option<(usize, usize)> {
    let is_beginning = |part: &Rendered| whole.text.starts_with(&part.text);
    (is_beginning(before) && is_beginning(after) && before.text.len() <= after.text.len())
        .then_some((before.text.len(), after.text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% if not m.cut %}<|im_end|>{% endif %}\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

    fn encode(template: &str, messages: Value) -> Result<(String, String), ConversationError> {
        encode_to("<|im_end|>", template, messages)
    }

    /// The whole row and what counts of it, for a model that stops at `end`.
    fn encode_to(
        end: &str,
        template: &str,
        messages: Value,
    ) -> Result<(String, String), ConversationError> {
        encode_by(&tokenizer(), end, template, &messages, exactly)
    }

    /// As a conversation is encoded that a policy had.
    fn encode_nearly(
        template: &str,
        messages: Value,
    ) -> Result<(String, String), ConversationError> {
        encode_by(&tokenizer(), "<|im_end|>", template, &messages, nearly)
    }

    fn exactly(encoder: &Encoder<'_>, messages: &[Value]) -> Result<Row, ConversationError> {
        encoder.encode("r", messages, None)
    }

    fn nearly(encoder: &Encoder<'_>, messages: &[Value]) -> Result<Row, ConversationError> {
        encoder.encode_nearly("r", messages)
    }

    fn golden() -> Vec<u8> {
        let directory =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama_tied");
        std::fs::read(directory.join("tokenizer.json")).expect("golden file")
    }

    /// One token a byte.
    fn tokenizer() -> Tokenizer {
        Tokenizer::from_json(&golden()).expect("tokenizer")
    }

    /// The same, and one for two line feeds.
    fn merging_tokenizer() -> Tokenizer {
        let mut json: Value = serde_json::from_slice(&golden()).expect("JSON");
        let added = json["added_tokens"].as_array().expect("tokens").clone();
        for token in &added {
            let text = token["content"].as_str().expect("text");
            json["model"]["vocab"][text] = token["id"].clone();
        }
        json["model"]["vocab"]["ĊĊ"] = json!(256 + added.len());
        json["model"]["merges"] = json!([["Ċ", "Ċ"]]);
        Tokenizer::from_json(json.to_string().as_bytes()).expect("tokenizer")
    }

    type Encode = fn(&Encoder<'_>, &[Value]) -> Result<Row, ConversationError>;

    fn encode_by(
        tokenizer: &Tokenizer,
        end: &str,
        template: &str,
        messages: &Value,
        encode: Encode,
    ) -> Result<(String, String), ConversationError> {
        let template = ChatTemplate::new(template).expect("template");
        let end = tokenizer.id_of(end).expect("token");
        let encoder = Encoder {
            tokenizer,
            template: &template,
            variables: &Map::new(),
            stop_tokens: &[end],
        };
        let row = encode(&encoder, messages.as_array().expect("list"))?;
        let counted: Vec<u32> = (0..row.tokens.len())
            .filter(|at| row.mask[*at])
            .map(|at| row.tokens[at])
            .collect();
        Ok((
            tokenizer.decode(&row.tokens, false),
            tokenizer.decode(&counted, false),
        ))
    }

    #[test]
    fn trained_turns_count_from_their_content_to_their_end_token() {
        let (whole, counted) = encode(
            CHATML,
            json!([
                {"role": "system", "content": "S"},
                {"role": "user", "content": "a <|im_end|> b"},
                {"role": "assistant", "content": "one", "train": false},
                {"role": "user", "content": "c"},
                {"role": "assistant", "content": "two <|im_end|> and"},
            ]),
        )
        .expect("row");
        assert!(
            whole.starts_with("<|im_start|>system\nS<|im_end|>"),
            "{whole}"
        );
        // What looks like an end inside a message is text; the turn goes on to its own end.
        assert_eq!(counted, "two <|im_end|> and<|im_end|>");
    }

    #[test]
    fn what_a_template_marks_counts_though_it_drops_earlier_reasoning() {
        let template = "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n{% set content = m.content %}{% if m.role == 'assistant' %}{% if loop.index0 < ns.last %}{% set content = content.split('</think>')[-1] %}{% endif %}{% generation %}{{ content }}<|im_end|>{% endgeneration %}{% else %}{{ content }}<|im_end|>{% endif %}{{ '\n' }}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
        let turns = |is_trained: bool| {
            json!([
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "<think>t1</think>x", "train": is_trained},
                {"role": "user", "content": "b"},
                {"role": "assistant", "content": "<think>t2</think>y"},
            ])
        };
        let (whole, counted) = encode(template, turns(true)).expect("row");
        assert_eq!(
            whole,
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nx<|im_end|>\n\
             <|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n<think>t2</think>y<|im_end|>\n"
        );
        assert_eq!(counted, "x<|im_end|><think>t2</think>y<|im_end|>");
        let (_, counted) = encode(template, turns(false)).expect("row");
        assert_eq!(counted, "<think>t2</think>y<|im_end|>");
        // Without the marks there is no telling.
        let unmarked = template
            .replace("{% generation %}", "")
            .replace("{% endgeneration %}", "");
        let error = encode(&unmarked, turns(true)).expect_err("rewritten");
        assert!(matches!(error, ConversationError::Rewritten { message: 1 }));
    }

    /// A model may end its turns with another token than the one that its tokenizer calls the end.
    #[test]
    fn the_token_that_the_template_ends_turns_with_counts_and_another_is_none() {
        let messages = || {
            json!([
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "hi"},
            ])
        };
        let other = CHATML.replace("<|im_end|>", "<|pad|>");
        let error = encode(&other, messages()).expect_err("no end");
        assert!(matches!(error, ConversationError::NoEnd { message: 1 }));
        let (_, counted) = encode_to("<|pad|>", &other, messages()).expect("row");
        assert_eq!(counted, "hi<|pad|>");
    }

    #[test]
    fn what_cannot_be_masked_exactly_is_refused() {
        let user = json!({"role": "user", "content": "a"});
        let error = encode(CHATML, json!([user])).expect_err("nothing");
        assert!(matches!(error, ConversationError::NothingTrained));
        let cut = json!({"role": "assistant", "content": "x", "cut": true});
        let error = encode(CHATML, json!([user, cut])).expect_err("no end");
        assert!(
            matches!(error, ConversationError::NoEnd { message: 1 }),
            "{error}"
        );
        // Only the last message keeps its reasoning.
        let forgetful = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if loop.last %}{{ m.think }}{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
        let turn = json!({"role": "assistant", "content": "x", "think": "hm"});
        let error = encode(forgetful, json!([user, turn, user, turn])).expect_err("rewritten");
        assert!(
            matches!(error, ConversationError::Rewritten { message: 1 }),
            "{error}"
        );
    }

    #[test]
    fn a_second_start_token_is_refused() {
        let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let tokenizer = Tokenizer::from_file(&golden.join("llama_tied/tokenizer.json"));
        let tokenizer = tokenizer.expect("a tokenizer with a start token");
        // What a message says is text, wherever it stands.
        let messages = json!([
            {"role": "user", "content": "<|im_start|><|im_start|>"},
            {"role": "assistant", "content": "b"},
        ]);
        let by = |template: &str, encode: Encode| {
            encode_by(&tokenizer, "<|im_end|>", template, &messages, encode)
        };
        let encodes: [Encode; 2] = [exactly, nearly];
        for encode in encodes {
            by(CHATML, encode).expect("row");
            let error = by(&format!("<|im_start|>{CHATML}"), encode).expect_err("doubled");
            assert!(matches!(error, ConversationError::RepeatedStart(_)));
            let told = "the text begins with 2 start tokens \"<|im_start|>\"";
            assert_eq!(error.to_string(), told);
        }
    }

    #[test]
    fn a_border_inside_a_special_token_is_refused_on_either_side() {
        let turn = |content: &str| {
            json!([
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": content},
            ])
        };
        let marked = |before: &str, inside: &str, after: &str| {
            format!(
                "{{% for m in messages %}}{{% if m.role == 'assistant' %}}<|im_start|>assistant\n{before}\
                 {{% generation %}}{inside}{{% endgeneration %}}{after}\n{{% else %}}<|im_start|>user\n\
                 {{{{ m.content }}}}<|im_end|>\n{{% endif %}}{{% endfor %}}"
            )
        };
        let content = "{{ m.content }}";
        let whole = marked("", &format!("{content}<|im_end|>"), "");
        let (_, counted) = encode(&whole, turn("x")).expect("row");
        assert_eq!(counted, "x<|im_end|>");
        for (template, special) in [
            (
                marked("", &format!("{content}<|im_"), "end|>"),
                "<|im_end|>",
            ),
            (
                marked("<|im_", &format!("start|>{content}<|im_end|>"), ""),
                "<|im_start|>",
            ),
        ] {
            for encode in [encode, encode_nearly] {
                let error = encode(&template, turn("x")).expect_err("straddled");
                let ConversationError::Straddled { message: 1, token } = &error else {
                    panic!("{error}")
                };
                assert_eq!(token, special);
            }
        }
        // What the template leaves outside the mark is no end that is learnt.
        let outside = marked("", content, "<|im_end|>");
        for encode in [encode, encode_nearly] {
            let error = encode(&outside, turn("x")).expect_err("no end");
            assert!(matches!(error, ConversationError::NoEnd { message: 1 }));
        }
    }

    #[test]
    fn an_ordinary_token_across_a_border_counts_only_where_there_is_no_better_record() {
        // The line feed that opens the turn and the one that the reply begins with are one token.
        let messages = json!([
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "\n\nx"},
        ]);
        let tokenizer = merging_tokenizer();
        let by = |encode: Encode| encode_by(&tokenizer, "<|im_end|>", CHATML, &messages, encode);
        let error = by(exactly).expect_err("straddled");
        let ConversationError::Straddled { message: 1, token } = &error else {
            panic!("{error}")
        };
        assert_eq!(token, "\n\n");
        let (_, counted) = by(nearly).expect("row");
        assert_eq!(counted, "\n\n\nx<|im_end|>");
    }
}
