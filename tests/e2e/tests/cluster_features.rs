//! Pods of a real API server on a real runtime: what is looked into while it runs, what changes its resources, and what has a
//! runtime class.
#![cfg(test)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bulkhead_e2e::cluster::Cluster;
use bulkhead_e2e::real_node::{RealNode, signal};
use bulkhead_e2e::wait;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BOUND: Duration = Duration::from_secs(60);
const STAYS: &str = "trap 'exit 0' TERM; sleep 100000 & wait";

struct Bench {
    cluster: Cluster,
    node: RealNode,
    _config: tempfile::TempDir,
}

async fn bench() -> Bench {
    let cluster = Cluster::up();
    let account = json!({"metadata": {"name": "default", "namespace": "default"}});
    cluster.ask("POST", "/api/v1/namespaces/default/serviceaccounts", &account);
    // So that the API server, and kubectl behind it, reach the node's secured port.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (ca, config) = (folder.path().join("ca.crt"), folder.path().join("config.yaml"));
    std::fs::copy(cluster.admin_kubeconfig().with_file_name("pki").join("ca.crt"), &ca).unwrap();
    let text = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "authentication": {"x509": {"clientCAFile": ca}}
    });
    std::fs::write(&config, text.to_string()).unwrap();
    let node = RealNode::up_in(&cluster, &["--config", &config.to_string_lossy()]).await;
    let bench = Bench { cluster, node, _config: folder };
    wait::within(BOUND, "the node is there", async || {
        let nodes = bench.cluster.ask("GET", "/api/v1/nodes", &Value::Null);
        (!nodes["items"].as_array()?.is_empty()).then_some(())
    })
    .await;
    bench
}

fn container(name: &str, script: &str) -> Value {
    json!({
        "name": name, "image": "local/busybox:1", "imagePullPolicy": "IfNotPresent", "command": ["/bin/sh", "-c", script]
    })
}

