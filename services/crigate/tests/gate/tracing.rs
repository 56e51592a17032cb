//! A traced call has a span here, and the runtime is told that span.

use bulkhead_api::process::v1::ListSpansRequest;
use bulkhead_ipc::spans::SpanRing;
use bulkhead_testkit::cri::{FakeRuntime, Method};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::layer::SubscriberExt;

use crate::support::{Gate, Raw, eventually};

#[tokio::test]
async fn a_call_in_a_trace_is_a_span_between_the_callers_and_the_runtimes() {
    let ring = SpanRing::default();
    let provider = SdkTracerProvider::builder().with_span_processor(ring.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    // Of this thread, which is the only one of this test.
    let _guard = ::tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));

    let directory = tempfile::tempdir().unwrap();
    let fake = FakeRuntime::start(directory.path()).await.unwrap();
    let gate = Gate::start(fake.socket()).await;
    let mut client = gate.raw("syncd").await;
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let mut request = Raw::request("RuntimeService/StartContainer");
    request.headers_mut().insert("traceparent", format!("00-{trace}-{parent}-01").parse().unwrap());
    let failed = client.call(request).await;
    assert_eq!(failed.status().code(), tonic::Code::NotFound);

    let all = ListSpansRequest { trace_id: trace.to_owned(), ..Default::default() };
    let span = eventually("the span", async || {
        ring.list(&all).into_iter().find(|span| span.name == "crigate StartContainer")
    })
    .await;
    assert_eq!(span.parent_span_id, parent);
    assert_eq!(span.attributes["rpc.method"], "RuntimeService/StartContainer");
    assert_eq!(span.error, "NotFound");
    let told = fake.log().of(Method::StartContainer)[0].traceparent.clone();
    assert_eq!(told, Some(format!("00-{trace}-{}-01", span.span_id)));

    // Outside a trace there is no span, and a context that is none starts no trace.
    for value in [None, Some("00-00000000000000000000000000000000-b7ad6b7169203331-01")] {
        let mut request = Raw::request("RuntimeService/StopContainer");
        if let Some(value) = value {
            request.headers_mut().insert("traceparent", value.parse().unwrap());
        }
        client.call(request).await;
        assert_eq!(fake.log().of(Method::StopContainer).last().unwrap().traceparent.as_deref(), value);
    }
    let everything = ring.list(&ListSpansRequest::default());
    assert!(everything.iter().all(|span| span.name != "crigate StopContainer"));
}
