//! A pull in the trace of the pod's start.

use bulkhead_api::process::v1::{ListSpansRequest, Span};
use bulkhead_ipc::spans::SpanRing;
use bulkhead_ipc::status::with_deadline;
use bulkhead_testkit::cri::Method;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tonic::Status;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Layer, SubscriberExt};

use crate::bench::{BOUND, bench, request};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// Spans of this thread, as a process keeps them; all of a test runs on its thread.
fn record() -> (SpanRing, tracing::subscriber::DefaultGuard) {
    let ring = SpanRing::default();
    let provider = SdkTracerProvider::builder().with_span_processor(ring.clone()).build();
    let wanted = filter_fn(|metadata| metadata.target() == bulkhead_ipc::trace::TARGET);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test")).with_filter(wanted);
    (ring, tracing::subscriber::set_default(tracing_subscriber::registry().with(layer)))
}

fn pulls(ring: &SpanRing) -> Vec<Span> {
    let spans = ring.list(&ListSpansRequest { trace_id: TRACE.to_owned(), ..Default::default() });
    spans.into_iter().filter(|span| span.name.starts_with("imaged pull ")).collect()
}

#[tokio::test]
async fn the_pull_is_a_span_of_its_callers_trace_and_goes_on_into_the_runtime() {
    let (ring, _guard) = record();
    let bench = bench().await;
    let process = bench.start().await;
    for image in ["app:1", "app:2"] {
        let mut request = with_deadline(request(image, "Always"), BOUND);
        let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
        request.metadata_mut().insert("traceparent", parent.parse().unwrap());
        if image == "app:2" {
            bench.runtime.fail(Method::PullImage, Status::not_found("no such tag"), 1);
        }
        bench.client().ensure_image(request).await.unwrap();
    }

    let spans = pulls(&ring);
    let names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["imaged pull app:1", "imaged pull app:2"]);
    let attribute = |name: &str| spans[0].attributes.get(name).map(String::as_str);
    assert_eq!((attribute("pod.uid"), attribute("container.name")), (Some("u1"), Some("app")));
    assert_eq!((&*spans[0].error, &*spans[1].error), ("", "no such tag"));
    let into_runtime = bench.runtime.log().of(Method::PullImage).remove(0).traceparent.unwrap();
    assert_eq!(into_runtime, format!("00-{TRACE}-{}-01", spans[0].span_id));
    process.stop().await;
}

#[tokio::test]
async fn a_pull_outside_a_trace_makes_none() {
    let (ring, _guard) = record();
    let bench = bench().await;
    let process = bench.start().await;
    bench.call("app:1", "Always", BOUND).await.unwrap();
    assert_eq!(bench.runtime.log().of(Method::PullImage)[0].traceparent, None);
    let all = ring.list(&ListSpansRequest::default());
    assert!(all.is_empty(), "{all:?}");
    process.stop().await;
}
