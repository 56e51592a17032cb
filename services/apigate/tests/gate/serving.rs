//! The certificate that the node shows: signed by itself, or asked for.

use std::fs;
use std::time::Duration;

use bulkhead_testkit::TestNode;
use bulkhead_testkit::apiserver::{FakeApiServer, Signer};
use serde_json::{Value, json};

use crate::support::{Gate, eventually};

const NODE: &str = "/api/v1/nodes/node-a";
const CSRS: &str = "POST /apis/certificates.k8s.io/v1/certificatesigningrequests";
const DAY: Duration = Duration::from_secs(86_400);

/// A node that lets the cluster sign.
async fn bootstrapping(server: &FakeApiServer) -> TestNode {
    let mut node = TestNode::new().await;
    node.config.server_tls_bootstrap = true;
    server.write_kubeconfig(node.dir());
    node
}

async fn start(node: TestNode) -> Gate {
    let kubeconfig = node.dir().join("kubeconfig");
    Gate::start_on(node, |flags| flags.kubeconfig = Some(kubeconfig)).await
}

fn node_with(addresses: &[(&str, &str)]) -> Value {
    let addresses: Vec<_> =
        addresses.iter().map(|(kind, address)| json!({"type": kind, "address": address})).collect();
    json!({"kind": "Node", "status": {"addresses": addresses}})
}

/// Names and addresses of the certificate that is shown.
fn shown(gate: &Gate) -> Option<Vec<String>> {
    use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};
    let text = fs::read(gate.node.root_dir().join("pki/kubelet-server-current.pem")).ok()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&text).unwrap();
    let (_, certificate) = X509Certificate::from_der(&pem.contents).unwrap();
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        GeneralName::IPAddress(bytes) => bytes.iter().map(ToString::to_string).collect::<Vec<_>>().join("."),
        other => panic!("{other:?}"),
    };
    Some(names.value.general_names.iter().map(name).collect())
}

#[tokio::test]
async fn a_node_signs_its_own_without_any_cluster() {
    let gate = Gate::start_on(TestNode::new().await, |_| {}).await;
    gate.until_check("serving certificate", true).await;
    let pki = gate.node.root_dir().join("pki");
    let first = fs::read(pki.join("kubelet.crt")).unwrap();
    let (node, ended) = gate.stop().await;
    ended.unwrap();
    let gate = start(node).await;
    gate.until_check("serving certificate", true).await;
    assert_eq!(fs::read(pki.join("kubelet.crt")).unwrap(), first, "a restart makes no other");
}

#[tokio::test]
async fn without_a_server_or_with_a_certificate_of_the_owners_none_is_made() {
    for set in [
        |node: &mut TestNode| node.config.enable_server = false,
        |node: &mut TestNode| {
            node.config.tls_cert_file = "/c".to_owned();
            node.config.tls_private_key_file = "/k".to_owned();
        },
    ] {
        let mut node = TestNode::new().await;
        set(&mut node);
        let gate = Gate::start_on(node, |_| {}).await;
        // It answers, so it has decided.
        gate.ask("statusd", "GET /api/v1/nodes/node-a").await;
        assert_eq!(fs::read_dir(gate.node.root_dir().join("pki")).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn without_an_address_nothing_is_asked_for() {
    let server = FakeApiServer::start().await;
    server.set_signer(Signer::Signs(DAY));
    let gate = start(bootstrapping(&server).await).await;
    let reads = |server: &FakeApiServer| server.count(&format!("GET {NODE}"));
    eventually("a look at a node that is not there", async || (reads(&server) > 0).then_some(())).await;
    server.put(NODE, node_with(&[("Hostname", "node-a")]));
    let before = reads(&server);
    eventually("a look at one without an address", async || (reads(&server) > before + 1).then_some(()))
        .await;
    assert_eq!(server.count(CSRS), 0);
    let check = gate.check("serving certificate").await;
    assert!(check.reason.contains("no address"), "{}", check.reason);
    server.put(NODE, node_with(&[("Hostname", "node-a"), ("InternalIP", "192.0.2.10")]));
    gate.until_check("serving certificate", true).await;
    assert_eq!(shown(&gate).unwrap(), ["node-a", "192.0.2.10"]);
}

#[tokio::test]
async fn one_request_waits_over_restarts_and_another_follows_other_addresses() {
    let server = FakeApiServer::start().await;
    server.put(NODE, node_with(&[("Hostname", "node-a"), ("InternalIP", "192.0.2.10")]));
    let mut gate = start(bootstrapping(&server).await).await;
    for _ in 0..2 {
        eventually("the request", async || (server.count(CSRS) == 1).then_some(())).await;
        let (node, ended) = gate.stop().await;
        ended.unwrap();
        gate = start(node).await;
    }
    eventually("it says what it waits for", async || {
        let check = gate.check("serving certificate").await;
        (!check.ok && check.reason.contains("waits for approval")).then_some(())
    })
    .await;
    assert_eq!(server.count(CSRS), 1, "one for three lives");
    assert_eq!(shown(&gate), None);

    // While it waits, the node gets another address: what is asked for then is for both.
    let both = [("Hostname", "node-a"), ("InternalIP", "192.0.2.10"), ("ExternalIP", "192.0.2.20")];
    server.put(NODE, node_with(&both));
    eventually("the other request", async || (server.count(CSRS) == 2).then_some(())).await;
    server.set_signer(Signer::Signs(DAY));
    gate.until_check("serving certificate", true).await;
    assert_eq!(shown(&gate).unwrap(), ["node-a", "192.0.2.10", "192.0.2.20"]);
    let key = gate.node.root_dir().join("pki/kubelet-server.key.tmp");
    eventually("the request's key is gone", async || (!key.exists()).then_some(())).await;
}

#[tokio::test]
async fn what_was_refused_is_asked_for_again_with_another_key() {
    let server = FakeApiServer::start().await;
    server.put(NODE, node_with(&[("InternalIP", "192.0.2.10")]));
    server.set_signer(Signer::Denies);
    let gate = start(bootstrapping(&server).await).await;
    eventually("two requests", async || (server.count(CSRS) >= 2).then_some(())).await;
    let check = gate.check("serving certificate").await;
    assert!(!check.ok, "{}", check.reason);
    server.set_signer(Signer::Signs(DAY));
    gate.until_check("serving certificate", true).await;
}
