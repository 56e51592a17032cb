//! Asks the API server whether it is there when nobody else got an answer from it.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_reconcile::{LoopStatus, Next, Reconciler, Trigger, drive, wake};
use http::{Method, Request, StatusCode};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::error::{Cause, Unavailable};
use crate::health::ServerHealth;
use crate::held::{Held, Holder};
use crate::limits;
use crate::own;
use crate::upstream::Upstream;

/// Everybody who is authenticated may ask this, and everybody else by default too.
const READY: &str = "/readyz";

struct Probe {
    upstream: Arc<Upstream>,
    holder: Holder,
    health: ServerHealth,
}

/// Watches the API server until `shutdown`, unless the node runs without a cluster.
pub fn spawn(upstream: Arc<Upstream>, holder: Holder, health: ServerHealth, shutdown: CancellationToken) {
    let (_, wake) = wake();
    let (status, _) = watch::channel(LoopStatus::default());
    tokio::spawn(drive(Probe { upstream, holder, health }, wake, status, shutdown.cancelled_owned()));
}

impl Reconciler for Probe {
    const NAME: &'static str = "apiserver-probe";

    fn interval(&self) -> Duration {
        limits::QUIET
    }

    async fn reconcile(&mut self, _: Trigger) -> Next {
        if !self.health.is_quiet() {
            return Next::Wait;
        }
        match self.ask().await {
            Ok(status) => {
                self.health.answered(status);
                if status == StatusCode::UNAUTHORIZED { Next::After(limits::PROBE) } else { Next::Wait }
            }
            // Not `Failed`: health tells about it once, and an API server that is away is no fault of this loop.
            Err(error) => {
                self.health.away(&error);
                Next::After(limits::PROBE)
            }
        }
    }
}

impl Probe {
    async fn ask(&self) -> Result<StatusCode, Unavailable> {
        let request = |credential: &_| -> Request<_> {
            own::request(credential, &Method::GET, READY, bytes::Bytes::new())
        };
        match timeout(limits::PROBE, self.upstream.send(request)).await {
            Ok(sent) => Ok(sent?.0.status()),
            Err(_) => Err(match &*self.holder.borrow() {
                Held::Usable(credential) => Unavailable::Away {
                    server: credential.server.authority.as_str().into(),
                    cause: Arc::new(Cause::Silent),
                },
                held => held.credential().err().unwrap_or(Unavailable::Standalone),
            }),
        }
    }
}