impl Bench {
    /// Binds a pod to the node, as the scheduler would.
    fn create(&self, name: &str, container: Value, more: Value) -> Value {
        let mut spec = json!({
            "nodeName": "node-a", "automountServiceAccountToken": false, "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 2, "containers": [container]
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let metadata = json!({"name": name, "namespace": "default"});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        self.cluster.ask("POST", PODS, &pod)
    }

    fn pod(&self, name: &str) -> Value {
        self.cluster.ask("GET", &format!("{PODS}/{name}"), &Value::Null)
    }

    /// Through a subresource. Somebody else may write the status in between.
    async fn change(&self, name: &str, part: &str, change: impl Fn(&mut Value)) -> Value {
        let path = format!("{PODS}/{name}/{part}");
        let mut pod = self.pod(name);
        change(&mut pod["spec"]);
        pod["metadata"]["resourceVersion"] = Value::Null;
        self.cluster.ask("PUT", &path, &pod)
    }

    /// What kubectl prints, once it succeeds: the node's secured port may not be up yet.
    fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.cluster.kubectl(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn until(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        wait::within(BOUND, what, async || Some(self.pod(name)).filter(|pod| holds(pod))).await
    }

    async fn ready(&self, name: &str) -> Value {
        self.until(name, &format!("{name} is ready"), is_ready).await
    }

    async fn back(&self, process: &str) {
        let pid = self.node.kill(process);
        self.node.back(process, pid, BOUND).await;
    }

    /// A file of the pod's cgroup, or of its container's: v1's or v2's name of it.
    fn cgroup(&self, pod: &Value, controller: &str, files: [&str; 2], of_container: bool) -> String {
        let uid = pod["metadata"]["uid"].as_str().unwrap();
        let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default();
        let id = id.trim_start_matches("containerd://");
        let roots = ["/sys/fs/cgroup".to_owned(), format!("/sys/fs/cgroup/{controller}")];
        let root = roots.iter().map(|root| Path::new(root).join(self.node.id())).find(|root| root.exists());
        let mut folder = find(&root.unwrap(), &format!("pod{uid}")).unwrap();
        if of_container {
            folder = folder.join(id);
        }
        let text = files.iter().find_map(|file| std::fs::read_to_string(folder.join(file)).ok());
        text.unwrap_or_else(|| panic!("{files:?} of {}", folder.display())).trim().to_owned()
    }

    /// CPU quota in microseconds and memory limit in MiB, of the pod or of its container.
    fn limits(&self, pod: &Value, of_container: bool) -> (String, String) {
        let cpu = self.cgroup(pod, "cpu", ["cpu.max", "cpu.cfs_quota_us"], of_container);
        let memory = self.cgroup(pod, "memory", ["memory.max", "memory.limit_in_bytes"], of_container);
        let memory = memory.parse::<u64>().map_or(memory, |bytes| (bytes >> 20).to_string());
        (cpu.split(' ').next().unwrap().to_owned(), memory)
    }
}

/// A folder of this name, at most three levels down.
fn find(root: &Path, name: &str) -> Option<PathBuf> {
    let mut level = vec![root.to_owned()];
    for _ in 0..3 {
        if let Some(found) = level.iter().map(|folder| folder.join(name)).find(|found| found.exists()) {
            return Some(found);
        }
        let inner = level.iter().flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
        level = inner.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    }
    None
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn debug<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let all = pod["status"]["ephemeralContainerStatuses"].as_array();
    all.into_iter().flatten().find(|found| found["name"] == name).unwrap_or(&Value::Null)
}

/// `TYPE REASON` of conditions about a change of resources.
fn resizes(pod: &Value) -> Vec<String> {
    let all = pod["status"]["conditions"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let found = all.filter(|c| c["type"].as_str().is_some_and(|type_| type_.starts_with("PodResize")));
    found.map(|c| format!("{} {}", text(&c["type"]), text(&c["reason"]))).collect()
}

fn resources(cpu: (&str, &str), memory: (&str, &str)) -> Value {
    json!({"requests": {"cpu": cpu.0, "memory": memory.0}, "limits": {"cpu": cpu.1, "memory": memory.1}})
}

/// What applies to the container.
fn applied(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]["resources"]
}

fn restarts(pod: &Value) -> i64 {
    pod["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap()
}

async fn looked_into(bench: &Bench) {
    bench.create("p", container("c", STAYS), json!({}));
    let before = bench.ready("p").await;
    let look = |name: &str, script: &str| {
        let mut asked = container(name, script);
        asked["targetContainerName"] = json!("c");
        asked["stdin"] = json!(true);
        asked
    };
    // It sees the processes of the container that it is aimed at.
    let one = look("one", "ps > /dev/termination-log; echo looked; exit 4");
    bench.change("p", "ephemeralcontainers", |spec| spec["ephemeralContainers"] = json!([one])).await;
    let ended = |pod: &Value| debug(pod, "one")["state"]["terminated"]["message"].is_string();
    let pod = bench.until("p", "it has looked", ended).await;
    let found = &debug(&pod, "one")["state"]["terminated"];
    assert_eq!(found["exitCode"], 4, "{found:#}");
    assert!(found["message"].as_str().unwrap().contains("sleep 100000"), "{found:#}");
    assert_eq!(pod["status"]["containerStatuses"], before["status"]["containerStatuses"]);
    assert_eq!(pod["status"]["phase"], "Running");
    assert!(is_ready(&pod));
    assert_eq!(bench.kubectl(&["logs", "p", "-c", "one"]), "looked\n");

    let two = look("two", STAYS);
    bench
        .change("p", "ephemeralcontainers", |spec| {
            spec["ephemeralContainers"].as_array_mut().unwrap().push(two.clone());
        })
        .await;
    let runs = |pod: &Value| debug(pod, "two")["state"]["running"].is_object();
    let first = bench.until("p", "a second one runs", runs).await;
    assert_eq!(debug(&first, "one"), debug(&pod, "one"), "the first one does not");
    for process in ["syncd", "statusd"] {
        bench.back(process).await;
    }
    let pod = bench.ready("p").await;
    assert_eq!(pod["status"]["ephemeralContainerStatuses"], first["status"]["ephemeralContainerStatuses"]);
    assert_eq!(bench.kubectl(&["exec", "p", "-c", "two", "--", "echo", "in it"]), "in it\n");
    // As people do it.
    let image = ["--image=local/busybox:1", "--image-pull-policy=IfNotPresent", "--target=c", "-c", "three"];
    let script = ["--attach", "--", "/bin/sh", "-c", "sleep 3; ps"];
    let seen = bench.kubectl(&[&["debug", "p"], &image[..], &script[..]].concat());
    assert!(seen.contains("sleep 100000"), "{seen}");
    bench.cluster.ask("DELETE", &format!("{PODS}/p"), &Value::Null);
    wait::within(BOUND, "nothing of it is left", async || bench.node.running().is_empty().then_some(()))
        .await;
}

async fn with_a_class(bench: &Bench) {
    let class = |name: &str, handler: &str| {
        let overhead = json!({"podFixed": {"cpu": "100m", "memory": "32Mi"}});
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": handler,
               "overhead": overhead})
    };
    let path = "/apis/node.k8s.io/v1/runtimeclasses";
    bench.cluster.ask("POST", path, &class("plain", "runc"));
    bench.cluster.ask("POST", path, &class("strange", "nowhere"));
    let mut asked = container("c", STAYS);
    asked["resources"] = resources(("100m", "200m"), ("32Mi", "64Mi"));
    bench.create("plain", asked.clone(), json!({"runtimeClassName": "plain"}));
    bench.create("strange", asked, json!({"runtimeClassName": "strange"}));
    let pod = bench.ready("plain").await;
    assert_eq!(pod["spec"]["overhead"]["memory"], "32Mi", "{:#}", pod["spec"]);
    assert_eq!(
        bench.limits(&pod, false),
        ("30000".to_owned(), "96".to_owned()),
        "the pod's cgroup has room for both"
    );
    assert_eq!(bench.limits(&pod, true), ("20000".to_owned(), "64".to_owned()));

    let says = |text: &'static str| {
        move |pod: &Value| {
            let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"];
            waiting.as_str().is_some_and(|message| message.contains(text))
        }
    };
    let pod = bench.until("strange", "the runtime says no", says("nowhere")).await;
    assert_eq!(pod["status"]["phase"], "Pending");
    bench.cluster.ask("DELETE", &format!("{path}/strange"), &Value::Null);
    let missing = "runtimeclass.node.k8s.io \"strange\" not found";
    bench.until("strange", "its class is missed", says(missing)).await;
    bench.cluster.ask("POST", path, &class("strange", "runc"));
    bench.ready("strange").await;
    for name in ["plain", "strange"] {
        bench.cluster.ask("DELETE", &format!("{PODS}/{name}"), &Value::Null);
    }
}

/// Known fault R1.
async fn resized(bench: &Bench) {
    let mut asked = container("c", STAYS);
    asked["resources"] = resources(("100m", "200m"), ("64Mi", "128Mi"));
    bench.create("r", asked, json!({}));
    let pod = bench.ready("r").await;
    let had = ("20000".to_owned(), "128".to_owned());
    assert_eq!((bench.limits(&pod, true), bench.limits(&pod, false)), (had.clone(), had.clone()));
    let resize = async |wanted: Value| {
        bench.change("r", "resize", |spec| spec["containers"][0]["resources"] = wanted.clone()).await
    };

    // 1 and 4: too much (what never fits this API server does not even take), and all that may die dies.
    let cpus = std::thread::available_parallelism().unwrap().get();
    let most = json!({"requests": {"cpu": format!("{}m", cpus * 1000 - 500)}});
    let mut asked = container("c", STAYS);
    asked["resources"] = most;
    bench.create("big", asked, json!({}));
    bench.ready("big").await;
    resize(resources(("1", "1"), ("64Mi", "128Mi"))).await;
    let deferred = |pod: &Value| resizes(pod) == ["PodResizePending Deferred"];
    bench.until("r", "it does not fit", deferred).await;
    let pid = bench.node.kill("syncd");
    let processes = bench.cgroup(&pod, "memory", ["cgroup.procs", "tasks"], true);
    for process in processes.lines().filter_map(|pid| pid.parse().ok()) {
        signal(process, Signal::SIGKILL);
    }
    bench.node.back("syncd", pid, BOUND).await;
    let again = bench.until("r", "it was restarted", |pod| restarts(pod) == 1 && is_ready(pod)).await;
    assert!(deferred(&again));
    assert_eq!((bench.limits(&again, true), bench.limits(&again, false)), (had.clone(), had));
    assert_eq!(applied(&again), &resources(("100m", "200m"), ("64Mi", "128Mi")));

    // 2: a request of memory alone; 3: nothing goes back on the way.
    let mut seen: Vec<Value> = vec![applied(&again).clone()];
    for wanted in [
        resources(("100m", "200m"), ("96Mi", "128Mi")),
        resources(("150m", "400m"), ("96Mi", "256Mi")),
        resources(("50m", "100m"), ("96Mi", "96Mi")),
    ] {
        resize(wanted.clone()).await;
        let pod = wait::within(BOUND, "other resources apply", async || {
            let pod = bench.pod("r");
            let now = applied(&pod).clone();
            if seen.last() != Some(&now) {
                assert!(!seen.contains(&now), "back to {now}: {seen:?}");
                seen.push(now);
            }
            (*applied(&pod) == wanted && resizes(&pod).is_empty()).then_some(pod)
        })
        .await;
        assert_eq!(restarts(&pod), 1);
        assert_eq!(pod["status"]["observedGeneration"], pod["metadata"]["generation"]);
        let milli: u64 = wanted["limits"]["cpu"].as_str().unwrap().trim_end_matches('m').parse().unwrap();
        let memory = wanted["limits"]["memory"].as_str().unwrap().trim_end_matches("Mi").to_owned();
        let has = ((milli * 100).to_string(), memory);
        assert_eq!((bench.limits(&pod, true), bench.limits(&pod, false)), (has.clone(), has));
    }
    // What waits is accepted once there is room.
    resize(resources(("1", "1"), ("64Mi", "96Mi"))).await;
    bench.until("r", "it waits", deferred).await;
    bench.cluster.ask("DELETE", &format!("{PODS}/big"), &Value::Null);
    let pod = bench.until("r", "it has room", |pod| applied(pod)["limits"]["cpu"] == "1").await;
    assert_eq!(bench.limits(&pod, true), ("100000".to_owned(), "96".to_owned()));
    bench.cluster.ask("DELETE", &format!("{PODS}/r"), &Value::Null);

    // Memory that is in use is not taken away.
    let mut asked = container("c", "(head -c 41943040 /dev/zero; sleep 100000) | tail");
    asked["resources"] = resources(("50m", "1"), ("16Mi", "96Mi"));
    bench.create("m", asked, json!({}));
    let pod = bench.ready("m").await;
    wait::within(BOUND, "it uses memory", async || {
        let used = bench.cgroup(&pod, "memory", ["memory.current", "memory.usage_in_bytes"], true);
        (used.parse::<u64>().unwrap() > 40 << 20).then_some(())
    })
    .await;
    let smaller = resources(("50m", "1"), ("16Mi", "32Mi"));
    bench.change("m", "resize", |spec| spec["containers"][0]["resources"] = smaller.clone()).await;
    let failed = |pod: &Value| resizes(pod) == ["PodResizeInProgress Error"];
    let pod = bench.until("m", "it is told why not", failed).await;
    assert_eq!(applied(&pod)["limits"]["memory"], "96Mi");
    assert_eq!(pod["status"]["containerStatuses"][0]["allocatedResources"]["memory"], "16Mi");
    assert_eq!(bench.limits(&pod, true).1, "96");
    assert_eq!(bench.limits(&pod, false).1, "96", "the pod's is lowered last");
    let larger = resources(("50m", "1"), ("16Mi", "128Mi"));
    bench.change("m", "resize", |spec| spec["containers"][0]["resources"] = larger.clone()).await;
    let pod =
        bench.until("m", "it may have more", |pod| resizes(pod).is_empty() && *applied(pod) == larger).await;
    assert_eq!((restarts(&pod), bench.limits(&pod, false).1.as_str()), (0, "128"));
    bench.cluster.ask("DELETE", &format!("{PODS}/m"), &Value::Null);
    let events = bench.cluster.ask("GET", "/api/v1/namespaces/default/events", &Value::Null);
    let told: Vec<&str> =
        events["items"].as_array().unwrap().iter().filter_map(|event| event["reason"].as_str()).collect();
    for reason in ["ResizeStarted", "ResizeCompleted", "ResizeDeferred", "ResizeError"] {
        assert!(told.contains(&reason), "{reason} is not among {told:?}");
    }
}

#[tokio::test]
async fn pods_are_looked_into_resized_and_have_classes() {
    let mut bench = bench().await;
    looked_into(&bench).await;
    with_a_class(&bench).await;
    resized(&bench).await;
    wait::within(BOUND, "nothing is left", async || bench.node.running().is_empty().then_some(())).await;
    assert!(bench.node.down().await, "{}", bench.node.said());
}
