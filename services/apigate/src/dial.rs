//! One connection to the API server: name, TCP, TLS, HTTP/2.

use std::net::SocketAddr;

use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::body::RequestBody;
use crate::credential::Credential;
use crate::error::Cause;
use crate::limits;

/// Connects. The connection lives in a task of its own, and ends when the API server ends it or nobody uses it any more.
///
/// # Errors
/// When there is none within [`limits::CONNECT_ALL`].
pub async fn dial(credential: &Credential) -> Result<SendRequest<RequestBody>, Cause> {
    let all = limits::CONNECT_ALL;
    timeout(all, connect(credential)).await.unwrap_or(Err(Cause::Slow(all)))
}

async fn connect(credential: &Credential) -> Result<SendRequest<RequestBody>, Cause> {
    let server = &credential.server;
    let found = timeout(limits::CONNECT, lookup_host((server.host.as_str(), server.port))).await;
    let found = found.map_err(|_| Cause::Slow(limits::CONNECT))?.map_err(Cause::Resolve)?;
    let stream = reach(found).await?;
    // Small requests must not wait for each other. Where it fails, they do.
    let _ = stream.set_nodelay(true);
    let tls = credential.tls.connect(credential.name.clone(), stream).await.map_err(Cause::Tls)?;
    if tls.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err(Cause::NoHttp2);
    }
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(limits::STREAM_WINDOW)
        .initial_connection_window_size(limits::ANSWER_WINDOW)
        .max_header_list_size(limits::ANSWER_HEADERS)
        .max_send_buf_size(limits::SEND_BUFFER)
        // A peer that is gone without a word is noticed.
        .keep_alive_interval(limits::PING)
        .keep_alive_timeout(limits::PONG)
        .handshake(TokioIo::new(tls))
        .await
        .map_err(Cause::Broken)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = %bulkhead_base::chain(&error), "connection to the API server ended");
        }
    });
    Ok(sender)
}

/// The first address that takes the connection.
async fn reach(addresses: impl Iterator<Item = SocketAddr>) -> Result<TcpStream, Cause> {
    let mut last = None;
    for address in addresses {
        match timeout(limits::CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = Some(Cause::Connect(error)),
            Err(_) => last = Some(Cause::Slow(limits::CONNECT)),
        }
    }
    Err(last.unwrap_or_else(|| Cause::Resolve(std::io::Error::other("it has no address"))))
}
