//! SPDY/3.1 as far as a port-forward needs it: frames in any chunks of bytes, and header blocks. Pure.
//!
//! Source: SPDY protocol, draft 3 and 3.1. Must never hold more of a frame than its head: payloads are handed on in the pieces
//! in which they come.

use flate2::{Decompress, FlushDecompress, Status};

mod dictionary;

/// Bytes of a frame's head.
pub(super) const HEAD: usize = 8;
/// Longest payload of a control frame; what is longer counts as no SPDY.
pub(super) const CONTROL: u32 = 16 * 1024;
/// Longest header block once it is inflated.
const HEADERS: usize = 64 * 1024;

/// The flag that ends a direction of a stream.
pub(super) const FIN: u8 = 1;
/// A frame that opens a stream.
pub(super) const SYN_STREAM: u16 = 1;
/// A frame that answers one.
pub(super) const SYN_REPLY: u16 = 2;
/// A frame that ends both directions of a stream.
pub(super) const RST_STREAM: u16 = 3;
/// A frame with more headers.
pub(super) const HEADERS_FRAME: u16 = 8;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// About the connection or a stream.
    Control { kind: u16, flags: u8, length: u32 },
    /// What a stream carries.
    Data { stream: u32, flags: u8, length: u32 },
}

/// The next of a connection's direction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A frame begins; what it is, and its bytes.
    Head(Head, [u8; HEAD]),
    /// Some of its payload; never empty.
    Body(&'a [u8]),
    /// It is whole.
    End,
    /// These were to be a frame's head, and are none. From here on all is `Foreign`.
    NotSpdy([u8; HEAD]),
    /// Bytes that mean nothing here.
    Foreign(&'a [u8]),
}

/// One direction of a connection, frame by frame.
#[derive(Debug)]
pub(super) struct Frames {
    state: State,
}

#[derive(Debug)]
enum State {
    Head { bytes: [u8; HEAD], filled: usize },
    Body { left: u32 },
    Foreign,
}

impl Head {
    /// `None`: no SPDY/3.
    fn read(bytes: [u8; HEAD]) -> Option<Self> {
        let [a, b, c, d, flags, e, f, g] = bytes;
        let length = u32::from_be_bytes([0, e, f, g]);
        if a & 0x80 == 0 {
            let stream = u32::from_be_bytes([a, b, c, d]);
            return (stream != 0).then_some(Self::Data { stream, flags, length });
        }
        let control = Self::Control { kind: u16::from_be_bytes([c, d]), flags, length };
        (u16::from_be_bytes([a & 0x7f, b]) == 3 && length <= CONTROL).then_some(control)
    }

    fn length(self) -> u32 {
        match self {
            Self::Control { length, .. } | Self::Data { length, .. } => length,
        }
    }
}

impl Default for Frames {
    fn default() -> Self {
        Self { state: State::new() }
    }
}

impl State {
    const fn new() -> Self {
        Self::Head { bytes: [0; HEAD], filled: 0 }
    }
}

impl Frames {
    /// Takes the next piece off the front of `input`; `None`: more bytes are needed.
    pub(super) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Option<Piece<'a>> {
        match &mut self.state {
            State::Head { bytes, filled } => {
                let empty = bytes.get_mut(*filled..)?;
                let (taken, rest) = input.split_at_checked(empty.len().min(input.len()))?;
                empty.get_mut(..taken.len())?.copy_from_slice(taken);
                *filled += taken.len();
                *input = rest;
                if *filled < HEAD {
                    return None;
                }
                let bytes = *bytes;
                let Some(head) = Head::read(bytes) else {
                    self.state = State::Foreign;
                    return Some(Piece::NotSpdy(bytes));
                };
                self.state = State::Body { left: head.length() };
                Some(Piece::Head(head, bytes))
            }
            State::Body { left: 0 } => {
                self.state = State::new();
                Some(Piece::End)
            }
            State::Body { left } => {
                let most = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                let (taken, rest) = input.split_at_checked(most)?;
                *input = rest;
                *left = left.saturating_sub(u32::try_from(taken.len()).unwrap_or(u32::MAX));
                (!taken.is_empty()).then_some(Piece::Body(taken))
            }
            State::Foreign => {
                let all = std::mem::take(input);
                (!all.is_empty()).then_some(Piece::Foreign(all))
            }
        }
    }

    /// The beginning of a head that is not whole yet.
    pub(super) fn held(&self) -> &[u8] {
        match &self.state {
            State::Head { bytes, filled } => bytes.get(..*filled).unwrap_or_default(),
            State::Body { .. } | State::Foreign => &[],
        }
    }
}

/// The headers of one direction: every block must go through here, in its order, since each one builds on those before.
#[derive(Debug)]
pub(super) struct Inflater(Decompress);

/// A header block cannot be read, nor can those after it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a header block of SPDY cannot be read")]
pub(super) struct Unreadable;

impl Default for Inflater {
    fn default() -> Self {
        Self(Decompress::new(true))
    }
}

impl Inflater {
    /// The content of a block.
    pub(super) fn inflate(&mut self, mut block: &[u8]) -> Result<Vec<u8>, Unreadable> {
        let mut content = Vec::new();
        let mut room = vec![0; 4096];
        loop {
            let (read, written) = (self.0.total_in(), self.0.total_out());
            let done = self.0.decompress(block, &mut room, FlushDecompress::Sync);
            let taken = usize::try_from(self.0.total_in() - read).map_err(|_| Unreadable)?;
            let made = usize::try_from(self.0.total_out() - written).map_err(|_| Unreadable)?;
            block = block.get(taken..).ok_or(Unreadable)?;
            content.extend_from_slice(room.get(..made).ok_or(Unreadable)?);
            if content.len() > HEADERS {
                return Err(Unreadable);
            }
            match done {
                Err(error) if error.needs_dictionary() == Some(dictionary::ADLER32) => {
                    self.0.set_dictionary(&dictionary::bytes()).map_err(|_| Unreadable)?;
                }
                // The connection's one stream of headers never ends.
                Err(_) | Ok(Status::StreamEnd) => return Err(Unreadable),
                Ok(_) if block.is_empty() && made < room.len() => return Ok(content),
                Ok(_) if taken == 0 && made == 0 => return Err(Unreadable),
                Ok(_) => {}
            }
        }
    }
}

/// The value of header `name` in an inflated block.
pub(super) fn header<'a>(mut block: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let count = number(&mut block)?;
    for _ in 0..count {
        let (key, value) = (field(&mut block)?, field(&mut block)?);
        if key.eq_ignore_ascii_case(name.as_bytes()) {
            return Some(value);
        }
    }
    None
}

/// The number at the front of `bytes`.
pub(super) fn number(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_be_bytes(*number))
}

fn field<'a>(block: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(number(block)?).ok()?;
    let (field, rest) = block.split_at_checked(length)?;
    *block = rest;
    Some(field)
}

#[cfg(test)]
pub(super) mod tests;
