//! A container runtime without containers: a real gRPC server on a Unix socket, with state, a log of every call, and
//! faults on demand.
//!
//! Owns the behaviour of a runtime as tests need it; the rules and error codes are containerd 2.4's. Must never run a
//! process or touch the machine beyond its socket. Containers run until a test, a behaviour or a call ends them.
//!
//! ```ignore
//! let runtime = FakeRuntime::start(dir.path()).await?;
//! runtime.add_image("local/bb:1");
//! runtime.on_start(Who::name("crash"), OnStart::Exit(3));
//! runtime.fail(Method::CreateContainer, Status::unavailable("busy"), 2);
//! // ... the code under test works on runtime.socket() ...
//! runtime.log().wait_for(|calls| calls.iter().any(|call| call.method == Method::RemovePodSandbox)).await?;
//! ```
//!
//! Under tokio's paused clock use [`FakeRuntime::in_process`] instead of the socket: bytes in a socket do not keep the
//! paused clock from jumping ahead, so that deadlines pass while an answer is on its way.

mod behaviour;
mod controls;
mod images;
mod lifecycle;
mod log;
mod runtime;
mod script;
mod server;
mod stats;
mod view;
mod world;

#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::cri::v1;
use bulkhead_base::{Clock, SystemClock};
use futures::Stream;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Endpoint, Server};
use tonic::{Response, Status};
use v1::image_service_client::ImageServiceClient;
use v1::image_service_server::ImageServiceServer;
use v1::runtime_service_client::RuntimeServiceClient;
use v1::runtime_service_server::RuntimeServiceServer;

pub use behaviour::{ExecAnswer, OnStart, OnStop, Who};
pub use images::Images;
pub use log::{BOUND, Call, CallLog, Detail, Method, NotSeen};
pub use script::Gate;
pub use server::Service;
pub use world::{Abilities, Container, Exit, Sandbox, Usage, World};

type Answer<T> = Result<Response<T>, Status>;
type Boxed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// How long connections get to end when the runtime goes away.
const GOODBYE: Duration = Duration::from_secs(5);

/// The fake runtime. Dropping it ends the server and leaves the socket file.
pub struct FakeRuntime {
    service: Service,
    socket: PathBuf,
    server: Option<JoinHandle<()>>,
}

/// Clients that reach the fake without a socket, each call as a plain function call.
pub struct InProcess {
    /// Client of the RuntimeService.
    pub runtime: RuntimeServiceClient<RuntimeServiceServer<Service>>,
    /// Client of the ImageService.
    pub image: ImageServiceClient<ImageServiceServer<Service>>,
}

impl FakeRuntime {
    /// Starts an empty runtime on `directory/cri.sock` with the machine's clock.
    ///
    /// # Errors
    /// When the socket cannot be bound.
    pub async fn start(directory: &Path) -> io::Result<Self> {
        Self::start_with_clock(directory, SystemClock).await
    }

    /// As [`FakeRuntime::start`], with a clock for all its time stamps.
    ///
    /// # Errors
    /// When the socket cannot be bound.
    pub async fn start_with_clock(directory: &Path, clock: impl Clock) -> io::Result<Self> {
        let service = Service::new(directory.to_owned(), Arc::new(clock));
        let mut runtime = Self { service, socket: directory.join("cri.sock"), server: None };
        runtime.come_back().await?;
        Ok(runtime)
    }

    /// The socket's path.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The endpoint as configuration files write it: `unix:///...`.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// New clients without a socket, such as for a paused clock.
    pub fn in_process(&self) -> InProcess {
        InProcess {
            runtime: RuntimeServiceClient::new(RuntimeServiceServer::new(self.service.clone())),
            image: ImageServiceClient::new(ImageServiceServer::new(self.service.clone())),
        }
    }

    /// A new connection to the socket.
    ///
    /// # Errors
    /// When the runtime is away.
    pub async fn connect(&self) -> Result<tonic::transport::Channel, tonic::transport::Error> {
        Endpoint::from_shared(self.endpoint())?.connect().await
    }

    /// The runtime goes down as in a restart: the socket is gone, connections and streams break, calls that run end
    /// with UNAVAILABLE. Its containers run on. Nothing happens when it is away already.
    pub async fn go_away(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        self.service.die();
        // Missing is as good as removed.
        let _ = std::fs::remove_file(&self.socket);
        if tokio::time::timeout(GOODBYE, &mut server).await.is_err() {
            server.abort();
        }
    }

    /// The runtime is up again with the state that it had. Nothing happens when it is up already.
    ///
    /// # Errors
    /// When the socket cannot be bound.
    pub async fn come_back(&mut self) -> io::Result<()> {
        if self.server.is_some() {
            return Ok(());
        }
        match std::fs::remove_file(&self.socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let incoming = UnixListenerStream::new(UnixListener::bind(&self.socket)?);
        let life = self.service.live();
        let server = Server::builder()
            .add_service(RuntimeServiceServer::new(self.service.clone()))
            .add_service(ImageServiceServer::new(self.service.clone()))
            .serve_with_incoming_shutdown(incoming, life.cancelled_owned());
        self.server = Some(tokio::spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(%error, "the fake runtime's server failed");
            }
        }));
        Ok(())
    }

    /// Ends the runtime and removes its socket.
    pub async fn shutdown(mut self) {
        self.go_away().await;
    }
}

impl Drop for FakeRuntime {
    fn drop(&mut self) {
        self.service.die();
        if let Some(server) = self.server.take() {
            server.abort();
        }
    }
}

/// The last line of every method.
fn answer<T>(message: T) -> Answer<T> {
    Ok(Response::new(message))
}
