use std::collections::BTreeMap;
use std::sync::Mutex;

use bulkhead_base::SystemClock;
use bulkhead_config::Headers;
use bulkhead_testkit::TestNode;

use super::testing::{Web, ok};
use super::*;
use crate::source::Desired;

/// What the server says by now; `None`: it is broken.
type Says = Arc<Mutex<Option<String>>>;

fn pod(name: &str, image: &str) -> String {
    format!("{{metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: \"{image}\"}}]}}}}")
}

fn list(pods: &[String]) -> String {
    format!("{{apiVersion: v1, kind: PodList, items: [{}]}}", pods.join(", "))
}

async fn server() -> (Web, Says) {
    let says = Says::default();
    let answer = says.clone();
    let broken = || b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_vec();
    let web = Web::plain(move |_| answer.lock().unwrap().as_ref().map_or_else(broken, ok)).await;
    (web, says)
}

struct Life {
    board: Board,
    _node: TestNode,
}

impl Life {
    /// A process that follows the server, with its state in `dir`.
    async fn begin(dir: &Path, port: u16) -> Self {
        let node = TestNode::new().await;
        let board = Board::new([Kind::Url], BTreeMap::new());
        let source = FollowUrl {
            url: ManifestUrl::new(&format!("http://127.0.0.1:{port}/pods?token=s3cret"), &Headers::default())
                .unwrap(),
            period: Duration::from_millis(20),
            node_name: "n".to_owned(),
            board: board.clone(),
            clock: Arc::new(SystemClock),
            check: node.context("syncd").check("manifest URL"),
        };
        source.spawn(dir, node.shutdown.clone());
        Self { board, _node: node }
    }

    async fn until(&self, what: &str, wanted: impl Fn(&Desired) -> bool) -> Arc<Desired> {
        let mut watch = self.board.subscribe();
        let found = watch.wait_for(|desired| desired.as_ref().is_some_and(|desired| wanted(desired)));
        let found = tokio::time::timeout(Duration::from_secs(10), found).await;
        found.unwrap_or_else(|_| panic!("{what}: {:?}", self.board.desired())).unwrap().clone().unwrap()
    }
}

fn names(desired: &Desired) -> Vec<String> {
    desired.pods.values().filter_map(|pod| pod.pod.metadata.name.clone()).collect()
}

#[tokio::test]
async fn pods_come_and_go_with_the_answer_and_stay_without_one() {
    let dir = tempfile::tempdir().unwrap();
    let (web, says) = server().await;
    let say = |text: Option<String>| *says.lock().unwrap() = text;
    let life = Life::begin(dir.path(), web.port).await;
    let refused = life.until("unread and refused", |d| !d.refused.is_empty()).await;
    assert!(refused.unread.contains(&Kind::Url), "nothing may be concluded yet");
    say(Some(list(&[pod("a", "bb:1"), pod("b", "bb:1")])));
    let both = life.until("two pods", |d| d.pods.len() == 2 && d.refused.is_empty()).await;
    assert!(both.unread.is_empty());
    for garbage in [None, Some("<html>".to_owned()), Some(String::new())] {
        say(garbage.clone());
        let kept = life.until("refused", |d| !d.refused.is_empty()).await;
        assert_eq!(names(&kept), names(&both), "{garbage:?}");
        let (place, reason) = kept.refused.first_key_value().unwrap();
        assert!(
            reason.contains("go on") && !format!("{place}{reason}").contains("s3cret"),
            "{place}: {reason}"
        );
        say(Some(list(&[pod("a", "bb:1"), pod("b", "bb:1")])));
        life.until("good again", |d| d.refused.is_empty()).await;
    }
    // One bad pod keeps itself alone.
    say(Some(list(&["{metadata: {name: a}, spec: {}}".to_owned()])));
    let one = life.until("one bad pod", |d| d.pods.len() == 1 && d.refused.len() == 1).await;
    assert_eq!(names(&one), ["a-n"]);
    say(Some(list(&[])));
    life.until("no pods", |d| d.pods.is_empty() && d.refused.is_empty()).await;
}

#[tokio::test]
async fn the_last_answer_is_known_to_the_next_life_and_only_for_its_url() {
    let dir = tempfile::tempdir().unwrap();
    let (web, says) = server().await;
    *says.lock().unwrap() = Some(list(&[pod("a", "bb:1")]));
    let life = Life::begin(dir.path(), web.port).await;
    let before = life.until("a pod", |d| d.pods.len() == 1).await;
    drop(life);
    *says.lock().unwrap() = None;
    let next = Life::begin(dir.path(), web.port).await;
    let kept = next.until("the same pod", |d| d.pods.len() == 1).await;
    assert_eq!(kept.pods.keys().collect::<Vec<_>>(), before.pods.keys().collect::<Vec<_>>());
    assert!(kept.unread.is_empty(), "what it last held is known");
    drop(next);
    let (other, _) = server().await;
    let other = Life::begin(dir.path(), other.port).await;
    let unread = other.until("refused", |d| !d.refused.is_empty()).await;
    assert!(unread.pods.is_empty() && unread.unread.contains(&Kind::Url));
}
