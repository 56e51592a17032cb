//! The state machine, lists, statistics and events.

use std::time::Duration;

use v1::{ContainerEventType as Event, ContainerState as State};

use super::*;

#[tokio::test]
async fn a_container_lives_from_creation_to_removal() {
    let mut bench = bench().await;
    let sandbox = bench.sandbox("u1", 0).await.unwrap();
    let id = bench.create(&sandbox, "app", 2).await.unwrap();
    let created = bench.status(&id).await.unwrap();
    assert_eq!((created.state(), created.started_at, created.finished_at), (State::ContainerCreated, 0, 0));
    assert_eq!(created.log_path, "/var/log/pods/default_pod-u1_u1/app/2.log");
    assert!(created.image_id.starts_with("sha256:") && created.image_ref.contains('@'), "{created:?}");

    bench.clock.advance(Duration::from_secs(5));
    bench.start(&id).await.unwrap();
    let running = bench.status(&id).await.unwrap();
    assert_eq!(running.state(), State::ContainerRunning);
    assert_eq!(running.started_at - running.created_at, 5_000_000_000, "the injected clock, in nanoseconds");
    assert_eq!(code(bench.start(&id).await), Code::Unknown, "only a created container starts");

    bench.clock.advance(Duration::from_secs(1));
    bench.fake.exit_container(&id, 3);
    bench.fake.exit_container(&id, 4);
    let exited = bench.status(&id).await.unwrap();
    assert_eq!((exited.state(), exited.exit_code), (State::ContainerExited, 3), "it ends once");
    assert_eq!(exited.reason, "Error");
    assert_eq!(exited.finished_at - exited.started_at, 1_000_000_000);

    let remove = v1::RemoveContainerRequest { container_id: id.clone() };
    bench.client.remove_container(remove.clone()).await.unwrap();
    assert_eq!(code(bench.status(&id).await), Code::NotFound);
    assert_eq!(code(bench.client.remove_container(remove).await), Code::Ok, "gone is removed");
}

#[tokio::test]
async fn errors_have_the_codes_of_a_real_runtime() {
    let mut bench = bench().await;
    let sandbox = bench.sandbox("u1", 0).await.unwrap();
    assert_eq!(code(bench.sandbox("u1", 0).await), Code::FailedPrecondition, "same attempt of the same pod");
    let second = bench.sandbox("u1", 1).await.unwrap();
    bench.create(&sandbox, "app", 0).await.unwrap();
    assert_eq!(code(bench.create(&second, "app", 0).await), Code::FailedPrecondition, "names are the pod's");
    assert_eq!(code(bench.create(&second, "app", 1).await), Code::Ok);
    assert_eq!(code(bench.create("nope", "app", 0).await), Code::NotFound);
    assert_eq!(code(bench.start("nope").await), Code::NotFound);

    let mut absent = container_request(&sandbox, "other", 0);
    absent.config.as_mut().unwrap().image.as_mut().unwrap().image = "local/absent:1".to_owned();
    assert_eq!(code(bench.client.create_container(absent).await), Code::NotFound, "the image is not present");
    let mut handler = sandbox_request("u2", 0);
    handler.runtime_handler = "kata".to_owned();
    assert_eq!(code(bench.client.run_pod_sandbox(handler).await), Code::Unknown);
    let exec = v1::ExecRequest { container_id: "c".to_owned(), ..Default::default() };
    assert_eq!(code(bench.client.exec(exec).await), Code::Unimplemented);
}

#[tokio::test]
async fn stopping_a_sandbox_kills_what_runs_in_it_and_removing_it_takes_all_along() {
    let mut bench = bench().await;
    let (sandbox, app) = bench.running("u1", "app").await;
    let waiting = bench.create(&sandbox, "waiting", 0).await.unwrap();
    let (_, other) = bench.running("u2", "other").await;

    let stop = v1::StopPodSandboxRequest { pod_sandbox_id: sandbox.clone() };
    bench.client.stop_pod_sandbox(stop.clone()).await.unwrap();
    assert_eq!(code(bench.client.stop_pod_sandbox(stop).await), Code::Ok, "again");
    assert_eq!(bench.status(&app).await.unwrap().exit_code, 137);
    assert_eq!(bench.status(&waiting).await.unwrap().state(), State::ContainerCreated);
    assert_eq!(code(bench.create(&sandbox, "late", 0).await), Code::Unknown, "not ready");
    assert_eq!(code(bench.start(&waiting).await), Code::Unknown, "not ready");

    let remove = v1::RemovePodSandboxRequest { pod_sandbox_id: sandbox.clone() };
    bench.client.remove_pod_sandbox(remove.clone()).await.unwrap();
    assert_eq!(code(bench.client.remove_pod_sandbox(remove).await), Code::Ok, "again");
    assert_eq!(bench.listed(v1::ContainerFilter::default()).await, ["other"]);
    assert_eq!(bench.status(&other).await.unwrap().state(), State::ContainerRunning);
}

