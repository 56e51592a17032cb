//! Where the streams of a container or sandbox are: gateway's role. What goes over them is the runtime's streaming server's.

use bulkhead_ipc::PeerChannel;
use wire::runtime_service_client::RuntimeServiceClient;

use crate::{CriError, MESSAGE_BYTES, READ, call, wire};

/// Which of a process' streams are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error; false with a terminal, which has one output.
    pub stderr: bool,
    /// Whether there is a terminal.
    pub tty: bool,
}

/// Asks for addresses of streams. Each holds a token that is good once: a secret until it is used.
pub trait Stream: Clone + Send + Sync + 'static {
    /// Of a command to run in a container.
    fn exec(
        &self,
        container_id: &str,
        command: &[String],
        streams: Streams,
    ) -> impl Future<Output = Result<String, CriError>> + Send;

    /// Of a container's first process.
    fn attach(
        &self,
        container_id: &str,
        streams: Streams,
    ) -> impl Future<Output = Result<String, CriError>> + Send;

    /// Of ports of a sandbox; no ports: the client says which.
    fn port_forward(
        &self,
        sandbox_id: &str,
        ports: &[i32],
    ) -> impl Future<Output = Result<String, CriError>> + Send;
}

/// [`Stream`] over a socket.
#[derive(Clone, Debug)]
pub struct StreamClient(RuntimeServiceClient<PeerChannel>);

impl StreamClient {
    /// Over this channel.
    pub fn new(channel: PeerChannel) -> Self {
        Self(RuntimeServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES))
    }
}

impl Stream for StreamClient {
    async fn exec(
        &self,
        container_id: &str,
        command: &[String],
        streams: Streams,
    ) -> Result<String, CriError> {
        let Streams { stdin, stdout, stderr, tty } = streams;
        let (id, cmd) = (container_id.to_owned(), command.to_vec());
        let request = wire::ExecRequest { container_id: id, cmd, tty, stdin, stdout, stderr };
        call!(self.0, exec, "Exec", container_id, READ, request).map(|answer| answer.url)
    }

    async fn attach(&self, container_id: &str, streams: Streams) -> Result<String, CriError> {
        let Streams { stdin, stdout, stderr, tty } = streams;
        let request =
            wire::AttachRequest { container_id: container_id.to_owned(), stdin, tty, stdout, stderr };
        call!(self.0, attach, "Attach", container_id, READ, request).map(|answer| answer.url)
    }

    async fn port_forward(&self, sandbox_id: &str, ports: &[i32]) -> Result<String, CriError> {
        let request =
            wire::PortForwardRequest { pod_sandbox_id: sandbox_id.to_owned(), port: ports.to_vec() };
        call!(self.0, port_forward, "PortForward", sandbox_id, READ, request).map(|answer| answer.url)
    }
}
