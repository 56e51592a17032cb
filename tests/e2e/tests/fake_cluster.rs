//! Pods of an API server, both faked beside a fake runtime: what of a pod may change while it runs, and what it needs of objects
//! beside it.
#![cfg(test)]

use bulkhead_cri::wire::NamespaceMode;
use bulkhead_e2e::fake_node::{FakeNode, is_ready};
use bulkhead_e2e::{pods, wait};
use bulkhead_testkit::apiserver::FakeApiServer;
use bulkhead_testkit::cri::Method;
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use tonic::Status;

struct Bench {
    api: FakeApiServer,
    node: FakeNode,
}

impl Bench {
    async fn up() -> Self {
        let api = FakeApiServer::start().await;
        let node = FakeNode::up_in(&api).await;
        Self { api, node }
    }

    fn path(name: &str) -> String {
        format!("/api/v1/namespaces/default/pods/{name}")
    }

    /// Binds a pod to the node.
    fn bind(&self, name: &str, spec: Value) {
        let mut pod = pods::simple(name);
        pod["metadata"]["uid"] = json!(format!("uid-of-{name}"));
        pod["metadata"]["generation"] = json!(1);
        pod["spec"]["nodeName"] = json!("node-a");
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.api.put(&Self::path(name), pod);
    }

    /// Changes a pod's spec as the API server would, with its next generation.
    fn change(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut pod = self.api.get(&Self::path(name)).unwrap();
        change(&mut pod["spec"]);
        pod["metadata"]["generation"] = json!(pod["metadata"]["generation"].as_i64().unwrap() + 1);
        self.api.put(&Self::path(name), pod);
    }
}

fn message(status: &PodStatus) -> String {
    let container = status.container_statuses.iter().flatten().next();
    let waiting = container.and_then(|c| c.state.as_ref()?.waiting.clone());
    waiting.and_then(|waiting| waiting.message).unwrap_or_default()
}

fn debug<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    status.ephemeral_container_statuses.as_ref()?.iter().find(|found| found.name == name)
}

fn runs(status: &PodStatus, name: &str) -> bool {
    debug(status, name).and_then(|found| found.state.as_ref()?.running.as_ref()).is_some()
}

fn ended(status: &PodStatus, name: &str) -> Option<String> {
    debug(status, name)?.state.as_ref()?.terminated.as_ref()?.reason.clone()
}

#[tokio::test]
async fn a_runtime_class_names_the_handler_of_the_sandbox() {
    let bench = Bench::up().await;
    let (api, node) = (&bench.api, &bench.node);
    bench.bind("p", json!({"runtimeClassName": "vm", "overhead": {"cpu": "250m", "memory": "16Mi"}}));
    let missing = "runtimeclass.node.k8s.io \"vm\" not found";
    node.status_where("p", "waits for its class", |status| message(status).contains(missing)).await;
    assert!(node.runtime.sandboxes().is_empty());

    let class = "/apis/node.k8s.io/v1/runtimeclasses/vm";
    api.put(class, json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "kata"}));
    node.status_where("p", "waits for the handler", |status| message(status).contains("no runtime for"))
        .await;
    assert_eq!(node.status("p").unwrap().phase.as_deref(), Some("Pending"));
    node.runtime.set(|world| world.handlers.push("kata".to_owned()));
    node.ready("p").await;
    let sandbox = node.runtime.sandboxes().pop().unwrap();
    assert_eq!(sandbox.runtime_handler, "kata");
    let overhead = sandbox.config.linux.unwrap().overhead.unwrap();
    assert_eq!((overhead.cpu_shares, overhead.memory_limit_in_bytes), (256, 16 << 20));

    // What the class was last known to name is good enough while nobody can be asked.
    api.fail("GET /apis/node.k8s.io", Some((503, "away")));
    node.runtime.lose_sandbox(&sandbox.id);
    wait::until("another sandbox", async || {
        let made = node.runtime.sandboxes();
        made.iter().any(|made| made.id != sandbox.id && made.runtime_handler == "kata").then_some(())
    })
    .await;
    node.ready("p").await;
}

