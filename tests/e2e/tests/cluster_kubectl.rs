//! What people do with kubectl, and the controllers' pods, on this node.
#![cfg(test)]

use std::process::{Command, Stdio};
use std::time::Duration;

use bulkhead_e2e::cluster::{Cluster, programs};
use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::wait;

const BOUND: Duration = Duration::from_secs(90);

const WORKLOADS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: deployment}
spec:
  replicas: 2
  selector: {matchLabels: {app: deployment}}
  template:
    metadata: {labels: {app: deployment}}
    spec: {terminationGracePeriodSeconds: 1, containers: [&c {name: c, image: "local/busybox:1", imagePullPolicy: IfNotPresent, command: [sh, -c, "trap 'exit 0' TERM; sleep 100000 & wait"]}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: daemonset}
spec:
  selector: {matchLabels: {app: daemonset}}
  template:
    metadata: {labels: {app: daemonset}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: "local/busybox:1", imagePullPolicy: IfNotPresent, command: [sh, -c, "trap 'exit 0' TERM; sleep 100000 & wait"]}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: statefulset}
spec:
  replicas: 2
  serviceName: statefulset
  selector: {matchLabels: {app: statefulset}}
  template:
    metadata: {labels: {app: statefulset}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: "local/busybox:1", imagePullPolicy: IfNotPresent, command: [sh, -c, "trap 'exit 0' TERM; sleep 100000 & wait"]}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: job}
spec:
  completions: 3
  parallelism: 2
  template:
    spec: {restartPolicy: Never, containers: [{name: c, image: "local/busybox:1", imagePullPolicy: IfNotPresent, command: [sh, -c, "echo done"]}]}
"#;

/// How many bytes are copied. For a show of its own it may be set to more.
fn copied() -> u32 {
    let bytes = std::env::var("BULKHEAD_COPIED_BYTES").ok().and_then(|text| text.parse().ok());
    bytes.unwrap_or(3_000_000)
}

/// What kubectl says of this.
fn kubectl(cluster: &Cluster, line: &str, more: &[&str]) -> (Option<i32>, String) {
    let arguments: Vec<_> = line.split(' ').chain(more.iter().copied()).collect();
    let output = cluster.kubectl(&arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// What a command says that runs in the cluster's network.
fn shell(cluster: &Cluster, command: &[&str]) -> String {
    let mut inside = Command::new("nsenter");
    inside.arg(format!("--net=/run/netns/{}", cluster.namespace())).arg("--").args(command);
    let output = inside.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn good(cluster: &Cluster, line: &str, more: &[&str]) -> String {
    let (code, said) = kubectl(cluster, line, more);
    assert_eq!(code, Some(0), "kubectl {line}: {said}");
    said
}

#[tokio::test]
async fn kubectl_and_controllers_do_what_they_do_with_the_kubelet() {
    let cluster = Cluster::whole();
    let mut node = RealNode::up_within(&cluster, &[]).await;
    wait::within(BOUND, "the node takes pods", async || {
        let taints = kubectl(&cluster, "get node node-a -o jsonpath={.spec.taints}", &[]);
        (taints == (Some(0), String::new())).then_some(())
    })
    .await;
    let script = "trap 'exit 0' TERM; i=0; while :; do echo line $i; i=$((i+1)); sleep 0.2; done";
    good(
        &cluster,
        "run a --image=local/busybox:1 --image-pull-policy=IfNotPresent --command -- sh -c",
        &[script],
    );
    good(&cluster, "wait --for=condition=Ready pod/a --timeout=60s", &[]);
    assert!(good(&cluster, "get pod a -o wide", &[]).contains("node-a"));
    wait::within(BOUND, "its events are described", async || {
        let said = good(&cluster, "describe pod a", &[]);
        (said.contains("Started") && said.contains("Scheduled")).then_some(())
    })
    .await;
    assert!(good(&cluster, "describe node node-a", &[]).contains("KubeletReady"));
    assert!(good(&cluster, "logs a", &[]).starts_with("line 0\nline 1\n"));
    assert_eq!(good(&cluster, "logs a --limit-bytes=4", &[]), "line");
    let (code, said) = kubectl(&cluster, "exec a -- sh -c", &["echo out; echo err >&2; exit 3"]);
    assert!(code == Some(3) && said.contains("out\n") && said.contains("err\n"), "{code:?} {said}");

    // The size of the terminal reaches the process, and a reader that leaves early ends the session.
    let exec = format!(
        "{} --kubeconfig {} exec",
        programs("cluster").join("kubectl").display(),
        cluster.admin_kubeconfig().display()
    );
    let size = format!("stty rows 33 cols 77; {exec} -it a -- sh -c 'sleep 1; stty size'");
    let said = shell(&cluster, &["script", "-qec", &size, "/dev/null"]);
    assert!(said.contains("33 77"), "{said}");
    assert_eq!(
        shell(&cluster, &["timeout", "30", "sh", "-c", &format!("{exec} a -- yes | head -n 1")]),
        "y\n"
    );

    let folder = tempfile::tempdir().unwrap();
    let (there, back) = (folder.path().join("there"), folder.path().join("back"));
    let byte = |number: u32| u8::try_from((number.wrapping_mul(2_654_435_761) >> 13) & 0xff).unwrap();
    let bytes: Vec<u8> = (0..copied()).map(byte).collect();
    std::fs::write(&there, &bytes).unwrap();
    good(&cluster, "cp", &[&there.to_string_lossy(), "a:/tmp/file"]);
    good(&cluster, "cp", &["a:/tmp/file", &back.to_string_lossy()]);
    assert!(std::fs::read(&back).unwrap() == bytes, "the file came back another one");

    let workloads = folder.path().join("workloads.yaml");
    std::fs::write(&workloads, WORKLOADS.replace("&c ", "")).unwrap();
    good(&cluster, "apply -f", &[&workloads.to_string_lossy()]);
    for what in ["deployment/deployment", "daemonset/daemonset", "statefulset/statefulset"] {
        good(&cluster, "rollout status --timeout=90s", &[what]);
    }
    good(&cluster, "wait --for=condition=complete job/job --timeout=90s", &[]);
    assert!(good(&cluster, "logs job/job", &[]).contains("done\n"));

    good(&cluster, "drain node-a --ignore-daemonsets --force --delete-emptydir-data --timeout=90s", &[]);
    assert_eq!(kubectl(&cluster, "get pod a", &[]).0, Some(1), "drained");
    let ready = |what: &str| {
        good(
            &cluster,
            &format!("get {what} -o jsonpath={{.status.numberReady}}{{.status.readyReplicas}}"),
            &[],
        )
    };
    assert_eq!(ready("daemonset/daemonset"), "1");
    good(&cluster, "uncordon node-a", &[]);
    for what in ["deployment/deployment", "statefulset/statefulset"] {
        good(&cluster, "rollout status --timeout=90s", &[what]);
        assert_eq!(ready(what), "2");
    }
    good(&cluster, "delete deployment,daemonset,statefulset,job --all --timeout=90s", &[]);
    good(&cluster, "wait --for=delete pod --all --timeout=90s", &[]);
    wait::within(BOUND, "nothing runs any more", async || node.running().is_empty().then_some(())).await;
    assert!(node.down().await, "{}", node.said());
}
