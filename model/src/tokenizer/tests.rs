use super::*;
use crate::chat_template::Rendered;
use gguf_file::Value as Metadata;
use serde_json::json;

/// The parts of a small vocabulary: three special tokens, a user-defined one, all bytes, merges.
struct Parts {
    tokens: Vec<String>,
    types: Vec<i32>,
    merges: Vec<String>,
}

const CONTROL: [&str; 3] = ["<|im_start|>", "<|im_end|>", "PAD"];
const THINK: u32 = 3;

fn parts(merges: &[&str]) -> Parts {
    let mut tokens: Vec<String> = CONTROL.iter().map(|token| (*token).to_owned()).collect();
    tokens.push("<think>".to_owned());
    let mut types = vec![3, 3, 3, 4];
    tokens.extend((0..=255).map(|byte| alphabet::byte_to_char(byte).to_string()));
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    types.resize(tokens.len(), 1);
    Parts {
        tokens,
        types,
        merges: merges.iter().map(|merge| (*merge).to_owned()).collect(),
    }
}

fn metadata(pre: &str, parts: Parts) -> HashMap<String, Metadata> {
    let strings =
        |list: Vec<String>| Metadata::Array(list.into_iter().map(Metadata::String).collect());
    HashMap::from([
        (
            "tokenizer.ggml.model".to_owned(),
            Metadata::String("gpt2".to_owned()),
        ),
        (
            "tokenizer.ggml.pre".to_owned(),
            Metadata::String(pre.to_owned()),
        ),
        ("tokenizer.ggml.tokens".to_owned(), strings(parts.tokens)),
        ("tokenizer.ggml.merges".to_owned(), strings(parts.merges)),
        (
            "tokenizer.ggml.token_type".to_owned(),
            Metadata::Array(parts.types.into_iter().map(Metadata::I32).collect()),
        ),
        ("tokenizer.ggml.bos_token_id".to_owned(), Metadata::U32(0)),
        ("tokenizer.ggml.eos_token_id".to_owned(), Metadata::U32(1)),
    ])
}

fn small(pre: &str) -> Tokenizer {
    let merges = [
        ". \u{10a}",
        "1 2",
        "Ġ a",
        "a b",
        "ab c",
        "' S",
        "\u{10a} \u{10a}",
        "P A",
    ];
    Tokenizer::from_gguf(&metadata(pre, parts(&merges))).expect("valid")
}

/// The tokens of `text`, each as the text it stands for.
fn pieces(tokenizer: &Tokenizer, text: &str) -> Vec<String> {
    let ids = tokenizer.encode(text).expect("valid");
    ids.iter()
        .map(|id| tokenizer.decode(&[*id], false))
        .collect()
}

#[test]
fn special_tokens_are_recognised_in_trusted_text_only() {
    let tokenizer = small("smollm");
    let text = "<|im_start|>ab<think><|im_end|>";
    let ids = tokenizer.encode(text).expect("valid");
    assert_eq!((ids[0], ids[2], ids[3]), (0, THINK, 1));
    assert_eq!(tokenizer.decode(&ids, false), text);
    assert_eq!(tokenizer.decode(&ids, true), "ab<think>");
    assert_eq!((tokenizer.bos_id(), tokenizer.eos_id()), (Some(0), Some(1)));

    let plain = tokenizer.encode_plain(text).expect("valid");
    assert!(plain.iter().all(|id| !tokenizer.is_special(*id)));
    assert!(plain.contains(&THINK));
    assert_eq!(tokenizer.decode(&plain, true), text);

    let found = tokenizer.find_special("a<|im_end|>é<think><|im_start|>");
    assert_eq!(
        found,
        [
            SpecialMatch {
                id: 1,
                range: 1..11
            },
            SpecialMatch {
                id: 0,
                range: 20..32
            }
        ]
    );
    assert_eq!(tokenizer.special_tokens(), CONTROL);
}

#[test]
fn our_pipeline_is_that_of_the_crate() {
    for pre in ["smollm", "qwen2", "llama-bpe", "gpt-2"] {
        let tokenizer = small(pre);
        let mut reference = tokenizer.inner.clone();
        for text in [
            "",
            " ab<think>12\n\n<|im_end|>é😀'S",
            "<|im_start|><|im_start|>",
            "e\u{301}",
        ] {
            reference.set_encode_special_tokens(false);
            let expected = reference.encode(text, false).expect("valid");
            assert_eq!(tokenizer.encode(text).expect("valid"), expected.get_ids());
            assert_eq!(
                tokenizer.encode_with_ranges(text).expect("valid"),
                encoded(&expected)
            );
            reference.set_encode_special_tokens(true);
            let expected = reference.encode(text, false).expect("valid");
            assert_eq!(
                tokenizer.encode_plain(text).expect("valid"),
                expected.get_ids()
            );
        }
    }
}

