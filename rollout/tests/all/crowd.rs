//! A thousand rollouts at once against one server: back-pressure instead of growth.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness::CallFormat;
use rollout::{ExitReason, OpenAiOptions, OpenAiPolicy, Split, rollout};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::server::request;
use crate::world::{ScriptedTool, agent, asking, naive, printed};

const ROLLOUTS: usize = 1000;
/// Requests that the client may have open.
const IN_FLIGHT: usize = 96;
/// Requests that the server works on; it sends the others away.
const CAPACITY: usize = 64;

/// What the server saw.
#[derive(Default)]
struct Load {
    now: AtomicUsize,
    most: AtomicUsize,
    connections: AtomicUsize,
    sent_away: AtomicUsize,
}

async fn serve(load: Arc<Load>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let address = listener.local_addr().expect("address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            load.connections.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(keep_answering(stream, Arc::clone(&load)));
        }
    });
    format!("http://{address}/v1")
}

async fn keep_answering(mut stream: TcpStream, load: Arc<Load>) {
    loop {
        let request = request(&mut stream).await;
        if request.is_empty() {
            return;
        }
        let open = load.now.fetch_add(1, Ordering::Relaxed) + 1;
        load.most.fetch_max(open, Ordering::Relaxed);
        let (status, headers, body) = if open > CAPACITY {
            load.sent_away.fetch_add(1, Ordering::Relaxed);
            (429, "retry-after-ms: 5\r\n", "{}".to_owned())
        } else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let says = match request.contains("Tool output") {
                true => "The answer is 7.",
                false => "```python\\nprint(7)\\n```",
            };
            let padding = "x".repeat(4096);
            let body = format!(
                r#"{{"choices":[{{"message":{{"content":"{says}"}},"finish_reason":"stop"}}],"padding":"{padding}"}}"#
            );
            (200, "", body)
        };
        load.now.fetch_sub(1, Ordering::Relaxed);
        let length = body.len();
        let reply =
            format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
        if stream.write_all(reply.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Memory of this process that is resident now, in MiB.
fn resident_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? / 1024)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_rollouts_wait_for_each_other_and_not_for_memory() {
    let load = Arc::new(Load::default());
    let url = serve(Arc::clone(&load)).await;
    let policy = OpenAiPolicy::new(OpenAiOptions {
        attempts: 1000,
        most_in_flight: IN_FLIGHT,
        ..OpenAiOptions::new(url, "m")
    });
    let agent = agent(
        naive(CallFormat::Fenced),
        Arc::new(policy.expect("client")),
        Arc::new(ScriptedTool::playing(vec![printed("7\n"); ROLLOUTS])),
    );
    let before = resident_mib();
    let started = Instant::now();
    let mut running = JoinSet::new();
    for number in 0..ROLLOUTS {
        let agent = agent.clone();
        running.spawn(async move {
            let task = asking(&format!("How many are {number}?"), "7");
            rollout(&agent, &task, Split::Evolve, number as u64).await
        });
    }
    let mut most = 0;
    let mut right = 0;
    while let Some(trajectory) = running.join_next().await {
        let trajectory = trajectory.expect("rollout");
        assert_eq!(trajectory.exit, ExitReason::Answered);
        right += usize::from(trajectory.verdict.correct);
        most = most.max(resident_mib().unwrap_or(0));
    }
    let took = started.elapsed();
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    println!(
        "{ROLLOUTS} rollouts in {took:.1?}; {} requests at once on {} connections, {} sent away; resident {before:?} MiB before, {most} at most",
        count(&load.most),
        count(&load.connections),
        count(&load.sent_away),
    );
    assert_eq!(right, ROLLOUTS);
    assert!(count(&load.most) <= IN_FLIGHT);
    assert!(count(&load.connections) <= 2 * IN_FLIGHT);
    assert!(count(&load.sent_away) > 0, "the server was never busy");
    if let Some(before) = before {
        assert!(most < before + 256, "{before} MiB grew to {most}");
    }
}
