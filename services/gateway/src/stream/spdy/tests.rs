use flate2::{Compress, Compression, FlushCompress};
use proptest::prelude::*;

use super::*;

/// Makes frames as a client does.
pub(in crate::stream) struct Encoder(Compress);

impl Encoder {
    pub(in crate::stream) fn new() -> Self {
        let mut deflate = Compress::new(Compression::default(), true);
        deflate.set_dictionary(&dictionary::bytes()).unwrap();
        Self(deflate)
    }

    /// A compressed header block.
    pub(in crate::stream) fn block(&mut self, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut plain = u32::try_from(headers.len()).unwrap().to_be_bytes().to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
            plain.extend(text.as_bytes());
        }
        let mut block = Vec::with_capacity(plain.len() + 1024);
        let before = self.0.total_in();
        self.0.compress_vec(&plain, &mut block, FlushCompress::Sync).unwrap();
        assert_eq!(self.0.total_in() - before, u64::try_from(plain.len()).unwrap());
        block
    }

    pub(in crate::stream) fn syn_stream(&mut self, stream: u32, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut body = stream.to_be_bytes().to_vec();
        body.extend([0; 6]);
        body.extend(self.block(headers));
        control(SYN_STREAM, 0, &body)
    }

    /// SYN_REPLY or HEADERS.
    pub(in crate::stream) fn headers(
        &mut self,
        kind: u16,
        stream: u32,
        flags: u8,
        headers: &[(&str, &str)],
    ) -> Vec<u8> {
        let mut body = stream.to_be_bytes().to_vec();
        body.extend(self.block(headers));
        control(kind, flags, &body)
    }
}

pub(in crate::stream) fn control(kind: u16, flags: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80, 3];
    frame.extend(kind.to_be_bytes());
    frame.push(flags);
    frame.extend(&u32::try_from(body.len()).unwrap().to_be_bytes()[1..]);
    frame.extend(body);
    frame
}

pub(in crate::stream) fn data(stream: u32, flags: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = stream.to_be_bytes().to_vec();
    frame.push(flags);
    frame.extend(&u32::try_from(body.len()).unwrap().to_be_bytes()[1..]);
    frame.extend(body);
    frame
}

/// Adler-32 of RFC 1950.
fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in bytes {
        a = (a + u32::from(*byte)) % 65521;
        b = (b + a) % 65521;
    }
    b << 16 | a
}

#[test]
fn the_dictionary_is_that_of_draft_3() {
    assert_eq!(adler32(&dictionary::bytes()), dictionary::ADLER32);
    assert_eq!(Encoder::new().block(&[("a", "b")])[1..6], [0xbb, 0xe3, 0xc6, 0xa7, 0xc2]);
}

#[test]
fn blocks_build_on_those_before() {
    let (mut encoder, mut inflater) = (Encoder::new(), Inflater::default());
    for port in 0..100 {
        let port = port.to_string();
        let block = encoder.block(&[("port", &port), ("StreamType", "error")]);
        let content = inflater.inflate(&block).unwrap();
        assert_eq!(header(&content, "port"), Some(port.as_bytes()));
        assert_eq!(header(&content, "streamtype"), Some(&b"error"[..]));
        assert_eq!(header(&content, "requestid"), None);
    }
    let long = "x".repeat(60_000);
    let content = inflater.inflate(&encoder.block(&[("long", &long)])).unwrap();
    assert_eq!(header(&content, "long"), Some(long.as_bytes()));
    let too_long = "x".repeat(HEADERS);
    assert_eq!(inflater.inflate(&encoder.block(&[("long", &too_long)])), Err(Unreadable));
    // One that is left out is missed.
    let (mut encoder, mut inflater) = (Encoder::new(), Inflater::default());
    encoder.block(&[("a", "b")]);
    assert_eq!(inflater.inflate(&encoder.block(&[("a", "b")])), Err(Unreadable));
    for bad in [&b"garbage"[..], &[0x78, 0x9c, 0, 0, 0, 0, 0]] {
        assert_eq!(Inflater::default().inflate(bad), Err(Unreadable), "{bad:?}");
    }
}

#[test]
fn heads_say_what_a_frame_is() {
    let cases: [([u8; HEAD], Option<Head>); 7] = [
        ([0x80, 3, 0, 1, 1, 0, 0, 9], Some(Head::Control { kind: 1, flags: 1, length: 9 })),
        (
            [0x80, 3, 0x77, 0x77, 0, 0, 0x40, 0],
            Some(Head::Control { kind: 0x7777, flags: 0, length: CONTROL }),
        ),
        ([0x80, 3, 0, 1, 0, 0, 0x40, 1], None),
        ([0x80, 2, 0, 1, 0, 0, 0, 9], None),
        (
            [0x7f, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff],
            Some(Head::Data { stream: 0x7fff_ffff, flags: 1, length: 0xff_ffff }),
        ),
        ([0, 0, 0, 0, 0, 0, 0, 0], None),
        (*b"\xffTTP/1.1", None),
    ];
    for (bytes, head) in cases {
        assert_eq!(Head::read(bytes), head, "{bytes:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_are_lost_or_made(chunks: Vec<Vec<u8>>) {
        let (mut frames, mut seen) = (Frames::default(), Vec::new());
        for chunk in &chunks {
            let mut input = &chunk[..];
            while let Some(piece) = frames.next(&mut input) {
                match piece {
                    Piece::Head(_, bytes) | Piece::NotSpdy(bytes) => seen.extend(bytes),
                    Piece::Body(bytes) | Piece::Foreign(bytes) => seen.extend(bytes),
                    Piece::End => {}
                }
            }
            prop_assert!(input.is_empty());
        }
        seen.extend(frames.held());
        prop_assert_eq!(seen, chunks.concat());
    }

    #[test]
    fn any_block_is_read_or_refused(block: Vec<u8>) {
        if let Ok(content) = Inflater::default().inflate(&block) {
            header(&content, "streamtype");
        }
        header(&block, "streamtype");
    }
}
