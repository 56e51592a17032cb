//! Who may call what, against the fake runtime: every process times every method of runtime.v1.

use bulkhead_api::DESCRIPTORS;
use bulkhead_api::access::ACCESS;
use bulkhead_testkit::TestNode;
use bulkhead_testkit::cri::FakeRuntime;
use prost::Message;
use tonic::Code;

use crate::support::{Gate, Raw};

fn methods() -> Vec<String> {
    let set = prost_types::FileDescriptorSet::decode(DESCRIPTORS).unwrap();
    let services =
        set.file.iter().filter(|file| file.package() == "runtime.v1").flat_map(|file| &file.service);
    services.flat_map(|s| s.method.iter().map(move |m| format!("{}/{}", s.name(), m.name()))).collect()
}

#[tokio::test]
async fn each_process_may_call_its_methods_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let fake = FakeRuntime::start(directory.path()).await.unwrap();
    let gate = Gate::start(fake.socket()).await;
    let methods = methods();
    assert!(methods.len() > 40, "{methods:?}");
    for (process, row) in &ACCESS.process {
        if row.cri.is_empty() {
            assert!(!gate.node.cri_socket(process).exists(), "{process} has no CRI socket");
            continue;
        }
        let mut client = gate.raw(process).await;
        for method in &methods {
            let name = method.split_once('/').unwrap().1;
            let arrived = |fake: &FakeRuntime| {
                // The gate itself asks for the version now and then.
                let calls = fake.log().calls();
                calls.iter().filter(|call| format!("{:?}", call.method) == name).count()
            };
            let before = arrived(&fake);
            if ACCESS.may_use_cri(process, method) {
                let answer = client.send(Raw::request(method)).await.unwrap();
                let status = tonic::Status::from_header_map(answer.headers());
                assert_ne!(status.map(|s| s.code()), Some(Code::PermissionDenied), "{process} {method}");
                assert!(arrived(&fake) > before, "{process} {method} reaches the runtime");
                assert_eq!(gate.count(process, method).await, (1, 0, 0), "{process} {method}");
            } else {
                let status = client.call(Raw::request(method)).await.status();
                assert_eq!(status.code(), Code::PermissionDenied, "{process} {method}");
                let text = format!("`{process}` may not call {method}: proto/access.toml does not list it");
                assert_eq!(status.message(), text);
                assert!(name == "Version" || arrived(&fake) == before, "{process} {method} does not arrive");
                assert_eq!(gate.count(process, method).await, (0, 1, 0), "{process} {method}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_not_cri_is_refused_and_counted_under_one_name() {
    let gate = Gate::start(std::path::Path::new("/nowhere.sock")).await;
    let mut client = gate.raw("pleg").await;
    for uri in [
        "http://localhost/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "http://localhost/containerd.services.containers.v1.Containers/List",
        "http://localhost/runtime.v1.RuntimeService/Version?x",
        "http://localhost/runtime.v1.RuntimeService/%56ersion",
    ] {
        let mut request = Raw::request("RuntimeService/Version");
        *request.uri_mut() = uri.parse().unwrap();
        let status = client.call(request).await.status();
        assert_eq!(status.code(), Code::PermissionDenied, "{uri}");
        assert!(status.message().ends_with("it is not a method of runtime.v1"), "{}", status.message());
    }
    let mut request = Raw::request("RuntimeService/Version");
    *request.method_mut() = http::Method::PUT;
    assert_eq!(client.call(request).await.status().code(), Code::PermissionDenied);
    assert_eq!(gate.count("pleg", "other").await, (0, 5, 0));
    assert_eq!(gate.calls().await.len(), 1);
}

#[tokio::test]
async fn another_user_gets_nothing_and_is_told_who_he_is() {
    let directory = tempfile::tempdir().unwrap();
    let fake = FakeRuntime::start(directory.path()).await.unwrap();
    let mut node = TestNode::new().await;
    node.config.container_runtime_endpoint = fake.endpoint();
    let mut identities = node.identities();
    let own = identities.uid_of("crigate").unwrap();
    for (name, identity) in &mut identities.process {
        // This test is the prober (root, if it runs as root: then it is named so), and nobody else.
        if name != "prober" && name != "crigate" {
            identity.uid = own + 1000;
        }
    }
    let gate = Gate::start_with(node, identities.clone()).await;
    let status = gate.raw("pleg").await.call(Raw::request("RuntimeService/ListContainers")).await.status();
    assert_eq!(status.code(), Code::PermissionDenied);
    let name = identities.name_of(own).unwrap().replace("cli", "root");
    assert!(status.message().contains(&name), "{} names {name}", status.message());
    assert!(status.message().contains("CRI socket of `pleg`"), "{}", status.message());
    assert_eq!(gate.count("pleg", "RuntimeService/ListContainers").await, (0, 1, 0));
    // The same user on the socket that is his.
    let status = gate.raw("prober").await.call(Raw::request("RuntimeService/Version")).await.status();
    assert_eq!(status.code(), Code::Ok);
    assert!(fake.log().of(bulkhead_testkit::cri::Method::ListContainers).is_empty());
}

#[tokio::test]
async fn sockets_are_for_their_group_alone() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let node = TestNode::new().await;
    std::fs::remove_dir(node.run_dir().join("cri")).unwrap();
    let group = node.identities().groups["bulkhead"];
    let gate = Gate::start_on(node).await;
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let socket = gate.node.cri_socket("syncd");
    let folder = socket.parent().unwrap();
    assert_eq!((mode(folder), mode(&socket)), (0o750, 0o660));
    assert_eq!(std::fs::metadata(&socket).unwrap().gid(), group);
}
