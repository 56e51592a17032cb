//! End to end, on a real containerd: what users of a node see. One node at a time: two would fight for two cores.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bulkhead_e2e::real_node::{PROCESSES, RealNode, binary, peers, signal};
use bulkhead_e2e::{pods, wait};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

static ONE_NODE: Mutex<()> = Mutex::const_new(());

async fn turn() -> MutexGuard<'static, ()> {
    ONE_NODE.lock().await
}

/// One line of /proc/PID/status.
fn proc_status(pid: u32, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.unwrap_or_default().trim().to_owned()
}

/// Everything outside the state folder that could be left behind: what carries the node's name, and what runs.
fn leftovers(id: &str, state: &Path) -> Vec<String> {
    let mut left = Vec::new();
    let state = state.to_string_lossy().into_owned();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    left.extend(
        mounts.lines().filter(|l| l.contains(&state) || l.contains(id)).map(|l| format!("mount {l}")),
    );
    for place in [format!("/run/{id}"), format!("/run/netns/{id}")] {
        if Path::new(&place).exists() {
            left.push(place);
        }
    }
    for controller in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        let cgroup = controller.path().join(id);
        if cgroup.exists() {
            left.push(cgroup.display().to_string());
        }
    }
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if command.contains(&state) || command.contains(id) {
            left.push(format!("process {command}"));
        }
    }
    left
}

#[tokio::test]
async fn a_demo_node_shows_itself_and_leaves_nothing_behind() {
    let _turn = turn().await;
    let mut node = RealNode::up(&["--demo"]).await;
    let ids = node.ready("demo").await;
    assert_eq!(ids.len(), 2, "two containers: {ids:?}");
    assert!(node.text(&["get", "pods"]).unwrap().contains("demo-node-a"));
    let container = ids.keys().next().unwrap();
    wait::until("the demo's log", async || {
        let log = node.text(&["logs", "demo-node-a", "-c", container])?;
        (!log.is_empty()).then_some(())
    })
    .await;

    // The pod's start is one trace over the processes that had a part in it.
    let spans = wait::until("a trace to the ready pod", async || {
        let spans: Value = serde_json::from_str(&node.text(&["trace", "demo-node-a", "-o", "json"])?).ok()?;
        let text = spans.to_string();
        (text.contains("statusd Running") && text.contains("prober ready")).then_some(spans)
    })
    .await;
    let field = |span: &Value, name: &str| span[name].as_str().unwrap_or_default().to_owned();
    let spans = spans.as_array().unwrap();
    let in_trace: BTreeSet<_> = spans.iter().map(|span| field(span, "process")).collect();
    for process in ["syncd", "crigate", "volumed", "imaged", "pleg", "prober", "statusd"] {
        assert!(in_trace.contains(process), "{process} is not in the trace: {in_trace:?}");
    }
    assert!(node.text(&["trace", "demo-node-a"]).unwrap().contains("syncd start pod"));

    // Every process has a user of its own, no way to more, and no capability but volumed's four.
    let processes = node.processes();
    assert_eq!(processes.keys().collect::<Vec<_>>(), PROCESSES);
    let uids: BTreeSet<u32> = processes.values().map(|(_, uid)| *uid).collect();
    assert_eq!(uids.len(), PROCESSES.len());
    for (name, (pid, uid)) in &processes {
        let all_four = |field: &str, id: u32| {
            let ids = proc_status(*pid, field);
            assert!(ids.split_whitespace().all(|i| i == id.to_string()), "{name} {field} {ids}");
        };
        all_four("Uid", *uid);
        all_four("Gid", *uid);
        assert_ne!(*uid, 0, "{name}");
        assert_eq!(proc_status(*pid, "NoNewPrivs"), "1", "{name}");
        let powers = if name == "volumed" { "000000000020000b" } else { "0000000000000000" };
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"] {
            assert_eq!(proc_status(*pid, set), powers, "{name} {set}");
        }
    }
    assert!(proc_status(node.launcher_pid(), "Uid").starts_with('0'), "only the launcher is root");

    let id = node.id();
    assert!(id.starts_with("bulkhead-"), "{}", node.said());
    assert!(node.down().await, "{}", node.said());
    assert_eq!(leftovers(&id, node.state()), Vec::<String>::new());
}

