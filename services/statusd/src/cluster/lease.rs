//! The node's lease: renewed as long as the node is registered, four times in its duration.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_base::{Clock, chain};
use bulkhead_reconcile::{Next, Reconciler, Trigger};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use tokio::sync::watch;

use super::api::{ApiError, NodeApi};

/// How often a lease that somebody else wrote is read and written again before the next renewal is waited for.
const ATTEMPTS: usize = 5;

/// The loop's body.
pub(crate) struct Renewal<A> {
    api: Arc<A>,
    node: String,
    seconds: i32,
    /// UID of the registered node.
    registered: watch::Receiver<Option<String>>,
    clock: Arc<dyn Clock>,
    /// As it was written last.
    last: Option<Lease>,
    failing: bool,
}

impl<A: NodeApi> Renewal<A> {
    /// A lease of `seconds` for the node `node`, while `registered` has its UID.
    pub(crate) fn new(
        api: Arc<A>,
        node: String,
        seconds: i32,
        registered: watch::Receiver<Option<String>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { api, node, seconds, registered, clock, last: None, failing: false }
    }

    async fn renew(&mut self, uid: &str) -> Result<(), ApiError> {
        for _ in 0..ATTEMPTS {
            let before = match self.last.take() {
                Some(last) => Some(last),
                None => self.api.lease().await?,
            };
            let is_new = before.is_none();
            let next = renewed(before, &self.node, uid, self.seconds, self.clock.now());
            let written = match is_new {
                true => self.api.create_lease(&next).await,
                false => self.api.replace_lease(&next).await,
            };
            match written {
                Ok(lease) => {
                    self.last = Some(lease);
                    return Ok(());
                }
                // Somebody else wrote, made or removed it: read it again.
                Err(ApiError::Conflict(_) | ApiError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(ApiError::Conflict(format!("lease {}", self.node)))
    }
}

impl<A: NodeApi> Reconciler for Renewal<A> {
    const NAME: &'static str = "node lease";

    fn interval(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.seconds).unwrap_or_default()) / 4
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        let uid = self.registered.borrow_and_update().clone();
        let Some(uid) = uid else {
            self.last = None;
            // Soon after the registration, not a whole interval later.
            let known = tokio::time::timeout(self.interval(), self.registered.changed()).await;
            return if matches!(known, Ok(Ok(()))) { Next::After(Duration::ZERO) } else { Next::Wait };
        };
        match self.renew(&uid).await {
            Ok(()) => {
                if std::mem::take(&mut self.failing) {
                    tracing::info!("the node's lease is renewed again");
                }
                Next::Wait
            }
            Err(error) => {
                let error = chain(&error).to_string();
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(error, "the node's lease is not renewed; trying again");
                }
                Next::Failed(error)
            }
        }
    }
}

/// The lease to write: `before`, or a new one, held by this node as of `now`.
fn renewed(before: Option<Lease>, node: &str, uid: &str, seconds: i32, now: Timestamp) -> Lease {
    let mut lease = before.unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(node.to_owned()),
            namespace: Some("kube-node-lease".to_owned()),
            ..ObjectMeta::default()
        },
        spec: None,
    });
    // With the node goes its lease; the node may be another one than before.
    lease.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }]);
    let spec = lease.spec.get_or_insert_default();
    *spec = LeaseSpec {
        holder_identity: Some(node.to_owned()),
        lease_duration_seconds: Some(seconds),
        renew_time: Some(MicroTime(now)),
        ..std::mem::take(spec)
    };
    lease
}

#[cfg(test)]
mod tests {
    use bulkhead_base::FakeClock;
    use bulkhead_reconcile::{LoopStatus, drive, wake};

    use super::*;
    use crate::cluster::fake::FakeApi;
    use crate::fake::at;

    struct Bench {
        api: Arc<FakeApi>,
        registered: watch::Sender<Option<String>>,
    }

    fn bench() -> Bench {
        let api = Arc::new(FakeApi::default());
        let (registered, known) = watch::channel(None);
        let renewal = Renewal::new(api.clone(), "a".into(), 40, known, Arc::new(FakeClock::new(at(0))));
        let (waker, wake) = wake();
        tokio::spawn(async move {
            let _waker = waker;
            drive(renewal, wake, watch::Sender::new(LoopStatus::default()), std::future::pending()).await;
        });
        Bench { api, registered }
    }

    async fn after(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds) + Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_registered_node_renews_every_quarter_of_the_duration() {
        let bench = bench();
        after(100).await;
        assert_eq!(bench.api.lease_writes(), 0, "nobody is registered");
        bench.registered.send_replace(Some("u1".into()));
        after(1).await;
        assert_eq!(bench.api.lease_writes(), 1);
        after(30).await;
        assert_eq!(bench.api.lease_writes(), 4);
        let lease = bench.api.stored_lease().unwrap();
        let spec = lease.spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("a"));
        assert_eq!((spec.lease_duration_seconds, spec.renew_time), (Some(40), Some(MicroTime(at(0)))));
        assert_eq!(lease.metadata.owner_references.unwrap()[0].uid, "u1");
        assert_eq!(bench.api.lease_reads(), 1, "what was written last is known");
        bench.registered.send_replace(None);
        after(100).await;
        assert_eq!(bench.api.lease_writes(), 4, "the node is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_others_wrote_or_removed_is_read_again() {
        let bench = bench();
        bench.registered.send_replace(Some("u1".into()));
        after(1).await;
        bench.api.touch_lease();
        after(10).await;
        assert_eq!(bench.api.lease_writes(), 2);
        bench.api.drop_lease();
        after(10).await;
        assert_eq!(bench.api.lease_writes(), 3);
        bench.api.fail(true);
        after(60).await;
        bench.api.fail(false);
        after(10).await;
        assert!(bench.api.lease_writes() > 3, "it is tried again and again");
    }
}
