//! What servers answer to probes, open to fuzzing. Nobody else may use this.
//!
//! Time is paused, so that a server that says nothing costs none.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::{grpc, http};
use crate::report::{MESSAGE_BYTES, Report};

/// Longest run of a probe, in paused time.
const LIMIT: Duration = Duration::from_secs(1);

/// An HTTP probe's server answers `bytes` and closes the connection.
pub fn http_answer(bytes: &[u8]) {
    check(run(bytes, http::answer_over).flatten());
}

/// A gRPC probe's server answers `bytes`, HTTP/2 frames and all, and closes the connection.
pub fn grpc_answer(bytes: &[u8]) {
    check(run(bytes, grpc::answer_over));
}

/// Whatever was answered, what is told of it is short and can be shown.
fn check(report: Option<Report>) {
    let message = report.map(|report| report.message).unwrap_or_default();
    assert!(message.len() <= MESSAGE_BYTES, "a message of {} bytes", message.len());
    assert!(!message.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')), "{message:?}");
}

fn run<T, F: Future<Output = T>>(bytes: &[u8], probe: impl Fn(DuplexStream) -> F) -> Option<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.ok()?.block_on(async {
        let (client, server) = tokio::io::duplex(bytes.len().max(4096));
        let probe = tokio::time::timeout(LIMIT, probe(client));
        let (report, _server) = tokio::join!(probe, answer(server, bytes));
        report.ok()
    })
}

/// The server stays until the probe is done: it stopped writing, but did not go.
async fn answer(mut server: DuplexStream, bytes: &[u8]) -> DuplexStream {
    // An answer that comes before the question is another fault than the one looked for.
    let mut asked = [0; 16];
    let _ = tokio::time::timeout(LIMIT, server.read(&mut asked)).await;
    let _ = server.write_all(bytes).await;
    let _ = server.shutdown().await;
    server
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_is_read() {
        let ok = run(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", http::answer_over).flatten();
        assert_eq!(ok, Some(Report::success()));
        let bad = run(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", http::answer_over).flatten();
        assert_eq!(bad, Some(Report::failure("HTTP probe failed with statuscode: 500")));
        let none = run(b"", grpc::answer_over).map(|report| report.outcome);
        assert_eq!(none, Some(bulkhead_model::probe::ProbeOutcome::Failure));
    }

    proptest! {
        #[test]
        fn any_http_answer_is_survived(
            status in "(HTTP/1\\.[01]|HTTP/2|) ?[0-9]{0,4} ?.{0,20}",
            headers in prop::collection::vec("(Location|Content-Length|Transfer-Encoding|X): ?.{0,30}", 0..4),
            body in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let mut answer = format!("{status}\r\n{}\r\n\r\n", headers.join("\r\n")).into_bytes();
            answer.extend(body);
            http_answer(&answer);
        }

        #[test]
        fn any_grpc_answer_is_survived(frames in prop::collection::vec((0_u8..10, any::<u8>(), prop::collection::vec(any::<u8>(), 0..20)), 0..5)) {
            // SETTINGS first, or nothing else is looked at.
            let mut answer = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
            for (kind, flags, payload) in frames {
                answer.extend([0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, 1]);
                answer.extend(payload);
            }
            grpc_answer(&answer);
        }
    }
}