#[tokio::test]
async fn manifests_that_come_change_move_and_go_do_so_in_order_and_within_grace() {
    let _turn = turn().await;
    let mut node = RealNode::up(&[]).await;
    let shared = node.state().join("shared");
    std::fs::create_dir(&shared).unwrap();
    // Each run notes its begin, the request to end, and its end a second later.
    let script = "trap 'echo term >>/s/a; sleep 1; echo end >>/s/a; exit 0' TERM; echo begin >>/s/a; while :; do sleep 0.1; done";
    let slow = |value: &str| {
        let mut pod = pods::with_spec(pods::simple("a"), "terminationGracePeriodSeconds", json!(20));
        pod["spec"]["containers"][0]["command"] = json!(["/bin/sh", "-c", script]);
        pod["spec"]["containers"][0]["env"] = json!([{"name": "V", "value": value}]);
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "s", "mountPath": "/s"}]);
        pod["spec"]["volumes"] = json!([{"name": "s", "hostPath": {"path": shared, "type": "Directory"}}]);
        pod
    };
    let notes = || std::fs::read_to_string(shared.join("a")).unwrap_or_default().replace('\n', " ");
    node.put("b.yaml", &pods::simple("b"));
    node.put("a.yaml", &slow("1"));
    let first = node.ready("a").await;
    let other = node.ready("b").await;
    wait::until("the first run began", async || (notes() == "begin ").then_some(())).await;

    // Two quick edits: the old run ends in its own time, then only the last content runs.
    node.put("a.yaml", &slow("2"));
    node.put("a.yaml", &slow("3"));
    wait::until("the edited pod runs anew", async || {
        let now = node.running();
        now.get("a/c").filter(|id| **id != first["c"]).cloned()
    })
    .await;
    wait::until("the second run began", async || (notes() == "begin term end begin ").then_some(())).await;

    // A rename is a removal and an addition.
    let second = node.ready("a").await;
    std::fs::rename(node.manifest("a.yaml"), node.manifest("z.yaml")).unwrap();
    wait::until("the renamed pod runs anew", async || {
        node.running().get("a/c").filter(|id| **id != second["c"]).cloned()
    })
    .await;
    wait::until("the third run began", async || {
        (notes() == "begin term end begin term end begin ").then_some(())
    })
    .await;

    // Bad neighbours are refused with file, line and reason, and disturb nobody.
    let third = node.ready("a").await;
    std::fs::write(
        node.manifest("bad.yaml"),
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: 7x\nspec:\n  containers: 3\n",
    )
    .unwrap();
    std::fs::write(node.manifest("twice.yaml"), "apiVersion: v1\nkind: Pod\nkind: Pod\n").unwrap();
    std::fs::write(node.manifest("bomb.yaml"), "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e]\n").unwrap();
    std::fs::write(node.manifest("big.yaml"), vec![b'#'; 10 << 20]).unwrap();
    let mut climb = pods::simple("climb");
    climb["spec"]["volumes"] = json!([{"name": "s", "hostPath": {"path": "/tmp/../etc"}}]);
    node.put("climb.yaml", &climb);
    wait::until("all five are refused", async || {
        let refused = node.refused();
        let wanted = [
            ("bad.yaml", "line 6"),
            ("twice.yaml", "kind"),
            ("bomb.yaml", ""),
            ("big.yaml", "larger"),
            ("climb.yaml", ".."),
        ];
        wanted.iter().all(|(file, text)| refused.get(*file).is_some_and(|r| r.contains(text))).then_some(())
    })
    .await;
    assert_eq!(node.running()["a/c"], third["c"]);
    assert_eq!(node.running()["b/c"], other["c"]);

    node.take("z.yaml");
    wait::until("a is gone", async || (!node.pods().contains_key("a")).then_some(())).await;
    assert_eq!(notes(), "begin term end begin term end begin term end ");
    assert_eq!(node.running(), BTreeMap::from([("b/c".to_owned(), other["c"].clone())]));
    assert!(node.down().await, "{}", node.said());
}

