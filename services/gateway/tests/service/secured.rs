//! The secured port: who reaches what, with which codes.

use bulkhead_model::runtime::ContainerState;
use serde_json::Value;

use crate::node::{Node, uid};
use crate::tls::Client;

/// What a kubelet 1.37.2 answered on 10250: port, method, path, code for whoever may do all, code for anonymous, content type.
const ENDPOINTS: &str = include_str!("../endpoints-10250.tsv");

fn rows() -> Vec<(&'static str, &'static str, u16, &'static str)> {
    let row = |line: &'static str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [_, method, path, code, _, content] = fields[..] else { panic!("a row of six: {line}") };
        (method, path, code.parse().unwrap(), content)
    };
    let rows: Vec<_> = ENDPOINTS.lines().map(row).collect();
    assert!(rows.len() > 80, "{}", rows.len());
    rows
}

async fn with_pod() -> Node {
    let node = Node::whole().await;
    node.pod("a", &["c"]);
    node.runs("a", "c", ContainerState::Running);
    std::fs::write(node.log("a", "c", "0.log"), "2026-11-30T14:03:12.000000001Z stdout F hello\n").unwrap();
    node
}

#[tokio::test]
async fn every_path_answers_as_the_kubelets() {
    let node = with_pod().await;
    node.api.allow("admin", "*", "*");
    let admin = Client::known(&node, "admin");
    let mut sender = admin.sender(&node).await;
    for (method, path, code, content) in rows() {
        let answer = sender.ask(&admin, method, path).await.unwrap();
        assert_eq!(answer.code, code, "{method} {path}: {}", answer.body);
        if !content.is_empty() {
            assert_eq!(answer.content, content, "{method} {path}");
        }
    }
    let logs = admin.ask(&node, "GET", "/containerLogs/default/a/c").await;
    assert_eq!(logs.body, "hello\n");
    let config: Value = serde_json::from_str(&admin.ask(&node, "GET", "/configz").await.body).unwrap();
    assert_eq!(config["kubeletconfig"]["port"], 10250);
    let running: Value = serde_json::from_str(&admin.ask(&node, "GET", "/runningpods/").await.body).unwrap();
    assert_eq!(running["items"][0]["metadata"]["uid"], uid("a"));
    assert_eq!(running["items"][0]["spec"]["containers"][0]["name"], "c");
    let metrics = admin.ask(&node, "GET", "/metrics").await.body;
    let line = "kubelet_http_requests_total{long_running=\"true\",method=\"GET\",path=\"containerLogs\",server_type=\"readwrite\"}";
    assert!(metrics.contains(line), "{metrics}");
}

/// Ways to write a path that is none.
const TRICKS: [&str; 14] = [
    "//pods",
    "/pods//",
    "/stats/../pods",
    "/metrics/../exec/default/a/c?command=ls&output=1",
    "/metrics/..%2fexec/default/a/c?command=ls&output=1",
    "/metrics%2f..%2fpods",
    "/%2e%2e/pods",
    "/./pods",
    "/healthz/%2e%2e/configz",
    "/exec%2fdefault/a/c",
    "/logs/../../etc/passwd",
    "/logs/%2e%2e/%2e%2e/etc/passwd",
    "/containerLogs/default/a/..%2f..%2fx",
    "/pods%00",
];

#[tokio::test]
async fn whoever_may_not_reaches_nothing_with_any_method_and_any_path() {
    let node = with_pod().await;
    node.api.add_token("weak", "weak");
    node.api.allow("weak", "get", "nothing");
    let methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "PROPFIND"];
    let mut paths: Vec<&str> = rows().iter().map(|row| row.1).collect();
    paths.extend(TRICKS);
    paths.dedup();
    let clients = [
        ("nothing", Client::default(), 401),
        ("a wrong token", Client::with_token("wrong"), 401),
        ("no rights", Client::known(&node, "nobody"), 403),
        ("a token without rights", Client::with_token("weak"), 403),
    ];
    for (what, client, code) in clients {
        let mut sender = client.sender(&node).await;
        for path in &paths {
            for method in methods {
                let answer = sender.ask(&client, method, path).await.unwrap();
                assert_eq!(answer.code, code, "{what}: {method} {path}: {}", answer.body);
            }
        }
    }
}

#[tokio::test]
async fn refusals_say_what_was_missing() {
    let node = with_pod().await;
    let nobody = Client::known(&node, "nobody");
    let said = async |method, path| nobody.ask(&node, method, path).await.body;
    assert_eq!(
        said("GET", "/pods").await,
        "Forbidden (user=nobody, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"
    );
    assert_eq!(
        said("GET", "/exec/default/a/c").await,
        "Forbidden (user=nobody, verb=create, resource=nodes, subresource(s)=[proxy])\n"
    );
    assert_eq!(
        said("POST", "/metrics").await,
        "Forbidden (user=nobody, verb=create, resource=nodes, subresource(s)=[metrics])\n"
    );
}