#[tokio::test]
async fn sandboxes_have_addresses_of_their_own_but_not_in_the_hosts_network() {
    let mut bench = bench().await;
    let mut ids = vec![bench.sandbox("u1", 0).await.unwrap(), bench.sandbox("u2", 0).await.unwrap()];
    let mut host = sandbox_request("u3", 0);
    let namespaces = v1::NamespaceOption { network: v1::NamespaceMode::Node.into(), ..Default::default() };
    host.config.as_mut().unwrap().linux = Some(v1::LinuxPodSandboxConfig {
        security_context: Some(v1::LinuxSandboxSecurityContext {
            namespace_options: Some(namespaces.clone()),
            ..Default::default()
        }),
        ..Default::default()
    });
    ids.push(bench.client.run_pod_sandbox(host).await.unwrap().into_inner().pod_sandbox_id);
    bench.fake.lose_sandbox(&ids[1]);

    let mut seen = Vec::new();
    for id in &ids {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.clone(), verbose: false };
        let answer = bench.client.pod_sandbox_status(request).await.unwrap().into_inner();
        let status = answer.status.unwrap();
        let ip = status.network.clone().unwrap().ip;
        seen.push((status.state(), ip, status.linux.unwrap().namespaces.unwrap().options));
    }
    let (ready, lost) = (v1::PodSandboxState::SandboxReady, v1::PodSandboxState::SandboxNotready);
    assert_eq!(seen[0], (ready, "10.88.0.1".to_owned(), None));
    assert_eq!(seen[1], (lost, "10.88.0.2".to_owned(), None));
    assert_eq!(seen[2], (ready, String::new(), Some(namespaces)));
}

#[tokio::test]
async fn lists_let_through_what_every_part_of_the_filter_names() {
    let mut bench = bench().await;
    let (sandbox, app) = bench.running("u1", "app").await;
    bench.create(&sandbox, "side", 0).await.unwrap();
    bench.running("u2", "app").await;
    let all = v1::ContainerFilter::default();
    let state = |state: State| Some(v1::ContainerStateValue { state: state.into() });
    let label = |name: &str| HashMap::from([("name".to_owned(), name.to_owned())]);
    let cases: [(&str, v1::ContainerFilter, &[&str]); 6] = [
        ("all", all.clone(), &["app", "app", "side"]),
        ("id", v1::ContainerFilter { id: app, ..all.clone() }, &["app"]),
        ("sandbox", v1::ContainerFilter { pod_sandbox_id: sandbox.clone(), ..all.clone() }, &["app", "side"]),
        ("state", v1::ContainerFilter { state: state(State::ContainerCreated), ..all.clone() }, &["side"]),
        ("label", v1::ContainerFilter { label_selector: label("app"), ..all.clone() }, &["app", "app"]),
        (
            "label and state",
            v1::ContainerFilter {
                label_selector: label("side"),
                state: state(State::ContainerRunning),
                ..all
            },
            &[],
        ),
    ];
    for (case, filter, names) in cases {
        assert_eq!(bench.listed(filter).await, names, "{case}");
    }

    bench.fake.lose_sandbox(&sandbox);
    let not_ready = v1::PodSandboxState::SandboxNotready.into();
    let filter = v1::PodSandboxFilter {
        state: Some(v1::PodSandboxStateValue { state: not_ready }),
        label_selector: HashMap::from([("pod".to_owned(), "u1".to_owned())]),
        ..Default::default()
    };
    let request = v1::ListPodSandboxRequest { filter: Some(filter) };
    let items = bench.client.list_pod_sandbox(request).await.unwrap().into_inner().items;
    assert_eq!(items.iter().map(|item| &item.id).collect::<Vec<_>>(), [&sandbox]);
}

#[tokio::test]
async fn events_tell_each_change_with_the_state_after_it() {
    let mut bench = bench().await;
    let mut events = bench.client.get_container_events(v1::GetEventsRequest {}).await.unwrap().into_inner();
    let (sandbox, app) = bench.running("u1", "app").await;
    bench.fake.exit_container_with(&app, Exit::oom());
    let remove = v1::RemovePodSandboxRequest { pod_sandbox_id: sandbox.clone() };
    bench.client.remove_pod_sandbox(remove).await.unwrap();

    let mut seen = Vec::new();
    for _ in 0..8 {
        let event = events.message().await.unwrap().expect("the stream goes on");
        let reasons: Vec<_> = event.containers_statuses.iter().map(|status| status.reason.clone()).collect();
        let of_sandbox = event.container_id == sandbox;
        seen.push((of_sandbox, event.container_event_type(), event.pod_sandbox_status.is_some(), reasons));
    }
    let (none, running, killed) = (vec![], vec![String::new()], vec!["OOMKilled".to_owned()]);
    assert_eq!(
        seen,
        [
            (true, Event::ContainerCreatedEvent, true, none.clone()),
            (true, Event::ContainerStartedEvent, true, none.clone()),
            (false, Event::ContainerCreatedEvent, true, running.clone()),
            (false, Event::ContainerStartedEvent, true, running),
            (false, Event::ContainerStoppedEvent, true, killed.clone()),
            (true, Event::ContainerStoppedEvent, true, killed),
            (false, Event::ContainerDeletedEvent, true, none.clone()),
            (true, Event::ContainerDeletedEvent, false, none),
        ]
    );
    bench.fake.cut_event_streams();
    assert!(events.message().await.unwrap().is_none(), "cut without an error");
}

