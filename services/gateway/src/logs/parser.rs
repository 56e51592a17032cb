//! The CRI log format, record by record: `TIME stdout|stderr F|P TEXT`. Pure and incremental: how the input is cut into
//! pieces changes nothing. Memory is bounded whatever the input holds.

use jiff::Timestamp;

use super::line::{Line, LineOptions};

/// Longest head of a record, in bytes: time, stream and tags with their spaces.
pub(super) const HEAD_BYTES: usize = 128;

/// What stands before a record's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// When it was written, as written.
    pub(super) time: String,
    /// The same as a date.
    pub(super) at: Timestamp,
    /// Where it was written to.
    pub(super) stream: Stream,
    /// Whether the line ends with it.
    pub(super) tag: Tag,
}

/// The container's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Whether a record ends its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    /// It does.
    Full,
    /// The line goes on in the stream's next record.
    Partial,
}

/// Reads records and puts lines out.
#[derive(Debug, Default)]
pub(super) struct Parser {
    options: LineOptions,
    state: State,
    head: Vec<u8>,
    spaces: usize,
    out: Line,
    err: Line,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// In the head of a record.
    #[default]
    Head,
    /// In the text of a record.
    Text(Stream, Tag),
    /// In something that is no record: the rest of the row is passed over.
    Junk,
}

/// Reads the head of a record from the beginning of `row`. `None` when there is none (yet).
pub(super) fn head(row: &[u8]) -> Option<Head> {
    let row = row.get(..HEAD_BYTES.min(row.len()))?;
    let row = match row.iter().position(|b| *b == b'\n') {
        Some(end) => row.get(..end)?,
        None => row,
    };
    let mut fields = row.splitn(4, |b| *b == b' ');
    let (time, stream, tags) = (fields.next()?, fields.next()?, fields.next()?);
    let stream = match stream {
        b"stdout" => Stream::Out,
        b"stderr" => Stream::Err,
        _ => return None,
    };
    // Further tags may follow the first behind a colon.
    let tag = match tags.split(|b| *b == b':').next()? {
        b"F" => Tag::Full,
        b"P" => Tag::Partial,
        _ => return None,
    };
    let time = std::str::from_utf8(time).ok()?;
    let at = time.parse().ok()?;
    Some(Head { time: time.to_owned(), at, stream, tag })
}

impl Parser {
    /// At the beginning of a record.
    pub(super) fn new(options: LineOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Takes more of the log; appends to `out` the lines that are whole now.
    pub(super) fn push(&mut self, mut input: &[u8], out: &mut Vec<u8>) {
        while !input.is_empty() {
            let newline = input.iter().position(|b| *b == b'\n');
            let (row, rest) = match newline {
                Some(at) => (input.get(..at).unwrap_or_default(), input.get(at + 1..).unwrap_or_default()),
                None => (input, [].as_slice()),
            };
            self.row(row, out);
            if newline.is_some() {
                self.end_row(out);
            }
            input = rest;
        }
    }

    /// The file ends here, and another goes on with the next record. Lines may go on, too.
    pub(super) fn next_file(&mut self, out: &mut Vec<u8>) {
        if self.state != State::Head || !self.head.is_empty() {
            self.end_row(out);
        }
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        self.next_file(out);
        self.out.finish(out);
        self.err.finish(out);
    }

    fn row(&mut self, mut row: &[u8], out: &mut Vec<u8>) {
        // Byte by byte until the third space: heads are short.
        while self.state == State::Head {
            let Some((byte, rest)) = row.split_first() else { return };
            row = rest;
            self.head.push(*byte);
            self.spaces += usize::from(*byte == b' ');
            if self.spaces == 3 {
                self.begin(head(&self.head));
            } else if self.head.len() == HEAD_BYTES {
                self.begin(None);
            }
        }
        if let State::Text(stream, _) = self.state {
            self.line(stream).more(row, out);
        }
    }

    fn begin(&mut self, head: Option<Head>) {
        self.state = match head {
            Some(head) => {
                let options = self.options;
                self.line(head.stream).begin(&head, options);
                State::Text(head.stream, head.tag)
            }
            None => State::Junk,
        };
        self.head.clear();
        self.spaces = 0;
    }

    fn end_row(&mut self, out: &mut Vec<u8>) {
        if self.state == State::Head && !self.head.is_empty() {
            // No third space: an empty text, if it is a record at all.
            self.begin(head(&self.head));
        }
        if let State::Text(stream, tag) = self.state {
            self.line(stream).end(tag, out);
        }
        self.state = State::Head;
    }

    fn line(&mut self, stream: Stream) -> &mut Line {
        match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        }
    }
}

#[cfg(test)]
mod tests;
