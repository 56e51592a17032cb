//! The runtime's name and versions: asked when it comes (back) and now and then, kept while it is away.

use std::time::Duration;

use bulkhead_cri::{Observe, wire};
use tokio::sync::watch;

/// An upgrade of the runtime can be so fast that no list fails meanwhile: it is seen after this time.
const AGAIN: Duration = Duration::from_secs(60);

/// Keeps `version` at the last answer. Never returns.
pub(crate) async fn follow<O: Observe>(
    client: O,
    version: watch::Sender<Option<wire::VersionResponse>>,
    mut lives: watch::Receiver<u64>,
) {
    loop {
        lives.borrow_and_update();
        match client.version().await {
            Ok(answer) => {
                version.send_replace(Some(answer));
            }
            Err(error) => tracing::debug!(%error, "the runtime's version is not known"),
        }
        tokio::select! {
            Ok(()) = lives.changed() => {}
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::fake::FakeRuntime;

    #[tokio::test(start_paused = true)]
    async fn it_is_asked_for_when_the_runtime_comes_back() {
        let runtime = FakeRuntime::default();
        runtime.fail("Version", Code::Unavailable);
        let (version, mut seen) = watch::channel(None);
        let (lives, life) = watch::channel(0);
        tokio::spawn(follow(runtime.clone(), version, life));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(*seen.borrow(), None);
        runtime.heal("Version");
        lives.send_replace(1);
        let named = |answer: &Option<wire::VersionResponse>| {
            answer.as_ref().is_some_and(|a| a.runtime_name == "fake")
        };
        let wait = tokio::time::timeout(Duration::from_secs(1), seen.wait_for(named));
        wait.await.expect("asked at once").unwrap();
        runtime.fail("Version", Code::Unavailable);
        lives.send_replace(2);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(seen.borrow().is_some(), "kept while the runtime is away");
    }
}