#[tokio::test]
async fn what_happens_behind_our_back_makes_no_event_and_no_call() {
    let mut bench = bench().await;
    let (sandbox, _) = bench.running("u1", "app").await;
    let (_, kept) = bench.running("u2", "app").await;
    let mut events = bench.client.get_container_events(v1::GetEventsRequest {}).await.unwrap().into_inner();
    bench.fake.log().clear();
    bench.fake.remove_behind_back(&sandbox);
    assert_eq!(bench.fake.containers().len(), 1, "its containers went along");
    bench.fake.exit_container(&kept, 0);
    let first = events.message().await.unwrap().unwrap();
    assert_eq!(first.container_id, kept, "the removal was not told");
    assert!(bench.fake.log().calls().is_empty());
}

#[tokio::test]
async fn a_reboot_leaves_records_and_no_process() {
    let mut bench = bench().await;
    let (sandbox, app) = bench.running("u1", "app").await;
    let waiting = bench.create(&sandbox, "waiting", 0).await.unwrap();
    bench.fake.reboot();
    let status = bench.status(&app).await.unwrap();
    assert_eq!((status.state(), status.exit_code), (State::ContainerExited, 255));
    assert_eq!(bench.status(&waiting).await.unwrap().state(), State::ContainerCreated);
    assert_eq!(bench.fake.sandboxes()[0].state, v1::PodSandboxState::SandboxNotready);
}

#[tokio::test]
async fn statistics_are_those_of_running_containers() {
    let mut bench = bench().await;
    let (sandbox, app) = bench.running("u1", "app").await;
    let side = bench.create(&sandbox, "side", 0).await.unwrap();
    bench.start(&side).await.unwrap();
    let usage = |cpu, memory| Usage {
        cpu_core_nanoseconds: cpu,
        memory_working_set_bytes: memory,
        ..Usage::default()
    };
    bench.fake.set_usage(&app, usage(7, 100));
    bench.fake.set_usage(&side, usage(5, 10));
    let request = v1::PodSandboxStatsRequest { pod_sandbox_id: sandbox };
    let stats = bench.client.pod_sandbox_stats(request).await.unwrap().into_inner().stats.unwrap();
    let linux = stats.linux.unwrap();
    assert_eq!(linux.cpu.unwrap().usage_core_nano_seconds.unwrap().value, 12);
    assert_eq!(linux.memory.unwrap().working_set_bytes.unwrap().value, 110);
    assert_eq!(linux.containers.len(), 2);

    bench.fake.exit_container(&side, 0);
    let all = v1::ListContainerStatsRequest { filter: None };
    let stats = bench.client.list_container_stats(all).await.unwrap().into_inner().stats;
    let ids: Vec<_> = stats.iter().map(|stats| &stats.attributes.as_ref().unwrap().id).collect();
    assert_eq!(ids, [&app]);
    let gone = v1::ContainerStatsRequest { container_id: side };
    assert_eq!(code(bench.client.container_stats(gone).await), Code::Unknown);
}

#[tokio::test]
async fn new_limits_replace_old_ones_and_zero_keeps_them() {
    let mut bench = bench().await;
    let (_, app) = bench.running("u1", "app").await;
    let update = |memory, shares| v1::UpdateContainerResourcesRequest {
        container_id: app.clone(),
        linux: Some(v1::LinuxContainerResources {
            memory_limit_in_bytes: memory,
            cpu_shares: shares,
            ..Default::default()
        }),
        ..Default::default()
    };
    bench.client.update_container_resources(update(1000, 2)).await.unwrap();
    bench.client.update_container_resources(update(0, 512)).await.unwrap();
    let linux = bench.status(&app).await.unwrap().resources.unwrap().linux.unwrap();
    assert_eq!((linux.memory_limit_in_bytes, linux.cpu_shares), (1000, 512));
    let calls = bench.fake.log().of(Method::UpdateContainerResources);
    assert_eq!(calls[1].detail, Detail::UpdateContainerResources(Box::new(update(0, 512))));
}
