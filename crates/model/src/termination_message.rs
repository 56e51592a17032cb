//! What a container that ended wanted to say: its termination message file, or the end of its log.
//!
//! Owns bounds and the choice between the two (`terminationMessagePolicy` of the API). Must never read a file.

/// Read of a container's file, and shown of its whole message, in bytes (the API's).
pub const FILE_BYTES: usize = 4096;
/// Shown of all containers of a pod together, in bytes (the API's).
const POD_BYTES: usize = 12 * 1024;
/// Taken of a log, in bytes (the API's).
const LOG_BYTES: usize = 2048;
/// Lines taken of a log (the API's).
const LOG_LINES: usize = 80;
/// Bytes at the end of a log file that hold all that [`log_tail`] can take: the runtime writes at most 16 KiB of text to a
/// line.
pub const LOG_FILE_BYTES: usize = 32 * 1024;

/// Bytes that the message of one of so many containers may have.
pub fn limit(containers: usize) -> usize {
    POD_BYTES.checked_div(containers).unwrap_or(POD_BYTES).min(FILE_BYTES)
}

/// Whether the log stands in for the file: asked for by the policy, the container failed, and the file is empty.
pub fn falls_back(policy: &str, exit_code: i32, file: &str) -> bool {
    policy == "FallbackToLogsOnError" && exit_code != 0 && file.is_empty()
}

/// One text of several, empty ones left out.
pub fn joined(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    parts.join(": ")
}

/// The text cut to `bytes`, never within a character.
pub fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}

/// The last lines of a log, from the end of its file in CRI's form (`TIME STREAM TAG TEXT`). What is not of that form, such as
/// a first line that was cut, is left out.
pub fn log_tail(end_of_file: &[u8]) -> String {
    let mut text = Vec::new();
    let mut starts = vec![0];
    for (tag, piece) in end_of_file.split(|byte| *byte == b'\n').filter_map(entry) {
        text.extend_from_slice(piece);
        if tag == Tag::Full {
            text.push(b'\n');
            starts.push(text.len());
        }
    }
    // A last line without an end counts as a line.
    let ended = starts.last() == Some(&text.len());
    let lines = if ended { LOG_LINES + 1 } else { LOG_LINES };
    let by_lines = starts.len().checked_sub(lines).and_then(|first| starts.get(first)).copied().unwrap_or(0);
    let from = by_lines.max(text.len().saturating_sub(LOG_BYTES));
    let tail = String::from_utf8_lossy(text.get(from..).unwrap_or_default()).into_owned();
    // A character that was cut in two has become a longer one.
    let over = tail.len().saturating_sub(LOG_BYTES);
    tail.get(tail.ceil_char_boundary(over)..).unwrap_or_default().to_owned()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    Full,
    Partial,
}

fn entry(line: &[u8]) -> Option<(Tag, &[u8])> {
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let (time, stream, tag) = (fields.next()?, fields.next()?, fields.next()?);
    let is_time = time.len() >= 20 && time.get(10) == Some(&b'T') && time.first()?.is_ascii_digit();
    if !is_time || !matches!(stream, b"stdout" | b"stderr") {
        return None;
    }
    // Further tags follow a colon.
    let tag = match tag.split(|byte| *byte == b':').next()? {
        b"F" => Tag::Full,
        b"P" => Tag::Partial,
        _ => return None,
    };
    Some((tag, fields.next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(tag: &str, text: &str) -> String {
        format!("2026-01-02T03:04:05.678901234Z stderr {tag} {text}\n")
    }

    #[test]
    fn a_pods_messages_share_what_one_pod_may_say() {
        for (containers, bytes) in [(0, 4096), (1, 4096), (3, 4096), (4, 3072), (12, 1024), (100_000, 0)] {
            assert_eq!(limit(containers), bytes, "{containers}");
        }
    }

    #[test]
    fn the_log_speaks_only_for_a_failed_container_that_said_nothing() {
        for (policy, exit_code, file, expected) in [
            ("FallbackToLogsOnError", 1, "", true),
            ("FallbackToLogsOnError", 0, "", false),
            ("FallbackToLogsOnError", 1, "x", false),
            ("File", 1, "", false),
            ("", 1, "", false),
        ] {
            assert_eq!(falls_back(policy, exit_code, file), expected, "{policy} {exit_code} {file:?}");
        }
    }

    #[test]
    fn the_tail_is_the_last_lines_that_fit() {
        let text = |log: String| log_tail(log.as_bytes());
        assert_eq!(text(String::new()), "");
        assert_eq!(text(line("F", "one") + &line("P", "tw") + &line("F", "o")), "one\ntwo\n");
        assert_eq!(text("5.67Z stderr F cut\n".to_owned() + &line("F:x", "kept")), "kept\n");
        assert_eq!(text(line("F", "a") + &line("P", "open")), "a\nopen");
        let hundred: String = (0..100).map(|n| line("F", &n.to_string())).collect();
        let tail = text(hundred.clone());
        assert_eq!((tail.lines().count(), tail.lines().next()), (80, Some("20")));
        let tail = text(hundred + &line("P", "open"));
        assert_eq!((tail.lines().count(), tail.lines().next()), (80, Some("21")));
        assert_eq!(text(line("F", &"x".repeat(3000))).len(), 2048);
        let cut = text(line("F", &"é".repeat(3000)));
        assert!(cut.len() <= 2048 && cut.ends_with("é\n"), "{}", cut.len());
    }

    #[test]
    fn texts_are_joined_and_cut() {
        assert_eq!(joined(&["", "a", "", "b"]), "a: b");
        assert_eq!((cut("aé", 2), cut("aé", 3), cut("", 4)), ("a", "aé", ""));
    }

    proptest! {
        #[test]
        fn any_log_has_a_bounded_tail(log in prop::collection::vec(any::<u8>(), 0..5000)) {
            prop_assert!(log_tail(&log).len() <= LOG_BYTES);
        }
    }
}
