//! The call log, faults, gates, and a runtime that goes away.

use std::time::Duration;

use super::*;

fn busy() -> Status {
    Status::unavailable("busy")
}

#[tokio::test]
async fn the_log_keeps_who_was_named_when_and_how_it_was_answered() {
    let mut bench = bench().await;
    let sandbox = bench.sandbox("u1", 0).await.unwrap();
    bench.clock.advance(Duration::from_secs(2));
    let mut request = tonic::Request::new(container_request(&sandbox, "app", 0));
    request.metadata_mut().insert("traceparent", "00-aa-bb-01".parse().unwrap());
    let container = bench.client.create_container(request).await.unwrap().into_inner().container_id;
    assert_eq!(code(bench.start("nope").await), Code::NotFound);

    let calls = bench.fake.log().calls();
    let names: Vec<_> =
        calls.iter().map(|c| (c.method, c.sandbox_id.as_str(), c.container_id.as_str())).collect();
    assert_eq!(
        names,
        [
            (Method::RunPodSandbox, sandbox.as_str(), ""),
            (Method::CreateContainer, sandbox.as_str(), container.as_str()),
            (Method::StartContainer, "", "nope"),
        ]
    );
    assert_eq!(calls[0].detail, Detail::RunPodSandbox(Box::new(sandbox_request("u1", 0))));
    assert_eq!(calls[1].detail, Detail::CreateContainer(Box::new(container_request(&sandbox, "app", 0))));
    assert_eq!((calls[1].image.as_str(), calls[1].traceparent.as_deref()), (IMAGE, Some("00-aa-bb-01")));
    assert_eq!(calls[1].at - calls[0].at, 2_000_000_000);
    assert_eq!((calls[1].outcome, calls[2].outcome), (Some(Code::Ok), Some(Code::NotFound)));
}

#[tokio::test]
async fn a_fault_hits_the_next_calls_of_its_method_alone_and_changes_nothing() {
    let mut bench = bench().await;
    bench.fake.fail(Method::CreateContainer, busy(), 2);
    let sandbox = bench.sandbox("u1", 0).await.unwrap();
    assert_eq!(code(bench.create(&sandbox, "app", 0).await), Code::Unavailable);
    assert_eq!(code(bench.create(&sandbox, "app", 0).await), Code::Unavailable);
    assert!(bench.fake.containers().is_empty());
    assert_eq!(code(bench.create(&sandbox, "app", 0).await), Code::Ok);
}

#[tokio::test]
async fn a_lost_answer_leaves_its_effect() {
    let mut bench = bench().await;
    bench.fake.fail_after_effect(Method::RunPodSandbox, busy(), 1);
    assert_eq!(code(bench.sandbox("u1", 0).await), Code::Unavailable);
    assert_eq!(bench.fake.sandboxes().len(), 1);
    assert_eq!(code(bench.sandbox("u1", 0).await), Code::FailedPrecondition, "the name is taken");
}

#[tokio::test]
async fn a_held_call_waits_for_its_gate_and_others_pass() {
    let mut bench = bench().await;
    let gate = bench.fake.hold(Method::RunPodSandbox);
    let mut client = bench.client.clone();
    let held = tokio::spawn(async move { client.run_pod_sandbox(sandbox_request("u1", 0)).await });
    let is_held = |calls: &[Call]| calls.iter().any(|call| call.method == Method::RunPodSandbox);
    let calls = bench.fake.log().wait_for(is_held).await.unwrap();
    assert_eq!(calls[0].outcome, None, "it runs");
    bench.sandbox("u2", 0).await.unwrap();
    assert_eq!(bench.fake.sandboxes().len(), 1, "the held one has done nothing yet");
    gate.open();
    held.await.unwrap().unwrap();
    assert_eq!(bench.fake.sandboxes().len(), 2);
}

#[tokio::test]
async fn a_held_answer_comes_after_its_effect() {
    let bench = bench().await;
    let gate = bench.fake.hold_answer(Method::RunPodSandbox);
    let mut client = bench.client.clone();
    let held = tokio::spawn(async move { client.run_pod_sandbox(sandbox_request("u1", 0)).await });
    bench.fake.wait_until(|world| world.sandboxes.len() == 1).await.unwrap();
    assert!(!held.is_finished());
    drop(gate);
    held.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_in_vain_ends_and_tells_what_came_instead() {
    let bench = bench().await;
    let mut client = bench.fake.in_process().runtime;
    client.run_pod_sandbox(sandbox_request("u1", 0)).await.unwrap();
    let missing = |calls: &[Call]| calls.iter().any(|call| call.method == Method::StopPodSandbox);
    let error = bench.fake.log().wait_for(missing).await.unwrap_err();
    assert!(error.to_string().contains("RunPodSandbox(5b000001"), "{error}");
    let error = bench.fake.wait_until(|world| world.sandboxes.is_empty()).await.unwrap_err();
    assert!(error.to_string().contains("u1 SandboxReady"), "{error}");
}

#[tokio::test]
async fn a_runtime_that_goes_away_breaks_calls_and_comes_back_with_its_state() {
    let mut bench = bench().await;
    let (_, app) = bench.running("u1", "app").await;
    let mut events = bench.client.get_container_events(v1::GetEventsRequest {}).await.unwrap().into_inner();
    let gate = bench.fake.hold(Method::StopContainer);
    let mut client = bench.client.clone();
    let stop = v1::StopContainerRequest { container_id: app.clone(), timeout: 30 };
    let cut = tokio::spawn(async move { client.stop_container(stop).await });
    let stopping = |calls: &[Call]| calls.iter().any(|call| call.method == Method::StopContainer);
    bench.fake.log().wait_for(stopping).await.unwrap();

    bench.fake.go_away().await;
    assert_eq!(code(cut.await.unwrap()), Code::Unavailable);
    assert!(!matches!(events.message().await, Ok(Some(_))), "the stream is over");
    assert!(!bench.fake.socket().exists());
    assert!(bench.fake.connect().await.is_err());
    bench.fake.exit_container(&app, 9);

    bench.fake.come_back().await.unwrap();
    bench.client = RuntimeServiceClient::new(bench.fake.connect().await.unwrap());
    assert_eq!(bench.status(&app).await.unwrap().exit_code, 9, "containers went on meanwhile");
    drop(gate);
    let socket = bench.fake.socket().to_owned();
    bench.fake.shutdown().await;
    assert!(!socket.exists());
}

#[tokio::test]
async fn the_runtimes_own_state_is_what_the_test_says() {
    let mut bench = bench().await;
    bench.fake.set(|world| {
        world.conditions[1].status = false;
        world.cgroup_driver = v1::CgroupDriver::Systemd;
        world.handlers.push("kata".to_owned());
    });
    let answer = bench.client.status(v1::StatusRequest::default()).await.unwrap().into_inner();
    let conditions = answer.status.unwrap().conditions;
    let conditions: Vec<_> = conditions.iter().map(|c| (c.r#type.as_str(), c.status)).collect();
    assert_eq!(conditions, [("RuntimeReady", true), ("NetworkReady", false)]);
    let config = bench.client.runtime_config(v1::RuntimeConfigRequest {}).await.unwrap().into_inner();
    assert_eq!(config.linux.unwrap().cgroup_driver(), v1::CgroupDriver::Systemd);
    let version = bench.client.version(v1::VersionRequest::default()).await.unwrap().into_inner();
    assert_eq!(version.runtime_api_version, "v1");
    let mut request = sandbox_request("u1", 0);
    request.runtime_handler = "kata".to_owned();
    assert_eq!(code(bench.client.run_pod_sandbox(request).await), Code::Ok);
}
