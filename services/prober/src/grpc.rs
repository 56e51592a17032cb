//! The socket's methods: thin.

use bulkhead_api::common::v1::WatchRequest;
use bulkhead_api::convert::{HookCall, hook_call_from_wire};
use bulkhead_api::prober::v1 as wire;
use bulkhead_api::prober::v1::hooks_server::Hooks;
use bulkhead_api::prober::v1::prober_server::Prober;
use bulkhead_api::prober::v1::{ContainerResult, HookOutcome, ResultsUpdate};
use bulkhead_ipc::Publisher;
use bulkhead_ipc::publisher::BoxStream;
use bulkhead_model::probe::{ProbeKind, ProbeOutcome, ProbeSpec};
use tonic::{Request, Response, Status};

use crate::handlers;
use crate::plan::{Address, Job};

/// Serves `bulkhead.prober.v1.Prober`.
pub struct Handlers {
    results: Publisher<String, ContainerResult>,
}

impl Handlers {
    /// Of these results.
    pub fn new(results: Publisher<String, ContainerResult>) -> Self {
        Self { results }
    }
}

#[tonic::async_trait]
impl Prober for Handlers {
    type WatchResultsStream = BoxStream<ResultsUpdate>;

    async fn watch_results(
        &self,
        _: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchResultsStream>, Status> {
        Ok(Response::new(self.results.subscribe()))
    }
}

/// Serves `bulkhead.prober.v1.Hooks`: a hook is what a probe does, done once.
pub struct HookRunner<H> {
    handlers: H,
}

impl<H> HookRunner<H> {
    /// Runs them with these.
    pub fn new(handlers: H) -> Self {
        Self { handlers }
    }
}

#[tonic::async_trait]
impl<H: handlers::Handlers> Hooks for HookRunner<H> {
    async fn run_hook(
        &self,
        request: Request<wire::RunHookRequest>,
    ) -> Result<Response<wire::RunHookResponse>, Status> {
        let call = hook_call_from_wire(request.into_inner());
        let call = call.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let report = self.handlers.run(&once(call)).await;
        let (outcome, message) = match report.outcome {
            ProbeOutcome::Success => (HookOutcome::Done, String::new()),
            ProbeOutcome::Failure => (HookOutcome::Failed, report.message),
            ProbeOutcome::Unknown => (HookOutcome::Unknown, report.message),
        };
        Ok(Response::new(wire::RunHookResponse { outcome: outcome.into(), message }))
    }
}

/// Only its handler and time-out count when it is run once.
fn once(call: HookCall) -> Job {
    let spec = ProbeSpec {
        kind: ProbeKind::Startup,
        handler: call.handler,
        initial_delay: std::time::Duration::ZERO,
        period: call.timeout,
        timeout: call.timeout,
        success_threshold: 1,
        failure_threshold: 1,
        termination_grace: None,
    };
    Job { container_id: call.container_id, spec, address: Address::Missing }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

    #[derive(Clone)]
    struct Says(Report);

    impl handlers::Handlers for Says {
        async fn run(&self, job: &Job) -> Report {
            assert_eq!((job.container_id.as_str(), job.spec.timeout.as_secs()), ("c", 1));
            self.0.clone()
        }
    }

    #[tokio::test]
    async fn a_hook_is_told_what_its_probe_found() {
        let exec = bulkhead_api::syncd::v1::Exec { command: vec!["true".into()] };
        let request = wire::RunHookRequest {
            container_id: "c".into(),
            handler: Some(wire::run_hook_request::Handler::Exec(exec)),
            timeout_seconds: 0,
        };
        for (report, outcome, message) in [
            (Report::success(), HookOutcome::Done, ""),
            (Report::warning("w"), HookOutcome::Done, ""),
            (Report::failure("f"), HookOutcome::Failed, "f"),
            (Report::unknown("u"), HookOutcome::Unknown, "u"),
        ] {
            let answer = HookRunner::new(Says(report)).run_hook(Request::new(request.clone())).await;
            let answer = answer.unwrap().into_inner();
            assert_eq!((answer.outcome(), answer.message.as_str()), (outcome, message));
        }
        let nothing = HookRunner::new(Says(Report::success()))
            .run_hook(Request::new(wire::RunHookRequest::default()))
            .await;
        assert_eq!(nothing.unwrap_err().code(), tonic::Code::InvalidArgument);
    }
}
