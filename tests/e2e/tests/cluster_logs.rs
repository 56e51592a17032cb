//! `kubectl logs -f` over rotations of the log: every line once, in order.
#![cfg(test)]

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::cri::v1::ReopenContainerLogRequest;
use bulkhead_api::cri::v1::runtime_service_client::RuntimeServiceClient;
use bulkhead_base::SystemClock;
use bulkhead_e2e::cluster::{Cluster, programs};
use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::wait;
use bulkhead_ipc::{Channels, Identities, PeerBoard};
use serde_json::{Value, json};

const BOUND: Duration = Duration::from_secs(60);
const PODS: &str = "/api/v1/namespaces/default/pods";
const LINES: usize = 12_000;
const ROTATIONS: usize = 10;

/// Where the container's log is, as it is linked for log collectors.
fn log(node: &RealNode) -> Option<PathBuf> {
    let links = std::fs::read_dir(node.state().join("logs/containers")).ok()?;
    let mut links = links.filter_map(|entry| Some(entry.ok()?.path()));
    let link = links
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("talks_")))?;
    std::fs::canonicalize(link).ok()
}

#[tokio::test]
async fn logs_are_followed_over_rotations_without_a_lost_or_doubled_line() {
    let cluster = Cluster::up();
    let account = json!({"metadata": {"name": "default", "namespace": "default"}});
    cluster.ask("POST", "/api/v1/namespaces/default/serviceaccounts", &account);
    let mut node = RealNode::up_within(&cluster, &[]).await;
    // A thousand lines at a time, with a little rest between them.
    let script = format!(
        "i=0; while [ $i -lt {LINES} ]; do echo line-$i; i=$((i+1)); [ $((i % 500)) -ne 0 ] || sleep 1; done; sleep 2"
    );
    let pod = json!({
        "metadata": {"name": "talks"},
        "spec": {
            "nodeName": "node-a", "restartPolicy": "Never", "automountServiceAccountToken": false,
            "enableServiceLinks": false, "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "c", "image": "local/busybox:1", "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", script]
            }]
        }
    });
    cluster.ask("POST", PODS, &pod);
    let id = wait::within(BOUND, "it talks", async || {
        let status = cluster.ask("GET", &format!("{PODS}/talks"), &Value::Null);
        let container = &status["status"]["containerStatuses"][0];
        container["state"]["running"]
            .is_object()
            .then(|| container["containerID"].as_str().map(str::to_owned))?
    })
    .await;
    let id = id.trim_start_matches("containerd://").to_owned();
    let mut kubectl = Command::new("nsenter");
    kubectl
        .arg(format!("--net=/run/netns/{}", cluster.namespace()))
        .arg("--")
        .arg(programs("cluster").join("kubectl"));
    kubectl.arg("--kubeconfig").arg(cluster.admin_kubeconfig()).args(["logs", "-f", "talks"]);
    let mut following = kubectl.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = following.stdout.take().unwrap();
    let reader = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });

    // As whoever keeps logs short does it: the file gets another name, and the runtime is told to open a new one.
    let board = PeerBoard::new(Arc::new(SystemClock));
    let channels = Channels::new(&node.state().join("run"), Arc::new(Identities::from_base(64_200)), board);
    let mut runtime = RuntimeServiceClient::new(channels.socket("containerd", &node.runtime_socket(), None));
    for number in 0..ROTATIONS {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let path = log(&node).expect("the log");
        std::fs::rename(&path, path.with_file_name(format!("0.log.20260101-0000{number:02}"))).unwrap();
        runtime.reopen_container_log(ReopenContainerLogRequest { container_id: id.clone() }).await.unwrap();
        wait::within(BOUND, "a new log", async || path.exists().then_some(())).await;
    }
    let text =
        tokio::time::timeout(BOUND, reader).await.expect("it ends with the container").unwrap().unwrap();
    assert!(following.wait().unwrap().success());
    let lines: Vec<&str> = text.lines().collect();
    let wrong = lines.iter().enumerate().find(|(number, line)| **line != format!("line-{number}"));
    assert_eq!((wrong, lines.len()), (None, LINES));
    assert!(node.down().await, "{}", node.said());
}
