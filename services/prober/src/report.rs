//! What one run of a probe found, in words that are safe to show.

use bulkhead_model::event::{self, Event};
use bulkhead_model::probe::{ProbeKind, ProbeOutcome};

/// Longest message that is published, in bytes (prober.proto).
pub const MESSAGE_BYTES: usize = 1024;

/// The answer of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it counts as.
    pub outcome: ProbeOutcome,
    /// For people; may be empty after a success. Never holds a header's value.
    pub message: String,
}

impl Report {
    /// All is well.
    pub fn success() -> Self {
        Self { outcome: ProbeOutcome::Success, message: String::new() }
    }

    /// Counts as a success, but somebody should know this.
    pub fn warning(message: impl AsRef<str>) -> Self {
        Self { outcome: ProbeOutcome::Success, message: clean(message.as_ref()) }
    }

    /// The check failed.
    pub fn failure(message: impl AsRef<str>) -> Self {
        Self { outcome: ProbeOutcome::Failure, message: clean(message.as_ref()) }
    }

    /// The check could not be made.
    pub fn unknown(message: impl AsRef<str>) -> Self {
        Self { outcome: ProbeOutcome::Unknown, message: clean(message.as_ref()) }
    }

    /// What somebody should know of it; `None`: all is well.
    pub fn event(&self, kind: ProbeKind) -> Option<Event> {
        let probe = kind.as_str();
        match self.outcome {
            ProbeOutcome::Success if self.message.is_empty() => None,
            ProbeOutcome::Success => Some(event::probe_warning(probe, &self.message)),
            ProbeOutcome::Failure => Some(event::unhealthy(probe, &self.message)),
            ProbeOutcome::Unknown => Some(event::probe_errored(probe, &self.message)),
        }
    }

    /// The message as events show it (`Liveness probe failed: ...`); empty if there is nothing to say.
    pub fn sentence(&self, kind: ProbeKind) -> String {
        let verb = match self.outcome {
            ProbeOutcome::Success if self.message.is_empty() => return String::new(),
            ProbeOutcome::Success => "warning",
            ProbeOutcome::Failure => "failed",
            ProbeOutcome::Unknown => "errored",
        };
        bounded(format!("{} probe {verb}: {}", kind.as_str(), self.message))
    }
}

/// Containers write what they like: control characters must not reach a terminal, and pages not a stream.
fn clean(text: &str) -> String {
    let text = bounded(text.trim_end().to_owned());
    let shown = text.chars().map(|c| match c {
        '\n' | '\t' => c,
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    });
    bounded(shown.collect())
}

fn bounded(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MESSAGE_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_bounded_and_hold_no_control_characters() {
        let report = Report::failure("\u{1b}[31mred\r\n".to_owned() + &"é".repeat(2000));
        let sentence = report.sentence(ProbeKind::Readiness);
        assert!(sentence.starts_with("Readiness probe failed: \u{fffd}[31mred\u{fffd}\n"), "{sentence:?}");
        assert!((MESSAGE_BYTES - 4..=MESSAGE_BYTES).contains(&sentence.len()), "{}", sentence.len());
    }

    #[test]
    fn only_what_is_worth_saying_makes_a_sentence() {
        assert_eq!(Report::success().sentence(ProbeKind::Startup), "");
        assert_eq!(Report::success().event(ProbeKind::Startup), None);
        let told = Report::failure("no").event(ProbeKind::Liveness).unwrap();
        assert_eq!((&*told.reason, told.message.as_str()), ("Unhealthy", "Liveness probe failed: no"));
        let told = Report::warning("x").event(ProbeKind::Liveness).unwrap();
        assert_eq!((&*told.reason, told.message.as_str()), ("ProbeWarning", "Liveness probe warning: x"));
        assert_eq!(Report::warning("x\n").sentence(ProbeKind::Startup), "Startup probe warning: x");
        assert_eq!(Report::unknown("y").sentence(ProbeKind::Liveness), "Liveness probe errored: y");
    }
}
