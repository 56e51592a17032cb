use std::time::Duration;

use bulkhead_api::volumed::v1 as wire;
use futures::StreamExt;

use super::*;
use crate::testing::Pods;

fn volumes(pods: &Pods) -> Volumes {
    let clock = Arc::new(bulkhead_base::SystemClock);
    Volumes::new(pods.text().to_owned(), Objects::new(None), clock, CancellationToken::new())
}

fn disk(name: &str) -> wire::Volume {
    let source = wire::volume::Source::EmptyDir(wire::EmptyDir::default());
    wire::Volume { name: name.to_owned(), source: Some(source) }
}

fn host(name: &str, path: &str, r#type: &str) -> wire::Volume {
    let source = wire::HostPath { path: path.to_owned(), r#type: r#type.to_owned() };
    wire::Volume { name: name.to_owned(), source: Some(wire::volume::Source::HostPath(source)) }
}

fn pod(uid: &str, volumes: &[wire::Volume]) -> PodSpec {
    crate::spec::parse(wire::SetUpPodRequest {
        pod_uid: uid.to_owned(),
        volumes: volumes.to_vec(),
        ..Default::default()
    })
    .unwrap()
}

fn standing(volumes: &Volumes, uid: &str) -> Option<Vec<String>> {
    let pod = volumes.0.standing.get(&uid.to_owned())?;
    Some(pod.volumes.iter().map(|volume| volume.name.clone()).collect())
}

#[tokio::test]
async fn up_twice_and_down_twice() {
    let pods = Pods::new();
    pods.add("u1");
    let volumes = volumes(&pods);
    let spec = pod("u1", &[host("etc", "/etc", "Directory"), disk("b"), disk("a")]);
    let first = volumes.set_up(spec.clone()).await.unwrap();
    assert!(first.changed);
    let names: Vec<_> = first.volumes.iter().map(|volume| volume.name.as_str()).collect();
    assert_eq!(names, ["etc", "b", "a"]);
    assert_eq!(first.volumes[0].host_path, "/etc");
    assert_eq!(first.volumes[1].host_path, pods.empty_dir("u1", "b").to_str().unwrap());
    let second = volumes.set_up(spec).await.unwrap();
    assert_eq!(second, SetUpPodResponse { changed: false, ..first });
    assert_eq!(standing(&volumes, "u1").unwrap(), ["a", "b", "etc"]);
    assert!(volumes.tear_down(PodUid::parse("u1").unwrap()).await.unwrap().changed);
    assert_eq!(standing(&volumes, "u1"), None);
    assert!(!volumes.tear_down(PodUid::parse("u1").unwrap()).await.unwrap().changed);
}

#[tokio::test]
async fn the_volume_that_fails_is_named_and_those_before_it_are_known() {
    let pods = Pods::new();
    pods.add("u1");
    let volumes = volumes(&pods);
    let spec = pod("u1", &[disk("a"), host("bad", "/nonexistent/x", "File"), disk("c")]);
    let error = volumes.set_up(spec).await.unwrap_err();
    let text = bulkhead_base::chain(&error).to_string();
    assert_eq!(text, "volume `bad`: hostPath type check failed: /nonexistent/x does not exist");
    assert_eq!(standing(&volumes, "u1").unwrap(), ["a"]);
}

#[tokio::test]
async fn a_pod_with_only_host_paths_needs_no_directory() {
    let pods = Pods::new();
    let volumes = volumes(&pods);
    assert!(!volumes.set_up(pod("u1", &[host("etc", "/etc", "")])).await.unwrap().changed);
    assert_eq!(standing(&volumes, "u1").unwrap(), ["etc"]);
    // It was known: that changes, though nothing is on disk.
    assert!(volumes.tear_down(PodUid::parse("u1").unwrap()).await.unwrap().changed);
}

#[tokio::test]
async fn a_restart_knows_again_what_stands() {
    let pods = Pods::new();
    for uid in ["u1", "u2", "u3"] {
        pods.add(uid);
    }
    let first = volumes(&pods);
    first.set_up(pod("u1", &[disk("a"), disk("b")])).await.unwrap();
    first.set_up(pod("u2", &[disk("c"), host("etc", "/etc", "")])).await.unwrap();
    drop(first);

    let second = volumes(&pods);
    let mut stream = second.subscribe();
    // A call that comes before the look around is done counts more than what the look finds.
    second.set_up(pod("u2", &[disk("c"), host("etc", "/etc", "")])).await.unwrap();
    second.learn().await.unwrap();
    assert_eq!(standing(&second, "u1").unwrap(), ["a", "b"]);
    assert_eq!(standing(&second, "u2").unwrap(), ["c", "etc"]);
    assert_eq!(standing(&second, "u3"), None);
    let snapshot =
        tokio::time::timeout(Duration::from_secs(10), stream.next()).await.unwrap().unwrap().unwrap();
    let uids: Vec<_> = snapshot.upserts.iter().map(|pod| pod.pod_uid.as_str()).collect();
    assert_eq!(uids, ["u1", "u2"]);
    assert!(second.tear_down(PodUid::parse("u1").unwrap()).await.unwrap().changed);
    assert!(!pods.path().join("u1/volumes").exists());
}

#[tokio::test]
async fn without_the_folder_nothing_is_published() {
    let volumes = Volumes::new(
        "/nonexistent/pods".to_owned(),
        Objects::new(None),
        Arc::new(bulkhead_base::SystemClock),
        CancellationToken::new(),
    );
    assert!(volumes.learn().await.is_err());
    assert!(!volumes.0.standing.is_open());
    assert!(volumes.probe().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_path_that_hangs_holds_up_neither_other_volumes_nor_the_pods_end() {
    let pods = Pods::new();
    pods.add("u1");
    pods.add("u2");
    let volumes = volumes(&pods);
    // As a job of another pod would hold it whose path never answers.
    let hangs = volumes.0.lanes.host.clone().acquire_owned().await.unwrap();
    let stuck = volumes.set_up(pod("u1", &[disk("a"), host("etc", "/etc", "")])).await;
    assert!(matches!(stuck, Err(Error::Volume { .. }) | Err(Error::Interrupted)), "{stuck:?}");
    volumes.set_up(pod("u2", &[disk("a")])).await.unwrap();
    assert!(volumes.tear_down(PodUid::parse("u1").unwrap()).await.unwrap().changed);
    drop(hangs);
    volumes.set_up(pod("u2", &[host("etc", "/etc", "")])).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn removal_never_takes_more_than_two_places_and_gives_up_in_time() {
    let pods = Pods::new();
    pods.add("u1");
    let volumes = volumes(&pods);
    volumes.set_up(pod("u1", &[disk("a")])).await.unwrap();
    let busy = volumes.0.lanes.removal.clone().acquire_many_owned(2).await.unwrap();
    let uid = PodUid::parse("u1").unwrap();
    assert!(matches!(volumes.tear_down(uid.clone()).await, Err(Error::Interrupted)));
    assert_eq!(standing(&volumes, "u1").unwrap(), ["a"]);
    drop(busy);
    assert!(volumes.tear_down(uid).await.unwrap().changed);
}

#[tokio::test]
async fn work_whose_caller_left_keeps_the_pod_until_it_ends() {
    let pods = Pods::new();
    let uid = pods.add("u1");
    let volumes = volumes(&pods);
    let (let_go, wait) = std::sync::mpsc::channel::<()>();
    let (started, begun) = tokio::sync::oneshot::channel();
    let lock = Arc::new(volumes.0.locks.lock(&uid).await.unwrap());
    {
        let work = move |_: &Inner| {
            started.send(()).unwrap();
            wait.recv().map_err(|_| Error::Interrupted)
        };
        let call = std::pin::pin!(volumes.job(&volumes.0.lanes.removal, Some(lock), work));
        assert!(futures::poll!(call).is_pending());
    }
    begun.await.unwrap();
    let mut next = Box::pin(volumes.0.locks.lock(&uid));
    assert!(futures::poll!(next.as_mut()).is_pending());
    assert_eq!(volumes.0.lanes.removal.available_permits(), 1);
    let_go.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(10), next).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_set_up_that_failed_may_have_left_something_and_is_known() {
    let pods = Pods::new();
    let uid = pods.add("u1");
    std::os::unix::fs::symlink("/", pods.path().join("u1/volumes")).unwrap();
    let volumes = volumes(&pods);
    assert!(volumes.set_up(pod("u1", &[disk("a")])).await.is_err());
    assert_eq!(standing(&volumes, "u1"), Some(vec![]));
    assert!(volumes.tear_down(uid).await.unwrap().changed);
    assert_eq!(standing(&volumes, "u1"), None);
}

#[tokio::test]
async fn a_removal_whose_caller_left_stops_and_the_next_one_ends_it() {
    let pods = Pods::new();
    let uid = pods.add("u1");
    let volumes = volumes(&pods);
    volumes.set_up(pod("u1", &[disk("a")])).await.unwrap();
    for number in 0..200 {
        std::fs::create_dir(pods.empty_dir("u1", "a").join(number.to_string())).unwrap();
    }
    // The only thread for such work is taken, so the job waits until its caller is gone.
    let places = volumes.0.lanes.removal.clone().acquire_many_owned(2).await.unwrap();
    {
        let mut call = Box::pin(volumes.tear_down(uid.clone()));
        assert!(futures::poll!(call.as_mut()).is_pending());
        drop(places);
        assert!(futures::poll!(call.as_mut()).is_pending());
    }
    volumes.tear_down(uid).await.unwrap();
    assert!(!pods.path().join("u1/volumes").exists());
    assert_eq!(standing(&volumes, "u1"), None);
}

#[test]
fn a_volume_is_listed_once_and_in_order() {
    let volume = |name: &str, path: &str| MountedVolume {
        name: name.to_owned(),
        host_path: path.to_owned(),
        ..Default::default()
    };
    let before = [volume("a", "/1"), volume("c", "/2")];
    assert_eq!(with(&before, None), before);
    assert_eq!(
        with(&before, Some(&volume("b", "/3"))),
        [before[0].clone(), volume("b", "/3"), before[1].clone()]
    );
    assert_eq!(with(&before, Some(&volume("c", "/4"))), [before[0].clone(), volume("c", "/4")]);
}

fn files(name: &str, content: &str) -> wire::Volume {
    let file = wire::VolumeFile { path: "d/f".to_owned(), content: content.into(), mode: 0o644 };
    let source = wire::volume::Source::DownwardApi(wire::DownwardApi { files: vec![file] });
    wire::Volume { name: name.to_owned(), source: Some(source) }
}

fn sub_paths(uid: &str, volume: &str, path: &str) -> SubPaths {
    let part = wire::SubPath { index: 2, volume: volume.to_owned(), path: path.to_owned() };
    let request = wire::SetUpSubPathsRequest {
        pod_uid: uid.to_owned(),
        container_name: "c".to_owned(),
        sub_paths: vec![part],
    };
    crate::spec::parse_sub_paths(request).unwrap()
}

#[tokio::test]
async fn written_files_follow_the_caller_and_need_no_room_of_the_pods() {
    if !crate::testing::may_mount() {
        return;
    }
    let pods = Pods::new();
    pods.add("u1");
    let first = volumes(&pods);
    let answer = first.set_up(pod("u1", &[files("info", "1")])).await.unwrap();
    let path = Path::new(&answer.volumes[0].host_path).join("d/f");
    assert!(
        answer.changed && answer.volumes[0].host_path.ends_with("/volumes/kubernetes.io~downward-api/info")
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "1");
    assert!(!first.set_up(pod("u1", &[files("info", "1")])).await.unwrap().changed);
    let second = volumes(&pods);
    second.learn().await.unwrap();
    assert_eq!(standing(&second, "u1").unwrap(), ["info"]);
    assert!(second.set_up(pod("u1", &[files("info", "2")])).await.unwrap().changed);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "2");
    assert!(second.tear_down(PodUid::parse("u1").unwrap()).await.unwrap().changed);
    assert!(pods.mounts().is_empty());
}

#[tokio::test]
async fn parts_of_volumes_are_bound_also_after_a_restart_and_go_with_the_pod() {
    if !crate::testing::may_mount() {
        return;
    }
    let pods = Pods::new();
    pods.add("u1");
    let outside = tempfile::tempdir().unwrap();
    std::fs::create_dir(outside.path().join("x")).unwrap();
    std::os::unix::fs::symlink("/", outside.path().join("root")).unwrap();
    let all = [disk("a"), host("h", outside.path().to_str().unwrap(), "")];
    let first = volumes(&pods);
    let early = first.set_up_sub_paths(sub_paths("u1", "a", "x")).await;
    assert!(matches!(early, Err(Error::Volume { .. })), "{early:?}");
    first.set_up(pod("u1", &all)).await.unwrap();
    let second = volumes(&pods);
    second.learn().await.unwrap();
    let answer = second.set_up_sub_paths(sub_paths("u1", "a", "new/x")).await.unwrap();
    let place = Path::new(&answer.sub_paths[0].host_path);
    assert_eq!((answer.sub_paths[0].index, answer.changed), (2, true));
    assert!(place.ends_with("u1/volume-subpaths/a/c/2"));
    std::fs::write(place.join("file"), "").unwrap();
    assert!(Path::new(&pods.empty_dir("u1", "a")).join("new/x/file").exists());
    assert!(!second.set_up_sub_paths(sub_paths("u1", "a", "new/x")).await.unwrap().changed);

    // A hostPath is known again once it is set up again. A link in it that leads out is refused by the volume's name.
    assert!(second.set_up_sub_paths(sub_paths("u1", "h", "x")).await.is_err());
    second.set_up(pod("u1", &all)).await.unwrap();
    second.set_up_sub_paths(sub_paths("u1", "h", "x")).await.unwrap();
    let error = second.set_up_sub_paths(sub_paths("u1", "h", "root/etc")).await.unwrap_err();
    let text = bulkhead_base::chain(&error).to_string();
    assert!(text.contains("volume `h`") && text.contains("leads out"), "{text}");
    assert_eq!(pods.mounts().len(), 2);

    assert!(second.tear_down(PodUid::parse("u1").unwrap()).await.unwrap().changed);
    assert!(pods.mounts().is_empty() && outside.path().join("x").exists());
    assert_eq!(std::fs::read_dir(pods.path().join("u1")).unwrap().count(), 0);
}

#[tokio::test]
async fn what_volumes_hold_is_published_and_kept_when_they_are_set_up_again() {
    let pods = Pods::new();
    pods.add("u1");
    let volumes = volumes(&pods);
    let spec = pod("u1", &[disk("a"), host("etc", "/etc", "")]);
    volumes.set_up(spec.clone()).await.unwrap();
    std::fs::write(Path::new(&pods.empty_dir("u1", "a")).join("file"), vec![1_u8; 100_000]).unwrap();
    let measurable = volumes.measurable();
    assert_eq!(measurable.len(), 1, "not the node's own paths");
    for (uid, volume) in measurable {
        volumes.measure(&uid, volume).await.unwrap();
    }
    volumes.set_up(spec).await.unwrap();
    let pod = volumes.0.standing.get(&"u1".to_owned()).unwrap();
    let usage = pod.volumes[0].usage.unwrap();
    assert!(usage.used_bytes >= 100_000 && usage.inodes_used == 2 && usage.capacity_bytes > 0, "{usage:?}");
    assert!(!usage.partial && usage.measured_at.is_some() && pod.volumes[1].usage.is_none());
}

#[tokio::test]
async fn a_pod_is_measured_when_asked_for() {
    let pods = Pods::new();
    pods.add("u1");
    let volumes = volumes(&pods);
    volumes.set_up(pod("u1", &[disk("a"), host("etc", "/etc", "")])).await.unwrap();
    let uid = PodUid::parse("u1").unwrap();
    for size in [100_000, 300_000] {
        std::fs::write(Path::new(&pods.empty_dir("u1", "a")).join("file"), vec![1_u8; size]).unwrap();
        let measured = volumes.measure_pod(&uid).await.unwrap().unwrap();
        let used = measured.volumes[0].usage.unwrap().used_bytes;
        assert!(used >= u64::try_from(size).unwrap() && used < 1_000_000, "{measured:?}");
        assert_eq!(measured.volumes[1].usage, None, "not the node's own paths");
    }
    assert_eq!(volumes.measure_pod(&PodUid::parse("u2").unwrap()).await.unwrap(), None);
}
