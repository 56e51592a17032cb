//! Runs one probe once.
//!
//! Owns sockets and the calls to the runtime. Must never count answers, and must never hold a connection longer than the
//! run that made it.

mod exec;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod grpc;
mod http;
mod net;
mod tcp;
mod tls;

use std::net::IpAddr;
use std::sync::Arc;

use bulkhead_cri::Exec;
use bulkhead_model::probe::{Handler, ProbeSpec};
use tokio::time::timeout;

use crate::plan::{Address, Job};
use crate::report::Report;
use net::Dialer;
use tls::Tls;

pub use exec::Ping;

/// How probes name themselves. Servers tell them from other clients by it.
const USER_AGENT: &str = "kube-probe/1.37";

/// Runs probes.
pub trait Handlers: Clone + Send + Sync + 'static {
    /// Runs `job` once, within its time-out.
    fn run(&self, job: &Job) -> impl Future<Output = Report> + Send;
}

/// [`Handlers`] over the network and the runtime.
#[derive(Clone)]
pub struct ProbeHandlers<E, P> {
    exec: E,
    ping: P,
    node: Arc<dyn Fn() -> IpAddr + Send + Sync>,
    dialer: Dialer,
    tls: Tls,
}

impl<E: Exec, P: Ping> ProbeHandlers<E, P> {
    /// Commands go to `exec`; `ping` tells whether the runtime answers at all; `node` is the node's address.
    ///
    /// # Errors
    /// When no TLS client can be set up.
    pub fn new(
        exec: E,
        ping: P,
        node: impl Fn() -> IpAddr + Send + Sync + 'static,
    ) -> Result<Self, rustls::Error> {
        Ok(Self { exec, ping, node: Arc::new(node), dialer: Dialer::default(), tls: Tls::new()? })
    }

    fn host(&self, named: Option<&str>, address: &Address) -> Option<String> {
        match (named, address) {
            (Some(host), _) => Some(host.to_owned()),
            (None, Address::Pod(address)) => Some(address.clone()),
            (None, Address::Node) => Some((self.node)().to_string()),
            (None, Address::Missing) => None,
        }
    }
}

impl<E: Exec, P: Ping> Handlers for ProbeHandlers<E, P> {
    async fn run(&self, job: &Job) -> Report {
        let Job { container_id, spec, address } = job;
        let no_address = || Report::unknown("the pod has no address yet");
        match &spec.handler {
            Handler::Exec { command } => {
                exec::run(&self.exec, &self.ping, container_id, command, spec.timeout).await
            }
            Handler::Http { scheme, host, port, path, headers } => {
                let Some(host) = self.host(host.as_deref(), address) else { return no_address() };
                let url = http::Url::new(*scheme, &host, *port, path);
                let what = format!("GET {}", url.shown());
                within(spec, &what, http::get(&self.dialer, &self.tls, url, headers)).await
            }
            Handler::Tcp { host, port } => {
                let Some(host) = self.host(host.as_deref(), address) else { return no_address() };
                let what = format!("TCP {}", net::authority(&host, *port));
                within(spec, &what, tcp::connect(&self.dialer, &host, *port)).await
            }
            Handler::Grpc { port, service, mode } => {
                let Some(host) = self.host(None, address) else { return no_address() };
                let server = grpc::Server { host: &host, port: *port, mode: *mode };
                let what = format!("gRPC {}", net::authority(&host, *port));
                within(spec, &what, grpc::check(&self.dialer, &self.tls, server, service)).await
            }
        }
    }
}

/// The time-out covers everything: looking up, connecting, the answer and its body.
async fn within(spec: &ProbeSpec, what: &str, run: impl Future<Output = Report>) -> Report {
    match timeout(spec.timeout, run).await {
        Ok(report) => report,
        Err(_) => Report::failure(format!("{what}: no answer within {:?}", spec.timeout)),
    }
}

#[cfg(test)]
mod tests;