#[tokio::test]
async fn an_ephemeral_container_runs_once() {
    let mut bench = Bench::up().await;
    bench.bind("p", json!({}));
    let before = bench.node.ready("p").await;
    let ephemeral = |names: &[&str]| {
        let one = |name: &&str| {
            json!({"name": name, "image": "local/busybox:1", "imagePullPolicy": "IfNotPresent", "stdin": true, "tty": true,
                   "targetContainerName": "c", "terminationMessagePath": "/dev/termination-log"})
        };
        json!(names.iter().map(one).collect::<Vec<_>>())
    };
    bench.change("p", |spec| spec["ephemeralContainers"] = ephemeral(&["one"]));
    let status = bench.node.status_where("p", "is looked into", |status| runs(status, "one")).await;
    assert_eq!(status.container_statuses, before.container_statuses, "nothing else changes");
    assert_eq!(status.conditions.map(|all| all.len()), before.conditions.map(|all| all.len()));
    let made = bench.node.runtime.containers();
    let id = |name: &str| made.iter().find(|made| made.name() == name).unwrap().id.clone();
    let one = made.iter().find(|made| made.name() == "one").unwrap();
    assert!(one.config.stdin && one.config.tty);
    let security = one.config.linux.clone().unwrap().security_context.unwrap();
    let namespaces = security.namespace_options.unwrap();
    assert_eq!((namespaces.pid(), namespaces.target_id.as_str()), (NamespaceMode::Target, id("c").as_str()));

    // Gone behind our back, and syncd with it: it is not run again (lead kubernetes/kubernetes#124176).
    bench.node.runtime.remove_behind_back(&id("one"));
    bench.node.kill("syncd");
    bench.node.start("syncd");
    let lost = |status: &PodStatus| ended(status, "one").is_some();
    let status = bench.node.status_where("p", "knows that it is gone", lost).await;
    assert_eq!(ended(&status, "one").as_deref(), Some("ContainerStatusUnknown"));
    // A second one starts beside the remains of the first, which does not.
    bench.change("p", |spec| spec["ephemeralContainers"] = ephemeral(&["one", "two"]));
    bench.node.status_where("p", "is looked into again", |status| runs(status, "two")).await;
    assert!(!bench.node.runtime.containers().iter().any(|made| made.name() == "one"));
    let two = bench.node.runtime.containers().into_iter().find(|made| made.name() == "two").unwrap();
    bench.node.runtime.exit_container(&two.id, 3);
    let over = |status: &PodStatus| ended(status, "two").as_deref() == Some("Error");
    let status = bench.node.status_where("p", "knows its end", over).await;
    assert!(is_ready(&status));
}

#[tokio::test]
async fn a_pod_is_over_without_its_ephemeral_containers() {
    let bench = Bench::up().await;
    bench.bind("p", json!({"restartPolicy": "Never"}));
    bench.node.ready("p").await;
    let image = json!({"name": "one", "image": "local/busybox:1", "imagePullPolicy": "IfNotPresent"});
    bench.change("p", |spec| spec["ephemeralContainers"] = json!([image]));
    bench.node.status_where("p", "is looked into", |status| runs(status, "one")).await;
    let container = bench.node.running()["p/c"].clone();
    bench.node.runtime.exit_container(&container, 0);
    let over = |status: &PodStatus| status.phase.as_deref() == Some("Succeeded");
    let status = bench.node.status_where("p", "is over", over).await;
    assert!(ended(&status, "one").is_some(), "{status:?}");
    assert!(bench.node.running().is_empty());
}

/// `requests.cpu requests.memory limits.cpu limits.memory` that apply to container `c`.
fn applied(status: &PodStatus) -> String {
    let container = status.container_statuses.iter().flatten().next();
    let resources = container.and_then(|c| c.resources.clone()).unwrap_or_default();
    let text = |list: &Option<std::collections::BTreeMap<String, Quantity>>, name: &str| {
        list.as_ref().and_then(|list| list.get(name)).map(|amount| amount.0.clone()).unwrap_or_default()
    };
    let (requests, limits) = (&resources.requests, &resources.limits);
    [text(requests, "cpu"), text(requests, "memory"), text(limits, "cpu"), text(limits, "memory")].join(" ")
}

/// Conditions about changes of resources: `TYPE REASON GENERATION`.
fn resizes(status: &PodStatus) -> Vec<String> {
    let conditions = status.conditions.iter().flatten().filter(|found| found.type_.starts_with("PodResize"));
    let text = |found: &k8s_openapi::api::core::v1::PodCondition| {
        let (reason, generation) =
            (found.reason.clone().unwrap_or_default(), found.observed_generation.unwrap_or(0));
        format!("{} {reason} {generation}", found.type_.trim_start_matches("PodResize"))
    };
    conditions.map(text).collect()
}

fn restarts(status: &PodStatus) -> i32 {
    status.container_statuses.as_ref().unwrap()[0].restart_count
}

