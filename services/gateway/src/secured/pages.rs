//! Small pages: what the runtime runs, the configuration, this process' version and flags.

use std::fmt::Write;

use bulkhead_base::chain;
use bulkhead_config::KubeletConfiguration;
use bulkhead_ipc::Mirror;
use bulkhead_model::runtime::{ContainerState, RuntimePod};
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::json;

use crate::error::PeerError;
use crate::http::answer::{Body, TEXT, json, missing, plain, respond, whole};

/// In place of what may be a secret.
const MASK: &str = "<masked>";

/// Pods with something that runs, as far as the runtime knows them: names, UIDs, containers and images.
pub(super) fn running_pods(runtime: &Mirror<String, RuntimePod>) -> Response<Body> {
    if !runtime.status().synced {
        let why = "none arrived since gateway started".to_owned();
        return missing(&PeerError::Missing { process: "pleg", what: "what runs", why });
    }
    let running = |pod: &RuntimePod| {
        let runs = pod.containers.iter().filter(|container| container.state == ContainerState::Running);
        let containers: Vec<_> =
            runs.map(|c| json!({"name": c.name, "image": c.image, "resources": {}})).collect();
        let ready = pod.sandboxes.iter().any(|sandbox| sandbox.ready);
        (ready || !containers.is_empty()).then(|| {
            let metadata = json!({"name": pod.name, "namespace": pod.namespace, "uid": pod.uid});
            json!({"metadata": metadata, "spec": {"containers": containers}, "status": {}})
        })
    };
    let pods: Vec<_> = runtime.snapshot().values().filter_map(|pod| running(pod)).collect();
    let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods});
    json(whole(list.to_string()))
}

/// The configuration in use, without values of headers.
pub(super) fn config(config: &KubeletConfiguration) -> Response<Body> {
    let mut shown = config.clone();
    for values in shown.static_pod_url_header.0.values_mut() {
        *values = vec![MASK.to_owned()];
    }
    match shown.to_configz_json() {
        Ok(text) => json(whole(text)),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{}\n", chain(&error))),
    }
}

/// Which version this is, and since when it runs.
pub(super) fn status(started: Timestamp, now: Timestamp) -> Response<Body> {
    let up = now.duration_since(started).as_secs().max(0);
    let (version, paths) = (env!("CARGO_PKG_VERSION"), "/healthz /metrics /configz /flagz /statusz");
    let page = format!(
        "\nkubelet statusz\nThis page is for people: its form may change.\n\nStarted: {started}\n\
         Up: {} hr {:02} min {:02} sec\nBinary version: {version} (bulkhead gateway, for kubelet 1.37)\nPaths: {paths}\n",
        up / 3600,
        up / 60 % 60,
        up % 60,
    );
    respond(StatusCode::OK, TEXT, whole(page))
}

/// Which flags this process was started with.
pub(super) fn flags(flags: &[(&'static str, String)]) -> Response<Body> {
    let mut page = "\nkubelet flagz\nThis page is for people: its form may change.\n\n".to_owned();
    for (name, value) in flags {
        let _ = writeln!(page, "{name}={value}");
    }
    respond(StatusCode::OK, TEXT, whole(page))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn body(response: Response<Body>) -> String {
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn pages_say_what_they_should_and_no_secret() {
        let mut secret = KubeletConfiguration::default();
        secret.static_pod_url_header.0.insert("X-Key".to_owned(), vec!["hidden".to_owned()]);
        let text = body(config(&secret)).await;
        assert!(text.starts_with(r#"{"kubeletconfig":{"#) && text.contains("X-Key"), "{text}");
        assert!(!text.contains("hidden"), "{text}");
        let started: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let text = body(status(started, "2026-01-02T01:02:03Z".parse().unwrap())).await;
        assert!(text.contains("Up: 25 hr 02 min 03 sec\n"), "{text}");
        assert!(body(flags(&[("run-dir", "/run/x".to_owned())])).await.ends_with("\nrun-dir=/run/x\n"));
        assert_eq!(running_pods(&Mirror::detached()).status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
