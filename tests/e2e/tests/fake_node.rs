//! All processes together on the fake runtime: what becomes of manifests, containers and processes.
#![cfg(test)]

use bulkhead_e2e::fake_node::{FakeNode, is_ready};
use bulkhead_e2e::{pods, wait};
use bulkhead_testkit::cri::{Method, OnStart, OnStop, Who};
use serde_json::json;

#[tokio::test]
async fn a_manifest_becomes_a_ready_pod_and_goes_without_a_trace() {
    let node = FakeNode::up().await;
    node.put("a.yaml", &pods::simple("a"));
    let status = node.ready("a").await;
    assert_eq!(status.host_ip.as_deref(), Some("192.0.2.10"));
    assert!(status.pod_ip.is_some_and(|ip| ip.starts_with("10.88.")));
    node.take("a.yaml");
    node.runtime.wait_until(|world| world.sandboxes.is_empty() && world.containers.is_empty()).await.unwrap();
    wait::until("the status is gone", async || node.status("a").is_none().then_some(())).await;
    let left: Vec<_> = std::fs::read_dir(node.node.root_dir().join("pods")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    // In order: stopped before removed.
    let calls: Vec<_> = node.runtime.log().changes();
    let place = |method| calls.iter().position(|m| *m == method).unwrap();
    assert!(place(Method::RunPodSandbox) < place(Method::CreateContainer));
    assert!(place(Method::StopContainer) < place(Method::StopPodSandbox));
    assert!(place(Method::StopPodSandbox) < place(Method::RemovePodSandbox));
}

#[tokio::test]
async fn a_changed_manifest_replaces_its_pod_only_after_the_old_one_ended() {
    let node = FakeNode::up().await;
    node.runtime.on_stop(Who::name("c"), OnStop::ExitAfter(std::time::Duration::from_millis(700), 0));
    node.put("a.yaml", &pods::simple("a"));
    node.put("b.yaml", &pods::simple("b"));
    node.ready("a").await;
    node.ready("b").await;
    let before = node.running();
    for image in ["local/busybox:2", "local/busybox:1", "local/busybox:2"] {
        let mut changed = pods::simple("a");
        changed["spec"]["containers"][0]["image"] = json!(image);
        node.put("a.yaml", &changed);
    }
    wait::until("the new image runs", async || {
        let running = node.running();
        (running.len() == 2 && running["a/c"] != before["a/c"]).then_some(())
    })
    .await;
    node.status_where("a", "ready on the last image", |s| {
        is_ready(s) && s.container_statuses.as_ref().unwrap()[0].image == "local/busybox:2"
    })
    .await;
    assert_eq!(node.running()["b/c"], before["b/c"], "the neighbour was not touched");
    // Never two of one name at once: the old sandbox was removed before the next was made.
    let calls = node.runtime.log().calls();
    let a_runs: Vec<_> = calls.iter().filter(|c| c.method == Method::RunPodSandbox).collect();
    assert!(a_runs.len() >= 3, "two pods and at least one replacement");
}

#[tokio::test]
async fn a_manifest_that_is_renamed_or_broken_restarts_nothing_but_what_it_must() {
    let node = FakeNode::up().await;
    node.put("a.yaml", &pods::simple("a"));
    node.put("b.yaml", &pods::simple("b"));
    node.ready("a").await;
    node.ready("b").await;
    let before = node.running();
    std::fs::write(node.manifest("b.yaml"), "apiVersion: v1\nkind: P").unwrap();
    std::fs::write(node.manifest("evil.yaml"), "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\nkind: Pod\n")
        .unwrap();
    std::fs::write(node.manifest("big.yaml"), vec![b'#'; 10 << 20]).unwrap();
    std::fs::write(node.manifest(".b.yaml.swp"), pods::simple("hidden").to_string()).unwrap();
    node.put("c.yaml", &pods::simple("c"));
    node.ready("c").await;
    let mut now = node.running();
    now.remove("c/c");
    assert_eq!(now, before, "bad files disturb nobody");
    // A rename is another file, and so another pod of the same name: old one first, then the new one.
    std::fs::rename(node.manifest("a.yaml"), node.manifest("z.yaml")).unwrap();
    wait::until("the renamed pod runs anew", async || {
        node.running().get("a/c").filter(|id| **id != before["a/c"]).cloned()
    })
    .await;
    assert_eq!(node.running()["b/c"], before["b/c"]);
}

#[tokio::test]
async fn a_container_that_exits_is_restarted_and_then_backs_off() {
    let node = FakeNode::up().await;
    node.runtime.on_start(Who::name("c"), OnStart::Exit(3));
    node.put("a.yaml", &pods::simple("a"));
    let status = node
        .status_where("a", "in back-off", |s| {
            let container = s.container_statuses.as_deref().and_then(|c| c.first());
            container.is_some_and(|c| {
                let waiting =
                    c.state.as_ref().and_then(|s| s.waiting.as_ref()).and_then(|w| w.reason.as_deref());
                waiting == Some("CrashLoopBackOff")
            })
        })
        .await;
    let container = &status.container_statuses.unwrap()[0];
    assert_eq!(container.restart_count, 1, "the first restart is at once, the second waits");
    let last = container.last_state.as_ref().and_then(|s| s.terminated.as_ref()).unwrap();
    assert_eq!(last.exit_code, 3);
    assert!(node.runtime.log().count(Method::CreateContainer) <= 2);
}

#[tokio::test]
async fn a_pod_that_is_not_to_be_restarted_ends_in_its_phase_and_stays() {
    let mut node = FakeNode::up().await;
    node.runtime.on_start(Who::name("good"), OnStart::Exit(0));
    node.runtime.on_start(Who::name("bad"), OnStart::Exit(3));
    for (name, phase) in [("good", "Succeeded"), ("bad", "Failed")] {
        let mut pod = pods::with_spec(pods::simple(name), "restartPolicy", json!("Never"));
        pod["spec"]["containers"][0]["name"] = json!(name);
        node.put(&format!("{name}.yaml"), &pod);
        node.status_where(name, phase, |s| s.phase.as_deref() == Some(phase)).await;
    }
    let made = node.runtime.log().count(Method::CreateContainer);
    for name in ["syncd", "statusd", "pleg"] {
        node.kill(name);
    }
    node.start_all();
    node.put("c.yaml", &pods::simple("c"));
    node.ready("c").await;
    assert_eq!(
        node.runtime.log().count(Method::CreateContainer),
        made + 1,
        "nothing that was over ran again"
    );
    for (name, phase) in [("good", "Succeeded"), ("bad", "Failed")] {
        assert_eq!(node.status(name).and_then(|s| s.phase).as_deref(), Some(phase));
    }
}

#[tokio::test]
async fn killing_any_process_changes_no_container_and_no_status() {
    let mut node = FakeNode::up().await;
    let mut probed = pods::simple("probed");
    probed["spec"]["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["/bin/true"]}, "periodSeconds": 1});
    node.put("a.yaml", &pods::simple("a"));
    node.put("p.yaml", &probed);
    node.ready("a").await;
    node.ready("probed").await;
    let containers = node.running();
    let ready_since = |s: &k8s_openapi::api::core::v1::PodStatus| {
        let ready = s.conditions.as_ref().unwrap().iter().find(|c| c.type_ == "Ready").unwrap().clone();
        (ready.status, ready.last_transition_time)
    };
    let since = (ready_since(&node.status("a").unwrap()), ready_since(&node.status("probed").unwrap()));
    for name in ["crigate", "pleg", "volumed", "imaged", "syncd", "prober", "statusd"] {
        node.kill(name);
        node.start(name);
        // A new pod needs all of them: once it is ready, everything is consistent again.
        let probe = format!("after-{name}");
        node.put(&format!("{probe}.yaml"), &pods::simple(&probe));
        wait::within(std::time::Duration::from_secs(20), &format!("{probe} ready"), async || {
            node.status(&probe).filter(is_ready)
        })
        .await;
        node.take(&format!("{probe}.yaml"));
        wait::until(&format!("{probe} gone"), async || {
            (!node.running().keys().any(|k| k.starts_with("after"))).then_some(())
        })
        .await;
        assert_eq!(node.running(), containers, "after {name}");
        let now = (ready_since(&node.status("a").unwrap()), ready_since(&node.status("probed").unwrap()));
        assert_eq!(now, since, "no readiness flipped with {name}");
    }
}

#[tokio::test]
async fn a_pod_whose_manifest_went_while_syncd_was_away_is_ended() {
    let mut node = FakeNode::up().await;
    node.put("a.yaml", &pods::simple("a"));
    node.put("b.yaml", &pods::simple("b"));
    node.ready("a").await;
    node.ready("b").await;
    let before = node.running();
    node.kill("syncd");
    node.take("a.yaml");
    node.start("syncd");
    wait::until("only b runs", async || (node.running().len() == 1).then_some(())).await;
    assert_eq!(node.running()["b/c"], before["b/c"]);
}

#[tokio::test]
async fn the_same_manifest_put_back_at_once_runs_again() {
    let node = FakeNode::up().await;
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..3 {
        node.put("a.yaml", &pods::simple("a"));
        let id = wait::until(&format!("round {round} runs"), async || {
            node.running().get("a/c").filter(|id| !seen.contains(*id)).cloned()
        })
        .await;
        assert!(node.running().len() == 1, "never two at once");
        seen.insert(id);
        node.take("a.yaml");
        // Until the removal was noticed, putting the file back changes nothing.
        node.runtime
            .log()
            .wait_for(|calls| calls.iter().filter(|c| c.method == Method::StopContainer).count() > round)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_runtime_that_goes_and_comes_back_costs_no_container() {
    let mut node = FakeNode::up().await;
    node.put("a.yaml", &pods::simple("a"));
    node.ready("a").await;
    let before = node.running();
    node.runtime.go_away().await;
    node.put("b.yaml", &pods::simple("b"));
    node.runtime.come_back().await.unwrap();
    node.ready("b").await;
    assert_eq!(node.running()["a/c"], before["a/c"]);
}
