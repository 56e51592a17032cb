use std::cell::RefCell;

use proptest::prelude::*;
use proptest::sample::Index;

use super::super::spdy::tests::{Encoder, control, data};
use super::*;

const SETTINGS: u16 = 4;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const WINDOW_UPDATE: u16 = 9;

/// One session as a client and a runtime would have it: what each says, and what the client should get.
struct Session {
    towards: Vec<u8>,
    back: Vec<u8>,
    wanted: Vec<u8>,
    told: Vec<Vec<u8>>,
}

fn fields(a: u32, b: u32) -> Vec<u8> {
    [a.to_be_bytes(), b.to_be_bytes()].concat()
}

/// Streams 1, 5, 9... are for errors; 3, 7, 11... are their data.
fn opening(pairs: u32) -> (Encoder, Vec<u8>) {
    let (mut encoder, mut towards) = (Encoder::new(), control(PING, 0, &[0, 0, 0, 1]));
    for pair in 0..pairs {
        let (errors, request) = (pair * 4 + 1, pair.to_string());
        for (stream, kind) in [(errors, "error"), (errors + 2, "data")] {
            let headers = [("streamtype", kind), ("port", "8000"), ("requestid", &request)];
            towards.extend(encoder.syn_stream(stream, &headers));
            // Whatever headers come between belong to the same compression.
            towards.extend(encoder.headers(HEADERS_FRAME, stream, 0, &[("more", &request)]));
        }
        towards.extend(data(errors, FIN, b""));
        towards.extend(data(errors + 2, 0, b"to the pod"));
    }
    (encoder, towards)
}

fn session() -> Session {
    let (mut encoder, mut towards) = opening(5);
    towards.extend(encoder.headers(SYN_REPLY, 2, 0, &[("a", "b")]));
    towards.extend(control(RST_STREAM, 0, &fields(17, 5)));
    let mut runtime = Encoder::new();
    let (mut back, mut wanted) = (Vec::new(), Vec::new());
    let mut both = |frame: Vec<u8>| {
        back.extend(&frame);
        wanted.extend(frame);
    };
    both(control(SETTINGS, 0, &[0; 12]));
    for stream in (1..20).step_by(2) {
        both(runtime.headers(SYN_REPLY, stream, 0, &[("x", "y")]));
    }
    both(data(3, 0, b"from the pod"));
    // The runtime's error, without and with the stream's end.
    let text = b"connection refused";
    back.extend(data(1, 0, text));
    back.extend(data(1, FIN, b""));
    wanted.extend(data(1, FIN, b""));
    back.extend(data(5, FIN, b"reset by peer"));
    wanted.extend(data(5, FIN, b""));
    // Much of it is not kept.
    back.extend(data(9, 0, &[b'x'; 2 * TEXT]));
    // An empty frame without an end says nothing.
    back.extend(data(9, 0, b""));
    let mut both = |frame: Vec<u8>| {
        back.extend(&frame);
        wanted.extend(frame);
    };
    both(control(RST_STREAM, 0, &fields(9, 3)));
    both(control(PING, 0, &[0, 0, 0, 1]));
    both(control(WINDOW_UPDATE, 0, &fields(3, 4096)));
    both(control(0x1234, 7, b"nobody knows this"));
    both(data(7, 0, &[7; 20_000]));
    both(data(7, FIN, b"end"));
    both(runtime.headers(HEADERS_FRAME, 13, FIN, &[("x", "y")]));
    // These are over, or nobody opened them: not ours to change.
    for stream in [1, 5, 9, 13, 17, 99] {
        both(data(stream, 0, b"as it is"));
    }
    both(control(GOAWAY, 0, &fields(19, 0)));
    let told = vec![text.to_vec(), b"reset by peer".to_vec(), vec![b'x'; TEXT]];
    Session { towards, back, wanted, told }
}

