use bulkhead_testkit::apiserver::{FakeApiServer, base64};
use serde_json::{Value, json};

use super::*;

fn config(registry: &str, user: &str) -> String {
    json!({"auths": {registry: {"username": user, "password": "hunter2"}}}).to_string()
}

fn secret(kind: &str, key: &str, text: &str) -> Value {
    json!({"type": format!("kubernetes.io/{kind}"), "data": {key: base64(text.as_bytes())}})
}

fn owner(secrets: &[&str]) -> Owner {
    Owner { namespace: "ns".to_owned(), secrets: secrets.iter().map(|name| (*name).to_owned()).collect() }
}

fn users(access: &Access) -> Vec<String> {
    access.all().map(|(auth, _)| auth.to_wire().username).collect()
}

#[tokio::test]
async fn the_pods_secrets_come_first_and_what_is_not_there_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let (api, socket) = (FakeApiServer::start().await, dir.path().join("api.sock"));
    api.serve_at(&socket);
    let put = |name: &str, object: Value| api.put(&format!("/api/v1/namespaces/ns/secrets/{name}"), object);
    put("new", secret("dockerconfigjson", ".dockerconfigjson", &config("r.io", "new")));
    let legacy = json!({"r.io": {"username": "old", "password": "x"}}).to_string();
    put("old", secret("dockercfg", ".dockercfg", &legacy));
    put("other", secret("dockerconfigjson", ".dockerconfigjson", &config("q.io", "q")));
    put(
        "odd",
        json!({"type": "Opaque", "data": {".dockerconfigjson": base64(config("r.io", "odd").as_bytes())}}),
    );
    put("broken", secret("dockerconfigjson", ".dockerconfigjson", "hunter2"));
    std::fs::write(dir.path().join("config.json"), config("r.io", "node")).unwrap();
    let files = places(dir.path(), None);
    let credentials = Credentials::new(Sources {
        client: Some(bulkhead_kubeapi::over_socket(&socket, None)),
        files,
        ..Default::default()
    });
    let image = ImageRef::parse("r.io/team/app:1").unwrap();
    let all = owner(&["missing", "broken", "odd", "other", "old", "new"]);
    let found = credentials.find(&image, &all).await;
    assert_eq!(users(&found), ["old", "new", "node"]);
    assert!(!format!("{found:?}").contains("hunter2"));
    let nobody = credentials.find(&ImageRef::parse("busybox").unwrap(), &all).await;
    assert_eq!((users(&nobody).len(), nobody.key("busybox")), (0, "busybox".to_owned()));

    // Another content is another pull: it need not wait out the old one's back-off.
    let key = found.key("i");
    assert_eq!(credentials.find(&image, &all).await.key("i"), key);
    put("new", secret("dockerconfigjson", ".dockerconfigjson", &config("r.io", "newer")));
    assert_ne!(credentials.find(&image, &all).await.key("i"), key);

    api.fail("GET /api/v1/namespaces/ns/secrets", Some((503, "away")));
    assert_eq!(users(&credentials.find(&image, &all).await), ["node"]);
}

#[tokio::test]
async fn files_of_the_node_are_read_anew_and_a_broken_one_harms_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    std::fs::create_dir_all(home.join(".docker")).unwrap();
    let credentials =
        Credentials::new(Sources { files: places(dir.path(), Some(home.clone())), ..Default::default() });
    let image = ImageRef::parse("r.io/app").unwrap();
    let find = async || users(&credentials.find(&image, &owner(&["any"])).await);
    assert!(find().await.is_empty());
    std::fs::write(home.join(".docker/config.json"), config("r.io", "home")).unwrap();
    std::fs::write(dir.path().join("config.json"), "broken").unwrap();
    std::fs::write(dir.path().join(".dockercfg"), r#"{"r.io": {"username": "legacy"}}"#).unwrap();
    assert_eq!(find().await, ["home", "legacy"]);
    std::fs::write(dir.path().join("config.json"), config("r.io", "root")).unwrap();
    assert_eq!(find().await, ["root", "home", "legacy"]);
    let twice = places(Path::new("/k"), Some("/".into()));
    assert_eq!(twice.len(), 4, "the folder of / once: {twice:?}");
}
