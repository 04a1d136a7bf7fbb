//! Exported models decoded by other programs: a directory by transformers, where
//! `COHARNESS_TEST_PEERS_PYTHON` is a Python that has it, and a GGUF file by llama.cpp, where
//! `COHARNESS_TEST_LLAMA_CPP` is its `llama-server`.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use model::decode::{Engine, EngineAdapter, EngineOptions};
use model::export::WeightType;
use model::kernels::gemm::Arithmetic;
use model::transformer::Transformer;
use model::tree::TokenTree;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::engines::{Loaded, golden_adapter, request_to};
use crate::export::{GOLDEN, golden, load, read, write};
use crate::greedy::{parting, rows};
use crate::python::PeersPython;

/// The model in `path`, decoding in f32.
fn engine(path: &Path) -> Engine {
    let options = EngineOptions {
        cache_mib: 256,
        ..EngineOptions::default()
    };
    Loaded::read(path, Arithmetic::F32).engine(options)
}

fn continued(
    engine: &Engine,
    adapter: Option<&EngineAdapter>,
    prompt: &[u32],
    count: usize,
) -> Vec<u32> {
    let reply = engine.generate(request_to(adapter, prompt, count));
    reply.expect("a reply").tokens
}

/// What the script says.
#[derive(Deserialize)]
struct Transformers {
    replies: Vec<Reply>,
    ids: Vec<u32>,
}

#[derive(Deserialize)]
struct Reply {
    next: Vec<u32>,
    gaps: Vec<f32>,
}

#[test]
fn a_merged_directory_says_in_transformers_what_model_and_adapter_say_here() {
    /// Logits of two f32 implementations differ by less.
    const TIE: f32 = 1e-3;
    const COUNT: usize = 24;
    let Some(python) = PeersPython::named() else {
        return;
    };
    let text = "<|im_start|>user\nü 12 + 3<|im_end|>\n";
    for name in GOLDEN {
        let place = tempfile::tempdir().expect("directory");
        let (source, out) = (golden(name), place.path().join("merged"));
        let adapter = golden_adapter(name);
        write(&source, Some(&adapter), WeightType::F32, &out).expect("written");

        let (_, tokenizer) = read(&source);
        let ids = tokenizer.encode(text).expect("ids");
        let prompts = vec![ids.clone(), (3..20).collect(), vec![111, 110, 101]];
        let asked = json!({"model": out, "prompts": prompts, "count": COUNT, "text": text});
        let said: Transformers = python.ask("transformers_greedy.py", &asked);
        assert_eq!(said.ids, ids, "{name}: the tokenizer");

        let engine = engine(&source);
        let adapter = engine.add_adapter(adapter).expect("it fits");
        let mut ties = 0;
        for (prompt, reply) in prompts.iter().zip(&said.replies) {
            assert_eq!(reply.next.len(), COUNT);
            let ours = continued(&engine, Some(&adapter), prompt, COUNT);
            if let Some(at) = parting(&ours, &reply.next) {
                let gap = reply.gaps[at];
                assert!(gap < TIE, "{name}: token {at} is another by {gap}");
                ties += 1;
            }
        }
        assert!(ties <= 1, "{name}: {ties} of three replies parted at a tie");
    }
}

/// A running `llama-server`.
struct Llama {
    process: Child,
    port: u16,
}

impl Drop for Llama {
    fn drop(&mut self) {
        // The test has its answer by then.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Llama {
    /// Keys and values stay f32, as they are here.
    fn start(program: &OsStr, file: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("address").port();
        drop(listener);
        let process = Command::new(program)
            .arg("--model")
            .arg(file)
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--ctx-size", "1024", "--parallel", "1", "--threads", "2"])
            .args(["--cache-type-k", "f32", "--cache-type-v", "f32"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("llama-server starts");
        let mut server = Self { process, port };
        let started = Instant::now();
        while server
            .send("GET", "/health", "")
            .is_none_or(|(status, _)| status != 200)
        {
            let ended = server.process.try_wait().expect("a state");
            assert!(ended.is_none(), "llama-server ended: {ended:?}");
            assert!(
                started.elapsed() < Duration::from_secs(300),
                "llama-server did not load the file"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
        server
    }

    /// Status and body; none while nobody answers.
    fn send(&self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(body.as_bytes()).ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).ok()?;
        let (head, body) = reply.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, body.to_owned()))
    }

    /// The next ids by greedy decoding, up to an end of turn.
    fn continued(&self, prompt: &[u32], count: usize) -> Vec<u32> {
        let body = json!({
            "prompt": prompt, "n_predict": count, "temperature": 0, "top_k": 1,
            "return_tokens": true, "cache_prompt": false,
        });
        let (status, reply) = self
            .send("POST", "/completion", &body.to_string())
            .expect("a reply");
        assert_eq!(status, 200, "{reply}");
        let reply: Value = serde_json::from_str(&reply).expect("JSON");
        serde_json::from_value(reply["tokens"].clone()).expect("token ids")
    }
}

#[test]
fn a_gguf_file_is_decoded_by_llama_cpp_as_it_is_here() {
    const PROMPTS: usize = 8;
    const COUNT: usize = 32;
    /// llama.cpp rounds otherwise, its exponential above all.
    const TIE: f32 = 0.05;
    let Some(program) = std::env::var_os("COHARNESS_TEST_LLAMA_CPP") else {
        println!("skipped: COHARNESS_TEST_LLAMA_CPP is not set");
        return;
    };
    let Some(source) = std::env::var_os("COHARNESS_TEST_MODEL").map(PathBuf::from) else {
        println!("skipped: COHARNESS_TEST_MODEL is not set");
        return;
    };
    let place = tempfile::tempdir().expect("directory");
    let out = place.path().join("exported.gguf");
    write(&source, None, WeightType::F32, &out).expect("written");
    let server = Llama::start(&program, &out);
    let engine = engine(&out);
    let model = Transformer::new(load(&out)).expect("model");

    let (mut compared, mut ties) = (0, 0);
    // The last prompts stand alone. Those of families show short answers, and llama.cpp goes on
    // behind no end of a turn.
    for row in rows("smollm2").iter().rev().take(PROMPTS) {
        let ids = &row.ids;
        let (ours, theirs) = (
            continued(&engine, None, ids, COUNT),
            server.continued(ids, COUNT),
        );
        assert!(!theirs.is_empty(), "no token after {ids:?}");
        let Some(at) = parting(&ours, &theirs) else {
            compared += theirs.len().min(ours.len());
            continue;
        };
        compared += at;
        ties += 1;
        let all = [&ids[..], &ours[..at]].concat();
        let logits = model.tree_logits(&TokenTree::new(&[&all]), None);
        let logits: Vec<Vec<f32>> = logits.expect("logits").to_vec2().expect("rows");
        let last = logits.last().expect("a row");
        let gap = last[ours[at] as usize] - last[theirs[at] as usize];
        assert!(
            gap.abs() < TIE,
            "token {at} after {ids:?} is another by {gap}"
        );
    }
    assert!(ties <= 2, "{ties} of {PROMPTS} replies parted at a tie");
    assert!(compared >= PROMPTS * COUNT / 2, "only {compared} tokens");
}
