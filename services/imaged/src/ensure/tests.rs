//! The whole of imaged but its socket, on a paused clock with an image service in memory.

use std::num::NonZeroUsize;
use std::time::Duration;

use tonic::{Code, Status};

use super::*;
use crate::answer::Reason;
use crate::bucket::Rate;
use crate::credentials::Sources;
use crate::failures::BackOff;
use crate::fake::{FakeImages, id_of};
use crate::gc::Limits;
use crate::records::Policy;

const S: fn(u64) -> Duration = Duration::from_secs;

struct Bench {
    fake: FakeImages,
    keeper: Keeper<FakeImages>,
    start: Instant,
}

fn bench(parallel: usize) -> Bench {
    bench_with(Settings {
        parallel_pulls: NonZeroUsize::new(parallel).unwrap(),
        rate: None,
        back_off: BackOff::default(),
        garbage: Limits::default(),
    })
}

fn bench_with(settings: Settings) -> Bench {
    let fake = FakeImages::default();
    Bench { keeper: keeper(fake.clone(), Sources::default(), settings), fake, start: Instant::now() }
}

fn keeper(fake: FakeImages, sources: Sources, settings: Settings) -> Keeper<FakeImages> {
    Keeper::new(fake, Credentials::new(sources), Records::forgetful(Policy::Preloaded), settings)
}

fn need(pod: &str, image: &str, policy: PullPolicy) -> Need {
    let asker = Asker { pod_uid: pod.to_owned(), container: "app".to_owned() };
    Need { asker, image: image.to_owned(), policy, owner: Owner::default() }
}

/// A call that waits at most 119 s, as one with the usual deadline does.
impl Bench {
    async fn ensure(&self, pod: &str, image: &str, policy: PullPolicy) -> Result<Answer, EnsureError> {
        self.keeper.ensure(&need(pod, image, policy), Instant::now() + S(119)).await
    }

    async fn if_not_present(&self, pod: &str, image: &str) -> Answer {
        self.ensure(pod, image, PullPolicy::IfNotPresent).await.unwrap()
    }

    fn in_background(&self, pod: &str, image: &str) -> tokio::task::JoinHandle<Answer> {
        let (keeper, need) = (self.keeper.clone(), need(pod, image, PullPolicy::IfNotPresent));
        tokio::spawn(async move { keeper.ensure(&need, Instant::now() + S(119)).await.unwrap() })
    }

    /// Lets everything happen that can happen now.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn present(answer: &Answer) -> (&str, bool) {
    match answer {
        Answer::Present { image, pulled } => (&image.id, *pulled),
        Answer::Waiting(waiting) => panic!("present wanted: {waiting:?}"),
    }
}

fn waiting(answer: &Answer) -> (Reason, &str, Duration) {
    match answer {
        Answer::Waiting(waiting) => (waiting.reason, &waiting.message, waiting.retry_after),
        Answer::Present { .. } => panic!("waiting wanted: {answer:?}"),
    }
}

fn refused() -> Status {
    Status::unknown("no such tag")
}

#[tokio::test(start_paused = true)]
async fn policies_use_pull_or_refuse() {
    let bench = bench(1);
    bench.fake.add("here:1");
    for policy in [PullPolicy::IfNotPresent, PullPolicy::Never] {
        let answer = bench.ensure("p", "here:1", policy).await.unwrap();
        assert_eq!(present(&answer), (&*id_of("here:1"), false));
    }
    assert!(bench.fake.pulled().is_empty());
    let answer = bench.ensure("p", "here:1", PullPolicy::Always).await.unwrap();
    assert_eq!(present(&answer), (&*id_of("here:1"), true));
    assert_eq!(bench.fake.pulled(), ["here:1"]);

    let answer = bench.ensure("p", "gone:1", PullPolicy::Never).await.unwrap();
    let message = "Container image \"gone:1\" is not present with pull policy of Never";
    assert_eq!(waiting(&answer).0, Reason::ErrImageNeverPull);
    assert_eq!(waiting(&answer).1, message);
    assert_eq!(present(&bench.if_not_present("p", "bare").await), (&*id_of("bare:latest"), true));
    assert_eq!(bench.fake.pulled(), ["here:1", "bare:latest"]);
    assert_eq!(waiting(&bench.if_not_present("p", "BAD").await).0, Reason::InvalidImageName);
    bench.fake.fail_pulls("worse:latest", refused(), 1);
    bench.if_not_present("p", "worse").await;
    let answer = bench.if_not_present("p", "worse").await;
    let message = "Back-off pulling image \"worse\": ErrImagePull: no such tag";
    assert_eq!(waiting(&answer).1, message, "told as the pod writes it");
}

