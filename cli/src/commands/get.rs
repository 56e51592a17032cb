//! `bulkhead get pods`.

use anyhow::Context;
use bulkhead_base::{Clock, SystemClock};
use jiff::Timestamp;
use serde_json::json;

use super::node::{Node, NodeFlags, Pods};
use super::pod_row::{PodRow, row};
use super::table::draw;
use crate::output;

/// What to show.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// The only kind that a node has.
    #[arg(value_parser = ["pods", "pod", "po"])]
    kind: String,
    /// Form.
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    /// Only pods of this namespace.
    #[arg(short, long)]
    namespace: Option<String>,
    #[command(flatten)]
    node: NodeFlags,
}

/// How pods are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// A row each.
    #[default]
    Table,
    /// A row each, with address and node.
    Wide,
    /// A v1 List, and beside it what was refused.
    Json,
}

/// Shows pods.
pub fn run(flags: &Flags) -> anyhow::Result<()> {
    let node = Node::find(&flags.node)?;
    super::small_runtime()?.block_on(async {
        let mut pods = node.pods().await?;
        if let Some(namespace) = &flags.namespace {
            pods.pods.retain(|pod| pod.metadata.namespace.as_ref() == Some(namespace));
        }
        match flags.output {
            Form::Json => output::print(&json(&pods)?),
            Form::Table | Form::Wide => {
                output::print(&text(&pods, flags.output == Form::Wide, SystemClock.now()))
            }
        }
    })
}

fn json(pods: &Pods) -> anyhow::Result<String> {
    let refused: Vec<_> =
        pods.refused.iter().map(|pod| json!({ "source": pod.source, "reason": pod.reason })).collect();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": pods.pods, "refused": refused });
    serde_json::to_string_pretty(&list).context("cannot print the pods")
}

/// The table; namespaces only when there is more than one to tell apart; below it why manifests were refused.
pub fn text(pods: &Pods, wide: bool, now: Timestamp) -> String {
    if pods.pods.is_empty() && pods.refused.is_empty() {
        return "No pods on this node.\n".to_owned();
    }
    let mut rows: Vec<PodRow> = pods.pods.iter().map(|pod| row(pod, now)).collect();
    rows.extend(pods.refused.iter().map(|refused| refused_row(&refused.source)));
    let namespaces = rows.iter().any(|row| !["default", ""].contains(&row.namespace.as_str()));
    let mut header = vec!["NAME", "READY", "STATUS", "RESTARTS", "AGE"];
    if namespaces {
        header.insert(0, "NAMESPACE");
    }
    if wide {
        header.extend(["IP", "NODE"]);
    }
    let cells = rows.into_iter().map(|row| {
        let mut cells = vec![row.name, row.ready, row.status, row.restarts, row.age];
        if namespaces {
            cells.insert(0, row.namespace);
        }
        if wide {
            cells.extend([row.ip, row.node]);
        }
        cells
    });
    let mut text = draw(&header, &cells.collect::<Vec<_>>());
    for refused in &pods.refused {
        text.push_str(&format!("\n{}: {}\n", refused.source, refused.reason));
    }
    text
}

fn refused_row(source: &str) -> PodRow {
    let name = source.rsplit('/').next().unwrap_or(source).to_owned();
    let dash = || "-".to_owned();
    PodRow {
        namespace: String::new(),
        name,
        ready: dash(),
        status: "Refused".to_owned(),
        restarts: dash(),
        age: dash(),
        ip: dash(),
        node: dash(),
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_api::gateway::v1::RefusedPod;
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    fn pods() -> Pods {
        let pod = |namespace: &str, name: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": { "name": name, "namespace": namespace },
                "spec": { "nodeName": "n", "containers": [{ "name": "a" }] },
                "status": { "phase": "Pending", "startTime": "2026-01-01T00:00:00Z" },
            }))
            .unwrap()
        };
        let refused = RefusedPod { source: "/m/bad.yaml".into(), reason: "line 3, column 1: no name".into() };
        Pods { pods: vec![pod("default", "web-n"), pod("kube-system", "dns-n")], refused: vec![refused] }
    }

    #[test]
    fn pods_and_refused_manifests_are_rows() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        insta::assert_snapshot!(text(&pods(), true, now), @r"
        NAMESPACE     NAME       READY   STATUS    RESTARTS   AGE   IP       NODE
        default       web-n      0/1     Pending   0          60s   <none>   n
        kube-system   dns-n      0/1     Pending   0          60s   <none>   n
                      bad.yaml   -       Refused   -          -     -        -

        /m/bad.yaml: line 3, column 1: no name
        ");
        let mut one = pods();
        one.pods.truncate(1);
        one.refused.clear();
        insta::assert_snapshot!(text(&one, false, now), @r"
        NAME    READY   STATUS    RESTARTS   AGE
        web-n   0/1     Pending   0          60s
        ");
        one.pods.clear();
        assert_eq!(text(&one, false, now), "No pods on this node.\n");
    }

    #[test]
    fn json_is_a_list_with_the_refused_beside_it() {
        let value: serde_json::Value = serde_json::from_str(&json(&pods()).unwrap()).unwrap();
        assert_eq!(value["kind"], "List");
        assert_eq!(value["items"].as_array().unwrap().len(), 2);
        assert_eq!(value["items"][0]["metadata"]["name"], "web-n");
        assert_eq!(value["refused"][0]["source"], "/m/bad.yaml");
    }
}
