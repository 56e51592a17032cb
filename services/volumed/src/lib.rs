//! volumed: volumes of pods, by emptyDir, hostPath, downwardAPI, and of objects of the API. The one process that may mount.
//!
//! Owns everything beneath `{root}/pods/UID/volumes`. Must never follow a link there, never delete through a mount
//! point, and never trust what stands in a pod's directory: it belongs to another process, and volumes to containers.

mod atomic;
mod beneath;
mod empty_dir;
mod error;
mod files;
mod grpc;
mod host_path;
mod locks;
mod mounts;
mod names;
mod objects;
mod own;
mod refresh;
mod remove;
mod scan;
mod spec;
mod sub_path;
mod teardown;
#[cfg(test)]
mod testing;
mod usage;
mod usage_loop;
mod volumes;
mod wanted;
mod watch;

use bulkhead_api::volumed::v1::volumed_server::VolumedServer;
use bulkhead_reconcile::{drive, wake};
use bulkhead_service::{Context, NoFlags, Service, ServiceError};
use tokio::sync::watch as watch_channel;
use tonic::service::Routes;

use crate::grpc::Grpc;
use crate::objects::Objects;
use crate::usage_loop::UsageLoop;
use crate::volumes::Volumes;
use crate::watch::PodsWatch;

/// The process.
pub struct Volumed;

impl Service for Volumed {
    const NAME: &'static str = "volumed";
    type Flags = NoFlags;

    async fn run(context: Context, _: NoFlags) -> Result<(), ServiceError> {
        let pods = names::pods_directory(&context.flags.root_dir)
            .map_err(|error| ServiceError::configuration("--root-dir cannot be used", error))?;
        let objects = Objects::new(context.flags.kubeconfig().map(|_| {
            let owner = context.identities.uid_of("apigate");
            bulkhead_kubeapi::over_socket(&context.api_socket(), owner)
        }));
        let volumes = Volumes::new(pods, objects, context.clock.clone(), context.shutdown.clone());
        let watch = PodsWatch::new(volumes.clone(), context.check("volumes"));
        let (_waker, wake) = wake();
        let (status, _) = watch_channel::channel(Default::default());
        let routes = Routes::new(VolumedServer::new(Grpc::new(volumes.clone())));
        let first_look = async {
            volumes.learned().await;
            context.ready();
            std::future::pending::<()>().await;
        };
        let shutdown = context.shutdown.clone();
        let looking = async {
            drive(watch, wake, status, shutdown.cancelled_owned()).await;
            std::future::pending::<()>().await;
        };
        let (_no_waker, wake) = bulkhead_reconcile::wake();
        let (status, _) = watch_channel::channel(Default::default());
        let stopped = context.shutdown.clone();
        let measuring = async {
            volumes.learned().await;
            drive(UsageLoop::new(volumes.clone()), wake, status, stopped.cancelled_owned()).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            served = context.serve(routes) => served,
            () = first_look => Ok(()),
            () = looking => Ok(()),
            () = measuring => Ok(()),
        }
    }
}
