//! The life of containers: init containers, sidecars, hooks, termination messages and deadlines; on the fake runtime where
//! order and calls are what counts, on a real containerd where processes and files are.
#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bulkhead_e2e::fake_node::FakeNode;
use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::{pods, wait};
use bulkhead_testkit::cri::{Call, Container, Detail, ExecAnswer, Method, OnStart, Who};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, PodStatus};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};
use tonic::Status;

static ONE_NODE: Mutex<()> = Mutex::const_new(());

async fn turn() -> MutexGuard<'static, ()> {
    ONE_NODE.lock().await
}

fn never(name: &str, init: Value, containers: Value) -> Value {
    with_init(pods::with_spec(pods::simple(name), "restartPolicy", json!("Never")), init, containers)
}

fn with_init(mut pod: Value, init: Value, containers: Value) -> Value {
    pod["spec"]["initContainers"] = init;
    pod["spec"]["containers"] = containers;
    pod
}

fn named(name: &str) -> Value {
    pods::container(name, "sleep 100000 & wait")
}

fn with(mut container: Value, field: &str, value: Value) -> Value {
    container[field] = value;
    container
}

fn sidecar(name: &str) -> Value {
    with(named(name), "restartPolicy", json!("Always"))
}

fn exec(command: &str) -> Value {
    json!({"exec": {"command": [command]}})
}

/// Names of the containers that were made so far, in order.
fn made(node: &FakeNode) -> Vec<String> {
    let name = |call: &Call| match &call.detail {
        Detail::CreateContainer(request) => {
            request.config.clone().unwrap_or_default().metadata.unwrap_or_default().name
        }
        _ => String::new(),
    };
    node.runtime.log().of(Method::CreateContainer).iter().map(name).collect()
}

/// Names of the containers, of those that there were, that were told to stop so far, in order, and how long they got.
fn stopped(node: &FakeNode, containers: &[Container]) -> Vec<(String, i64)> {
    let stop = |call: &Call| {
        let found = containers.iter().find(|container| container.id == call.container_id)?;
        let Detail::StopContainer { timeout } = call.detail else { return None };
        Some((found.name().to_owned(), timeout))
    };
    node.runtime.log().of(Method::StopContainer).iter().filter_map(stop).collect()
}

fn container<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten()).find(|c| c.name == name)
}

fn waiting(status: &PodStatus, name: &str) -> String {
    let state = container(status, name).and_then(|c| c.state.clone());
    state.and_then(|state| state.waiting).and_then(|waiting| waiting.reason).unwrap_or_default()
}

/// How the container's last run ended, whether or not it waits for the next one.
fn ended(container: &ContainerStatus) -> Option<ContainerStateTerminated> {
    let state = container.state.clone().and_then(|state| state.terminated);
    state.or_else(|| container.last_state.clone().and_then(|state| state.terminated))
}

#[tokio::test]
async fn init_containers_and_sidecars_start_in_order_and_stop_in_reverse() {
    let node = FakeNode::up().await;
    let started = Arc::new(AtomicBool::new(false));
    let answer = started.clone();
    node.runtime.answer_exec(move |_, _| Ok(ExecAnswer::exits(i32::from(!answer.load(Ordering::SeqCst)))));
    node.runtime.on_start(Who::name("i"), OnStart::ExitAfter(Duration::from_millis(300), 0));
    let probe = json!({"exec": {"command": ["started"]}, "periodSeconds": 1, "failureThreshold": 100});
    let init = json!([named("i"), with(sidecar("s1"), "startupProbe", probe), sidecar("s2")]);
    node.put("a.yaml", &with_init(pods::simple("a"), init, json!([named("a"), named("b")])));
    let probed = |calls: &[Call]| calls.iter().filter(|call| call.method == Method::ExecSync).count() >= 2;
    node.runtime.log().wait_for(probed).await.unwrap();
    assert_eq!(made(&node), ["i", "s1"], "nothing starts before the first sidecar's startup probe succeeded");
    started.store(true, Ordering::SeqCst);
    node.ready("a").await;
    assert_eq!(made(&node), ["i", "s1", "s2", "a", "b"]);
    let containers = node.runtime.containers();
    node.take("a.yaml");
    let stopped = wait::until("all were told to stop", async || {
        let stopped = stopped(&node, &containers);
        (stopped.len() == 4).then_some(stopped)
    })
    .await;
    let names: Vec<_> = stopped.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[2..], ["s2", "s1"], "sidecars last, in reverse");
}

