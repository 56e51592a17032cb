//! Unused images on a real containerd: which ones a full disk costs.
#![cfg(test)]

use std::process::Command;
use std::time::Duration;

use bulkhead_e2e::real_node::{RealNode, peers};
use bulkhead_e2e::{pods, wait};

/// A disk that holds anything at all is too full for it. The default least age counts from this node's start on.
const CONFIG: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
imageGCHighThresholdPercent: 2
imageGCLowThresholdPercent: 1
imageMinimumGCAge: 1s
";
const BOUND: Duration = Duration::from_secs(30);

/// References that the runtime holds, without digests.
fn images(node: &RealNode) -> Vec<String> {
    let socket = format!("unix://{}", node.runtime_socket().display());
    let listed = Command::new(peers().join("crictl"))
        .args(["--runtime-endpoint", &socket, "--image-endpoint", &socket, "images", "--output", "json"])
        .output()
        .expect("crictl");
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("its answer");
    let images = listed["images"].as_array().expect("a list");
    let tags = images.iter().flat_map(|image| image["repoTags"].as_array().cloned().unwrap_or_default());
    tags.filter_map(|tag| tag.as_str().map(str::to_owned)).collect()
}

fn has(images: &[String], part: &str) -> bool {
    images.iter().any(|image| image.contains(part))
}

#[tokio::test]
async fn a_full_disk_costs_the_image_that_nobody_uses_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    std::fs::write(&config, CONFIG).unwrap();
    let mut node = RealNode::up(&["--config", &config.to_string_lossy()]).await;
    node.put("a.yaml", &pods::simple("a"));
    node.ready("a").await;
    let before = images(&node);
    assert!(has(&before, "busybox:1") && has(&before, "busybox:2") && has(&before, "pause"), "{before:?}");

    // Images are looked at every five minutes, and when imaged starts.
    let pid = node.kill("imaged");
    node.back("imaged", pid, BOUND).await;
    let left = wait::within(BOUND, "the unused image is gone", async || {
        let left = images(&node);
        (!has(&left, "busybox:2")).then_some(left)
    })
    .await;
    assert!(has(&left, "busybox:1") && has(&left, "pause"), "{left:?}");

    // The sandbox image is there: pods start.
    node.put("b.yaml", &pods::simple("b"));
    node.ready("b").await;
    assert!(node.down().await, "{}", node.said());
}