/// What passes in these chunks, and what is told.
fn run<'a>(
    streams: &ErrorStreams,
    towards: impl IntoIterator<Item = &'a [u8]>,
    back: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<u8>, Vec<u8>, Vec<Vec<u8>>) {
    let told = RefCell::new(Vec::new());
    let mut there = Towards::new(streams);
    let mut here = Back::new(streams, |text| told.borrow_mut().push(text.to_vec()));
    let through = |pass: &mut dyn Pass, chunks: &mut dyn Iterator<Item = &'a [u8]>| {
        let mut out: Vec<u8> = chunks.flat_map(|chunk| pass.pass(chunk).to_vec()).collect();
        out.extend(pass.end());
        out
    };
    let sent = through(&mut there, &mut towards.into_iter());
    let got = through(&mut here, &mut back.into_iter());
    drop(here);
    (sent, got, told.into_inner())
}

fn chunks<'a>(all: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(all.len() + 1)).collect();
    cuts.extend([0, all.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &all[pair[0]..pair[1]]).collect()
}

#[test]
fn an_error_ends_its_own_connection_alone() {
    let session = session();
    let streams = ErrorStreams::default();
    let (sent, got, told) = run(&streams, [&session.towards[..]], [&session.back[..]]);
    assert!(sent == session.towards);
    assert_eq!(got, session.wanted);
    assert_eq!(told, session.told);
    assert!(streams.with(|known| known.open.is_empty()), "{streams:?}");

    let streams = ErrorStreams::default();
    let (sent, got, told) = run(&streams, session.towards.chunks(1), session.back.chunks(1));
    assert!(sent == session.towards && got == session.wanted && told == session.told);
}

#[test]
fn what_cannot_be_read_passes_as_it_is() {
    let (_, opened) = opening(1);
    let error = data(1, FIN, b"refused");
    let garbage = b"\xff no SPDY at all \x00\x01";
    // Until then, and no longer, errors are dropped.
    let back = [&error[..], garbage, &error].concat();
    let (_, got, _) = run(&ErrorStreams::default(), [&opened[..]], [&back[..]]);
    assert_eq!(got, [&data(1, FIN, b"")[..], garbage, &error].concat());

    let mut no_dictionary = opened.clone();
    no_dictionary.splice(12 + 18..12 + 22, [0; 4]);
    let too_long = [0x80, 3, 0, 1, 0, 0, 0x40, 1];
    for bad in [&garbage[..], &too_long, &control(SYN_STREAM, 0, &[0; 9]), &control(RST_STREAM, 0, &[0])] {
        let towards = [bad, &opened].concat();
        let (sent, got, told) = run(&ErrorStreams::default(), [&towards[..]], [&error[..]]);
        assert!(sent == towards && got == error && told.is_empty(), "{bad:?}");
    }
    let (sent, got, _) = run(&ErrorStreams::default(), [&no_dictionary[..]], [&error[..]]);
    assert!(sent == no_dictionary && got == error);
    // A head that never becomes whole.
    let (_, got, _) = run(&ErrorStreams::default(), [&opened[..]], [&error[..5]]);
    assert_eq!(got, error[..5]);
}

#[test]
fn streams_are_bounded() {
    let streams = ErrorStreams::default();
    let (_, opened) = opening(u32::try_from(STREAMS).unwrap() + 1);
    let (last, first) = (data(u32::try_from(STREAMS * 4).unwrap() + 1, 0, b"a"), data(1, 0, b"b"));
    let (_, got, told) = run(&streams, [&opened[..]], [&last[..], &first]);
    assert_eq!(streams.with(|known| known.open.len()), STREAMS);
    assert_eq!((got, told), (last, vec![b"b".to_vec()]));
}

proptest! {
    #[test]
    fn chunks_make_no_difference(towards: Vec<Index>, back: Vec<Index>) {
        let session = session();
        let streams = ErrorStreams::default();
        let (sent, got, told) =
            run(&streams, chunks(&session.towards, &towards), chunks(&session.back, &back));
        prop_assert!(sent == session.towards);
        prop_assert!(got == session.wanted);
        prop_assert_eq!(told, session.told);
    }

    #[test]
    fn any_bytes_pass_without_streams(towards: Vec<Vec<u8>>, back: Vec<Vec<u8>>) {
        let streams = ErrorStreams::default();
        let (sent, got, told) =
            run(&streams, towards.iter().map(Vec::as_slice), back.iter().map(Vec::as_slice));
        prop_assert_eq!(sent, towards.concat());
        prop_assert_eq!(got, back.concat());
        prop_assert!(told.is_empty());
    }
}
