//! imaged: images on the node. Pull policy, image presence, pulls, their credentials and their back-off, removal of unused ones.
//!
//! Owns when an image is pulled and removed, and what a container is told to wait for. Must never start, stop or remove a container,
//! and must never fail a container because the runtime does not answer: that is a status of the call, not a reason.

mod answer;
mod bucket;
pub mod config;
mod credentials;
mod ensure;
mod error;
mod failures;
mod gc;
mod grpc;
mod health;
mod keyring;
mod list;
mod policy;
mod promised;
mod providers;
mod pulls;
mod queue;
mod records;
mod reference;
mod table;

#[cfg(test)]
mod fake;

use bulkhead_api::imaged::v1::imaged_server::ImagedServer;
use bulkhead_cri::ImagesClient;
use bulkhead_reconcile::{LoopStatus, drive, wake};
use bulkhead_service::{Context, NoFlags, Service, ServiceError};
use tokio::sync::watch;
use tonic::service::Routes;

use config::Settings;
use credentials::{Credentials, Sources};
use ensure::Keeper;
use gc::{Collector, Loop, Statvfs, UsersOfPods};
use health::{Health, Probe, Watched};
use providers::Providers;
use records::{Policy, Records};

/// The process.
pub struct Imaged;

impl Service for Imaged {
    const NAME: &'static str = "imaged";
    type Flags = NoFlags;

    async fn run(context: Context, _: NoFlags) -> Result<(), ServiceError> {
        let settings = Settings::from_configuration(&context.config);
        run(context, settings).await
    }
}

/// Runs imaged until `context.shutdown`. [`Imaged`] with settings of the caller's.
///
/// # Errors
/// When its socket cannot be had or the drain took too long.
pub async fn run(context: Context, settings: Settings) -> Result<(), ServiceError> {
    let health = Health::new(context.check("runtime images"));
    let runtime = Watched::new(ImagesClient::new(context.cri_channel()), health.clone());
    // Nobody wakes the probe: it is the calls of others that make it rest.
    let (_waker, wake) = wake();
    let status = watch::Sender::new(LoopStatus::default());
    let stopped = context.shutdown.clone().cancelled_owned();
    tokio::spawn(drive(Probe::new(runtime.clone(), health), wake, status, stopped));
    let client = context.flags.kubeconfig().map(|_| {
        let owner = context.identities.uid_of("apigate");
        bulkhead_kubeapi::over_socket(&context.api_socket(), owner)
    });
    let home = std::env::var_os("HOME").map(Into::into);
    let credentials = Credentials::new(Sources {
        client,
        files: credentials::places(&context.flags.root_dir, home),
        providers: providers(&context)?,
    });
    let records = Records::open(&context.own_state_dir(), Policy::from_configuration(&context.config));
    let keeper = Keeper::new(runtime.clone(), credentials, records, settings);
    let parts = gc::Parts {
        runtime,
        users: UsersOfPods::new(context.peer("pleg")),
        disk: Statvfs,
        limits: settings.garbage,
        promised: keeper.promised(),
    };
    let collector = Collector::new(parts, &context.metrics);
    let (_gc_waker, wake) = bulkhead_reconcile::wake();
    let stopped = context.shutdown.clone().cancelled_owned();
    tokio::spawn(drive(Loop::new(collector.clone()), wake, watch::Sender::default(), stopped));
    let routes = Routes::new(ImagedServer::new(grpc::Handlers::new(keeper, collector)));
    // Nothing has to be loaded first, and without the runtime there is still the true answer that it is away.
    context.ready();
    context.serve(routes).await
}

/// The programs that the flags name, if they name any.
fn providers(context: &Context) -> Result<Providers, ServiceError> {
    match context.flags.image_credential_providers() {
        Some((config, programs)) => Providers::load(config, programs)
            .map_err(|error| ServiceError::configuration("credential providers cannot be used", error)),
        None => Ok(Providers::default()),
    }
}
