//! The one writer to standard output, and to standard error for people.

use std::io::Write;

use bulkhead_base::{Clock, SystemClock};

/// Nobody reads our output any more: a reason to stop, not a failure.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads the output any more")]
pub struct ReaderGone;

/// Writes `bytes` to standard output as they are.
pub fn write(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        Err(error) => Err(anyhow::Error::new(error).context("cannot write to standard output")),
    }
}

/// Writes `text`, ending it with a newline.
pub fn print(text: &str) -> anyhow::Result<()> {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    write(format!("{text}{end}").as_bytes())
}

/// One event of the launcher, with the time. A launcher whose terminal is gone goes on.
pub fn event(text: &str) {
    let now = SystemClock.now().to_zoned(jiff::tz::TimeZone::system());
    let _ = print(&format!("{} {text}\n", now.strftime("%H:%M:%S")));
}

/// One line on standard error: why it failed.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
