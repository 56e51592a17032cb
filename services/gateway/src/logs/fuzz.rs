//! The parser of log files, open to fuzzing. Nobody else may use this.

use super::line::{LINE_BYTES, LineOptions};
use super::names;
use super::parser::{HEAD_BYTES, Parser};

/// Reads what follows the first byte as a log, at once and in pieces; the first byte says how. Both must give the same, and
/// no line may be longer than lines are.
pub fn log(bytes: &[u8]) {
    let Some((choice, log)) = bytes.split_first() else { return };
    let since = (choice & 2 != 0).then(|| "2026-11-30T12:00:00Z".parse().unwrap_or_default());
    let options = LineOptions { timestamps: choice & 1 != 0, since, only: None };
    let read = |size: usize| {
        let (mut parser, mut out) = (Parser::new(options), Vec::new());
        for piece in log.chunks(size.max(1)) {
            parser.push(piece, &mut out);
        }
        parser.finish(&mut out);
        out
    };
    let whole = read(log.len());
    assert!(whole == read(usize::from(choice >> 2) + 1), "how the log is cut changes what is read");
    let longest = whole.split(|byte| *byte == b'\n').map(<[u8]>::len).max();
    assert!(longest.unwrap_or_default() <= LINE_BYTES + HEAD_BYTES, "a line that is too long");
    if let Some(name) = names::parse(&String::from_utf8_lossy(log)) {
        assert!(names::parse(&name.file_name()) == Some(name), "a file name that is not its own");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_log_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            super::log(&bytes);
        }
    }
}
