//! Waiting for a moment that there may not be, as an arm of a `select!`.

use tokio::time::{Instant, sleep_until};

/// Returns at this time; never for none. Cancel-safe.
pub async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_moment_comes_and_none_never_does() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        at(Some(begin + second)).await;
        assert_eq!(begin.elapsed(), second);
        assert!(timeout(100 * second, at(None)).await.is_err());
    }
}
