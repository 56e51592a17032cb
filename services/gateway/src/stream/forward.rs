//! A port-forward over SPDY: what the runtime says of one connection that breaks is kept from the client, which would end all of
//! them (known fault X2).
//!
//! Owns which streams are for errors, and what of them is dropped. Must never change what another stream carries, nor break a
//! session because it cannot be read: then the rest passes as it is.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::join::Pass;
use super::spdy::{
    FIN, Frames, HEADERS_FRAME, Head, Inflater, Piece, RST_STREAM, SYN_REPLY, SYN_STREAM, header, number,
};

/// Streams for errors that are open at a time; of those beyond, errors pass.
const STREAMS: usize = 4096;
/// Bytes of a dropped text that are told.
const TEXT: usize = 1024;
/// Fields of RST_STREAM; of other frames, their stream is all that is wanted.
const FIELDS: usize = 8;

/// The streams for errors of one session.
#[derive(Debug, Default)]
pub(super) struct ErrorStreams(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    open: BTreeSet<u32>,
    blind: bool,
}

/// From the client to the runtime: everything passes, and streams for errors are learned.
#[derive(Debug)]
pub(super) struct Towards<'a> {
    streams: &'a ErrorStreams,
    frames: Frames,
    inflater: Inflater,
    control: Option<Control>,
}

/// From the runtime to the client: what streams for errors carry is dropped, and told to `tell`.
#[derive(Debug)]
pub(super) struct Back<'a, T> {
    streams: &'a ErrorStreams,
    frames: Frames,
    control: Option<Control>,
    /// The beginning of what is being dropped.
    dropped: Option<Vec<u8>>,
    out: Vec<u8>,
    tell: T,
}

/// A control frame, as much as is kept of it.
#[derive(Debug)]
struct Control {
    kind: u16,
    flags: u8,
    body: Vec<u8>,
}

impl ErrorStreams {
    fn with<R>(&self, act: impl FnOnce(&mut Known) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn opened(&self, stream: u32) {
        self.with(|known| {
            if !known.blind && known.open.len() < STREAMS {
                known.open.insert(stream);
            }
        });
    }

    fn closed(&self, stream: u32) {
        self.with(|known| known.open.remove(&stream));
    }

    fn has(&self, stream: u32) -> bool {
        self.with(|known| known.open.contains(&stream))
    }

    /// What goes on cannot be read any more.
    fn blind(&self) {
        self.with(|known| *known = Known { open: BTreeSet::new(), blind: true });
    }

    fn is_blind(&self) -> bool {
        self.with(|known| known.blind)
    }
}

impl Control {
    const fn new(kind: u16, flags: u8) -> Self {
        Self { kind, flags, body: Vec::new() }
    }

    fn stream(&self) -> Option<u32> {
        number(&mut &self.body[..]).map(|stream| stream & 0x7fff_ffff)
    }
}

impl<'a> Towards<'a> {
    /// Of a session with these.
    pub(super) fn new(streams: &'a ErrorStreams) -> Self {
        Self { streams, frames: Frames::default(), inflater: Inflater::default(), control: None }
    }

    fn take(&mut self, piece: &Piece<'_>) {
        match piece {
            Piece::Head(Head::Control { kind, flags, .. }, _) => {
                let wanted = [SYN_STREAM, SYN_REPLY, HEADERS_FRAME, RST_STREAM].contains(kind);
                self.control = wanted.then(|| Control::new(*kind, *flags));
            }
            Piece::Body(bytes) => {
                if let Some(control) = &mut self.control {
                    // Bounded by what a control frame may have.
                    control.body.extend_from_slice(bytes);
                }
            }
            Piece::End => {
                if let Some(control) = self.control.take()
                    && self.learn(&control).is_none()
                {
                    self.streams.blind();
                }
            }
            Piece::NotSpdy(_) => self.streams.blind(),
            Piece::Head(Head::Data { .. }, _) | Piece::Foreign(_) => {}
        }
    }

    /// `None`: from here on headers cannot be read.
    fn learn(&mut self, control: &Control) -> Option<()> {
        let stream = control.stream()?;
        let before_headers = match control.kind {
            RST_STREAM => {
                self.streams.closed(stream);
                return Some(());
            }
            SYN_STREAM => 10,
            _ => 4,
        };
        let headers = self.inflater.inflate(control.body.get(before_headers..)?).ok()?;
        if control.kind == SYN_STREAM && header(&headers, "streamtype") == Some(b"error") {
            self.streams.opened(stream);
        }
        Some(())
    }
}

impl Pass for Towards<'_> {
    fn pass<'b>(&'b mut self, bytes: &'b [u8]) -> &'b [u8] {
        let mut input = bytes;
        while !self.streams.is_blind()
            && let Some(piece) = self.frames.next(&mut input)
        {
            self.take(&piece);
        }
        bytes
    }

    fn end(&mut self) -> &[u8] {
        &[]
    }
}

impl<'a, T: FnMut(&[u8])> Back<'a, T> {
    /// Of a session with these.
    pub(super) fn new(streams: &'a ErrorStreams, tell: T) -> Self {
        let (frames, control, dropped) = (Frames::default(), None, None);
        Self { streams, frames, control, dropped, out: Vec::new(), tell }
    }

    fn take(&mut self, piece: &Piece<'_>) {
        match piece {
            Piece::Head(Head::Data { stream, flags, .. }, head) if self.streams.has(*stream) => {
                self.dropped = Some(Vec::new());
                if flags & FIN != 0 {
                    self.streams.closed(*stream);
                    // The same frame with nothing in it.
                    let [a, b, c, d, flags, ..] = *head;
                    self.out.extend([a, b, c, d, flags, 0, 0, 0]);
                }
            }
            Piece::Head(head, bytes) => {
                if let Head::Control {
                    kind: kind @ (SYN_REPLY | HEADERS_FRAME | RST_STREAM), flags, ..
                } = head
                {
                    self.control = Some(Control::new(*kind, *flags));
                }
                self.out.extend(bytes);
            }
            Piece::Body(bytes) => self.body(bytes),
            Piece::End => self.over(),
            Piece::NotSpdy(bytes) => {
                self.streams.blind();
                self.out.extend(bytes);
            }
            Piece::Foreign(bytes) => self.out.extend_from_slice(bytes),
        }
    }

    fn body(&mut self, bytes: &[u8]) {
        if let Some(dropped) = &mut self.dropped {
            dropped.extend(bytes.iter().take(TEXT.saturating_sub(dropped.len())));
            return;
        }
        if let Some(control) = &mut self.control {
            control.body.extend(bytes.iter().take(FIELDS.saturating_sub(control.body.len())));
        }
        self.out.extend_from_slice(bytes);
    }

    fn over(&mut self) {
        if let Some(dropped) = self.dropped.take()
            && !dropped.is_empty()
        {
            (self.tell)(&dropped);
        }
        if let Some(control) = self.control.take()
            && (control.kind == RST_STREAM || control.flags & FIN != 0)
            && let Some(stream) = control.stream()
        {
            self.streams.closed(stream);
        }
    }
}

impl<T: FnMut(&[u8])> Pass for Back<'_, T> {
    fn pass<'b>(&'b mut self, bytes: &'b [u8]) -> &'b [u8] {
        let mut input = bytes;
        self.out.clear();
        while let Some(piece) = self.frames.next(&mut input) {
            self.take(&piece);
        }
        &self.out
    }

    fn end(&mut self) -> &[u8] {
        self.frames.held()
    }
}

#[cfg(test)]
mod tests;
