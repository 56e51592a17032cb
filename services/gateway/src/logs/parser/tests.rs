use proptest::prelude::*;

use super::*;
use crate::logs::line::LINE_BYTES;

const T1: &str = "2026-11-30T14:03:12.000000001Z";
const T2: &str = "2026-11-30T14:03:13.5+02:00";

fn parse_in(pieces: &[&[u8]], options: LineOptions) -> Vec<u8> {
    let mut parser = Parser::new(options);
    let mut out = Vec::new();
    for piece in pieces {
        parser.push(piece, &mut out);
    }
    parser.finish(&mut out);
    out
}

fn parse(text: &str, options: LineOptions) -> String {
    String::from_utf8(parse_in(&[text.as_bytes()], options)).unwrap()
}

#[test]
fn records_become_lines() {
    let table = [
        ("", ""),
        ("T1 stdout F a\n", "a\n"),
        ("T1 stderr F a b  c\n", "a b  c\n"),
        ("T1 stdout F \n", "\n"),
        ("T1 stdout F\n", "\n"),
        ("T1 stdout P a\nT1 stdout F b\n", "ab\n"),
        ("T1 stdout P a\nT1 stderr F x\nT1 stdout F b\n", "x\nab\n"),
        ("T1 stdout P:extra a\nT1 stdout F:extra b\n", "ab\n"),
        // Cut off: what there is of it is told.
        ("T1 stdout F a", "a\n"),
        ("T1 stdout P a\n", "a"),
        ("T1 stdout F a\nT1 stdo", "a\n"),
        // No records: passed over, and what follows is not.
        ("junk\nT1 stdout F a\n", "a\n"),
        ("\n\n\nT1 stdout F a\n", "a\n"),
        ("T1 stdin F x\nT1 stdout X x\nT1 stdout Fx x\nnotime stdout F x\nT1 stdout F a\n", "a\n"),
        ("T1  stdout F x\nT1 stdout F a\n", "a\n"),
    ];
    for (input, wanted) in table {
        assert_eq!(parse(&input.replace("T1", T1), LineOptions::default()), wanted, "{input:?}");
    }
}

#[test]
fn times_are_told_once_a_line_as_written() {
    let options = LineOptions { timestamps: true, ..LineOptions::default() };
    let input = format!("{T1} stdout P a\n{T2} stdout F b\n{T2} stderr F c\n");
    assert_eq!(parse(&input, options), format!("{T1} ab\n{T2} c\n"));
}

#[test]
fn lines_before_the_time_asked_for_are_left_out_whole() {
    let since = |text: &str| LineOptions { since: Some(text.parse().unwrap()), ..LineOptions::default() };
    let input = "2026-01-01T00:00:01Z stdout P old\n2026-01-01T00:00:02Z stdout F rest of old\n\
                 2026-01-01T00:00:02Z stdout F new\n2026-01-01T00:00:01Z stderr F late\n";
    assert_eq!(parse(input, since("2026-01-01T00:00:02Z")), "new\n");
    assert_eq!(parse(input, since("2026-01-01T00:00:03Z")), "");
    assert_eq!(parse(input, since("2026-01-01T00:00:00Z")), "oldrest of old\nnew\nlate\n");
}

#[test]
fn a_long_line_is_one_line_up_to_the_bound_and_split_beyond() {
    let piece = "x".repeat(16 * 1024);
    let record = |tag: &str| format!("{T1} stdout {tag} {piece}\n");
    // 112 KiB in pieces of 16 KiB, as containerd writes it.
    let text = format!("{}{}", record("P").repeat(6), record("F"));
    assert_eq!(parse(&text, LineOptions::default()), format!("{}\n", "x".repeat(7 * 16 * 1024)));
    // Exactly the bound is still one line.
    let text = format!("{}{}", record("P").repeat(63), record("F"));
    assert_eq!(parse(&text, LineOptions::default()).lines().count(), 1);
    let text = format!("{}{T1} stdout F y\n", record("P").repeat(64));
    let lines = parse(&text, LineOptions { timestamps: true, ..LineOptions::default() });
    let lines: Vec<_> = lines.lines().collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0].len(), T1.len() + 1 + LINE_BYTES);
    assert_eq!(lines[1], format!("{T1} y"));
}

#[test]
fn a_file_that_ends_within_a_record_spoils_nothing_of_the_next() {
    let mut parser = Parser::new(LineOptions::default());
    let mut out = Vec::new();
    for (first, wanted) in [("stdout P a", "ab\n"), ("stdout F a", "a\nb\n"), ("std", "b\n")] {
        out.clear();
        parser.push(format!("{T1} {first}").as_bytes(), &mut out);
        parser.next_file(&mut out);
        parser.push(format!("{T1} stdout F b\n").as_bytes(), &mut out);
        assert_eq!(String::from_utf8_lossy(&out), wanted, "{first}");
    }
}

#[test]
fn heads_without_end_take_no_memory() {
    let mut parser = Parser::new(LineOptions::default());
    let mut out = Vec::new();
    for _ in 0..1000 {
        parser.push(&[b'x'; 1000], &mut out);
        assert!(parser.head.capacity() <= 4 * HEAD_BYTES && out.is_empty());
    }
}

/// Rows that are records, nearly records, or anything.
fn row() -> impl Strategy<Value = Vec<u8>> {
    let time = prop_oneof![Just(T1.to_owned()), Just(T2.to_owned()), "[0-9TZ:.-]{0,40}"];
    let record = (time, "(stdout|stderr|std)", "(F|P|P:x|Q|)", ".{0,30}", any::<bool>()).prop_map(
        |(time, stream, tag, text, ended)| {
            format!("{time} {stream} {tag} {text}{}", if ended { "\n" } else { "" }).into_bytes()
        },
    );
    prop_oneof![8 => record, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

proptest! {
    #[test]
    fn how_the_input_is_cut_changes_nothing(
        rows in prop::collection::vec(row(), 0..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        timestamps in any::<bool>(),
        since in any::<bool>(),
    ) {
        let text = rows.concat();
        let options = LineOptions { timestamps, since: since.then(|| "2026-11-30T12:00:00Z".parse().unwrap()), only: None };
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        prop_assert_eq!(parse_in(&pieces, options), parse_in(&[&text], options));
    }

    #[test]
    fn what_was_written_is_what_is_read(lines in prop::collection::vec("[^\n]{0,40}", 0..20), width in 1_usize..9) {
        // As a runtime writes it: every line in pieces of at most `width` bytes.
        let mut log = Vec::new();
        for line in &lines {
            let mut pieces: Vec<&[u8]> = line.as_bytes().chunks(width).collect();
            let last = pieces.pop().unwrap_or_default();
            for (tag, piece) in pieces.iter().map(|piece| ("P", *piece)).chain([("F", last)]) {
                log.extend_from_slice(format!("{T1} stdout {tag} ").as_bytes());
                log.extend_from_slice(piece);
                log.push(b'\n');
            }
        }
        let wanted: String = lines.iter().map(|line| format!("{line}\n")).collect();
        prop_assert_eq!(parse_in(&[&log], LineOptions::default()), wanted.into_bytes());
    }
}