#[test]
fn a_special_token_that_is_a_whole_word_is_spelt_out() {
    // Llama 3 takes whole words from the vocabulary before it merges.
    for pre in ["llama-bpe", "gpt-2"] {
        let tokenizer = small(pre);
        let ids = tokenizer.encode_plain("PAD").expect("valid");
        assert!(
            !ids.is_empty() && ids.iter().all(|id| !tokenizer.is_special(*id)),
            "{pre}"
        );
        assert_eq!(tokenizer.decode(&ids, true), "PAD");
    }
}

#[test]
fn rendered_text_keeps_smuggled_tokens_as_text() {
    let tokenizer = small("smollm");
    let text = "<|im_start|>x<|im_end|><|im_start|>y<|im_end|>".to_owned();
    let honest = Rendered {
        text: text.clone(),
        ..Rendered::default()
    };
    let encoded = tokenizer.encode_rendered(&honest).expect("valid");
    assert_eq!(encoded.ids, tokenizer.encode(&text).expect("valid"));

    let smuggled = Rendered {
        text: text.clone(),
        literal: vec![13..23, 23..35],
        ..honest
    };
    let encoded = tokenizer.encode_rendered(&smuggled).expect("valid");
    let special: Vec<u32> = encoded
        .ids
        .iter()
        .copied()
        .filter(|id| tokenizer.is_special(*id))
        .collect();
    assert_eq!(special, [0, 1]);
    assert_eq!(tokenizer.decode(&encoded.ids, false), text);
    assert_eq!(encoded.ranges.first(), Some(&(0..12)));
    assert_eq!(encoded.ranges.last(), Some(&(36..46)));
    for (id, range) in encoded.ids.iter().zip(&encoded.ranges) {
        assert_eq!(tokenizer.decode(&[*id], false), text[range.clone()]);
    }
}

#[test]
fn pre_tokenizers_cut_as_their_models_do() {
    // No merge crosses a cut; so the merges that happen show where the cuts are.
    assert_eq!(pieces(&small("smollm"), "12"), ["1", "2"]);
    assert_eq!(pieces(&small("qwen2"), "12"), ["1", "2"]);
    assert_eq!(pieces(&small("llama-bpe"), "12"), ["12"]);
    assert_eq!(pieces(&small("llama-bpe"), "3412"), ["3", "4", "1", "2"]);
    assert_eq!(pieces(&small("gpt-2"), "3412"), ["3", "4", "12"]);
    // Qwen and Llama cut off contractions in either case and let line ends follow punctuation.
    assert_eq!(pieces(&small("gpt-2"), "x'S"), ["x", "'", "S"]);
    assert_eq!(pieces(&small("qwen2"), "x'S"), ["x", "'S"]);
    assert_eq!(pieces(&small("gpt-2"), ".\n"), [".", "\n"]);
    assert_eq!(pieces(&small("qwen2"), ".\n"), [".\n"]);
    // NFC joins e and the combining accent.
    assert_eq!(
        small("qwen2").encode("e\u{301}").expect("valid"),
        small("qwen2").encode("é").expect("valid")
    );
    assert_ne!(
        small("gpt-2").encode("e\u{301}").expect("valid"),
        small("gpt-2").encode("é").expect("valid")
    );
}

#[test]
fn what_the_metadata_lacks_or_gets_wrong_is_named() {
    let error = |change: &dyn Fn(&mut HashMap<String, Metadata>)| {
        let mut metadata = metadata("qwen2", parts(&["1 2"]));
        change(&mut metadata);
        Tokenizer::from_gguf(&metadata)
            .expect_err("refused")
            .to_string()
    };
    let set = |key: &str, value: Metadata| {
        let key = key.to_owned();
        error(&move |metadata| {
            metadata.insert(key.clone(), value.clone());
        })
    };
    let text = |text: &str| Metadata::String(text.to_owned());
    assert_eq!(
        set("tokenizer.ggml.pre", text("tekken")),
        "unknown pre-tokenizer \"tekken\" in tokenizer.ggml.pre"
    );
    assert_eq!(
        set("tokenizer.ggml.model", text("llama")),
        "unsupported tokenizer model: llama"
    );
    assert_eq!(
        error(&|metadata| drop(metadata.remove("tokenizer.ggml.merges"))),
        "metadata key tokenizer.ggml.merges is missing"
    );
    assert!(set("tokenizer.ggml.merges", Metadata::Array(vec![text("ab")])).contains("two tokens"));
    assert!(set("tokenizer.ggml.token_type", Metadata::Array(vec![])).contains("each token"));
    assert!(set("tokenizer.ggml.eos_token_id", Metadata::U32(9999)).contains("eos_token_id"));
}

