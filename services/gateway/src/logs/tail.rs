//! Where the last lines of a log begin: read backwards in bounded blocks.

use std::sync::Arc;

use super::folder::LogFile;
use super::parser::{HEAD_BYTES, Tag, head};
use crate::error::LogError;

/// Bytes read at a time.
const BLOCK: u64 = 64 * 1024;

/// A place in a row of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Which file.
    pub(super) file: usize,
    /// Where in it, in bytes.
    pub(super) offset: u64,
}

/// Where the last `lines` lines of `files` (oldest first) begin. Lines in several records count once; what is no record does
/// not count.
pub(super) fn start(files: &[Arc<LogFile>], lines: u64) -> Result<Place, LogError> {
    let Some((last, newest)) = files.iter().enumerate().next_back() else {
        return Ok(Place { file: 0, offset: 0 });
    };
    let mut scan = Scan { place: Place { file: last, offset: newest.size()? }, left: lines, block: BLOCK };
    if lines == 0 {
        return Ok(scan.place);
    }
    for (index, file) in files.iter().enumerate().rev() {
        if scan.file(index, file)? {
            break;
        }
    }
    Ok(scan.place)
}

struct Scan {
    /// The earliest record that is wanted so far.
    place: Place,
    /// How many more lines are wanted.
    left: u64,
    block: u64,
}

impl Scan {
    /// Goes backwards through one file; whether the beginning was found.
    fn file(&mut self, index: usize, file: &LogFile) -> Result<bool, LogError> {
        let mut end = file.size()?;
        // The beginning of what follows the block, for heads that stand across its end.
        let mut ahead: Vec<u8> = Vec::new();
        while end > 0 {
            let begin = end.saturating_sub(self.block);
            let wanted = usize::try_from(end - begin).unwrap_or_default();
            let mut block = vec![0; wanted];
            let length = file.read(begin, &mut block)?;
            if length < wanted {
                // It was cut off meanwhile: what followed is not there any more.
                block.truncate(length);
                ahead.clear();
            }
            block.append(&mut ahead);
            for at in (0..length).rev() {
                if block.get(at) == Some(&b'\n') && self.record(index, begin, &block, at + 1) {
                    return Ok(true);
                }
            }
            if begin == 0 && self.record(index, begin, &block, 0) {
                return Ok(true);
            }
            block.truncate(HEAD_BYTES);
            ahead = block;
            end = begin;
        }
        Ok(false)
    }

    /// A record may begin at `at` of a block; whether it is one too many.
    fn record(&mut self, index: usize, begin: u64, block: &[u8], at: usize) -> bool {
        let row = block.get(at..).unwrap_or_default();
        if row.is_empty() {
            return false;
        }
        if head(row).is_some_and(|head| head.tag == Tag::Full) {
            if self.left == 0 {
                return true;
            }
            self.left -= 1;
        }
        // Pieces before the end of a line belong to it.
        self.place = Place { file: index, offset: begin + u64::try_from(at).unwrap_or_default() };
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::logs::folder::Folder;
    use crate::logs::line::LineOptions;
    use crate::logs::parser::Parser;

    const TIME: &str = "2026-11-30T14:03:12.000000001Z";

    /// Files of the log, and the folder that holds them.
    fn files(texts: &[Vec<u8>]) -> (tempfile::TempDir, Vec<Arc<LogFile>>) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("p/c")).unwrap();
        let folder = Folder::open(dir.path(), "p", "c").unwrap().unwrap();
        let files = texts.iter().enumerate().map(|(n, text)| {
            std::fs::write(dir.path().join(format!("p/c/{n}.log")), text).unwrap();
            Arc::new(folder.file(&format!("{n}.log")).unwrap().unwrap())
        });
        let files = files.collect();
        (dir, files)
    }

    fn lines_from(texts: &[Vec<u8>], place: Place) -> Vec<String> {
        let mut parser = Parser::new(LineOptions::default());
        let mut out = Vec::new();
        for (n, text) in texts.iter().enumerate().skip(place.file) {
            let skip = if n == place.file { usize::try_from(place.offset).unwrap() } else { 0 };
            parser.push(&text[skip..], &mut out);
            parser.next_file(&mut out);
        }
        parser.finish(&mut out);
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    fn scan(files: &[Arc<LogFile>], lines: u64, block: u64) -> Place {
        let end = Place { file: files.len() - 1, offset: files.last().unwrap().size().unwrap() };
        let mut scan = Scan { place: end, left: lines, block };
        for (index, file) in files.iter().enumerate().rev() {
            if scan.file(index, file).unwrap() {
                break;
            }
        }
        scan.place
    }

    #[test]
    fn none_all_and_empty() {
        let text = format!("{TIME} stdout F a\n{TIME} stdout F b\n").into_bytes();
        let length = u64::try_from(text.len()).unwrap();
        let (_dir, one) = files(std::slice::from_ref(&text));
        assert_eq!(start(&one, 0).unwrap(), Place { file: 0, offset: length });
        assert_eq!(start(&one, 1).unwrap(), Place { file: 0, offset: length / 2 });
        for all in [2, 3, u64::MAX] {
            assert_eq!(start(&one, all).unwrap(), Place { file: 0, offset: 0 });
        }
        let (_dir, empty) = files(&[Vec::new(), Vec::new()]);
        assert_eq!(start(&empty, 5).unwrap(), Place { file: 1, offset: 0 });
    }

    #[test]
    fn a_line_in_pieces_counts_once_and_blocks_are_bounded() {
        let piece = "x".repeat(16 * 1024);
        let long = format!("{TIME} stdout P {piece}\n").repeat(20) + &format!("{TIME} stdout F end\n");
        let text = format!("{TIME} stdout F first\n{long}{TIME} stdout F last\n").into_bytes();
        let (_dir, files) = files(std::slice::from_ref(&text));
        let lines = lines_from(&[text], start(&files, 2).unwrap());
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [20 * 16 * 1024 + 3, 4]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        // The last n lines are the last n of all lines, however they are spread over files, pieces and blocks.
        #[test]
        fn the_tail_is_the_end_of_the_whole(
            lines in prop::collection::vec(prop::collection::vec("[a-z]{0,9}", 1..4), 0..30),
            cut in any::<prop::sample::Index>(),
            wanted in 1_u64..40,
            block in 1_u64..200,
        ) {
            let mut texts = vec![Vec::new(), Vec::new()];
            let cut = cut.index(lines.len() + 1);
            for (n, pieces) in lines.iter().enumerate() {
                for (m, piece) in pieces.iter().enumerate() {
                    let tag = if m + 1 == pieces.len() { "F" } else { "P" };
                    texts[usize::from(n >= cut)].extend(format!("{TIME} stdout {tag} {piece}\n").into_bytes());
                }
            }
            let (_dir, files) = files(&texts);
            let all = lines_from(&texts, Place { file: 0, offset: 0 });
            let tail = lines_from(&texts, scan(&files, wanted, block));
            let from = all.len().saturating_sub(usize::try_from(wanted).unwrap());
            prop_assert_eq!(&tail, &all[from..]);
        }
    }
}
