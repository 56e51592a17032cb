use bulkhead_base::SystemClock;
use bulkhead_testkit::TestNode;
use bulkhead_testkit::apiserver::FakeApiServer;
use http::{HeaderValue, Method};

use super::*;
use crate::config::Settings;
use crate::secured::path;
use crate::tls::Tls;

struct Bench {
    node: TestNode,
    api: FakeApiServer,
    settings: AccessSettings,
}

const LIFE: Duration = Duration::from_secs(60);

impl Bench {
    async fn new() -> Self {
        let (node, api) = (TestNode::new().await, FakeApiServer::start().await);
        api.serve_at(&node.api_socket("gateway"));
        api.add_token("secret", "alice");
        let settings = AccessSettings {
            node: "node-a".to_owned(),
            tokens: Some(LIFE),
            anonymous: false,
            rights: Some((LIFE, LIFE)),
        };
        Self { node, api, settings }
    }

    fn guard(&self) -> Guard {
        let settings = Settings::new(&self.node.config, "node-a", self.node.dir());
        let authorities = Tls::new(&settings.tls).unwrap().authorities;
        let client = bulkhead_kubeapi::over_socket(&self.node.api_socket("gateway"), None);
        Guard::new(self.settings.clone(), true, authorities, Reviews::new(client), Arc::new(SystemClock))
    }
}

fn with(authorization: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_str(authorization).unwrap());
    headers
}

fn reading(path: &str) -> Attributes {
    attributes::attributes(&Method::GET, path::read(path).as_ref())
}

#[test]
fn tokens_are_read_from_one_kind_of_header() {
    let table = [
        ("Bearer a", Some("a")),
        ("bearer  a ", Some("a")),
        ("Bearer ", None),
        ("Bearer", None),
        ("Basic a", None),
        ("", None),
    ];
    for (header, token) in table {
        assert_eq!(bearer(&with(header)), token, "{header:?}");
    }
    assert_eq!(bearer(&with(&format!("Bearer {}", "x".repeat(TOKEN_BYTES + 1)))), None);
}

#[tokio::test]
async fn a_token_is_asked_about_once_in_its_time() {
    let bench = Bench::new().await;
    let guard = bench.guard();
    let user = async |header: &str| guard.who(&[], &with(header)).await.map(|who| who.user.clone());
    for _ in 0..3 {
        assert_eq!(user("Bearer secret").await.as_deref(), Some("alice"));
        assert_eq!(user("Bearer other").await, None);
    }
    assert_eq!(bench.api.count("POST /apis/authentication.k8s.io/v1/tokenreviews"), 2);
    let who = guard.who(&[], &with("Bearer secret")).await.unwrap();
    assert_eq!(who.groups, ["system:authenticated"]);
    assert!(guard.who(&[], &HeaderMap::new()).await.is_none(), "nobody comes without anything");
}

#[tokio::test]
async fn whoever_shows_something_wrong_is_not_anonymous() {
    let mut bench = Bench::new().await;
    bench.settings.anonymous = true;
    let guard = bench.guard();
    let who = guard.who(&[], &HeaderMap::new()).await.unwrap();
    assert_eq!(
        (who.user.as_str(), who.groups.as_slice()),
        ("system:anonymous", &["system:unauthenticated".to_owned()][..])
    );
    assert!(guard.who(&[], &with("Bearer wrong")).await.is_none());
    let stranger = rustls::pki_types::CertificateDer::from(vec![1, 2, 3]);
    assert!(guard.who(std::slice::from_ref(&stranger), &HeaderMap::new()).await.is_none());
    // One of two proofs is enough.
    assert!(guard.who(&[stranger], &with("Bearer secret")).await.is_some());
    bench.settings.tokens = None;
    let guard = bench.guard();
    let who = guard.who(&[], &with("Bearer secret")).await.unwrap();
    assert_eq!(who.user, "system:anonymous", "tokens mean nothing here");
}

#[tokio::test]
async fn the_narrow_right_or_the_wide_one_is_enough() {
    let bench = Bench::new().await;
    let guard = bench.guard();
    let alice = Identity { user: "alice".to_owned(), ..Identity::default() };
    let bob = Identity { user: "bob".to_owned(), ..Identity::default() };
    bench.api.allow("alice", "get", "pods");
    bench.api.allow("bob", "get", "proxy");
    for who in [&alice, &bob] {
        assert!(matches!(guard.may(who, &reading("/pods")).await, Decision::Allowed), "{}", who.user);
    }
    assert!(matches!(guard.may(&alice, &reading("/configz")).await, Decision::Denied));
    assert!(matches!(guard.may(&bob, &reading("/metrics")).await, Decision::Denied));
    assert!(
        matches!(guard.may(&bob, &reading("/exec/a/b/c")).await, Decision::Denied),
        "reading is not running"
    );
    let asked = bench.api.count("POST /apis/authorization.k8s.io/v1/subjectaccessreviews");
    bench.api.forbid_all();
    assert!(
        matches!(guard.may(&alice, &reading("/pods")).await, Decision::Allowed),
        "for as long as it holds"
    );
    assert_eq!(bench.api.count("POST /apis/authorization.k8s.io/v1/subjectaccessreviews"), asked);
}

#[tokio::test]
async fn nobody_is_let_in_because_nobody_can_be_asked() {
    let mut bench = Bench::new().await;
    let guard = bench.guard();
    let alice = Identity { user: "alice".to_owned(), ..Identity::default() };
    bench.api.allow("alice", "*", "*");
    for (code, body) in [(403, "{}"), (200, "[]"), (200, "{"), (401, "x")] {
        bench.api.heal();
        bench.api.fail("POST", Some((code, body)));
        assert!(guard.who(&[], &with("Bearer secret")).await.is_none(), "{code} {body}");
        assert!(matches!(guard.may(&alice, &reading("/pods")).await, Decision::Unknown(_)), "{code} {body}");
    }
    bench.api.heal();
    assert!(guard.who(&[], &with("Bearer secret")).await.is_some(), "what failed is not kept");
    assert!(matches!(guard.may(&alice, &reading("/pods")).await, Decision::Allowed));
    bench.settings.rights = None;
    bench.api.stop();
    assert!(matches!(bench.guard().may(&alice, &reading("/pods")).await, Decision::Allowed), "AlwaysAllow");
}

#[tokio::test]
async fn a_short_absence_of_the_api_server_is_not_noticed() {
    let bench = Bench::new().await;
    let guard = bench.guard();
    bench.api.fail("POST", Some((503, "{}")));
    let healing = async {
        while bench.api.count("POST") == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bench.api.heal();
    };
    let headers = with("Bearer secret");
    let (who, ()) = tokio::join!(guard.who(&[], &headers), healing);
    assert_eq!(who.unwrap().user, "alice");
}
