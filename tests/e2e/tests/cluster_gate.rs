//! apigate in front of a real kube-apiserver with Node and RBAC authorization and NodeRestriction: what it passes works there,
//! what it refuses never arrives, and a node without a certificate gets one.
#![cfg(test)]

use std::sync::mpsc;

use bulkhead_e2e::cluster::{Cluster, NODE};
use bulkhead_e2e::wait;
use bulkhead_ipc::Identities;
use bulkhead_kubeapi::over_socket;
use bulkhead_service::{Context, NoFlags, Parts, Service};
use bulkhead_testkit::TestNode;
use bulkhead_testkit::apiserver::base64;
use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Secret, Service as KubeService};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

static ONE_CLUSTER: Mutex<()> = Mutex::const_new(());

async fn turn() -> MutexGuard<'static, ()> {
    ONE_CLUSTER.lock().await
}

/// apigate, in the cluster's network.
struct Gate {
    node: TestNode,
    stop: CancellationToken,
}

impl Gate {
    /// With `set` flags, as `NODE`.
    async fn start(
        cluster: &Cluster,
        set: impl FnOnce(&TestNode, &mut bulkhead_service::CommonFlags),
    ) -> Self {
        let mut node = TestNode::new().await;
        node.config.rotate_certificates = true;
        let stop = node.shutdown.child_token();
        let mut flags = node.flags();
        set(&node, &mut flags);
        let identities: Identities = node.identities();
        let (config, clock, shutdown) = (node.config.clone(), node.clock.clone(), stop.clone());
        let network = cluster.network();
        let (ended, _) = mpsc::channel::<()>();
        // Of this process only that thread is in the cluster's network.
        std::thread::spawn(move || {
            let _ended = ended;
            nix::sched::setns(&network, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let context = Context::new(Parts {
                    name: apigate::Apigate::NAME,
                    flags,
                    config,
                    identities,
                    access: &bulkhead_api::access::ACCESS,
                    clock,
                    shutdown,
                });
                apigate::Apigate::run(context, NoFlags {}).await
            })
        });
        let gate = Self { node, stop };
        let socket = gate.node.run_dir().join("apigate.sock");
        wait::until("apigate", async || tokio::net::UnixStream::connect(&socket).await.ok()).await;
        gate
    }

    fn client(&self, process: &str) -> Client {
        over_socket(&self.node.api_socket(process), None)
    }

    fn api<K>(&self, process: &str) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::ClusterResourceScope>,
        K::DynamicType: Default,
    {
        Api::all(self.client(process))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// The message of a 403: the gate's own begin with the process.
fn refusal<T>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Api(status)) if status.code == 403 => status.message.clone(),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it passed"),
    }
}

