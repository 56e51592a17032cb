//! Takes what other processes tell.

use bulkhead_api::convert::timestamp_from_wire;
use bulkhead_api::statusd::v1 as wire;
use bulkhead_model::event::{Event, Severity};
use tonic::{Request, Response, Status};

use super::{Events, Happened, Regarding};

/// Events of one call.
const MOST: usize = 64;
/// Longest reason: the API's.
const REASON_BYTES: usize = 128;

/// Answers calls. Without a cluster there is nobody to tell.
pub(crate) struct EventHandlers(pub(crate) Option<Events>);

#[tonic::async_trait]
impl wire::events_server::Events for EventHandlers {
    async fn record(
        &self,
        request: Request<wire::RecordRequest>,
    ) -> Result<Response<wire::RecordResponse>, Status> {
        let told = request.into_inner().events;
        if told.len() > MOST {
            return Err(Status::invalid_argument(format!("{} events; at most {MOST} are taken", told.len())));
        }
        if let Some(events) = &self.0 {
            let all = told.into_iter().filter_map(happened).collect();
            let full = |_| Status::resource_exhausted("too many events wait for the API server");
            events.take(all).map_err(full)?;
        }
        Ok(Response::new(wire::RecordResponse {}))
    }
}

/// One that is about nobody, or of no time, is left out.
fn happened(told: wire::Event) -> Option<Happened> {
    let severity = match told.severity() {
        wire::EventSeverity::Warning => Severity::Warning,
        wire::EventSeverity::Normal | wire::EventSeverity::Unspecified => Severity::Normal,
    };
    let at = told.time.as_ref().and_then(timestamp_from_wire)?;
    let regarding = match told.pod {
        None => Regarding::Node,
        Some(pod) if pod.name.is_empty() || pod.namespace.is_empty() => return None,
        Some(wire::EventPod { uid, namespace, name, field_path }) => {
            Regarding::Pod { uid, namespace, name, field_path }
        }
    };
    let mut reason = told.reason;
    reason.truncate(reason.floor_char_boundary(REASON_BYTES));
    let event = match severity {
        Severity::Normal => Event::normal(reason, told.message),
        Severity::Warning => Event::warning(reason, told.message),
    };
    Some(Happened { regarding, event, at })
}
