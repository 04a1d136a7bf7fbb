//! A chat server that plays from a script.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the server does with one request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Status, further headers, body.
    Whole(u16, &'static str, String),
    /// Events with a status of 200, one piece each, up to the end of the connection.
    Events(Vec<String>),
    /// Events in pieces of HTTP's own, and the connection is closed before the last of these.
    CutEvents(Vec<String>),
    /// The connection is closed before half of the body.
    Half(String),
    /// The connection is closed without a word.
    Closed,
    /// Nothing is ever said.
    Hung,
    /// Events, and then nothing is ever said.
    HungEvents(Vec<String>),
}

pub(crate) fn ok(body: &str) -> Reply {
    Reply::Whole(200, "", body.to_owned())
}

pub(crate) fn status(status: u16, body: &str) -> Reply {
    Reply::Whole(status, "", body.to_owned())
}

pub(crate) fn events(events: &[&str]) -> Vec<String> {
    events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect()
}

/// What was asked, head and body.
pub(crate) type Asked = Arc<Mutex<Vec<String>>>;

/// Serves the replies in order, one a connection. Gives the address and what was asked.
pub(crate) async fn serve(replies: Vec<Reply>) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let address = listener.local_addr().expect("address");
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut open = Vec::new();
        for reply in replies {
            let (mut stream, _) = listener.accept().await.expect("connection");
            let request = request(&mut stream).await;
            log.lock().expect("lock").push(request);
            open.extend(answer(stream, reply).await);
        }
    });
    (format!("http://{address}/v1/"), asked)
}

/// Gives the connection back if it is to stay open.
async fn answer(mut stream: TcpStream, reply: Reply) -> Option<TcpStream> {
    const EVENTS: &str =
        "HTTP/1.1 200 X\r\nconnection: close\r\ncontent-type: text/event-stream\r\n";
    let mut send = async |text: String| {
        stream.write_all(text.as_bytes()).await.expect("reply");
        stream.flush().await.expect("reply");
    };
    match reply {
        Reply::Whole(status, headers, body) => {
            let length = body.len();
            send(format!(
                "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
            ))
            .await;
        }
        Reply::Events(events) => {
            send(format!("{EVENTS}\r\n")).await;
            for event in events {
                send(event).await;
            }
        }
        Reply::CutEvents(events) => {
            send(format!("{EVENTS}transfer-encoding: chunked\r\n\r\n")).await;
            for event in events {
                send(format!("{:x}\r\n{event}\r\n", event.len())).await;
            }
        }
        Reply::Half(body) => {
            let (length, half) = (body.len(), &body[..body.len() / 2]);
            send(format!(
                "HTTP/1.1 200 X\r\ncontent-length: {length}\r\n\r\n{half}"
            ))
            .await;
        }
        Reply::Closed => {}
        Reply::Hung => return Some(stream),
        Reply::HungEvents(events) => {
            send(format!("{EVENTS}\r\n{}", events.concat())).await;
            return Some(stream);
        }
    }
    None
}

/// Reads one request.
pub(crate) async fn request(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    while !is_whole(&request) {
        let mut part = [0; 4096];
        match stream.read(&mut part).await {
            Ok(count) if count > 0 => request.extend_from_slice(&part[..count]),
            Ok(_) | Err(_) => break,
        }
    }
    String::from_utf8_lossy(&request).into_owned()
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix("content-length: ")?
            .parse::<usize>()
            .ok()
    });
    body.len() >= length.unwrap_or(0)
}
