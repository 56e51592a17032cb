//! The whole process against fakes of its peers and of the runtime, over real sockets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::convert::ProbeItem;
use bulkhead_api::cri::v1 as cri;
use bulkhead_api::pleg::v1 as pleg;
use bulkhead_api::process::v1::process_client::ProcessClient;
use bulkhead_api::process::v1::{GetInfoRequest, GetInfoResponse};
use bulkhead_api::prober::v1::prober_client::ProberClient;
use bulkhead_api::prober::v1::{ContainerResult, ResultsUpdate};
use bulkhead_api::syncd::v1 as syncd;
use bulkhead_ipc::publisher::BoxStream;
use bulkhead_ipc::{Mirror, PeerBoard, Publisher};
use bulkhead_model::probe::{Handler, ProbeKind, ProbeSpec};
use bulkhead_model::probe_view::{ProbeView, ProbedContainer};
use bulkhead_model::runtime::{Container, ContainerState, RuntimePod, Sandbox};
use bulkhead_service::{NoFlags, Service as _};
use bulkhead_testkit::TestNode;
use bulkhead_testkit::cri::{ExecAnswer, FakeRuntime, Method};
use prober::Prober;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

/// Longest wait for something that will happen.
const BOUND: Duration = Duration::from_secs(15);