fn asking(cpu: (&str, &str), memory: (&str, &str)) -> Value {
    json!({"requests": {"cpu": cpu.0, "memory": memory.0}, "limits": {"cpu": cpu.1, "memory": memory.1}})
}

impl Bench {
    fn sized(&self, name: &str, resources: Value) {
        let mut spec = pods::simple(name)["spec"].clone();
        spec["containers"][0]["resources"] = resources;
        self.bind(name, spec);
    }

    fn resize(&self, name: &str, resources: Value) {
        self.change(name, |spec| spec["containers"][0]["resources"] = resources);
    }

    /// CPU quota, shares and memory limit (MiB) that the runtime's newest container `c` of a pod has.
    fn given(&self, name: &str) -> (i64, i64, i64) {
        let id = self.node.running()[&format!("{name}/c")].clone();
        let container = self.node.runtime.containers().into_iter().find(|made| made.id == id).unwrap();
        let resources =
            container.resources.clone().or(container.config.linux.and_then(|linux| linux.resources));
        let resources = resources.unwrap();
        (resources.cpu_quota, resources.cpu_shares, resources.memory_limit_in_bytes >> 20)
    }
}

/// Known fault R1.
#[tokio::test]
async fn what_was_not_accepted_is_never_given() {
    let mut bench = Bench::up().await;
    // Files of volumes follow what was accepted.
    let reference = |resource: &str, divisor: &str| {
        let of = json!({"containerName": "c", "resource": resource, "divisor": divisor});
        json!({"path": resource, "resourceFieldRef": of})
    };
    let files = [reference("requests.cpu", "1m"), reference("requests.memory", "1Mi")];
    let mut spec = pods::simple("p")["spec"].clone();
    spec["containers"][0]["resources"] = asking(("100m", "200m"), ("64Mi", "128Mi"));
    spec["volumes"] = json!([{"name": "v", "downwardAPI": {"items": files}}]);
    bench.bind("p", spec);
    let volume = bench.node.node.root_dir().join("pods/uid-of-p/volumes/kubernetes.io~downward-api/v");
    let written = |file: &str| std::fs::read_to_string(volume.join(file)).unwrap_or_default();
    let first = bench.node.ready("p").await;
    assert_eq!(applied(&first), "100m 64Mi 200m 128Mi");
    assert_eq!(bench.given("p"), (20_000, 102, 128));

    bench.resize("p", asking(("1000", "1000"), ("64Mi", "128Mi")));
    let infeasible = |status: &PodStatus| resizes(status) == ["Pending Infeasible 2"];
    let status = bench.node.status_where("p", "is told that it never fits", infeasible).await;
    assert_eq!((applied(&status), restarts(&status)), ("100m 64Mi 200m 128Mi".to_owned(), 0));
    // It is restarted with what it had, whoever dies meanwhile.
    bench.node.kill("syncd");
    let container = bench.node.running()["p/c"].clone();
    bench.node.runtime.exit_container(&container, 1);
    bench.node.start("syncd");
    let restarted = |status: &PodStatus| restarts(status) == 1 && is_ready(status) && infeasible(status);
    let status = bench.node.status_where("p", "runs again", restarted).await;
    assert_eq!(applied(&status), "100m 64Mi 200m 128Mi");
    assert_eq!(bench.given("p"), (20_000, 102, 128));
    assert_eq!((written("requests.cpu"), written("requests.memory")), ("100".to_owned(), "64".to_owned()));

    // A request of memory alone.
    bench.resize("p", asking(("100m", "200m"), ("96Mi", "128Mi")));
    let done = |status: &PodStatus| applied(status) == "100m 96Mi 200m 128Mi" && resizes(status).is_empty();
    let status = bench.node.status_where("p", "has more of memory", done).await;
    assert_eq!((restarts(&status), status.observed_generation), (1, Some(3)));
    wait::until("the file follows", async || (written("requests.memory") == "96").then_some(())).await;
    bench.node.kill("syncd");
    bench.node.start("syncd");
    bench.sized("other", json!({}));
    bench.node.ready("other").await;
    assert!(done(&bench.node.status("p").unwrap()));
}

