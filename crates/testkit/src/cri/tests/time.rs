//! Behaviours, stops and commands: what takes time, in process on a paused clock.

use std::time::Duration;

use tokio::time::Instant;
use v1::ContainerState as State;

use super::*;

const S: fn(u64) -> Duration = Duration::from_secs;

struct Clocked {
    fake: FakeRuntime,
    client: RuntimeServiceClient<RuntimeServiceServer<Service>>,
    sandbox: String,
    _directory: TempDir,
}

async fn clocked() -> Clocked {
    let directory = tempfile::tempdir().unwrap();
    let fake = FakeRuntime::start(directory.path()).await.unwrap();
    fake.add_image(IMAGE);
    let mut client = fake.in_process().runtime;
    let sandbox = client.run_pod_sandbox(sandbox_request("u1", 0)).await.unwrap();
    let sandbox = sandbox.into_inner().pod_sandbox_id;
    Clocked { fake, client, sandbox, _directory: directory }
}

impl Clocked {
    async fn start(&mut self, name: &str) -> (String, Result<(), Status>) {
        let request = container_request(&self.sandbox, name, 0);
        let id = self.client.create_container(request).await.unwrap().into_inner().container_id;
        let start = v1::StartContainerRequest { container_id: id.clone() };
        let started = self.client.start_container(start).await.map(|_| ());
        (id, started)
    }

    /// Stops a container; how long that took, and its exit code.
    async fn stop(&mut self, id: &str, timeout: i64) -> (Duration, i32) {
        let before = Instant::now();
        let request = v1::StopContainerRequest { container_id: id.to_owned(), timeout };
        self.client.stop_container(request).await.unwrap();
        let exit = self.fake.read(|world| world.containers[id].exit.clone());
        (before.elapsed(), exit.code)
    }

    async fn exec(&mut self, id: &str, command: &str, timeout: i64) -> Result<v1::ExecSyncResponse, Status> {
        let request =
            v1::ExecSyncRequest { container_id: id.to_owned(), cmd: vec![command.to_owned()], timeout };
        Ok(self.client.exec_sync(request).await?.into_inner())
    }