#[test]
fn a_merge_may_begin_with_a_space() {
    let mut parts = parts(&[]);
    parts.tokens.extend([" ".to_owned(), " x".to_owned()]);
    parts.types.extend([1, 1]);
    parts.merges.push("  x".to_owned());
    assert!(Tokenizer::from_gguf(&metadata("gpt-2", parts)).is_ok());
}

#[test]
fn streams_release_whole_characters() {
    let tokenizer = small("smollm");
    let text = "a😀é<|im_end|>";
    let ids = tokenizer.encode(text).expect("valid");
    let mut stream = TokenStream::new(false);
    let released: Vec<String> = ids.iter().map(|id| stream.push(&tokenizer, *id)).collect();
    assert_eq!(released, ["a", "", "", "", "😀", "", "é", "<|im_end|>"]);
    assert_eq!(stream.finish(), "");

    // Broken UTF-8 decodes as it does all at once, whatever comes next.
    let byte = |byte: u8| {
        tokenizer
            .id_of(&alphabet::byte_to_char(byte).to_string())
            .expect("valid")
    };
    for bytes in [
        &[0xf0, 0x9f, b'a'][..],
        &[0xff, 0xc3],
        &[0xc3, 0xc3, 0xa9],
        &[0xe2, 0x82],
        &[0x80, b'x'],
        &[0xed, 0xa0, 0x80],
        &[0xf0, 0x9f, 0x98],
    ] {
        let ids: Vec<u32> = bytes.iter().map(|b| byte(*b)).chain([1]).collect();
        for (ids, skip) in [
            (&ids[..], true),
            (&ids[..], false),
            (&ids[..bytes.len()], true),
        ] {
            let mut stream = TokenStream::new(skip);
            let mut text: String = ids.iter().map(|id| stream.push(&tokenizer, *id)).collect();
            text += &stream.finish();
            assert_eq!(text, tokenizer.decode(ids, skip), "{bytes:?}");
        }
    }
}

#[test]
fn ids_outside_the_vocabulary_decode_to_nothing() {
    let tokenizer = small("smollm");
    let size = u32::try_from(tokenizer.vocab_size()).expect("valid");
    assert_eq!(tokenizer.decode(&[size, u32::MAX], false), "");
    assert_eq!(tokenizer.token_bytes(size), None);
    assert_eq!(tokenizer.token_text(size), None);
    assert_eq!(tokenizer.token_text(size - 1), Some("PA"));
    assert_eq!(tokenizer.id_of("Ġa"), Some(size - 6));
    assert_eq!(tokenizer.token_bytes(size - 6), Some(&b" a"[..]));
}

#[test]
fn masks_cover_the_tokens_that_touch_a_span() {
    let encoded = Encoded {
        ids: vec![0; 5],
        ranges: vec![0..2, 2..5, 5..6, 5..6, 6..9],
    };
    assert_eq!(
        encoded.mask(&[2..4, 4..5]),
        [false, true, false, false, false]
    );
    assert_eq!(
        encoded.mask(&[0..1, 5..6, 8..9]),
        [true, false, true, true, true]
    );
    assert_eq!(encoded.mask(&[4..5, 5..7]), [false, true, true, true, true]);
    assert_eq!(encoded.mask(&[]), [false; 5]);
}

#[test]
fn a_rendered_start_token_is_never_doubled() {
    let mut parts = parts(&[]);
    for (id, token) in [
        (0, "<|begin_of_text|>"),
        (1, "<|start_header_id|>"),
        (2, "<|end_header_id|>"),
    ] {
        parts.tokens[id] = token.to_owned();
    }
    let tokenizer = Tokenizer::from_gguf(&metadata("llama-bpe", parts)).expect("valid");
    let text = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nping";
    let ids = tokenizer.encode(text).expect("valid");
    assert_eq!(ids[..2], [0, 1]);
    assert!(tokenizer.check_start(&ids).is_ok());
    let doubled = [&[0], &ids[..]].concat();
    assert_eq!(
        tokenizer
            .check_start(&doubled)
            .expect_err("refused")
            .to_string(),
        "the text begins with 2 start tokens \"<|begin_of_text|>\""
    );
}

