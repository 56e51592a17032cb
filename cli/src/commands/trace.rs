//! `bulkhead trace POD`: where the time of a pod's start went, over all processes.

use anyhow::{Context, bail};
use bulkhead_api::access::ACCESS;
use bulkhead_api::process::v1::ListSpansRequest;
use futures::future::join_all;
use serde_json::json;

use super::node::{Node, NodeFlags};
use super::peer;
use super::spans::{Kept, millis, newest_trace, tree, waterfall};
use crate::output;

/// What to show.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// The pod, with or without the node's name at its end.
    pod: String,
    /// Form.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    /// The pod's namespace.
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    node: NodeFlags,
}

/// How it is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// A line for each span.
    #[default]
    Text,
    /// The spans.
    Json,
}

/// Shows the newest trace of a pod.
pub fn run(flags: &Flags) -> anyhow::Result<()> {
    let node = Node::find(&flags.node)?;
    super::small_runtime()?.block_on(async {
        let pod = node.pod(&flags.pod, flags.namespace.as_deref()).await?;
        let uid = pod.metadata.uid.unwrap_or_default();
        let spans = newest(&node, &uid).await;
        if spans.is_empty() {
            bail!(
                "no process remembers a start of pod {}: it was before their last restart, or too long ago",
                flags.pod
            );
        }
        match flags.output {
            Form::Text => output::print(&text(&spans)),
            Form::Json => output::print(&json(&spans)?),
        }
    })
}

/// The spans of the pod's newest trace, from every process that answers.
pub async fn newest(node: &Node, uid: &str) -> Vec<Kept> {
    let of_pod = ListSpansRequest { pod_uid: uid.to_owned(), ..Default::default() };
    match newest_trace(&collect(node, of_pod).await) {
        // Not every span knows the pod; all know their trace.
        Some(trace_id) => collect(node, ListSpansRequest { trace_id, ..Default::default() }).await,
        None => Vec::new(),
    }
}

/// The picture with its heading.
pub fn text(spans: &[Kept]) -> String {
    let begin = spans.iter().map(|kept| kept.span.start_unix_nano).min().unwrap_or(0);
    let end = spans.iter().map(|kept| kept.span.end_unix_nano).max().unwrap_or(begin);
    let trace = spans.first().map_or("", |kept| &kept.span.trace_id);
    let took = millis(end.saturating_sub(begin));
    format!("trace {trace}: {} spans in {took} ms\n{}", spans.len(), waterfall(spans))
}

async fn collect(node: &Node, request: ListSpansRequest) -> Vec<Kept> {
    let asked = ACCESS.process.keys().map(|name| {
        let request = request.clone();
        async move {
            // One that is down only leaves its part out.
            let spans = peer::spans(&node.peer(name), request).await.unwrap_or_default();
            spans.into_iter().map(|span| Kept { process: name.clone(), span }).collect::<Vec<_>>()
        }
    });
    join_all(asked).await.into_iter().flatten().collect()
}

fn json(spans: &[Kept]) -> anyhow::Result<String> {
    let spans: Vec<_> = tree(spans)
        .into_iter()
        .map(|(_, Kept { process, span })| {
            json!({
                "process": process,
                "traceId": span.trace_id,
                "spanId": span.span_id,
                "parentSpanId": span.parent_span_id,
                "name": span.name,
                "startUnixNano": span.start_unix_nano,
                "endUnixNano": span.end_unix_nano,
                "attributes": span.attributes,
                "error": span.error,
            })
        })
        .collect();
    serde_json::to_string_pretty(&spans).context("cannot print the spans")
}
