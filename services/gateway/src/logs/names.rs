//! Names: those of requests, and those of log files. Pure.

use crate::error::LogError;

/// Longest Kubernetes name, in bytes.
const NAME_BYTES: usize = 253;
/// What the kubelet appends to a rotated log that it has compressed.
const COMPRESSED: &str = ".gz";

/// A log file's name: `0.log`, `0.log.20260131-150405`, `0.log.20260131-150405.gz`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogName {
    /// Restart count of the container that wrote it.
    pub(super) attempt: u32,
    /// When it was rotated away, as written; `None` for the file being written. Sorts by time.
    pub(super) stamp: Option<String>,
    /// Whether it was compressed since, and so cannot be read here.
    pub(super) compressed: bool,
}

/// Refuses what cannot be the name of anything in Kubernetes, above all what means something in a path.
pub(crate) fn check(field: &'static str, value: &str) -> Result<(), LogError> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
    let ends = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let good = value.len() <= NAME_BYTES
        && value.bytes().all(allowed)
        && ends(value.bytes().next())
        && ends(value.bytes().next_back());
    if good {
        return Ok(());
    }
    let mut value = value.to_owned();
    value.truncate(value.floor_char_boundary(NAME_BYTES));
    Err(LogError::Name { field, value })
}

/// Reads a file name; `None` when it is not a log's.
pub(super) fn parse(name: &str) -> Option<LogName> {
    let (digits, rest) = name.split_once(".log")?;
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let attempt: u32 = digits.parse().ok()?;
    // "007.log" is not what anybody writes, and would be two names for one attempt.
    if attempt.to_string() != digits {
        return None;
    }
    if rest.is_empty() {
        return Some(LogName { attempt, stamp: None, compressed: false });
    }
    let rest = rest.strip_prefix('.')?;
    let (stamp, compressed) = match rest.strip_suffix(COMPRESSED) {
        Some(stamp) => (stamp, true),
        None => (rest, false),
    };
    // Anything else behind it (".tmp") is somebody's unfinished work.
    let date = !stamp.is_empty() && stamp.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    date.then(|| LogName { attempt, stamp: Some(stamp.to_owned()), compressed })
}

impl LogName {
    /// The name on the disk.
    pub(super) fn file_name(&self) -> String {
        match &self.stamp {
            None => live(self.attempt),
            Some(stamp) => {
                format!("{}.log.{stamp}{}", self.attempt, if self.compressed { COMPRESSED } else { "" })
            }
        }
    }
}

/// Name of the file being written.
pub(super) fn live(attempt: u32) -> String {
    format!("{attempt}.log")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn file_names() {
        let name = |attempt, stamp: Option<&str>, compressed| {
            Some(LogName { attempt, stamp: stamp.map(str::to_owned), compressed })
        };
        let table = [
            ("0.log", name(0, None, false)),
            ("12.log", name(12, None, false)),
            ("0.log.20261130-140312", name(0, Some("20261130-140312"), false)),
            ("0.log.20261130-140312.gz", name(0, Some("20261130-140312"), true)),
            ("0.log.20261130-140312.tmp", None),
            ("0.log.20261130-140312.gz.tmp", None),
            ("0.log.", None),
            ("0.log.gz", None),
            ("0.logs", None),
            ("00.log", None),
            ("+1.log", None),
            ("-1.log", None),
            (".log", None),
            ("a.log", None),
            ("4294967296.log", None),
            ("", None),
        ];
        for (text, wanted) in table {
            let parsed = parse(text);
            assert_eq!(parsed, wanted, "{text}");
            if let Some(parsed) = parsed {
                assert_eq!(parsed.file_name(), text);
            }
        }
    }

    #[test]
    fn names_that_mean_something_in_a_path_are_refused() {
        for good in ["a", "a-b.c", "0", "web-0"] {
            assert!(check("pod", good).is_ok(), "{good}");
        }
        let long = "a".repeat(254);
        for bad in ["", ".", "..", "../etc", "a/b", "a_b", "A", "-a", "a-", "a\0", "é", &long] {
            let error = check("pod", bad).unwrap_err();
            assert!(error.to_string().len() < 400, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_name_is_survived_and_what_is_read_is_written_the_same(text in ".{0,40}") {
            let _ = check("pod", &text);
            if let Some(name) = parse(&text) {
                prop_assert_eq!(name.file_name(), text);
            }
        }
    }
}
