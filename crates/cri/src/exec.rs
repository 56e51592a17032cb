//! Running a command in a container and waiting for it: prober's role.

use std::time::Duration;

use bulkhead_ipc::PeerChannel;
use wire::runtime_service_client::RuntimeServiceClient;

use crate::{CriError, MESSAGE_BYTES, call, wire};

/// Longer than the command's own time-out, so that the runtime's answer about it arrives.
const MARGIN: Duration = Duration::from_secs(2);
/// Output kept of each stream.
const OUTPUT_BYTES: usize = 10 * 1024;

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOutput {
    /// Its exit code.
    pub exit_code: i32,
    /// The first 10 KiB of its standard output and error, one after the other.
    pub output: Vec<u8>,
}

/// Runs commands in containers.
pub trait Exec: Clone + Send + Sync + 'static {
    /// Runs `command`; the runtime kills it after `timeout`, which must be at least a second. A command that overran it
    /// is an error with DEADLINE_EXCEEDED.
    fn exec_sync(
        &self,
        container_id: &str,
        command: &[String],
        timeout: Duration,
    ) -> impl Future<Output = Result<ExecOutput, CriError>> + Send;
}

/// [`Exec`] over a socket.
#[derive(Clone, Debug)]
pub struct ExecClient(RuntimeServiceClient<PeerChannel>);

impl ExecClient {
    /// Over this channel.
    pub fn new(channel: PeerChannel) -> Self {
        Self(RuntimeServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES))
    }
}

impl Exec for ExecClient {
    async fn exec_sync(
        &self,
        container_id: &str,
        command: &[String],
        timeout: Duration,
    ) -> Result<ExecOutput, CriError> {
        let request = wire::ExecSyncRequest {
            container_id: container_id.to_owned(),
            cmd: command.to_vec(),
            timeout: i64::try_from(timeout.as_secs().max(1)).unwrap_or(i64::MAX),
        };
        let answer = call!(self.0, exec_sync, "ExecSync", container_id, timeout + MARGIN, request)?;
        let mut output = answer.stdout;
        output.truncate(OUTPUT_BYTES);
        output.extend(answer.stderr.into_iter().take(OUTPUT_BYTES));
        Ok(ExecOutput { exit_code: answer.exit_code, output })
    }
}
