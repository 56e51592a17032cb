//! The loop that measures volumes: each about once a minute, and one that takes long so rarely that it costs little.

use std::collections::BTreeMap;
use std::time::Duration;

use bulkhead_base::chain;
use bulkhead_reconcile::{Next, Reconciler, Trigger};
use tokio::time::Instant;

use crate::error::Error;
use crate::volumes::Volumes;

/// Time between two looks at one volume (the kubelet's `volumeStatsAggPeriod`).
const PERIOD: Duration = Duration::from_secs(60);
/// New volumes are seen after this time at the latest.
const LOOK: Duration = Duration::from_secs(10);
/// A volume is looked at again only when this many times as long as the last look took has passed: at most 2 % of one CPU.
const SHARE: u32 = 50;

/// The loop.
pub(crate) struct UsageLoop {
    volumes: Volumes,
    /// When each volume is due, by pod and name.
    due: BTreeMap<(String, String), Instant>,
}

impl UsageLoop {
    pub(crate) fn new(volumes: Volumes) -> Self {
        Self { volumes, due: BTreeMap::new() }
    }
}

impl Reconciler for UsageLoop {
    const NAME: &'static str = "usage";

    fn interval(&self) -> Duration {
        LOOK
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        let standing = self.volumes.measurable();
        let mut due = BTreeMap::new();
        for (uid, volume) in standing {
            let key = (uid, volume.name.clone());
            let start = Instant::now();
            if let Some(at) = self.due.get(&key).filter(|at| **at > start) {
                due.insert(key, *at);
                continue;
            }
            match self.volumes.measure(&key.0, volume).await {
                Ok(()) => {}
                Err(Error::Interrupted) => return Next::Wait,
                // It may be on its way out: the next look tells.
                Err(error) => {
                    tracing::debug!(pod.uid = key.0, volume = key.1, error = %chain(&error), "not measured")
                }
            }
            let took = start.elapsed();
            due.insert(key, Instant::now() + PERIOD.max(took.saturating_mul(SHARE)));
        }
        self.due = due;
        Next::Wait
    }
}