#[tokio::test]
async fn narrow_rights_open_narrow_doors() {
    let node = with_pod().await;
    node.api.allow("prometheus", "get", "metrics");
    node.api.allow("reader", "get", "proxy");
    let prometheus = Client::known(&node, "prometheus");
    assert_eq!(prometheus.code(&node, "GET", "/metrics/resource").await, 200);
    for path in ["/pods", "/stats/summary", "/configz", "/containerLogs/default/a/c", "/metrics/../pods"] {
        assert_eq!(prometheus.code(&node, "GET", path).await, 403, "{path}");
    }
    let reader = Client::known(&node, "reader");
    for path in ["/pods", "/configz", "/containerLogs/default/a/c"] {
        assert_eq!(reader.code(&node, "GET", path).await, 200, "{path}");
    }
    // What runs commands is never only read.
    for path in [
        "/exec/default/a/c?command=ls&output=1",
        "/attach/default/a/c",
        "/portForward/default/a",
        "/run/default/a/c",
    ] {
        assert_eq!(reader.code(&node, "GET", path).await, 403, "{path}");
    }
    for trick in TRICKS {
        let code = reader.code(&node, "GET", trick).await;
        assert!(matches!(code, 400 | 403), "{trick}: {code}");
    }
}

#[tokio::test]
async fn without_an_api_server_nobody_comes_in_by_it() {
    let node = with_pod().await;
    node.api.allow("alice", "*", "*");
    node.api.add_token("secret", "alice");
    node.api.stop();
    assert_eq!(Client::with_token("secret").code(&node, "GET", "/pods").await, 401);
    let answer = Client::known(&node, "alice").ask(&node, "GET", "/pods").await;
    assert_eq!(answer.code, 500);
    assert!(answer.body.starts_with("Authorization error (user=alice, verb=get"), "{}", answer.body);
}

#[tokio::test]
async fn logs_are_read_as_the_api_asks() {
    let node = with_pod().await;
    node.api.allow("alice", "*", "*");
    let alice = Client::known(&node, "alice");
    let time = |n: u32| format!("2026-11-30T14:03:1{n}.000000001Z");
    let lines = format!("{} stdout F one\n{} stderr F two\n{} stdout F three\n", time(1), time(2), time(3));
    std::fs::write(node.log("a", "c", "1.log"), lines).unwrap();
    let get = async |query: &str| {
        let answer = alice.ask(&node, "GET", &format!("/containerLogs/default/a/c?{query}")).await;
        (answer.code, answer.body)
    };
    assert_eq!(get("").await, (200, "one\ntwo\nthree\n".to_owned()));
    assert_eq!(get("tailLines=1&timestamps=true").await, (200, format!("{} three\n", time(3))));
    assert_eq!(get("previous=true").await, (200, "hello\n".to_owned()));
    assert_eq!(get("limitBytes=6").await, (200, "one\ntw".to_owned()));
    assert_eq!(get("stream=Stderr").await, (200, "two\n".to_owned()));
    assert_eq!(get("stream=Stdout").await, (200, "one\nthree\n".to_owned()));
    assert_eq!(get("sinceTime=2026-11-30T14:03:12Z").await, (200, "two\nthree\n".to_owned()));
    assert_eq!(get("tailLines=-1").await.0, 422);
    assert_eq!(get("tailLines=x").await.0, 400);
    assert_eq!(get("x=%zz").await.0, 400);
    node.runs("a", "c", ContainerState::Exited);
    let (code, text) = get("follow=true&tailLines=1").await;
    assert_eq!((code, text.as_str()), (200, "three\n"), "it ends with the container");
    std::os::unix::fs::symlink("/etc/passwd", node.log("a", "c", "2.log")).unwrap();
    assert_eq!(get("").await.0, 500, "links are not followed");
}

#[tokio::test]
async fn what_is_switched_off_is_refused() {
    let node = Node::set_up(&["syncd", "statusd"], |settings| settings.offers.debugging = false).await;
    node.api.allow("alice", "*", "*");
    let alice = Client::known(&node, "alice");
    for path in
        ["/exec/default/a/c", "/containerLogs/default/a/c", "/logs/", "/runningpods/", "/debug/pprof/"]
    {
        assert_eq!(alice.code(&node, "GET", path).await, 405, "{path}");
    }
    assert_eq!(alice.code(&node, "GET", "/pods").await, 200);
}
