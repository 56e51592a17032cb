//! The whole process against fakes of its peers and of the runtime, over real sockets.

mod scene;

use std::time::Duration;

use bulkhead_api::prober::v1::Health;
use bulkhead_model::probe::{Handler, ProbeKind, ProbeSpec};
use bulkhead_testkit::cri::{ExecAnswer, Method};
use scene::{Scene, exec_spec, holds};
use tonic::Status;

const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);

#[tokio::test]
async fn results_follow_what_commands_and_ports_say() {
    let mut scene = Scene::new().await;
    let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let handler = Handler::Tcp { host: Some("127.0.0.1".into()), port: port.local_addr().unwrap().port() };
    let liveness = ProbeSpec { handler, failure_threshold: 1, ..exec_spec(ProbeKind::Liveness) };
    scene.runtime.answer_exec(|_, _| Ok(ExecAnswer { stderr: b"not yet".to_vec(), ..ExecAnswer::exits(1) }));
    let id = scene.add_pod("u", vec![exec_spec(ProbeKind::Readiness), liveness]).await;
    scene.start_peers().await;
    scene.start();
    let results = scene.results();
    holds(&results, |all| all.get(&id).is_some_and(|r| r.ready == NO)).await;
    let result = results.get(&id).unwrap();
    assert_eq!((result.pod_uid.as_str(), result.container_name.as_str()), ("u", "a"));
    assert_eq!((result.started, result.health()), (YES, Health::Live));
    assert_eq!(result.message, "Readiness probe failed: not yet");

    scene.runtime.answer_exec(|_, _| Ok(ExecAnswer::default()));
    holds(&results, |all| all[&id].ready == YES && all[&id].message.is_empty()).await;
    drop(port);
    holds(&results, |all| all[&id].health() == Health::LivenessFailed).await;
    assert!(
        results.get(&id).unwrap().message.starts_with("Liveness probe failed: cannot connect to 127.0.0.1:")
    );
    scene.check("probes", "").await;
}

#[tokio::test]
async fn without_peers_it_waits_and_goes_on_with_what_it_knew() {
    let mut scene = Scene::new().await;
    scene.start();
    let results = scene.results();
    scene.check("probes", "no stream from syncd and pleg yet: nothing is probed").await;
    let id = scene.add_pod("u", vec![exec_spec(ProbeKind::Readiness)]).await;
    scene.start_pleg().await;
    scene.check("probes", "no stream from syncd yet: nothing is probed").await;
    assert!(!results.status().synced, "half of the world is not told");
    scene.start_syncd().await;
    holds(&results, |all| all.get(&id).is_some_and(|r| r.ready == YES)).await;
    scene.check("probes", "").await;

    scene.syncd.cancel();
    scene.check("probes", "no stream from syncd: pods are probed as they were last known").await;
    scene.runtime.answer_exec(|_, _| Ok(ExecAnswer::exits(1)));
    holds(&results, |all| all[&id].ready == NO).await;
    scene.pleg.cancel();
    scene.check("probes", "no stream from syncd and pleg: pods are probed as they were last known").await;
    scene.runtime.answer_exec(|_, _| Ok(ExecAnswer::default()));
    holds(&results, |all| all[&id].ready == YES).await;

    scene.start_peers().await;
    scene.check("probes", "").await;
    scene.views.remove(&"u".to_owned());
    holds(&results, |all| all.is_empty()).await;
}

#[tokio::test]
async fn a_killed_process_comes_back_with_its_results() {
    let mut scene = Scene::new().await;
    scene.runtime.answer_exec(|container, _| Ok(ExecAnswer::exits(i32::from(container.name() != "ready"))));
    let slow = |kind| ProbeSpec { period: Duration::from_secs(360_000), ..exec_spec(kind) };
    let probes = vec![slow(ProbeKind::Startup), slow(ProbeKind::Readiness)];
    let ready = scene.add_container("r", "ready", probes).await;
    let unready = scene.add_container("n", "unready", vec![slow(ProbeKind::Readiness)]).await;
    scene.start_peers().await;
    scene.start();
    let state = |r: &std::sync::Arc<bulkhead_api::prober::v1::ContainerResult>| (r.started, r.ready);
    let known = |all: &scene::All| {
        all.get(&ready).map(state) == Some((YES, YES)) && all.get(&unready).map(state) == Some((YES, NO))
    };
    holds(&scene.results(), known).await;
    scene.file_holds(&format!(r#""{ready}":{{"startup":true,"readiness":true}}"#)).await;
    scene.file_holds(&format!(r#""{unready}":{{"readiness":false}}"#)).await;
    let runs = scene.execs();

    scene.kill();
    scene.syncd.cancel();
    scene.start();
    let results = scene.results();
    scene.check("probes", "no stream from syncd yet: nothing is probed").await;
    assert!(!results.status().synced);
    scene.start_syncd().await;
    results.wait_until(|status, _| status.synced).await;
    assert!(
        known(&results.snapshot()),
        "the first snapshot says what was said before: {:?}",
        results.snapshot()
    );
    assert_eq!(scene.execs(), runs, "without having probed");

    scene.kill();
    std::fs::write(scene.file(), "{").unwrap();
    scene.start();
    let results = scene.results();
    // No answer says "not ready" before a probe does: readers keep what they had.
    results.wait_until(|status, _| status.synced).await;
    assert!(scene.file().with_extension("json.corrupt").exists());
    holds(&results, known).await;
}

#[tokio::test]
async fn a_runtime_that_is_away_changes_no_result() {
    let mut scene = Scene::new().await;
    let once = |kind| ProbeSpec { failure_threshold: 1, ..exec_spec(kind) };
    let id = scene.add_pod("u", vec![once(ProbeKind::Readiness), once(ProbeKind::Liveness)]).await;
    scene.start_peers().await;
    scene.start();
    let results = scene.results();
    holds(&results, |all| all.get(&id).is_some_and(|r| r.ready == YES)).await;
    scene.runtime.go_away().await;
    let errored =
        |r: &bulkhead_api::prober::v1::ContainerResult| r.message.contains("probe errored: the command");
    holds(&results, |all| errored(&all[&id])).await;
    let result = results.get(&id).unwrap();
    assert_eq!((result.ready, result.health()), (YES, Health::Live));
    scene.runtime.come_back().await.unwrap();
    holds(&results, |all| all[&id].message.is_empty()).await;
    scene.runtime.fail(Method::ExecSync, Status::internal("broken"), 1);
    holds(&results, |all| errored(&all[&id])).await;
    assert_eq!(results.get(&id).unwrap().health(), Health::Live);
}

#[tokio::test]
async fn commands_that_hang_fail_and_do_not_pile_up() {
    let mut scene = Scene::new().await;
    scene
        .runtime
        .answer_exec(|_, _| Ok(ExecAnswer { takes: Duration::from_secs(1000), ..ExecAnswer::default() }));
    let liveness = ProbeSpec { failure_threshold: 2, ..exec_spec(ProbeKind::Liveness) };
    let id = scene.add_pod("u", vec![liveness]).await;
    scene.start_peers().await;
    scene.start();
    let results = scene.results();
    holds(&results, |all| all.get(&id).is_some_and(|r| r.health() == Health::LivenessFailed)).await;
    assert_eq!(results.get(&id).unwrap().message, "Liveness probe failed: command timed out after 1s");
    let calls = scene.runtime.log().calls();
    let running = calls.iter().filter(|call| call.method == Method::ExecSync && call.outcome.is_none());
    assert_eq!(running.count(), 0, "each was over before the next began");
    assert_eq!(scene.execs(), 2);
}
