//! Prints an error with everything that caused it. The one place that does.

use std::error::Error;
use std::fmt;

/// Shows `error` and its sources as one line: `outer: cause: root cause`.
///
/// Errors of this project never repeat their source in their own text, so nothing is printed twice. At most
/// 16 causes are followed: an error that claims itself as its source must not hang a log line.
pub fn chain<'a>(error: &'a (dyn Error + 'static)) -> Chain<'a> {
    Chain(error)
}

/// The `Display` of a whole error chain, made by [`chain`].
pub struct Chain<'a>(&'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        for _ in 0..16 {
            let Some(error) = source else { break };
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("reading manifest /etc/a.yaml")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("permission denied")]
    struct Inner;

    #[test]
    fn every_cause_is_shown_once() {
        assert_eq!(chain(&Outer(Inner)).to_string(), "reading manifest /etc/a.yaml: permission denied");
    }
}