#[tokio::test]
async fn processes_do_their_work_on_a_real_api_server_and_no_more() {
    let _turn = turn().await;
    let cluster = Cluster::up();
    let gate = Gate::start(&cluster, |_, flags| flags.kubeconfig = Some(cluster.kubeconfig())).await;
    let create = PostParams::default();
    let named = |name: &str| object::<Node>(json!({"metadata": {"name": name}}));

    // statusd registers this node; another one it may send, and NodeRestriction refuses it.
    let nodes: Api<Node> = gate.api("statusd");
    nodes.create(&create, &named(NODE)).await.unwrap();
    let refused = refusal(nodes.create(&create, &named("node-b")).await);
    assert!(refused.contains("node-a") && !refused.starts_with('`'), "the API server's own: {refused}");
    let condition =
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}});
    let patch = Patch::Strategic(&condition);
    nodes.patch_status(NODE, &PatchParams::default(), &patch).await.unwrap();
    let node = cluster.ask("GET", &format!("/api/v1/nodes/{NODE}"), &Value::Null);
    assert_eq!(node["status"]["conditions"][0]["reason"], "KubeletReady");
    for process in ["gateway", "syncd", "volumed", "imaged"] {
        let others: Api<Node> = gate.api(process);
        let refused = refusal(others.patch_status(NODE, &PatchParams::default(), &patch).await);
        let expected =
            format!("`{process}` may not patch core/nodes/status: proto/access.toml does not list it");
        assert_eq!(refused, expected);
    }
    let leases: Api<Lease> = Api::namespaced(gate.client("statusd"), "kube-node-lease");
    let lease =
        json!({"metadata": {"name": NODE}, "spec": {"holderIdentity": NODE, "leaseDurationSeconds": 40}});
    wait::until("a lease", async || leases.create(&create, &object(lease.clone())).await.ok()).await;

    // syncd sees this node's pods alone.
    let pods: Api<Pod> = Api::all(gate.client("syncd"));
    let own = ListParams::default().fields("spec.nodeName=node-a");
    assert!(pods.list(&own).await.unwrap().items.is_empty());
    let refused = refusal(pods.list(&ListParams::default()).await);
    assert_eq!(
        refused,
        "`syncd` may list core/pods only where spec.nodeName=node-a: proto/access.toml says so"
    );
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {
            "nodeName": NODE, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "x"}],
            "volumes": [{"name": "v", "secret": {"secretName": "used"}}],
        },
    });
    let secret = |name: &str| json!({"metadata": {"name": name}, "stringData": {"a": "b"}});
    for name in ["used", "unused"] {
        cluster.ask("POST", "/api/v1/namespaces/default/secrets", &secret(name));
    }
    cluster.ask("POST", "/api/v1/namespaces/default/pods", &pod);
    wait::until("the pod", async || (pods.list(&own).await.unwrap().items.len() == 1).then_some(())).await;
    let services: Api<KubeService> = Api::all(gate.client("syncd"));
    assert!(!services.list(&ListParams::default()).await.unwrap().items.is_empty(), "that of the API server");

    // volumed reads what the node's pods use: the gate asks for a name, the API server for a pod that uses it.
    let secrets: Api<Secret> = Api::namespaced(gate.client("volumed"), "default");
    wait::until("the secret", async || secrets.get("used").await.ok()).await;
    let one = ListParams::default().fields("metadata.name=used");
    assert_eq!(secrets.list(&one).await.unwrap().items.len(), 1);
    let refused = refusal(secrets.get("unused").await);
    assert!(refused.contains("unused") && !refused.starts_with('`'), "the API server's own: {refused}");
    assert!(
        refusal(secrets.list(&ListParams::default()).await)
            .starts_with("`volumed` may list core/secrets only where")
    );

    // gateway asks who somebody is, and what he may.
    let reviews: Api<TokenReview> = gate.api("gateway");
    let review =
        reviews.create(&create, &object(json!({"metadata": {}, "spec": {"token": "x"}}))).await.unwrap();
    assert_ne!(review.status.unwrap().authenticated, Some(true));
    let reviews: Api<SubjectAccessReview> = gate.api("gateway");
    let spec = json!({
        "user": "nobody",
        "resourceAttributes": {"verb": "get", "resource": "nodes", "subresource": "log", "name": NODE},
    });
    let review = reviews.create(&create, &object(json!({"metadata": {}, "spec": spec}))).await.unwrap();
    assert!(!review.status.unwrap().allowed);
    let requests: Api<CertificateSigningRequest> = gate.api("gateway");
    assert!(refusal(requests.list(&ListParams::default()).await).starts_with("`gateway` may not list"));
}

#[tokio::test]
async fn a_node_without_a_certificate_gets_one() {
    let _turn = turn().await;
    let cluster = Cluster::up();
    // In place of a bootstrap token: who it is does not matter to what is asked for.
    let gate = Gate::start(&cluster, |node, flags| {
        flags.kubeconfig = Some(node.dir().join("kubeconfig"));
        flags.bootstrap_kubeconfig = Some(cluster.admin_kubeconfig());
    })
    .await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let mut request = wait::until("the request", async || {
        let list = cluster.ask("GET", path, &Value::Null);
        list["items"].as_array().and_then(|items| items.first().cloned())
    })
    .await;
    assert_eq!(request["spec"]["signerName"], "kubernetes.io/kube-apiserver-client-kubelet");
    let name = request["metadata"]["name"].as_str().unwrap().to_owned();
    let pem = request["spec"]["request"].as_str().unwrap();
    let pem = serde_json::from_value::<k8s_openapi::ByteString>(json!(pem)).unwrap().0;
    let approved = json!([{"type": "Approved", "status": "True", "reason": "Test", "message": "by a test"}]);
    request["status"]["conditions"] = approved;
    let mut request = cluster.ask("PUT", &format!("{path}/{name}/approval"), &request);
    request["status"]["certificate"] = json!(base64(&cluster.sign(&pem)));
    cluster.ask("PUT", &format!("{path}/{name}/status"), &request);
    // From now on it is the node: it may register itself, and no other.
    let nodes: Api<Node> = gate.api("statusd");
    let node = |name: &str| object::<Node>(json!({"metadata": {"name": name}}));
    let create = PostParams::default();
    wait::until("the node", async || nodes.create(&create, &node(NODE)).await.ok()).await;
    let refused = refusal(nodes.create(&create, &node("node-b")).await);
    assert!(refused.contains("node-a"), "{refused}");
    assert!(gate.node.root_dir().join("pki/kubelet-client-current.pem").exists());
    assert!(gate.node.dir().join("kubeconfig").exists());
}