#[tokio::test]
async fn an_init_container_that_fails_for_good_fails_its_pod() {
    let node = FakeNode::up().await;
    node.runtime.on_start(Who::name("i"), OnStart::Exit(7));
    node.put("a.yaml", &never("a", json!([sidecar("s"), named("i")]), json!([named("a")])));
    let status = node.status_where("a", "Failed", |s| s.phase.as_deref() == Some("Failed")).await;
    assert_eq!(container(&status, "i").and_then(ended).map(|e| e.exit_code), Some(7));
    assert_eq!(made(&node), ["s", "i"], "the app container was never made");
    assert!(node.running().is_empty(), "the sidecar ends with its pod");
}

/// Known fault P4.
#[tokio::test]
async fn app_containers_restart_beside_a_sidecar_after_everybody_was_restarted() {
    let mut node = FakeNode::up().await;
    let init =
        json!([with(sidecar("s"), "startupProbe", json!({"exec": {"command": ["x"]}, "periodSeconds": 1}))]);
    node.put("a.yaml", &with_init(pods::simple("a"), init, json!([named("c")])));
    node.ready("a").await;
    let before = node.running();
    for name in ["syncd", "prober", "pleg", "statusd"] {
        node.kill(name);
    }
    node.start_all();
    node.runtime.exit_container(&before["a/c"], 1);
    node.status_where("a", "restarted", |s| {
        container(s, "c").is_some_and(|c| c.restart_count == 1 && c.ready)
    })
    .await;
    assert_eq!(node.running()["a/s"], before["a/s"]);
}

/// The other half of known fault P4.
#[tokio::test]
async fn a_sidecar_of_a_pod_that_restarts_nothing_is_restarted_and_probed_again() {
    let node = FakeNode::up().await;
    let probes = Arc::new(AtomicUsize::new(0));
    node.runtime.answer_exec(move |_, _| {
        Ok(ExecAnswer::exits(i32::from(probes.fetch_add(1, Ordering::SeqCst) == 0)))
    });
    let probe = json!({"exec": {"command": ["x"]}, "periodSeconds": 1, "failureThreshold": 1});
    let init = json!([with(sidecar("s1"), "startupProbe", probe), sidecar("s2")]);
    node.put("a.yaml", &never("a", init, json!([named("a")])));
    let status = node.ready("a").await;
    assert_eq!(container(&status, "s1").unwrap().restart_count, 1);
}

/// Known fault L2.
#[tokio::test]
async fn a_container_that_never_started_is_no_finished_run() {
    let mut node = FakeNode::up().await;
    let gate = node.runtime.hold(Method::StartContainer);
    node.put("a.yaml", &never("a", json!([]), json!([named("a")])));
    let starting = |calls: &[Call]| calls.iter().any(|call| call.method == Method::StartContainer);
    node.runtime.log().wait_for(starting).await.unwrap();
    node.kill("syncd");
    node.runtime.lose_sandbox(&node.runtime.sandboxes()[0].id);
    node.runtime.clear_script();
    drop(gate);
    node.start("syncd");
    node.ready("a").await;
    assert_eq!(node.runtime.log().count(Method::RunPodSandbox), 2);
    // One that did run is not run again.
    let newest = node.runtime.sandboxes().into_iter().max_by_key(|sandbox| sandbox.created_at).unwrap();
    node.runtime.lose_sandbox(&newest.id);
    node.status_where("a", "Failed", |s| s.phase.as_deref() == Some("Failed")).await;
    assert_eq!(node.runtime.log().count(Method::RunPodSandbox), 2);
}

