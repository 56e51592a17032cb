//! CRI by role: what a process may do with the container runtime is what its trait has.
//!
//! Owns the client side of runtime.v1, deadlines and error texts. Must never decide anything: whether to try again is up
//! to who calls. Every client speaks over its process' own socket at crigate, which passes only that process' methods.

mod error;
mod exec;
mod images;
mod observe;
mod run;
mod stats;
mod stream;

pub use error::CriError;
pub use exec::{Exec, ExecClient, ExecOutput};
pub use images::{Images, ImagesClient};
pub use observe::{Observe, ObserveClient};
pub use run::{Run, RunClient};
pub use stats::{Stats, StatsClient};
pub use stream::{Stream, StreamClient, Streams};

/// The messages of runtime.v1.
pub use bulkhead_api::cri::v1 as wire;

use std::time::Duration;

/// Largest answer taken: what a kubelet takes.
const MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Deadline of calls that only read.
const READ: Duration = Duration::from_secs(10);

/// Runs one unary call with a deadline and turns its failure into a [`CriError`].
macro_rules! call {
    ($client:expr, $method:ident, $name:literal, $subject:expr, $deadline:expr, $request:expr) => {{
        let mut client = $client.clone();
        let request = bulkhead_ipc::status::with_deadline($request, $deadline);
        match client.$method(request).await {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => Err(crate::CriError::new($name, $subject, status)),
        }
    }};
}
pub(crate) use call;
