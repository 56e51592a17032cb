//! The look at the pods' folder: until what stands is known, and now and then whether it can still be worked in.

use std::time::Duration;

use bulkhead_base::chain;
use bulkhead_reconcile::{Next, Reconciler, Trigger};
use bulkhead_service::Check;

use crate::volumes::Volumes;

/// Time between two looks: it costs one `open`.
const INTERVAL: Duration = Duration::from_secs(60);

/// The loop.
pub(crate) struct PodsWatch {
    volumes: Volumes,
    check: Check,
    learned: bool,
}

impl PodsWatch {
    pub(crate) fn new(volumes: Volumes, check: Check) -> Self {
        Self { volumes, check, learned: false }
    }
}

impl Reconciler for PodsWatch {
    const NAME: &'static str = "pods-watch";

    fn interval(&self) -> Duration {
        INTERVAL
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        let result = if self.learned { self.volumes.probe().await } else { self.volumes.learn().await };
        match result {
            Ok(()) => {
                self.learned = true;
                self.check.good();
                Next::Wait
            }
            Err(error) => {
                let reason = chain(&error).to_string();
                self.check.bad(reason.clone());
                Next::Failed(reason)
            }
        }
    }
}