#[tokio::test]
async fn containers_are_restarted_probed_and_held_back_as_the_kubelet_does() {
    let _turn = turn().await;
    let mut node = RealNode::up(&[]).await;
    let shared = node.state().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let volume = json!([{"name": "s", "hostPath": {"path": shared, "type": "Directory"}}]);
    let mount = json!([{"name": "s", "mountPath": "/s"}]);

    let mut crash = pods::simple("crash");
    crash["spec"]["containers"][0]["command"] = json!(["/bin/sh", "-c", "date +%s >>/s/crash; exit 4"]);
    crash["spec"]["containers"][0]["volumeMounts"] = mount.clone();
    crash["spec"]["volumes"] = volume.clone();
    node.put("crash.yaml", &crash);

    let mut live = pods::simple("live");
    live["spec"]["containers"][0]["livenessProbe"] = json!({"exec": {"command": ["/bin/sh", "-c", "test ! -e /s/sick"]}, "periodSeconds": 1, "failureThreshold": 2});
    live["spec"]["containers"][0]["volumeMounts"] = mount.clone();
    live["spec"]["volumes"] = volume.clone();
    node.put("live.yaml", &live);

    let mut ready = pods::simple("ready");
    ready["spec"]["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["/bin/sh", "-c", "test -e /s/ready"]}, "periodSeconds": 1, "failureThreshold": 1});
    ready["spec"]["containers"][0]["volumeMounts"] = mount;
    ready["spec"]["volumes"] = volume;
    node.put("ready.yaml", &ready);

    // An HTTP probe reaches a pod's own address.
    let mut web = pods::simple("web");
    web["spec"]["containers"][0] =
        pods::container("c", "mkdir /w; echo hi >/w/index.html; httpd -f -p 8080 -h /w & wait");
    web["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1});
    web["spec"]["containers"][0]["startupProbe"] =
        json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 30});
    node.put("web.yaml", &web);
    node.ready("web").await;

    // Readiness follows its probe, both ways, and restarts nothing.
    wait::until("`ready` runs", async || node.running().get("ready/c").cloned()).await;
    let before = node.running()["ready/c"].clone();
    assert!(!node.containers("ready")[0].ready, "not before its probe succeeds");
    std::fs::write(shared.join("ready"), "").unwrap();
    node.ready("ready").await;
    std::fs::remove_file(shared.join("ready")).unwrap();
    wait::until("`ready` is not ready", async || (!node.containers("ready").first()?.ready).then_some(()))
        .await;
    assert_eq!(node.running()["ready/c"], before);

    // A failing liveness probe restarts.
    let live_before = node.ready("live").await;
    std::fs::write(shared.join("sick"), "").unwrap();
    wait::until("`live` is restarted", async || {
        let container = node.containers("live").into_iter().next()?;
        (container.restart_count == 1 && container.container_id.as_ref() != live_before.get("c"))
            .then_some(())
    })
    .await;
    std::fs::remove_file(shared.join("sick")).unwrap();

    // Crashes: at once, then after 10 s, then after 20 s; in between it says why it waits.
    let times = wait::until("four runs of `crash`", async || {
        let notes = std::fs::read_to_string(shared.join("crash")).unwrap_or_default();
        let times: Vec<u64> = notes.lines().filter_map(|line| line.parse().ok()).collect();
        (times.len() >= 4).then_some(times)
    })
    .await;
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // How long the runtime takes on top is its own affair.
    assert!(gaps[1] >= 9 && gaps[2] >= 19 && gaps[0] < gaps[2], "{gaps:?}");
    let container = wait::until("`crash` says why it waits", async || {
        let container = node.containers("crash").into_iter().next()?;
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        (waiting.reason.as_deref() == Some("CrashLoopBackOff")).then_some(container)
    })
    .await;
    assert_eq!(container.last_state.and_then(|s| s.terminated).map(|t| t.exit_code), Some(4));
    assert!(node.down().await, "{}", node.said());
}

