//! From records to lines: what belongs to one line is joined, and what the reader did not ask for left out. Pure.

use jiff::Timestamp;

use super::parser::{Head, Stream, Tag};

/// Longest line; a longer one is split.
pub(super) const LINE_BYTES: usize = 1 << 20;

/// What the reader wants of each line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LineOptions {
    /// Whether each line begins with its time.
    pub(super) timestamps: bool,
    /// Lines before this are left out.
    pub(super) since: Option<Timestamp>,
    /// Lines of the other stream are left out.
    pub(super) only: Option<Stream>,
}

/// A line being put together. Each stream of the container has one, since their records may alternate.
#[derive(Debug, Default)]
pub(super) struct Line {
    text: Vec<u8>,
    /// `None` between lines; else whether this one is wanted.
    wanted: Option<bool>,
    prefix: usize,
}

impl Line {
    /// A record begins.
    pub(super) fn begin(&mut self, head: &Head, options: LineOptions) {
        if self.wanted.is_some() {
            return;
        }
        let in_time = options.since.is_none_or(|since| head.at >= since);
        self.wanted = Some(in_time && options.only.is_none_or(|only| head.stream == only));
        self.text.clear();
        if options.timestamps {
            self.text.extend_from_slice(head.time.as_bytes());
            self.text.push(b' ');
        }
        self.prefix = self.text.len();
    }

    /// More of the record.
    pub(super) fn more(&mut self, mut content: &[u8], out: &mut Vec<u8>) {
        if self.wanted != Some(true) {
            return;
        }
        while !content.is_empty() {
            let room = (self.prefix + LINE_BYTES).saturating_sub(self.text.len());
            let (now, later) = content.split_at(room.min(content.len()));
            self.text.extend_from_slice(now);
            content = later;
            if !content.is_empty() {
                self.put(out);
                out.push(b'\n');
                // Later pieces begin with the time as well.
                self.text.truncate(self.prefix);
            }
        }
    }

    /// The record ends.
    pub(super) fn end(&mut self, tag: Tag, out: &mut Vec<u8>) {
        if tag == Tag::Full && self.wanted.take() == Some(true) {
            self.put(out);
            out.push(b'\n');
        }
    }

    /// Nothing more comes: a line that was never finished is told without an end.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if self.wanted.take() == Some(true) {
            self.put(out);
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.text);
    }
}