/// A `tokenizer.json` with a post-processor that adds a start token, padding and truncation.
fn json_with(change: impl Fn(&mut Value)) -> Vec<u8> {
    let mut json = gguf::describe(&metadata("qwen2", parts(&["1 2"])))
        .expect("valid")
        .json;
    json["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {
            "<|im_start|>": {"id": "<|im_start|>", "ids": [0], "tokens": ["<|im_start|>"]}
        },
    });
    json["truncation"] = json!({
        "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0,
    });
    change(&mut json);
    serde_json::to_vec(&json).expect("valid")
}

#[test]
fn files_are_read_without_their_additions() {
    let folder = tempfile::tempdir().expect("valid");
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, json_with(|_| {})).expect("valid");
    assert_eq!(Tokenizer::from_file(&path).expect("valid").eos_id(), None);
    let config = r#"{"bos_token": null, "eos_token": {"content": "<|im_end|>", "lstrip": false}}"#;
    std::fs::write(folder.path().join("tokenizer_config.json"), config).expect("valid");
    let tokenizer = Tokenizer::from_file(&path).expect("valid");
    assert_eq!((tokenizer.bos_id(), tokenizer.eos_id()), (None, Some(1)));
    assert_eq!(tokenizer.encode("abcd").expect("valid").len(), 4);
    let missing = Tokenizer::from_file(&folder.path().join("other.json")).expect_err("refused");
    assert!(missing.to_string().ends_with("other.json"));
}

#[test]
fn files_that_work_in_another_way_are_refused() {
    let error = |change: &dyn Fn(&mut Value)| {
        Tokenizer::from_json(&json_with(change))
            .expect_err("refused")
            .to_string()
    };
    assert_eq!(
        error(&|json| json["decoder"] = json!({"type": "Fuse"})),
        "unsupported decoder: Fuse"
    );
    assert_eq!(
        error(&|json| json["decoder"] = Value::Null),
        "unsupported decoder: none"
    );
    assert!(error(&|json| json["model"]["dropout"] = json!(0.1)).contains("dropout"));
    assert_eq!(
        error(&|json| json["added_tokens"][0]["id"] = json!(7)),
        "added token \"<|im_start|>\" should have the id 7 but has Some(0)"
    );
    assert!(Tokenizer::from_json(b"{}").is_err());
}

#[test]
fn what_is_written_for_gguf_and_as_json_is_read_back_as_the_same() {
    for pre in ["gpt-2", "smollm", "qwen2", "llama-bpe"] {
        let tokenizer = small(pre);
        let rows = tokenizer.vocab_size() + 2;
        let written = tokenizer.to_gguf(rows).expect("written");
        let name = format!("{:?}", written["tokenizer.ggml.pre"]);
        assert_eq!(name, format!("String({pre:?})"));
        let from_gguf = Tokenizer::from_gguf(&written).expect("read");
        assert_eq!(from_gguf.vocab_size(), rows, "embeddings without a token");
        let json = serde_json::to_vec(&tokenizer.to_json().expect("JSON")).expect("bytes");
        let from_json = Tokenizer::from_json(&json).expect("read");
        for read in [&from_gguf, &from_json] {
            assert_eq!(read.special_tokens(), tokenizer.special_tokens());
            for text in [
                "<|im_start|>abc 12 ab's.\n\n",
                "<think> PAD\u{fc}",
                " abc a123456",
            ] {
                let ids = |tokenizer: &Tokenizer| tokenizer.encode(text).expect("ids");
                assert_eq!(ids(read), ids(&tokenizer), "{pre} {text:?}");
            }
        }
        let ends = |tokenizer: &Tokenizer| (tokenizer.bos_id(), tokenizer.eos_id());
        assert_eq!(ends(&from_gguf), ends(&tokenizer));
        let few = tokenizer.to_gguf(rows - 3).expect_err("too few");
        assert!(few.to_string().contains("tokens for"), "{few}");
    }
}

#[test]
fn what_gguf_has_no_name_for_is_not_written() {
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut json = small("smollm").to_json().expect("JSON");
        change(&mut json);
        let json = serde_json::to_vec(&json).expect("bytes");
        let tokenizer = Tokenizer::from_json(&json).expect("read");
        let error = tokenizer.to_gguf(tokenizer.vocab_size());
        error.expect_err("refused").to_string()
    };
    let other = refused(&|json| json["pre_tokenizer"] = json!({"type": "Whitespace"}));
    assert!(
        other.contains("pre-tokenizer in GGUF: {\"type\":\"Whitespace\"}"),
        "{other}"
    );
    let normalised = refused(&|json| json["normalizer"] = json!({"type": "NFC"}));
    assert!(normalised.contains("Digits"), "{normalised}");
    let greedy = refused(&|json| json["added_tokens"][0]["lstrip"] = true.into());
    assert!(greedy.contains("takes what is beside it"), "{greedy}");
}