    fn state(&self, id: &str) -> (State, i32, String) {
        let container = self.fake.read(|world| world.containers[id].clone());
        (container.state, container.exit.code, container.status().reason)
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_takes_what_the_process_takes_and_at_most_its_timeout() {
    let mut node = clocked().await;
    node.fake.on_stop(Who::name("slow"), OnStop::ExitAfter(S(7), 0));
    node.fake.on_stop(Who::command(["run", "deaf"]), OnStop::Ignore);
    let mut seen = Vec::new();
    for (name, timeout) in [("polite", 30), ("slow", 30), ("deaf", 30)] {
        let (id, _) = node.start(name).await;
        seen.push(node.stop(&id, timeout).await);
    }
    assert_eq!(seen, [(S(0), 143), (S(7), 0), (S(30), 137)]);
    let (id, _) = node.start("hurried").await;
    assert_eq!(node.stop(&id, 0).await, (S(0), 137), "no time for the signal");
    assert_eq!(node.stop(&id, 30).await, (S(0), 137), "stopped already");
    let unknown = v1::StopContainerRequest { container_id: "nope".to_owned(), timeout: 30 };
    assert_eq!(code(node.client.stop_container(unknown).await), Code::Ok);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_when_the_process_ends_for_another_reason() {
    let mut node = clocked().await;
    node.fake.on_stop(Who::image(IMAGE), OnStop::Ignore);
    let (id, _) = node.start("deaf").await;
    let fake = node.fake.service.clone();
    let other = id.clone();
    let end = tokio::spawn(async move {
        tokio::time::sleep(S(4)).await;
        fake.change(|world, now| world.exit(&other, Exit::code(5), now));
    });
    assert_eq!(node.stop(&id, 30).await, (S(4), 5));
    end.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn processes_behave_as_the_newest_rule_that_names_them() {
    let mut node = clocked().await;
    node.fake.on_start(Who::image(IMAGE), OnStart::Exit(1));
    node.fake.on_stop(Who::image(IMAGE), OnStop::Ignore);
    node.fake.on_start(Who::Everyone, OnStart::Exit(9));
    node.fake.on_start(Who::name("later"), OnStart::ExitAfter(S(60), 2));
    node.fake.on_start(Who::name("bad"), OnStart::CannotRun("no such file".to_owned()));

    let (crash, started) = node.start("crash").await;
    started.unwrap();
    assert_eq!(node.state(&crash), (State::ContainerExited, 1, "Error".to_owned()));
    let (bad, started) = node.start("bad").await;
    assert!(started.unwrap_err().message().contains("no such file"));
    assert_eq!(node.state(&bad), (State::ContainerExited, 128, "StartError".to_owned()));

    let (later, started) = node.start("later").await;
    started.unwrap();
    let before = Instant::now();
    assert_eq!(node.state(&later).0, State::ContainerRunning);
    tokio::time::sleep(S(59)).await;
    assert_eq!(node.state(&later).0, State::ContainerRunning);
    let exited = |world: &World| world.containers[&later].state == State::ContainerExited;
    node.fake.wait_until(exited).await.unwrap();
    assert_eq!((before.elapsed().as_secs(), node.state(&later).1), (60, 2));
}

#[tokio::test(start_paused = true)]
async fn a_command_ends_as_the_test_says_or_with_its_timeout_or_with_its_container() {
    let mut node = clocked().await;
    let (id, _) = node.start("app").await;
    assert_eq!(node.exec(&id, "anything", 1).await.unwrap().exit_code, 0, "without an answerer");
    node.fake.answer_exec(|container, command| match command {
        [hang] if hang == "hang" => Ok(ExecAnswer { takes: S(100), ..ExecAnswer::exits(7) }),
        [absent] if absent == "absent" => Err(Status::unknown("executable not found")),
        _ => Ok(ExecAnswer { stdout: container.name().into(), ..ExecAnswer::exits(3) }),
    });
    let answer = node.exec(&id, "name", 1).await.unwrap();
    assert_eq!((answer.stdout.as_slice(), answer.exit_code), (&b"app"[..], 3));
    assert_eq!(code(node.exec(&id, "absent", 1).await), Code::Unknown);

    let before = Instant::now();
    assert_eq!(code(node.exec(&id, "hang", 2).await), Code::DeadlineExceeded);
    assert_eq!(before.elapsed().as_secs(), 2);
    assert_eq!(node.exec(&id, "hang", 0).await.unwrap().exit_code, 7, "0 is no limit");

    let mut client = node.fake.in_process().runtime;
    let request = v1::ExecSyncRequest { container_id: id.clone(), cmd: vec!["hang".to_owned()], timeout: 0 };
    let hanging = tokio::spawn(async move { client.exec_sync(request).await });
    tokio::time::sleep(S(1)).await;
    node.fake.exit_container(&id, 0);
    assert_eq!(hanging.await.unwrap().unwrap().into_inner().exit_code, 137, "the container took it along");
    assert_eq!(code(node.exec(&id, "name", 1).await), Code::Unknown, "not running");
    assert_eq!(code(node.exec("nope", "name", 1).await), Code::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_call_waits_on_tokios_clock() {
    let mut node = clocked().await;
    node.fake.delay(Method::Version, S(15));
    let before = Instant::now();
    node.client.version(v1::VersionRequest::default()).await.unwrap();
    assert_eq!(before.elapsed().as_secs(), 15);
    node.client.version(v1::VersionRequest::default()).await.unwrap();
    assert_eq!(before.elapsed().as_secs(), 15, "once");
    node.fake.fail(Method::Version, Status::unavailable("busy"), 5);
    node.fake.clear_script();
    node.client.version(v1::VersionRequest::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_log_is_opened_again_while_its_container_runs() {
    let mut node = clocked().await;
    let (id, _) = node.start("app").await;
    let request = v1::ReopenContainerLogRequest { container_id: id.clone() };
    node.client.reopen_container_log(request.clone()).await.unwrap();
    assert_eq!(node.fake.read(|world| world.containers[&id].log_reopened), 1);
    node.fake.exit_container(&id, 0);
    assert_eq!(code(node.client.reopen_container_log(request).await), Code::Unknown);
}
