//! The certificate that the node shows to its own clients, on the gateway's secured port.
//!
//! Owns how it comes about: signed by the node itself, or, with `serverTLSBootstrap`, by the cluster. The gateway's user reads
//! it and its key through the group of the folder, and cannot ask for one: whoever can ask for the node's certificates can
//! become the node.

pub mod bootstrap;
pub mod names;
pub mod self_signed;

use bulkhead_reconcile::{LoopStatus, drive, wake};
use bulkhead_service::Context;
use tokio::sync::watch;

use crate::held::Holder;
use crate::store::Store;
use bootstrap::Bootstrap;
use names::Names;
use self_signed::SelfSigned;

/// Starts to keep the certificate, when there is a server that shows it and nobody else brings one.
pub fn start(context: &Context, holder: &Holder) {
    let (config, flags) = (&context.config, &context.flags);
    if !config.enable_server || config.port == 0 {
        return;
    }
    let folder = flags.cert_dir();
    if config.server_tls_bootstrap {
        let bootstrap = Bootstrap {
            node: flags.node_name().into(),
            store: Store::serving(folder),
            holder: holder.clone(),
            clock: context.clock.clone(),
            check: context.check("serving certificate"),
            failures: bootstrap::failures(&context.metrics),
        };
        tokio::spawn(context.shutdown.clone().run_until_cancelled_owned(bootstrap.run()));
    } else if config.tls_cert_file.is_empty() {
        let keeper = SelfSigned {
            folder,
            names: Names::new(&flags.node_name(), flags.node_ips()),
            clock: context.clock.clone(),
            check: context.check("serving certificate"),
        };
        let (_, wake) = wake();
        let (status, _) = watch::channel(LoopStatus::default());
        tokio::spawn(drive(keeper, wake, status, context.shutdown.clone().cancelled_owned()));
    }
}
