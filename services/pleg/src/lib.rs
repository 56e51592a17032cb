//! pleg: what the container runtime really holds.
//!
//! Owns the one view of sandboxes and containers on the node: reads single pods on request or at the runtime's events,
//! relists, every second where there are no events, and publishes each pod as it is. Must never change anything in the runtime, and never decide
//! what should run: its CRI role, `bulkhead_cri::Observe`, has no method for it.

mod cache;
mod convert;
mod error;
mod events;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod grpc;
mod health;
mod inspect;
mod listing;
mod measures;
mod plan;
mod reader;
mod relist;
mod running;
mod trust;
mod version;

#[cfg(test)]
mod fake;

use std::sync::Arc;

use bulkhead_api::pleg::v1::pleg_server::PlegServer;
use bulkhead_cri::ObserveClient;
use bulkhead_ipc::Publisher;
use bulkhead_reconcile::{LoopStatus, drive, wake};
use bulkhead_service::{Context, NoFlags, Service, ServiceError};
use tokio::sync::watch;
use tonic::service::Routes;

use crate::cache::Cache;
use crate::events::Events;
use crate::grpc::Handlers;
use crate::measures::Measures;
use crate::reader::Reader;
use crate::relist::Relist;
use crate::trust::Trust;

/// The process.
pub struct Pleg;

impl Service for Pleg {
    const NAME: &'static str = "pleg";
    type Flags = NoFlags;

    async fn run(context: Context, _: NoFlags) -> Result<(), ServiceError> {
        let context = Arc::new(context);
        let client = ObserveClient::new(context.cri_channel());
        let publisher = Publisher::new(context.shutdown.clone());
        let reader = Reader::new(client.clone(), Arc::new(Cache::new(publisher.clone())));
        let (lives, runtime_lives) = watch::channel(0);
        let (status, relist_status) = watch::channel(LoopStatus::default());
        let (version, runtime_version) = watch::channel(None);

        let (waker, waiting) = wake();
        let trust = Trust::new(waker);
        let relist =
            Relist::new(reader.clone(), lives, trust.clone()).measured(Measures::new(&context.metrics));
        let (seen, told) = (publisher.clone(), trust.clone());
        context.metrics.read_with(move || measures::now(&seen, &told));
        tokio::spawn(drive(relist, waiting, status, context.shutdown.clone().cancelled_owned()));
        let background = |task: futures::future::BoxFuture<'static, ()>| {
            let shutdown = context.shutdown.clone();
            tokio::spawn(async move { shutdown.run_until_cancelled(task).await });
        };
        background(Box::pin(Events::new(reader.clone(), runtime_lives.clone(), trust).run()));
        background(Box::pin(version::follow(client.clone(), version, runtime_lives)));
        let (check, shell) = (context.check("runtime"), context.clone());
        background(Box::pin(health::follow(relist_status, move |verdict| match verdict {
            Ok(()) => {
                check.good();
                shell.ready();
            }
            Err(reason) => check.bad(reason),
        })));

        let handlers = Handlers { client, reader, publisher, version: runtime_version };
        context.serve(Routes::new(PlegServer::new(handlers))).await
    }
}
