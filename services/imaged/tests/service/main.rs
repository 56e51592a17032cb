//! The whole process on its socket, with the fake runtime on another.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

mod bench;
mod trace;

use std::time::Duration;

use bench::{Answer, BOUND, bench, present, request, waiting};
use bulkhead_api::imaged::v1 as wire;
use bulkhead_ipc::status::with_deadline;
use bulkhead_testkit::cri::{Call, Method};
use tonic::{Code, Status};

const IMAGE: &str = "docker.io/local/bb:1";

fn pulling(calls: &[Call]) -> bool {
    calls.iter().any(|call| call.method == Method::PullImage)
}

#[tokio::test]
async fn an_image_that_is_there_is_told_with_its_user_and_size() {
    let bench = bench().await;
    let process = bench.start().await;
    bench.runtime.put_image(bulkhead_api::cri::v1::Image {
        id: "sha256:aa".to_owned(),
        repo_tags: vec![IMAGE.to_owned()],
        size: 1000,
        uid: Some(bulkhead_api::cri::v1::Int64Value { value: 0 }),
        ..Default::default()
    });
    for policy in ["IfNotPresent", "Never"] {
        let answer = present(bench.call("local/bb:1", policy, BOUND).await);
        let wanted = wire::ImagePresent {
            image_ref: "sha256:aa".to_owned(),
            uid: Some(0),
            username: String::new(),
            size_bytes: 1000,
            pulled: false,
        };
        assert_eq!(answer, wanted);
    }
    assert_eq!(bench.runtime.log().count(Method::PullImage), 0);
    bench.until_check_is(true).await;
    process.stop().await;
}

#[tokio::test]
async fn an_image_that_is_absent_is_pulled_or_refused() {
    let bench = bench().await;
    let process = bench.start().await;
    let answer = waiting(bench.call("app:1", "Never", BOUND).await);
    assert_eq!(answer.reason, "ErrImageNeverPull");
    assert_eq!(bench.runtime.log().count(Method::PullImage), 0);
    let answer = present(bench.if_not_present("app:1").await);
    assert!(answer.pulled && answer.image_ref.starts_with("sha256:"), "{answer:?}");
    let answer = waiting(bench.if_not_present("Bad Name").await);
    assert_eq!(answer.reason, "InvalidImageName");
    let error = bench.call("app:1", "Sometimes", BOUND).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    process.stop().await;
}

#[tokio::test]
async fn a_pull_that_fails_twice_backs_off_and_then_works() {
    let bench = bench().await;
    let process = bench.start().await;
    bench.runtime.fail(Method::PullImage, Status::not_found("no such tag"), 2);
    let mut reasons = Vec::new();
    let tries = async {
        loop {
            match bench.if_not_present("app:1").await {
                Ok(Answer::Waiting(waiting)) => {
                    assert!(waiting.message.contains("no such tag"), "{waiting:?}");
                    let wait = Duration::try_from(waiting.retry_after.unwrap()).unwrap();
                    assert!(wait <= Duration::from_millis(600), "{wait:?}");
                    if reasons.last() != Some(&waiting.reason) {
                        reasons.push(waiting.reason);
                    }
                    // Asking earlier than told is answered all the same.
                    tokio::time::sleep(wait / 2).await;
                }
                other => return present(other),
            }
        }
    };
    let answer = tokio::time::timeout(BOUND, tries).await.expect("the third pull works");
    assert!(answer.pulled);
    assert_eq!(reasons, ["ErrImagePull", "ImagePullBackOff", "ErrImagePull", "ImagePullBackOff"]);
    assert_eq!(bench.runtime.log().count(Method::PullImage), 3);
    process.stop().await;
}

#[tokio::test]
async fn without_the_runtime_calls_are_unavailable_until_it_is_back() {
    let mut bench = bench().await;
    bench.runtime.add_image(IMAGE);
    bench.runtime.go_away().await;
    let process = bench.start().await;
    assert_eq!(bench.if_not_present(IMAGE).await.unwrap_err().code(), Code::Unavailable);
    bench.until_check_is(false).await;

    bench.runtime.come_back().await.unwrap();
    present(bench.if_not_present(IMAGE).await);
    bench.until_check_is(true).await;

    let gate = bench.runtime.hold(Method::PullImage);
    let (client, request) = (bench.client(), with_deadline(request("app:1", "Always"), BOUND));
    let cut = tokio::spawn(async move { client.clone().ensure_image(request).await });
    bench.runtime.log().wait_for(pulling).await.unwrap();
    bench.runtime.go_away().await;
    assert_eq!(cut.await.unwrap().unwrap_err().code(), Code::Unavailable, "lost in the middle of a pull");
    drop(gate);
    bench.until_check_is(false).await;
    bench.runtime.come_back().await.unwrap();
    assert!(present(bench.if_not_present("app:1").await).pulled, "no back-off for the image");
    bench.until_check_is(true).await;
    process.stop().await;
}

#[tokio::test]
async fn the_check_turns_good_by_itself_when_the_runtime_comes_back() {
    let mut bench = bench().await;
    bench.runtime.go_away().await;
    let process = bench.start().await;
    bench.until_check_is(false).await;
    bench.runtime.come_back().await.unwrap();
    bench.until_check_is(true).await;
    process.stop().await;
}

#[tokio::test]
async fn a_pull_past_the_deadline_goes_on_and_is_joined() {
    let bench = bench().await;
    let process = bench.start().await;
    let gate = bench.runtime.hold(Method::PullImage);
    let answer = waiting(bench.call("app:1", "Always", Duration::from_secs(1)).await);
    assert_eq!((&*answer.reason, &*answer.message), ("ContainerCreating", "pulling image \"app:1\""));
    // One that gives up without waiting for its answer changes nothing.
    let gone = bench.call("app:1", "Always", BOUND);
    tokio::time::timeout(Duration::from_millis(50), gone).await.unwrap_err();
    let (joined, ()) = tokio::join!(bench.call("app:1", "Always", BOUND), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        gate.open();
    });
    assert!(present(joined).pulled, "it was started for this container");
    assert_eq!(bench.runtime.log().count(Method::PullImage), 1);
    process.stop().await;
}

#[tokio::test]
async fn after_a_restart_in_the_middle_of_a_pull_the_image_is_pulled_again() {
    let bench = bench().await;
    let process = bench.start().await;
    let gate = bench.runtime.hold(Method::PullImage);
    waiting(bench.call("app:1", "IfNotPresent", Duration::from_secs(1)).await);
    process.stop().await;
    let process = bench.start().await;
    assert!(present(bench.if_not_present("app:1").await).pulled);
    assert_eq!(bench.runtime.log().count(Method::PullImage), 2);
    gate.open();
    process.stop().await;
}