#[tokio::test]
async fn killing_any_process_changes_no_container() {
    let _turn = turn().await;
    let mut node = RealNode::up(&[]).await;
    let mut probed = pods::simple("probed");
    probed["spec"]["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["/bin/true"]}, "periodSeconds": 2});
    probed["spec"]["containers"][0]["livenessProbe"] =
        json!({"exec": {"command": ["/bin/true"]}, "periodSeconds": 2});
    probed["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "m", "mountPath": "/m"}]);
    probed["spec"]["volumes"] = json!([{"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]);
    node.put("probed.yaml", &probed);
    node.put("plain.yaml", &pods::simple("plain"));
    node.ready("probed").await;
    node.ready("plain").await;
    let containers = node.running();
    let since = |node: &RealNode| -> Vec<_> {
        let pods = node.pods();
        let conditions =
            ["probed", "plain"].map(|name| pods[name].status.clone().unwrap().conditions.unwrap());
        conditions.into_iter().flatten().map(|c| (c.type_, c.status, c.last_transition_time)).collect()
    };
    let conditions = since(&node);
    let ten = Duration::from_secs(10);
    for process in PROCESSES {
        let pid = node.kill(process);
        node.back(process, pid, ten + Duration::from_secs(5)).await;
        // The proof that all is consistent: a new pod, which needs every one of them, comes and goes.
        let probe = format!("after-{process}");
        node.put("after.yaml", &pods::simple(&probe));
        node.ready_within(ten + Duration::from_secs(10), &probe).await;
        node.take("after.yaml");
        wait::until(&format!("{probe} is gone"), async || (!node.pods().contains_key(&probe)).then_some(()))
            .await;
        assert_eq!(node.running(), containers, "containers after kill -9 of {process}");
        assert_eq!(since(&node), conditions, "conditions after kill -9 of {process}");
    }
    // The launcher too: what it started ends with it, pods stay, and its successor takes them over.
    signal(node.launcher_pid(), Signal::SIGKILL);
    let pids: Vec<u32> = node.processes().values().map(|(pid, _)| *pid).collect();
    wait::until("its processes ended", async || {
        pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    })
    .await;
    node.launch();
    node.healthy().await;
    wait::until("the same containers", async || (node.running() == containers).then_some(())).await;
    assert_eq!(since(&node), conditions, "conditions after kill -9 of the launcher");
    assert!(node.down().await, "{}", node.said());
}

#[tokio::test]
async fn callers_and_methods_that_are_not_listed_are_refused() {
    let _turn = turn().await;
    let mut node = RealNode::up(&[]).await;
    let ids: Value =
        serde_json::from_slice(&std::fs::read(node.state().join("identities.json")).unwrap()).unwrap();
    let group = ids["groups"]["bulkhead"].as_u64().unwrap();
    let knock_at = |uid: u64, groups: Option<u64>, socket: &str, path: &str| -> String {
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={uid}")).arg(format!("--regid={uid}"));
        match groups {
            Some(gid) => command.arg(format!("--groups={gid}")),
            None => command.arg("--clear-groups"),
        };
        let knock = binary().with_file_name("knock");
        // The test's own folder is closed to other users: the program is handed over as an open file.
        let program = std::fs::File::open(knock).unwrap();
        let output = command
            .arg("--")
            .arg("/proc/self/fd/0")
            .arg(node.state().join("run").join(socket))
            .arg(path)
            .stdin(program)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let uid = |process: &str| ids["process"][process]["uid"].as_u64().unwrap();
    let observe = "/bulkhead.pleg.v1.Pleg/ObservePod";
    let own = "/bulkhead.process.v1.Process/GetStatus";
    // A user of the machine does not even reach a socket; one who got into the group is no caller.
    assert!(knock_at(12345, None, "pleg.sock", observe).starts_with("refused at the socket"));
    assert_eq!(knock_at(12345, Some(group), "pleg.sock", observe), "PermissionDenied");
    // Processes reach what their row says and no more.
    assert_eq!(knock_at(uid("statusd"), Some(group), "pleg.sock", "/bulkhead.pleg.v1.Pleg/GetRuntime"), "Ok");
    assert_eq!(knock_at(uid("volumed"), Some(group), "pleg.sock", observe), "PermissionDenied");
    assert_eq!(
        knock_at(uid("prober"), Some(group), "volumed.sock", "/bulkhead.volumed.v1.Volumed/TearDownPod"),
        "PermissionDenied"
    );
    assert_eq!(knock_at(uid("prober"), Some(group), "pleg.sock", own), "PermissionDenied");
    assert_eq!(knock_at(uid("gateway"), Some(group), "pleg.sock", own), "Ok");
    assert_eq!(knock_at(0, None, "pleg.sock", own), "Ok");
    assert_eq!(knock_at(0, None, "pleg.sock", observe), "PermissionDenied", "root asks the gateway");
    // The runtime: methods outside a row, other processes' sockets, and the runtime's own socket.
    let version = "/runtime.v1.RuntimeService/Version";
    assert_eq!(knock_at(uid("pleg"), Some(group), "cri/pleg.sock", version), "Ok");
    for method in ["StopContainer", "RunPodSandbox", "ExecSync", "RemovePodSandbox", "NoSuchMethod"] {
        let path = format!("/runtime.v1.RuntimeService/{method}");
        assert_eq!(
            knock_at(uid("pleg"), Some(group), "cri/pleg.sock", &path),
            "PermissionDenied",
            "{method}"
        );
    }
    assert_eq!(knock_at(uid("prober"), Some(group), "cri/syncd.sock", version), "PermissionDenied");
    assert_eq!(knock_at(0, None, "cri/syncd.sock", version), "PermissionDenied");
    let runtime = node.runtime_socket().to_string_lossy().into_owned();
    for process in PROCESSES.into_iter().filter(|name| *name != "crigate") {
        let answer = knock_at(uid(process), Some(group), &runtime, version);
        assert!(answer.starts_with("refused at the socket"), "{process}: {answer}");
    }
    // It was counted, and nothing came of it.
    let status = node.status().unwrap();
    let pleg = status["processes"].as_array().unwrap().iter().find(|p| p["name"] == "pleg").unwrap();
    assert!(pleg["refusedCalls"].as_u64().unwrap() >= 4, "{pleg}");
    assert!(node.down().await, "{}", node.said());
}

#[tokio::test]
async fn pods_that_are_kept_outlive_the_node_and_are_taken_over() {
    let _turn = turn().await;
    let mut node = RealNode::up(&["--keep-pods"]).await;
    node.put("a.yaml", &pods::simple("a"));
    node.put("b.yaml", &pods::simple("b"));
    node.ready("a").await;
    node.ready("b").await;
    let before = node.running();
    let id = node.id();
    assert!(node.down().await, "{}", node.said());
    assert!(
        leftovers(&id, node.state()).iter().any(|left| left.contains("process")),
        "the containers still run"
    );
    node.take("b.yaml");
    node.launch();
    node.healthy().await;
    wait::until("a was kept, b is gone", async || {
        (node.running() == BTreeMap::from([("a/c".to_owned(), before["a/c"].clone())])).then_some(())
    })
    .await;
    // Whoever keeps pods can still end them.
    node.take("a.yaml");
    wait::until("a is gone", async || node.pods().is_empty().then_some(())).await;
    assert!(node.down().await, "{}", node.said());
}

/// A test that fails drops its node wherever it was.
#[tokio::test]
async fn a_node_that_is_dropped_leaves_nothing_even_when_it_keeps_pods() {
    let _turn = turn().await;
    for how in ["running", "stopped", "killed"] {
        let mut node = RealNode::up(&["--keep-pods"]).await;
        node.put("a.yaml", &pods::simple("a"));
        node.ready("a").await;
        let (id, state) = (node.id(), node.state().to_owned());
        match how {
            "stopped" => assert!(node.down().await, "{}", node.said()),
            "killed" => signal(node.launcher_pid(), Signal::SIGKILL),
            _ => {}
        }
        drop(node);
        assert_eq!(leftovers(&id, &state), Vec::<String>::new(), "{how}");
        assert!(!state.exists(), "{how}");
    }
}

#[tokio::test]
async fn what_is_wrong_is_said_in_one_line() {
    let dir = tempfile::Builder::new().prefix("bh").tempdir().unwrap();
    let up = |arguments: &[&str]| {
        let output =
            Command::new(binary()).arg("up").arg("--state").arg(dir.path()).args(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        let said =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        said.trim().to_owned()
    };
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let said = up(&["--peers", &empty.to_string_lossy()]);
    assert!(said.contains("containerd"), "{said}");
    let said = up(&["--containerd", "/no/such/runtime.sock"]);
    assert!(said.contains("/no/such/runtime.sock"), "{said}");
    let config = dir.path().join("bad.yaml");
    std::fs::write(
        &config,
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: many\n",
    )
    .unwrap();
    let peers = peers();
    let said = up(&["--peers", &peers.to_string_lossy(), "--config", &config.to_string_lossy()]);
    assert!(said.contains("maxPods") && said.contains("bad.yaml:3"), "{said}");
}
