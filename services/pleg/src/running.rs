//! The span that says when a started container was seen running: a pod's start as pleg sees it. The rule is pure.

use bulkhead_ipc::{trace, traced};
use bulkhead_model::runtime::{Container, ContainerState, RuntimePod};

/// Containers that run now and were never seen to do so, each with the trace context of the start that made its sandbox.
/// Without such a context there is no trace to add to.
fn newly_running<'a>(
    before: Option<&'a RuntimePod>,
    now: &'a RuntimePod,
) -> impl Iterator<Item = (&'a Container, &'a str)> {
    let ran_before = move |id: &str| {
        let known = before.and_then(|pod| pod.containers.iter().find(|container| container.id == id));
        known.is_some_and(|container| container.state != ContainerState::Created)
    };
    let running = now.containers.iter().filter(|container| container.state == ContainerState::Running);
    running.filter(move |container| !ran_before(&container.id)).filter_map(|container| {
        let sandbox = now.sandboxes.iter().find(|sandbox| sandbox.id == container.sandbox_id)?;
        (!sandbox.traceparent.is_empty()).then_some((container, sandbox.traceparent.as_str()))
    })
}

/// Adds what just began to run to the traces of the starts that made it.
pub(crate) fn trace(before: Option<&RuntimePod>, now: &RuntimePod) {
    for (container, parent) in newly_running(before, now) {
        let span = traced!("pleg.observed running", pod.uid = %now.uid, container.name = %container.name);
        trace::set_parent(&span, parent);
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_api::process::v1::ListSpansRequest;
    use bulkhead_ipc::spans::SpanRing;
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::{convert, fake};

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn pod(traceparent: &str, states: &[(&str, ContainerState)]) -> RuntimePod {
        let mut sandbox = convert::sandbox(&fake::sandbox("u", "s-u"));
        sandbox.traceparent = traceparent.to_owned();
        let containers = states.iter().map(|(id, state)| {
            let listed = fake::container("u", id, id);
            let status = fake::status(&listed);
            Container { state: *state, ..convert::container(listed, status) }
        });
        RuntimePod {
            uid: "u".to_owned(),
            containers: containers.collect(),
            sandboxes: vec![sandbox],
            ..RuntimePod::default()
        }
    }

    #[test]
    fn only_the_first_sight_of_running_counts() {
        use ContainerState::{Created, Exited, Running, Unknown};
        let table = [
            (None, Running, true),
            (Some(Created), Running, true),
            (Some(Running), Running, false),
            (Some(Unknown), Running, false),
            (None, Created, false),
            (None, Exited, false),
        ];
        for (before, now, counts) in table {
            let before = before.map(|state| pod(PARENT, &[("c", state)]));
            let now = pod(PARENT, &[("c", now)]);
            assert_eq!(newly_running(before.as_ref(), &now).count() == 1, counts, "{before:?}");
        }
        assert_eq!(newly_running(None, &pod("", &[("c", Running)])).count(), 0, "no trace to add to");
        let two = pod(PARENT, &[("c", Running), ("d", Running)]);
        let one = pod(PARENT, &[("c", Running)]);
        let new: Vec<_> = newly_running(Some(&one), &two).collect();
        assert_eq!(
            new.iter().map(|(c, parent)| (c.name.as_str(), *parent)).collect::<Vec<_>>(),
            [("d", PARENT)]
        );
    }

    #[test]
    fn the_span_hangs_below_the_start() {
        let ring = SpanRing::default();
        let provider = SdkTracerProvider::builder().with_span_processor(ring.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            trace(None, &pod(PARENT, &[("c", ContainerState::Running)]));
        });
        let spans = ring.list(&ListSpansRequest { pod_uid: "u".to_owned(), ..ListSpansRequest::default() });
        let [span] = spans.as_slice() else { panic!("{spans:?}") };
        assert_eq!(span.name, "pleg.observed running");
        assert_eq!(span.trace_id, "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(span.parent_span_id, "b7ad6b7169203331");
        assert_eq!(span.attributes.get("container.name").map(String::as_str), Some("c"));
    }
}
