//! The exec probe: a command in the container, run by the runtime.

use std::time::Duration;

use bulkhead_cri::{CriError, Exec, Observe, ObserveClient};
use tokio::time::timeout;
use tonic::Code;

use crate::report::Report;

/// How much longer than the command's own time-out an answer is waited for. Longer than the CRI client's own margin: it
/// ends what hangs before the client's deadline begins to count, such as a gate that takes no connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the runtime may take to say that it is there.
const PING: Duration = Duration::from_secs(2);

/// Tells whether the runtime answers at all.
pub trait Ping: Clone + Send + Sync + 'static {
    /// Whether it does, now.
    fn answers(&self) -> impl Future<Output = bool> + Send;
}

impl Ping for ObserveClient {
    async fn answers(&self) -> bool {
        timeout(PING, self.version()).await.is_ok_and(|answer| answer.is_ok())
    }
}

/// Exit code 0 is a success, another one a failure, and so is a command that takes too long. When the runtime cannot
/// say, nothing is known. Returns only when the run is over, so that hanging commands never pile up.
pub async fn run<E: Exec, P: Ping>(
    exec: &E,
    ping: &P,
    container_id: &str,
    command: &[String],
    limit: Duration,
) -> Report {
    let Ok(answer) = timeout(limit + PATIENCE, exec.exec_sync(container_id, command, limit)).await else {
        return Report::unknown("the container runtime did not answer");
    };
    let timed_out = || Report::failure(format!("command timed out after {limit:?}"));
    match answer {
        Ok(output) if output.exit_code == 0 => Report::success(),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.output);
            if text.trim().is_empty() {
                Report::failure(format!("command exited with code {}", output.exit_code))
            } else {
                Report::failure(text)
            }
        }
        Err(error) if error.code() == Code::DeadlineExceeded => timed_out(),
        // Our own deadline, past the command's: the runtime could not end the command, or it hangs itself. Containers must
        // not die of a runtime that hangs.
        Err(error) if error.code() == Code::Cancelled => {
            if ping.answers().await {
                timed_out()
            } else {
                Report::unknown("the container runtime did not answer")
            }
        }
        Err(error) => Report::unknown(reason(&error)),
    }
}

fn reason(error: &CriError) -> String {
    format!("the command could not be run: {}", error.runtime_message())
}