#[tokio::test]
async fn resources_change_in_place_or_with_a_restart_as_the_container_asks() {
    let bench = Bench::up().await;
    bench.sized("p", asking(("100m", "200m"), ("64Mi", "128Mi")));
    bench.change("p", |spec| {
        let policy = |name: &str, policy: &str| json!({"resourceName": name, "restartPolicy": policy});
        spec["containers"][0]["resizePolicy"] =
            json!([policy("cpu", "NotRequired"), policy("memory", "RestartContainer")]);
    });
    bench.node.ready("p").await;
    // Until it was seen: a slow machine must not miss it.
    bench.node.runtime.fail(Method::UpdateContainerResources, Status::unknown("not now"), 100);
    bench.resize("p", asking(("300m", "600m"), ("64Mi", "128Mi")));
    let failed = |status: &PodStatus| resizes(status) == ["InProgress Error 3"];
    let status = bench.node.status_where("p", "is told what keeps it", failed).await;
    bench.node.runtime.clear_script();
    assert_eq!(applied(&status), "100m 64Mi 200m 128Mi", "what applies");
    let allocated = status.container_statuses.as_ref().unwrap()[0].allocated_resources.clone().unwrap();
    assert_eq!(allocated["cpu"].0, "300m");
    let done = |status: &PodStatus| resizes(status).is_empty() && applied(status) == "300m 64Mi 600m 128Mi";
    let status = bench.node.status_where("p", "has more of a CPU", done).await;
    assert_eq!(restarts(&status), 0);
    assert_eq!(bench.given("p"), (60_000, 307, 128));

    bench.resize("p", asking(("300m", "600m"), ("64Mi", "256Mi")));
    let restarted =
        |status: &PodStatus| restarts(status) == 1 && is_ready(status) && resizes(status).is_empty();
    let status = bench.node.status_where("p", "was restarted", restarted).await;
    assert_eq!(applied(&status), "300m 64Mi 600m 256Mi");
    assert_eq!(bench.given("p"), (60_000, 307, 256));
}

#[tokio::test]
async fn a_change_waits_until_others_have_left_room() {
    let bench = Bench::up().await;
    let node = std::thread::available_parallelism().unwrap().get() * 1000;
    let most = |less: usize| format!("{}m", node - less);
    bench.sized("big", json!({"requests": {"cpu": most(500)}}));
    bench.node.ready("big").await;
    bench.sized("p", json!({"requests": {"cpu": "200m"}}));
    bench.node.ready("p").await;
    bench.resize("p", json!({"requests": {"cpu": "900m"}}));
    let deferred = |status: &PodStatus| resizes(status) == ["Pending Deferred 2"];
    let status = bench.node.status_where("p", "waits", deferred).await;
    let pending = status.conditions.iter().flatten().find(|found| found.type_ == "PodResizePending").unwrap();
    let text = format!("cpu, requested: 900, used: {}, capacity: {node}", node - 500);
    assert!(pending.message.as_ref().unwrap().contains(&text), "{pending:?}");
    bench.resize("big", json!({"requests": {"cpu": "100m"}}));
    let done = |status: &PodStatus| resizes(status).is_empty() && applied(status).starts_with("900m");
    bench.node.status_where("p", "has room", done).await;
}

#[tokio::test]
async fn a_pod_as_a_whole_and_what_has_no_limit_change_too() {
    let bench = Bench::up().await;
    let whole = |cpu: &str| json!({"requests": {"cpu": cpu, "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}});
    let mut spec = pods::simple("p")["spec"].clone();
    spec["resources"] = whole("100m");
    bench.bind("p", spec);
    bench.node.ready("p").await;
    bench.change("p", |spec| spec["resources"] = whole("300m"));
    let done = |status: &PodStatus| {
        let requests =
            status.resources.as_ref().and_then(|resources| resources.requests.clone()).unwrap_or_default();
        requests.get("cpu").is_some_and(|cpu| cpu.0 == "300m") && resizes(status).is_empty()
    };
    let status = bench.node.status_where("p", "has more as a whole", done).await;
    assert_eq!((restarts(&status), status.observed_generation), (0, Some(2)));

    // A limit comes, and goes.
    bench.resize("p", asking(("100m", "200m"), ("16Mi", "32Mi")));
    let limited = |status: &PodStatus| applied(status) == "100m 16Mi 200m 32Mi" && resizes(status).is_empty();
    bench.node.status_where("p", "has limits", limited).await;
    assert_eq!(bench.given("p"), (20_000, 102, 32));
    bench.resize("p", json!({"requests": {"cpu": "100m"}}));
    let unlimited = |status: &PodStatus| applied(status) == "100m   " && resizes(status).is_empty();
    let status = bench.node.status_where("p", "has none", unlimited).await;
    assert_eq!(bench.given("p").0, -1);
    assert_eq!(restarts(&status), 0);
}
