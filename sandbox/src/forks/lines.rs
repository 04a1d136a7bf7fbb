//! Lines of JSON from a process that may be hostile.

use std::io;

use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;

/// Longest line that anybody on the other side has reason to send.
const MAXIMUM_LINE_BYTES: usize = 4 << 10;

/// Reads messages and keeps no more than one line of them.
#[derive(Debug)]
pub(super) struct Messages {
    socket: OwnedReadHalf,
    buffer: Vec<u8>,
}

impl Messages {
    pub(super) fn new(socket: OwnedReadHalf) -> Self {
        Messages {
            socket,
            buffer: Vec::new(),
        }
    }

    /// The next message, or nothing at the end. Cancelling loses nothing.
    ///
    /// # Errors
    /// What is too long or no message is an error, as a failing socket is.
    pub(super) async fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let message = serde_json::from_slice(&self.buffer[..end])?;
                self.buffer.drain(..=end);
                return Ok(Some(message));
            }
            if self.buffer.len() > MAXIMUM_LINE_BYTES {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
            if self.socket.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "what fails to unwrap is a failed test")]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn messages_arrive_whole_however_they_are_cut() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (read, _write) = ours.into_split();
        let mut messages = Messages::new(read);
        let sending = async {
            for part in [&b"[1,"[..], b"2]\n[", b"3]\n[4]\n"] {
                theirs.write_all(part).await.unwrap();
                tokio::task::yield_now().await;
            }
            drop(theirs);
        };
        let reading = async {
            let mut all: Vec<Vec<u32>> = Vec::new();
            while let Some(message) = messages.next().await.unwrap() {
                all.push(message);
            }
            all
        };
        let ((), all) = tokio::join!(sending, reading);
        assert_eq!(all, [vec![1, 2], vec![3], vec![4]]);
    }

    #[tokio::test]
    async fn nonsense_and_endless_lines_are_errors() {
        for hostile in [b"{}\xff\n".to_vec(), vec![b'['; 1 << 20]] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let (read, write) = ours.into_split();
            let mut messages = Messages::new(read);
            let writer = tokio::spawn(async move { theirs.write_all(&hostile).await });
            assert!(messages.next::<Vec<u32>>().await.is_err());
            assert!(messages.buffer.len() <= 2 * MAXIMUM_LINE_BYTES + 8192);
            drop((messages, write));
            let _ = writer.await;
        }
    }
}