#[tokio::test(start_paused = true)]
async fn facts_of_the_image_come_with_it() {
    let bench = bench(1);
    bench.fake.add("here:1");
    let looked_at = bench.if_not_present("p", "here:1").await;
    bench.fake.remove("here:1");
    let pulled = bench.if_not_present("p", "here:1").await;
    for answer in [looked_at, pulled] {
        let Answer::Present { image, .. } = answer else { panic!("{answer:?}") };
        let wanted = Image { id: id_of("here:1"), uid: None, username: "me".to_owned(), size: 7 };
        assert_eq!(image, wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_is_pulled_once_for_all_who_want_it() {
    let bench = bench(9);
    bench.fake.pulls_take(S(30));
    let calls = ["a", "b", "c"].map(|pod| bench.in_background(pod, "x:1"));
    let mut pulled = Vec::new();
    for call in calls {
        pulled.push(present(&call.await.unwrap()).1);
    }
    assert_eq!(pulled, [true, false, false], "one of them caused it");
    assert_eq!(bench.fake.pulled(), ["x:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_pull_outlives_its_caller_and_the_next_call_joins_it() {
    let bench = bench(1);
    bench.fake.pulls_take(S(150));
    let answer = bench.if_not_present("p", "x:1").await;
    assert_eq!(waiting(&answer), (Reason::ContainerCreating, "pulling image \"x:1\"", S(1)));
    assert_eq!(bench.start.elapsed(), S(119));
    let answer = bench.if_not_present("p", "x:1").await;
    assert_eq!(present(&answer), (&*id_of("x:1"), true), "it was pulled for this container");
    assert_eq!(bench.start.elapsed(), S(150), "told at once");
    assert_eq!(bench.fake.pulled(), ["x:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_gone_still_gets_the_outcome() {
    let bench = bench(1);
    bench.fake.pulls_take(S(10));
    let call = need("p", "x:1", PullPolicy::Always);
    let gone = bench.keeper.ensure(&call, Instant::now() + S(119));
    tokio::time::timeout(S(1), gone).await.unwrap_err();
    tokio::time::sleep(S(20)).await;
    let answer = bench.ensure("p", "x:1", PullPolicy::Always).await.unwrap();
    assert_eq!(present(&answer), (&*id_of("x:1"), true));
    assert_eq!(bench.fake.pulled().len(), 1, "Always does not pull again for an answer that nobody heard");
    bench.ensure("p", "x:1", PullPolicy::Always).await.unwrap();
    assert_eq!(bench.fake.pulled().len(), 2, "but it does for the next start");

    bench.fake.fail_pulls("y:1", refused(), 9);
    let call = need("p", "y:1", PullPolicy::IfNotPresent);
    tokio::time::timeout(S(1), bench.keeper.ensure(&call, Instant::now() + S(119))).await.unwrap_err();
    tokio::time::sleep(S(12)).await;
    let answer = bench.if_not_present("p", "y:1").await;
    assert_eq!(waiting(&answer).0, Reason::ErrImagePull, "the failure is seen before its back-off");
    assert_eq!(waiting(&bench.if_not_present("p", "y:1").await).0, Reason::ImagePullBackOff);
}

#[tokio::test(start_paused = true)]
async fn back_off_is_over_to_the_moment_and_doubles() {
    let bench = bench(1);
    bench.fake.fail_pulls("x:1", refused(), 3);
    let mut at = Vec::new();
    for delay in [10, 20, 40] {
        at.push(bench.start.elapsed().as_secs());
        let answer = bench.if_not_present("p", "x:1").await;
        assert_eq!(waiting(&answer), (Reason::ErrImagePull, "no such tag", S(5)));
        tokio::time::sleep(S(delay - 1)).await;
        let message = "Back-off pulling image \"x:1\": ErrImagePull: no such tag";
        let answer = bench.if_not_present("p", "x:1").await;
        assert_eq!(waiting(&answer), (Reason::ImagePullBackOff, message, S(1)), "after {} s", delay - 1);
        tokio::time::sleep(S(1)).await;
    }
    assert!(present(&bench.if_not_present("p", "x:1").await).1);
    at.push(70);
    assert_eq!(bench.fake.pull_seconds(bench.start), at);
    assert_eq!(at, [0, 10, 30, 70]);
}

#[tokio::test(start_paused = true)]
async fn back_off_is_no_matter_once_the_image_is_there() {
    let bench = bench(1);
    bench.fake.fail_pulls("x:1", refused(), 1);
    bench.if_not_present("p", "x:1").await;
    bench.fake.add("x:1");
    assert!(!present(&bench.if_not_present("p", "x:1").await).1);
    let answer = bench.if_not_present("p", "y:1").await;
    assert!(present(&answer).1, "another image is not slowed");
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_hear_of_the_failure() {
    let bench = bench(1);
    bench.fake.pulls_take(S(3));
    bench.fake.fail_pulls("x:1", Status::unknown("RegistryUnavailable: 503"), 1);
    let calls = ["a", "b"].map(|pod| bench.in_background(pod, "x:1"));
    for call in calls {
        assert_eq!(waiting(&call.await.unwrap()).0, Reason::RegistryUnavailable);
    }
    let answer = bench.if_not_present("c", "x:1").await;
    assert_eq!(waiting(&answer).1, "Back-off pulling image \"x:1\": RegistryUnavailable: 503");
}

#[tokio::test(start_paused = true)]
async fn pulls_beyond_the_rate_fail_as_the_kubelets_do() {
    let rate = Some(Rate { per_second: 1, burst: 2 });
    let parallel_pulls = NonZeroUsize::new(9).unwrap();
    let bench = bench_with(Settings {
        parallel_pulls,
        rate,
        back_off: BackOff::default(),
        garbage: Limits::default(),
    });
    for image in ["a:1", "b:1"] {
        assert!(present(&bench.if_not_present("p", image).await).1);
    }
    let answer = bench.if_not_present("p", "c:1").await;
    assert_eq!(waiting(&answer).0, Reason::ErrImagePull);
    assert_eq!(waiting(&answer).1, "pull QPS exceeded");
    tokio::time::sleep(S(10)).await;
    assert!(present(&bench.if_not_present("p", "c:1").await).1);
}

#[tokio::test(start_paused = true)]
async fn pulls_run_in_bounded_parallel_and_pods_take_turns() {
    let bench = bench(2);
    bench.fake.pulls_take(S(10));
    let mut calls = Vec::new();
    for (pod, image) in [("a", "a1:1"), ("a", "a2:1"), ("a", "a3:1"), ("a", "a4:1"), ("b", "b1:1")] {
        calls.push(bench.in_background(pod, image));
        bench.settle().await;
    }
    for call in calls {
        assert!(present(&call.await.unwrap()).1);
    }
    assert_eq!(bench.fake.most_running(), 2);
    let pulled = bench.fake.pulled();
    assert_eq!(pulled, ["a1:1", "a2:1", "a3:1", "b1:1", "a4:1"]);
    let seconds = bench.fake.pull_seconds(bench.start);
    assert_eq!(seconds, [0, 0, 10, 10, 20]);
}

#[tokio::test(start_paused = true)]
async fn an_absent_runtime_is_no_reason_and_no_failure_of_the_image() {
    let bench = bench(1);
    let away = Status::unavailable("connection refused");
    bench.fake.go_away(away.clone());
    let error = bench.ensure("p", "x:1", PullPolicy::IfNotPresent).await.unwrap_err();
    let status = bulkhead_ipc::status::to_status(&error);
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("x:1") && status.message().contains("connection refused"), "{status}");

    bench.fake.come_back();
    bench.fake.pulls_take(S(10));
    let call = need("p", "x:1", PullPolicy::IfNotPresent);
    let keeper = bench.keeper.clone();
    let cut = tokio::spawn(async move { keeper.ensure(&call, Instant::now() + S(119)).await });
    tokio::time::sleep(S(5)).await;
    bench.fake.go_away(away);
    let error = cut.await.unwrap().unwrap_err();
    assert!(matches!(error, EnsureError::Runtime { .. }), "lost in the middle of the pull: {error:?}");
    bench.fake.come_back();
    assert!(present(&bench.if_not_present("p", "x:1").await).1, "no back-off");
}

#[tokio::test(start_paused = true)]
async fn the_codes_of_registries_are_failures_of_the_image() {
    let bench = bench(1);
    let codes = [Code::Unavailable, Code::PermissionDenied, Code::DeadlineExceeded, Code::Unimplemented];
    for (number, code) in codes.into_iter().enumerate() {
        let image = format!("x:{number}");
        bench.fake.fail_pulls(&image, Status::new(code, "said the registry"), 1);
        let answer = bench.if_not_present("p", &image).await;
        assert_eq!(waiting(&answer), (Reason::ErrImagePull, "said the registry", S(5)), "{code:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_runtime_cannot_tell_is_an_inspect_error() {
    let bench = bench(1);
    bench.fake.fail_status("x:1", Status::internal("bad disk"));
    let answer = bench.if_not_present("p", "x:1").await;
    let message = "Failed to inspect image \"x:1\": bad disk";
    assert_eq!(waiting(&answer), (Reason::ImageInspectError, message, S(10)));
    assert!(bench.fake.pulled().is_empty());
}

#[tokio::test(start_paused = true)]
async fn credentials_are_tried_in_turn_and_other_ones_are_another_pull() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    let config = |inner: &str, outer: &str| {
        let entry = |user: &str| format!(r#"{{"username": "{user}", "password": "hunter2"}}"#);
        let text = format!(r#"{{"auths": {{"r.io/team": {}, "r.io": {}}}}}"#, entry(inner), entry(outer));
        std::fs::write(&file, text).unwrap();
    };
    let fake = FakeImages::default();
    let sources = Sources { files: vec![file.clone()], ..Sources::default() };
    let settings = Settings {
        parallel_pulls: NonZeroUsize::MIN,
        rate: None,
        back_off: BackOff::default(),
        garbage: Limits::default(),
    };
    let keeper = keeper(fake.clone(), sources, settings);
    let bench = Bench { keeper, fake, start: Instant::now() };
    bench.fake.open_to("r.io/team/app:1", "good");
    config("a", "b");
    let answer = bench.if_not_present("p", "r.io/team/app:1").await;
    assert_eq!(waiting(&answer).0, Reason::ErrImagePull);
    assert_eq!(bench.fake.users(), ["a", "b"]);
    let answer = bench.if_not_present("p", "r.io/team/app:1").await;
    assert_eq!(waiting(&answer).0, Reason::ImagePullBackOff);
    // With the right ones nobody waits for the back-off of the wrong ones.
    config("a", "good");
    assert!(present(&bench.if_not_present("p", "r.io/team/app:1").await).1);
    assert_eq!(bench.fake.users(), ["a", "b", "a", "good"]);
    bench.if_not_present("p", "public:1").await;
    assert_eq!(bench.fake.users().last().unwrap(), "");
}

#[tokio::test(start_paused = true)]
async fn an_image_of_one_pods_credentials_is_not_everybodys() {
    let fake = FakeImages::default();
    let settings = Settings {
        parallel_pulls: NonZeroUsize::MIN,
        rate: None,
        back_off: BackOff::default(),
        garbage: Limits::default(),
    };
    let records = Records::forgetful(Policy::Preloaded);
    let image = ImageRef::parse("r.io/app:1").unwrap();
    let keeper = Keeper::new(fake.clone(), Credentials::new(Sources::default()), records.clone(), settings);
    let bench = Bench { keeper, fake, start: Instant::now() };
    bench.fake.add("r.io/app:1");
    assert!(!present(&bench.if_not_present("p", "r.io/app:1").await).1, "it was there before");
    let auth = crate::keyring::Auth::password("u".to_owned(), "p".to_owned());
    let source = crate::credentials::Source::Secret("ns/s/1".to_owned());
    records.end(&image, Some((&id_of("r.io/app:1"), Some((&auth, &source))))).await;
    bench.fake.open_to("r.io/app:1", "u");
    let answer = bench.if_not_present("q", "r.io/app:1").await;
    assert_eq!(waiting(&answer).0, Reason::ErrImagePull, "the registry refuses who has no credentials");
    let answer = bench.ensure("q", "r.io/app:1", PullPolicy::Never).await.unwrap();
    assert_eq!(waiting(&answer).0, Reason::ErrImageNeverPull);
}
