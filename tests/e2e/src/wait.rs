//! Waiting for a value, with a bound. Not for "something changed", and never for time to pass.

use std::time::Duration;

/// What a slow machine may need for anything that these tests wait for.
pub const BOUND: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// Looks until `look` gives something.
///
/// # Panics
/// When it has not after [`BOUND`]; `what` says what was waited for.
pub async fn until<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    within(BOUND, what, look).await
}

/// As [`until`], with a bound of the test's own.
///
/// # Panics
/// When nothing came within `bound`.
pub async fn within<T>(bound: Duration, what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    #[expect(clippy::panic, reason = "a test's failure")]
    until_or(bound, look).await.unwrap_or_else(|| panic!("not within {bound:?}: {what}"))
}

/// As [`until`], for what may not come: `None` then, after `bound`.
pub async fn until_or<T>(bound: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let found = tokio::time::timeout(bound, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(LOOK).await;
        }
    });
    found.await.ok()
}