/// Known fault T1.
#[tokio::test]
async fn finished_pods_stay_finished_although_the_runtime_forgot_them() {
    let mut node = FakeNode::up().await;
    node.runtime.on_start(Who::name("ok"), OnStart::Exit(0));
    node.runtime.on_start(Who::name("bad"), OnStart::Exit(3));
    let phases = [("ok", "Succeeded", 0), ("bad", "Failed", 3)];
    for (name, phase, _) in phases {
        node.put(&format!("{name}.yaml"), &never(name, json!([]), json!([named(name)])));
        node.status_where(name, phase, |s| s.phase.as_deref() == Some(phase)).await;
    }
    // statusd writes what it published within a second; one that is killed sooner has only what it wrote.
    let file = node.node.dir().join("state/statusd/statuses.json");
    wait::until("the phases were written", async || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        phases.iter().all(|(_, phase, _)| text.contains(phase)).then_some(())
    })
    .await;
    let sandboxes = node.runtime.log().count(Method::RunPodSandbox);
    for id in
        node.runtime.containers().iter().map(|c| &c.id).chain(node.runtime.sandboxes().iter().map(|s| &s.id))
    {
        node.runtime.remove_behind_back(id);
    }
    for name in ["syncd", "pleg", "statusd"] {
        node.kill(name);
    }
    node.start_all();
    node.put("c.yaml", &pods::simple("c"));
    node.ready("c").await;
    for (name, phase, code) in phases {
        let status = node.status(name).unwrap();
        assert_eq!(status.phase.as_deref(), Some(phase));
        assert_eq!(container(&status, name).and_then(ended).map(|e| e.exit_code), Some(code));
    }
    assert_eq!(node.runtime.log().count(Method::RunPodSandbox), sandboxes + 1, "only the new pod's");
}

/// Known fault L5.
#[tokio::test]
async fn a_post_start_hook_that_was_cut_off_runs_again() {
    let mut node = FakeNode::up().await;
    let calls = Arc::new(AtomicUsize::new(0));
    node.runtime.answer_exec(move |_, _| {
        let first = calls.fetch_add(1, Ordering::SeqCst) == 0;
        Ok(ExecAnswer { takes: Duration::from_secs(if first { 1000 } else { 0 }), ..ExecAnswer::exits(0) })
    });
    let hooked = with(named("a"), "lifecycle", json!({"postStart": exec("hook")}));
    node.put("a.yaml", &with_init(pods::simple("a"), json!([]), json!([hooked, named("b")])));
    let hooks = |count: usize| {
        move |calls: &[Call]| calls.iter().filter(|c| c.method == Method::ExecSync).count() == count
    };
    node.runtime.log().wait_for(hooks(1)).await.unwrap();
    let id = node.running()["a/a"].clone();
    let status = node
        .status_where("a", "waits for its hook", |s| {
            container(s, "a").is_some_and(|c| c.container_id.as_ref().is_some_and(|held| held.ends_with(&id)))
        })
        .await;
    assert_eq!(
        (status.phase.as_deref(), waiting(&status, "a").as_str()),
        (Some("Pending"), "ContainerCreating")
    );
    assert_eq!(made(&node), ["a"], "what follows waits for the hook");
    node.kill("syncd");
    node.start("syncd");
    node.ready("a").await;
    assert_eq!(node.running()["a/a"], id, "no restart for it");
    // One that is recorded as done does not run again.
    node.kill("syncd");
    node.start("syncd");
    node.put("b.yaml", &pods::simple("b"));
    node.ready("b").await;
    assert!(hooks(2)(&node.runtime.log().calls()));
}

/// Known fault L5.
#[tokio::test]
async fn a_post_start_hook_that_fails_stops_its_container_and_says_why() {
    let mut node = FakeNode::up().await;
    node.runtime.answer_exec(|_, _| Ok(ExecAnswer { stderr: b"why".to_vec(), ..ExecAnswer::exits(4) }));
    let hooked = with(named("a"), "lifecycle", json!({"postStart": exec("hook")}));
    node.put("a.yaml", &with_init(pods::simple("a"), json!([]), json!([hooked])));
    let in_backoff = |s: &PodStatus| {
        waiting(s, "a") == "CrashLoopBackOff" && container(s, "a").is_some_and(|c| c.restart_count == 1)
    };
    let status = node.status_where("a", "in back-off", in_backoff).await;
    let message = ended(container(&status, "a").unwrap()).unwrap().message.unwrap_or_default();
    assert!(message.contains("FailedPostStartHook") && message.contains("why"), "{message}");
    for name in ["syncd", "statusd"] {
        node.kill(name);
        node.start(name);
    }
    node.put("b.yaml", &pods::simple("b"));
    node.ready("b").await;
    let status = node.status_where("a", "in back-off again", |s| waiting(s, "a") == "CrashLoopBackOff").await;
    assert_eq!(ended(container(&status, "a").unwrap()).unwrap().message.as_deref(), Some(message.as_str()));
}

