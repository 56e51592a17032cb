//! The CRI sockets: one for each process that has CRI methods, and the connections on them.

use std::convert::Infallible;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use bulkhead_api::access::GROUP;
use bulkhead_ipc::Identities;
use bulkhead_ipc::caller::{Caller, identify};
use bulkhead_ipc::listen::listen;
use bulkhead_ipc::server::DRAIN;
use bulkhead_service::{Context, Exit, ServiceError};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::gate::Gate;
use crate::limits;

/// All sockets, bound.
pub struct Listeners(Vec<Listener>);

/// The socket of one process.
struct Listener {
    socket: UnixListener,
    gate: Arc<Gate>,
    identities: Arc<Identities>,
    owners: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

impl Listeners {
    /// Binds `cri/NAME.sock` beneath the run directory for each gate.
    ///
    /// # Errors
    /// When the folder cannot be made, or a socket is in use or cannot be bound.
    pub async fn bind(context: &Context, gates: &[Arc<Gate>]) -> Result<Self, ServiceError> {
        let folder = context.flags.run_dir.join("cri");
        let group = context.identities.groups.get(GROUP).copied();
        make_folder(&folder, group).map_err(|error| {
            ServiceError::socket(
                format!("cannot make {}, the folder of CRI sockets", folder.display()),
                error,
            )
        })?;
        let mut listeners = Vec::new();
        for gate in gates {
            let path = folder.join(format!("{}.sock", gate.process()));
            let what = || format!("cannot serve CRI to `{}`", gate.process());
            let socket = listen(&path, group).await.map_err(|error| ServiceError::socket(what(), error))?;
            listeners.push(Listener {
                socket,
                gate: gate.clone(),
                identities: context.identities.clone(),
                owners: Arc::new(Semaphore::new(limits::CONNECTIONS)),
                strangers: Arc::new(Semaphore::new(limits::STRANGERS)),
            });
        }
        Ok(Self(listeners))
    }

    /// Serves until `shutdown`, then lets calls in flight finish for at most [`DRAIN`].
    ///
    /// # Errors
    /// When that was not enough for some.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), ServiceError> {
        let mut tasks = JoinSet::new();
        for listener in self.0 {
            tasks.spawn(listener.serve(shutdown.clone()));
        }
        let mut busy: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
        if busy.is_empty() {
            return Ok(());
        }
        busy.sort();
        let what = format!("CRI calls in flight did not end within {DRAIN:?}: those of {}", busy.join(", "));
        Err(ServiceError { exit: Exit::DrainExceeded, what, source: None })
    }
}

/// The launcher or systemd makes the folder; without them it is made here. One that exists is left as it is.
fn make_folder(folder: &Path, group: Option<u32>) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new().mode(0o750).create(folder)?;
    chown(folder, None, group)
}

impl Listener {
    /// Returns whose calls outlived the drain, if any did.
    async fn serve(self, shutdown: CancellationToken) -> Option<String> {
        let mut connections = JoinSet::new();
        loop {
            // All arms are cancel-safe.
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, _)) => self.admit(stream, &mut connections, &shutdown),
                    Err(error) => {
                        tracing::error!(process = self.gate.process(), %error, "cannot accept a connection");
                        sleep(limits::ACCEPT_RETRY).await;
                    }
                },
            }
        }
        // From here on nobody connects: the socket says so at once instead of letting callers wait.
        drop(self.socket);
        let _ = timeout(DRAIN, async { while connections.join_next().await.is_some() {} }).await;
        // A connection that is open without a call is no reason to complain.
        let idle = timeout(limits::LAST_CALL, self.gate.idle()).await;
        idle.is_err().then(|| self.gate.process().to_owned())
    }

    /// Starts a connection, if it finds a place.
    fn admit(&self, stream: UnixStream, connections: &mut JoinSet<()>, shutdown: &CancellationToken) {
        let process = self.gate.process();
        let caller = match stream.peer_cred() {
            Ok(credentials) => identify(&self.identities, process, credentials.uid()),
            Err(error) => Caller::Stranger(format!("somebody whose credentials are not known ({error})")),
        };
        let (places, who) = match &caller {
            Caller::Owner => (&self.owners, process),
            Caller::Stranger(name) => (&self.strangers, name.as_str()),
        };
        match places.clone().try_acquire_owned() {
            Ok(place) => {
                let gate = self.gate.clone();
                connections.spawn(connection(stream, gate, caller, place, shutdown.clone()));
            }
            // Dropping the stream tells the caller at once.
            Err(_) => tracing::warn!(process, who, "connection closed: too many are open"),
        }
    }
}

/// One connection until its end, or until `shutdown` and the end of its calls.
async fn connection(
    stream: UnixStream,
    gate: Arc<Gate>,
    caller: Caller,
    place: OwnedSemaphorePermit,
    shutdown: CancellationToken,
) {
    let caller = Arc::new(caller);
    let service = service_fn({
        let gate = gate.clone();
        move |request| {
            let (gate, caller) = (gate.clone(), caller.clone());
            async move { Ok::<_, Infallible>(gate.answer(&caller, request).await) }
        }
    });
    let connection = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        // Nothing is added to what the runtime says.
        .auto_date_header(false)
        .max_concurrent_streams(limits::CALLS)
        .max_header_list_size(limits::REQUEST_HEADERS)
        .initial_stream_window_size(limits::STREAM_WINDOW)
        .initial_connection_window_size(limits::REQUEST_WINDOW)
        .max_send_buf_size(limits::SEND_BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(process = gate.process(), error = %bulkhead_base::chain(&error), "connection ended");
    }
    drop(place);
}
