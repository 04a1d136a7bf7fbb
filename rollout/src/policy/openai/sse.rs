//! Server-sent events (WHATWG HTML, 9.2.6), as chat servers send them.
//!
//! More is taken than the standard says: the blank line between two events may be missing, and so
//! may `data:` before an error. How the bytes are cut into pieces makes no difference.

/// Reads events from pieces of a stream.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    data: Option<String>,
    is_after_return: bool,
    has_first_line: bool,
    ready: Vec<String>,
}

impl Events {
    /// Takes a piece; gives the data of the events that it completes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        for byte in bytes {
            let is_after_return = std::mem::take(&mut self.is_after_return);
            match byte {
                b'\n' if is_after_return => {}
                b'\n' | b'\r' => {
                    self.is_after_return = *byte == b'\r';
                    self.end_line();
                }
                _ => self.line.push(*byte),
            }
        }
        std::mem::take(&mut self.ready)
    }

    /// Gives what was left without its blank line at the end of the stream.
    pub(super) fn finish(mut self) -> Vec<String> {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.end_event();
        self.ready
    }

    fn end_line(&mut self) {
        let bytes = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&bytes);
        let mut line = line.as_ref();
        if !std::mem::replace(&mut self.has_first_line, true) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            return self.end_event();
        }
        if line.starts_with('{') {
            self.end_event();
            self.ready.push(line.to_owned());
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        if field != "data" {
            return;
        }
        let value = value.strip_prefix(' ').unwrap_or(value);
        if self
            .data
            .as_deref()
            .is_some_and(|data| is_next(data, value))
        {
            self.end_event();
        }
        match &mut self.data {
            Some(data) => {
                data.push('\n');
                data.push_str(value);
            }
            None => self.data = Some(value.to_owned()),
        }
    }

    fn end_event(&mut self) {
        self.ready
            .extend(self.data.take().filter(|data| !data.is_empty()));
    }
}

/// Whether a line of data begins another event: no JSON object goes on like this.
fn is_next(data: &str, line: &str) -> bool {
    data.ends_with('}') && (line.starts_with('{') || line.trim() == super::stream::DONE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let mut events = Events::default();
        let mut all: Vec<String> = pieces.iter().flat_map(|piece| events.push(piece)).collect();
        all.extend(events.finish());
        all
    }

    #[test]
    fn events_are_read_in_every_dialect() {
        for (stream, expected) in [
            (
                "data: {\"a\":1}\n\ndata: [DONE]\n\n",
                &["{\"a\":1}", "[DONE]"][..],
            ),
            (
                "data:{\"a\":1}\r\n\r\ndata:[DONE]\r\n\r\n",
                &["{\"a\":1}", "[DONE]"],
            ),
            ("data: {\"a\":1}\r\rdata: [DONE]", &["{\"a\":1}", "[DONE]"]),
            (
                ": ping\n\nevent: x\nid: 7\nretry: 3\ndata: 1\n\n: ping\n",
                &["1"],
            ),
            ("data: {\ndata: \"a\": 1\ndata: }\n\n", &["{\n\"a\": 1\n}"]),
            ("\u{feff}data: é\n\n", &["é"]),
            (
                "data: {\"a\":1}\ndata: {\"b\":2}\ndata: [DONE]\n",
                &["{\"a\":1}", "{\"b\":2}", "[DONE]"],
            ),
            (
                "data: {\"a\":1}\n\n{\"error\": \"x\"}\n",
                &["{\"a\":1}", "{\"error\": \"x\"}"],
            ),
            ("data\ndata:\n\n", &["\n"]),
            ("data: \n\n", &[]),
            ("", &[]),
        ] {
            assert_eq!(read(&[stream.as_bytes()]), expected, "{stream:?}");
        }
    }

    #[test]
    fn no_stream_takes_long() {
        let whole = |part: &str| part.repeat((1 << 20) / part.len());
        for part in [
            "x",
            "\n",
            "\r",
            "data: x\n",
            "data: {}\n",
            "data: {\n",
            "data: x\n\n",
            "{}\n",
            ":\n",
            "é",
            "data",
        ] {
            for head in ["", "data: ", "data: {"] {
                let stream = format!("{head}{}", whole(part));
                let started = crate::clock::processor_time();
                let pieces: Vec<&[u8]> = stream.as_bytes().chunks(1000).collect();
                read(&pieces);
                // Of a megabyte, without optimisation.
                let took = crate::clock::processor_time() - started;
                assert!(took.as_millis() < 500, "{head}{part:?}: {took:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            stream in "(data: ?|:|\\{|\\}|\\[DONE\\]|\n|\r|\u{feff}|é|event: |[a-z\"]){0,60}",
            cuts in proptest::collection::vec(0usize..200, 0..12),
        ) {
            let bytes = stream.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (bytes.len() + 1)).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            pieces.push(&bytes[from..]);
            prop_assert_eq!(read(&pieces), read(&[bytes]));
        }

        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let singly: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(read(&singly), read(&[&bytes]));
        }
    }
}