/// Known fault L1.
#[tokio::test]
async fn a_pre_stop_hook_shares_the_grace_period_with_the_signal() {
    let node = FakeNode::up().await;
    node.runtime.answer_exec(|_, command| match command[0].as_str() {
        "none" => Err(Status::unknown("executable file not found")),
        "quick" => Ok(ExecAnswer { takes: Duration::from_secs(1), ..ExecAnswer::exits(0) }),
        _ => Ok(ExecAnswer { takes: Duration::from_secs(600), ..ExecAnswer::exits(0) }),
    });
    let hooked = |name: &str, hook: Value| with(named(name), "lifecycle", json!({"preStop": hook}));
    let containers = json!([
        hooked("long", exec("long")),
        hooked("quick", exec("quick")),
        hooked("sleep", json!({"sleep": {"seconds": 2}})),
        hooked("none", exec("none")),
        named("plain"),
    ]);
    let pod = pods::with_spec(pods::simple("a"), "terminationGracePeriodSeconds", json!(6));
    node.put("a.yaml", &with_init(pod, json!([]), containers));
    node.ready("a").await;
    let containers = node.runtime.containers();
    node.take("a.yaml");
    let left = wait::until("all were told to stop", async || {
        let stopped = stopped(&node, &containers);
        (stopped.len() == 5).then(|| stopped.into_iter().collect::<std::collections::BTreeMap<_, _>>())
    })
    .await;
    // The rest of the budget for what trapped the signal, and never less than two seconds. Slow machines use some of it up.
    assert_eq!(left.get("long"), Some(&2), "{left:?}");
    for (name, most) in [("quick", 5), ("sleep", 4), ("none", 6), ("plain", 6)] {
        assert!(left.get(name).is_some_and(|left| (2..=most).contains(left)), "{name}: {left:?}");
    }
    assert!(left["plain"] >= left["quick"], "{left:?}");
}

#[tokio::test]
async fn a_pod_whose_manifest_went_while_syncd_was_away_still_gets_its_pre_stop_hook() {
    let mut node = FakeNode::up().await;
    let hooked = with(named("a"), "lifecycle", json!({"preStop": exec("bye")}));
    node.put("a.yaml", &with_init(pods::simple("a"), json!([]), json!([hooked])));
    node.ready("a").await;
    node.kill("syncd");
    node.take("a.yaml");
    node.start("syncd");
    node.runtime.wait_until(|world| world.containers.is_empty()).await.unwrap();
    let bye = Detail::ExecSync { command: vec!["bye".to_owned()], timeout: 2 };
    let calls = node.runtime.log().calls();
    assert_eq!(calls.iter().filter(|call| call.detail == bye).count(), 1, "{calls:?}");
}

#[tokio::test]
async fn a_pod_past_its_deadline_fails_and_stays_failed() {
    let mut node = FakeNode::up().await;
    node.put("a.yaml", &pods::with_spec(pods::simple("a"), "activeDeadlineSeconds", json!(4)));
    node.put("b.yaml", &pods::with_spec(pods::simple("b"), "activeDeadlineSeconds", json!(1000)));
    node.ready("a").await;
    node.ready("b").await;
    let failed = |s: &PodStatus| {
        s.phase.as_deref() == Some("Failed") && s.reason.as_deref() == Some("DeadlineExceeded")
    };
    node.status_where("a", "failed", failed).await;
    assert_eq!(node.running().keys().collect::<Vec<_>>(), ["b/c"]);
    for name in ["syncd", "statusd"] {
        node.kill(name);
        node.start(name);
    }
    node.put("c.yaml", &pods::simple("c"));
    node.ready("c").await;
    assert!(failed(&node.status("a").unwrap()));
    assert_eq!(node.running().keys().collect::<Vec<_>>(), ["b/c", "c/c"]);
}

fn shared(node: &RealNode) -> std::path::PathBuf {
    let shared = node.state().join("shared");
    std::fs::create_dir_all(&shared).unwrap();
    shared
}

