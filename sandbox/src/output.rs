//! Output that is capped outside the box.
//!
//! A program can write hundreds of megabytes a second. The reader keeps at most the cap, notices
//! the first byte beyond it, and leaves the rest in the pipe, where the writer blocks until it is
//! killed.

use std::os::fd::AsFd;

use nix::errno::Errno;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Size of one read; also the default capacity of a pipe.
const CHUNK_BYTES: usize = 64 << 10;

/// One output stream of a program.
#[derive(Debug)]
pub(crate) struct Capture<R> {
    pipe: Option<R>,
    kept: Vec<u8>,
    cap: usize,
    chunk: Box<[u8]>,
    is_truncated: bool,
}

impl<R: AsyncRead + Unpin> Capture<R> {
    /// Captures at most `cap` bytes of `pipe`.
    pub(crate) fn new(pipe: Option<R>, cap: usize) -> Self {
        let chunk = vec![0; CHUNK_BYTES].into_boxed_slice();
        Capture {
            pipe,
            kept: Vec::new(),
            cap,
            chunk,
            is_truncated: false,
        }
    }

    /// Reads once. Cancelling loses nothing. Never returns when there is nothing left to read, so
    /// that it can be one arm of a `select!` for as long as others are live.
    pub(crate) async fn read_more(&mut self) {
        let Some(pipe) = self.pipe.as_mut().filter(|_| !self.is_truncated) else {
            return std::future::pending().await;
        };
        match pipe.read(&mut self.chunk).await {
            // A pipe that fails has nothing more to say than one that has ended.
            Ok(0) | Err(_) => self.pipe = None,
            Ok(count) => self.keep(count),
        }
    }

    /// Reads until the end or the cap.
    pub(crate) async fn drain(&mut self) {
        while self.pipe.is_some() && !self.is_truncated {
            self.read_more().await;
        }
    }

    /// Whether the program wrote more than the cap.
    pub(crate) fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// The text, with U+FFFD for what is not UTF-8. A character that the cap cut in two is left
    /// out rather than shown as invalid.
    pub(crate) fn into_text(mut self) -> String {
        if self.is_truncated {
            self.kept.truncate(whole_characters(&self.kept));
        }
        match String::from_utf8(self.kept) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }
    }
}

impl<R: AsFd> Capture<R> {
    /// Takes what is in the pipe now. The pipe must not block.
    pub(crate) fn read_available(&mut self) {
        while let Some(pipe) = self.pipe.as_ref().filter(|_| !self.is_truncated) {
            match nix::unistd::read(pipe.as_fd(), &mut self.chunk) {
                Ok(count) if count > 0 => self.keep(count),
                Err(Errno::EINTR) => {}
                // Nothing more now, nothing more ever, or nothing to be had.
                _ => return,
            }
        }
    }
}

impl<R> Capture<R> {
    fn keep(&mut self, count: usize) {
        let room = self.cap - self.kept.len();
        let taken = count.min(room);
        self.kept.extend_from_slice(&self.chunk[..taken]);
        // The pipe stays open: a program that sees it break would go on to print an error.
        self.is_truncated |= taken < count;
    }
}

/// Length of `bytes` without a character that has begun and not ended in its last three bytes.
fn whole_characters(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let start = bytes.len() - back;
        let expected = match bytes[start] {
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            0x80..=0xBF => continue,
            _ => break,
        };
        return if expected > back { start } else { bytes.len() };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn capture(bytes: &[u8], cap: usize) -> (String, bool) {
        let mut capture = Capture::new(Some(bytes), cap);
        capture.drain().await;
        let is_truncated = capture.is_truncated();
        (capture.into_text(), is_truncated)
    }

    #[tokio::test]
    async fn exactly_the_cap_is_not_truncated() {
        assert_eq!(
            capture(b"12345678", 8).await,
            ("12345678".to_owned(), false)
        );
        assert_eq!(
            capture(b"123456789", 8).await,
            ("12345678".to_owned(), true)
        );
        assert_eq!(capture(b"", 8).await, (String::new(), false));
    }

    #[tokio::test]
    async fn an_endless_flood_takes_no_more_than_twice_the_cap() {
        let mut capture = Capture::new(Some(tokio::io::repeat(b'x')), 1 << 20);
        capture.drain().await;
        assert!(capture.is_truncated());
        assert_eq!(capture.kept.len(), 1 << 20);
        assert!(capture.kept.capacity() <= 2 << 20);
    }

    #[tokio::test]
    async fn invalid_bytes_are_replaced_and_nul_kept() {
        let (text, _) = capture(b"ok\xff\xfe\x00end", 100).await;
        assert_eq!(text, "ok\u{fffd}\u{fffd}\0end");
    }

    #[tokio::test]
    async fn a_character_cut_by_the_cap_is_left_out() {
        for cap in 2..5 {
            let (text, _) = capture("a\u{1F600}bcdefgh".as_bytes(), cap).await;
            assert_eq!(text, "a", "cap {cap}");
        }
        let (text, _) = capture("\u{e9}\u{e9}\u{e9}".as_bytes(), 3).await;
        assert_eq!(text, "\u{e9}");
        let (text, _) = capture(b"\xffa\xe2\x82\xac", 4).await;
        assert_eq!(text, "\u{fffd}a");
    }
}