/// `container` with the shared folder at `/s`.
fn sharing(container: Value) -> Value {
    with(container, "volumeMounts", json!([{"name": "s", "mountPath": "/s"}]))
}

fn of_shared(pod: Value, node: &RealNode) -> Value {
    pods::with_spec(
        pod,
        "volumes",
        json!([{"name": "s", "hostPath": {"path": shared(node), "type": "Directory"}}]),
    )
}

fn script(name: &str, text: &str) -> Value {
    with(pods::container(name, ""), "command", json!(["/bin/sh", "-c", text]))
}

fn notes(node: &RealNode, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(shared(node).join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn containers_leave_messages_in_files_and_logs() {
    let _turn = turn().await;
    let mut node = RealNode::up(&[]).await;
    let fallback = |container| with(container, "terminationMessagePolicy", json!("FallbackToLogsOnError"));
    let pod = never(
        "m",
        json!([]),
        json!([
            script("file", "printf 'bye now' >/dev/termination-log; exit 3"),
            with(
                script("own", "printf own >/my; chmod 000 /my; chmod 666 /my; exit 1"),
                "terminationMessagePath",
                json!("/my")
            ),
            script("long", "head -c 6000 /dev/zero | tr '\\0' x >/dev/termination-log; exit 1"),
            fallback(script("log", "for i in $(seq 200); do echo line $i; done; exit 1")),
            fallback(script("well", "echo fine; exit 0")),
            script("link", "rm -f /dev/termination-log; ln -sf /etc/passwd /dev/termination-log; exit 1"),
        ]),
    );
    node.put("m.yaml", &pod);
    let messages = async |node: &RealNode| {
        wait::until(&format!("all have ended: {}", node.said()), async || {
            let containers = node.containers("m");
            let ended: Vec<_> = containers.iter().filter_map(|c| Some((c.name.clone(), ended(c)?))).collect();
            let messages = ended.into_iter().map(|(name, end)| (name, end.message.unwrap_or_default()));
            let messages: std::collections::BTreeMap<_, _> = messages.collect();
            let log = messages.get("log").is_some_and(|text| text.ends_with("line 200\n"));
            (messages.len() == 6 && log && messages.get("long").is_some_and(|text| !text.is_empty()))
                .then_some(messages)
        })
        .await
    };
    let found = messages(&node).await;
    assert_eq!(found["file"], "bye now");
    assert_eq!(found["own"], "own");
    assert_eq!(found["long"], "x".repeat(2048), "12 KiB for six containers");
    assert_eq!((found["log"].lines().count(), found["log"].lines().next()), (80, Some("line 121")));
    assert_eq!((found["well"].as_str(), found["link"].as_str()), ("", ""));
    // The same after a restart of who read them and who published them.
    for process in ["syncd", "statusd"] {
        let pid = node.kill(process);
        node.back(process, pid, Duration::from_secs(20)).await;
    }
    assert_eq!(messages(&node).await, found);
    assert!(node.down().await, "{}", node.said());
}

/// Known fault L1.
#[tokio::test]
async fn pods_with_pre_stop_hooks_are_gone_in_time() {
    let _turn = turn().await;
    let mut node = RealNode::up(&[]).await;
    let stubborn = |name: &str, hook: Value| {
        let text = format!("trap 'date +%s >>/s/{name}' TERM; while :; do sleep 0.2; done");
        let container = with(sharing(script("c", &text)), "lifecycle", json!({"preStop": hook}));
        let pod = pods::with_spec(pods::simple(name), "terminationGracePeriodSeconds", json!(6));
        of_shared(with_init(pod, json!([]), json!([container])), &node)
    };
    let hooks = [
        ("long", json!({"exec": {"command": ["/bin/sleep", "600"]}}), 6..=9),
        ("sleep", json!({"sleep": {"seconds": 3}}), 3..=6),
        ("closed", json!({"httpGet": {"port": 1, "path": "/"}}), 0..=4),
    ];
    for (name, hook, _) in &hooks {
        node.put(&format!("{name}.yaml"), &stubborn(name, hook.clone()));
    }
    for (name, ..) in &hooks {
        node.ready(name).await;
    }
    let now = || bulkhead_base::Clock::now(&bulkhead_base::SystemClock).as_second();
    for (name, _, term) in hooks {
        let begin = now();
        node.take(&format!("{name}.yaml"));
        wait::until(&format!("{name} is gone"), async || (!node.pods().contains_key(name)).then_some(()))
            .await;
        let took = now() - begin;
        assert!(took <= 13, "{name} took {took} s");
        let signal = notes(&node, name).first().and_then(|line| line.parse::<u64>().ok()).unwrap();
        let after = signal.saturating_sub(u64::try_from(begin).unwrap());
        assert!(term.contains(&after), "{name} got its signal after {after} s");
    }
    assert!(node.down().await, "{}", node.said());
}

/// Known fault L5.
#[tokio::test]
async fn post_start_hooks_run_for_every_container_that_stays() {
    let _turn = turn().await;
    let mut node = RealNode::up(&[]).await;
    let hook = |text: &str| json!({"postStart": {"exec": {"command": ["/bin/sh", "-c", text]}}});
    let slow = with(sharing(named("c")), "lifecycle", hook("echo begin >>/s/h; sleep 8; echo hook >>/s/h"));
    node.put("slow.yaml", &of_shared(with_init(pods::simple("slow"), json!([]), json!([slow])), &node));
    let bad = with(named("c"), "lifecycle", hook("echo why >&2; exit 4"));
    node.put("bad.yaml", &with_init(pods::simple("bad"), json!([]), json!([bad])));
    wait::until("the hook began", async || (!notes(&node, "h").is_empty()).then_some(())).await;
    let pid = node.kill("syncd");
    node.back("syncd", pid, Duration::from_secs(20)).await;
    node.ready("slow").await;
    let notes = notes(&node, "h");
    assert_eq!(
        notes.iter().filter(|line| *line == "begin").count(),
        2,
        "cut off once, and run again: {notes:?}"
    );
    assert!(notes.iter().any(|line| line == "hook"), "{notes:?}");
    let message = wait::until("the failed hook says why", async || {
        let containers = node.containers("bad");
        let message = ended(containers.first()?)?.message.unwrap_or_default();
        (message.contains("FailedPostStartHook") && message.contains("why")).then_some(message)
    })
    .await;
    assert!(node.down().await, "{message}: {}", node.said());
}

#[tokio::test]
async fn init_containers_and_sidecars_keep_their_order_on_a_real_runtime() {
    let _turn = turn().await;
    let mut node = RealNode::up(&[]).await;
    let noting = |name: &str| {
        let text = format!(
            "trap 'echo -{name} >>/s/o; exit 0' TERM; echo +{name} >>/s/o; touch /started; while :; do sleep 0.1; done"
        );
        sharing(script(name, &text))
    };
    let probe = json!({"exec": {"command": ["/bin/sh", "-c", "test -e /s/go"]}, "periodSeconds": 1, "failureThreshold": 100});
    let side = |name: &str| with(noting(name), "restartPolicy", json!("Always"));
    let init =
        json!([sharing(script("i", "echo i >>/s/o")), with(side("s1"), "startupProbe", probe), side("s2"),]);
    let pod = pods::with_spec(pods::simple("o"), "terminationGracePeriodSeconds", json!(20));
    node.put("o.yaml", &of_shared(with_init(pod, init, json!([noting("a")])), &node));
    wait::until("the first sidecar runs", async || (notes(&node, "o").len() == 2).then_some(())).await;
    std::fs::write(shared(&node).join("go"), "").unwrap();
    node.ready("o").await;
    wait::until("all have begun", async || (notes(&node, "o").len() == 4).then_some(())).await;
    node.take("o.yaml");
    wait::until("o is gone", async || (!node.pods().contains_key("o")).then_some(())).await;
    assert_eq!(notes(&node, "o"), ["i", "+s1", "+s2", "+a", "-a", "-s2", "-s1"]);
    // A failed init container under Never is the pod's end.
    node.put("f.yaml", &never("f", json!([script("i", "exit 7")]), json!([named("a")])));
    wait::until("f failed", async || {
        let status = node.pods().remove("f")?.status?;
        (status.phase.as_deref() == Some("Failed")).then_some(())
    })
    .await;
    assert!(node.down().await, "{}", node.said());
}
