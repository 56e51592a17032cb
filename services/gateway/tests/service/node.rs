//! A node with gateway on it and a client in front.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bulkhead_api::access::ACCESS;
use bulkhead_api::gateway::v1::gateway_client::GatewayClient;
use bulkhead_api::gateway::v1::{GetHealthRequest, HealthCheck};
use bulkhead_api::process::v1::process_server::ProcessServer;
use bulkhead_api::statusd::v1::PodStatus;
use bulkhead_api::syncd::v1::list_pods_item::Item;
use bulkhead_api::{evictd, pleg, statusd, syncd};
use bulkhead_ipc::{PeerChannel, Publisher};
use bulkhead_model::runtime::{ContainerState, RuntimePod};
use bulkhead_testkit::apiserver::FakeApiServer;
use bulkhead_testkit::certificates::Authority;
use bulkhead_testkit::{TestNode, peers};
use gateway::{Doors, Settings};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::fakes::{Evictd, Pleg, Process, Statusd, Syncd};

/// Longest wait for anything.
pub const BOUND: Duration = Duration::from_secs(20);

pub struct Node {
    pub node: TestNode,
    pub syncd: Syncd,
    pub statuses: Publisher<String, PodStatus>,
    pub runtime: Publisher<String, RuntimePod>,
    pub evictd: Evictd,
    /// What each peer says of itself.
    pub processes: BTreeMap<String, Process>,
    peers: BTreeMap<String, CancellationToken>,
    pub healthz: SocketAddr,
    pub read_only: SocketAddr,
    pub secured: SocketAddr,
    /// Signs what gateway shows and whom it takes.
    pub authority: Authority,
    pub api: FakeApiServer,
    pub stop: CancellationToken,
    ended: tokio::task::JoinHandle<()>,
}

pub struct Answer {
    pub code: u16,
    pub content: String,
    pub headers: hyper::HeaderMap,
    pub body: String,
}

impl Node {
    /// Gateway and all its peers.
    pub async fn whole() -> Self {
        let names: Vec<&str> =
            ACCESS.process.keys().map(String::as_str).filter(|name| *name != "gateway").collect();
        Self::with(&names).await
    }

    /// Gateway and these peers.
    pub async fn with(peers: &[&str]) -> Self {
        Self::set_up(peers, |_| {}).await
    }

    /// Gateway with these settings, and these peers.
    pub async fn set_up(peers: &[&str], set: impl FnOnce(&mut Settings)) -> Self {
        let node = TestNode::new().await;
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let settings = Settings::new(&node.config, "node-a", &node.root_dir().join("pki"));
        let mut settings =
            Settings { healthz: Some(any), read_only: Some(any), secured: Some(any), ..settings };
        let authority = Authority::new();
        let ca = node.dir().join("ca.crt");
        std::fs::write(&ca, authority.pem()).unwrap();
        settings.tls.client_ca = Some(ca);
        settings.offers.system_logs_dir = node.dir().join("system-logs");
        std::fs::create_dir(&settings.offers.system_logs_dir).unwrap();
        set(&mut settings);
        let serving = authority.server(&["127.0.0.1"]);
        std::fs::write(&settings.tls.certificate, serving.certificate).unwrap();
        std::fs::write(&settings.tls.key, serving.key).unwrap();
        let api = FakeApiServer::start().await;
        api.serve_at(&node.api_socket("gateway"));
        let doors = Doors::open(&settings).await.unwrap();
        let (healthz, read_only) = (doors.healthz_address().unwrap(), doors.read_only_address().unwrap());
        let secured = doors.secured_address().unwrap();
        let context = node.context("gateway");
        let stop = context.shutdown.clone();
        let (statuses, runtime) =
            (Publisher::new(node.shutdown.clone()), Publisher::new(node.shutdown.clone()));
        statuses.open();
        runtime.open();
        let processes = ACCESS.process.keys().map(|name| (name.clone(), Process::well())).collect();
        let ended = tokio::spawn(async move { gateway::run(context, settings, doors).await.unwrap() });
        let mut node = Self {
            node,
            syncd: Syncd::default(),
            statuses,
            runtime,
            evictd: Evictd::default(),
            processes,
            peers: BTreeMap::new(),
            healthz,
            read_only,
            secured,
            authority,
            api,
            stop,
            ended,
        };
        for name in peers {
            node.start(name).await;
        }
        let serving = async {
            while node.client().get_health(GetHealthRequest {}).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(BOUND, serving).await.expect("gateway serves");
        node
    }

    /// Starts a peer.
    pub async fn start(&mut self, name: &str) {
        let routes = Routes::new(ProcessServer::new(self.processes[name].clone()));
        let routes = match name {
            "syncd" => routes.add_service(syncd::v1::syncd_server::SyncdServer::new(self.syncd.clone())),
            "statusd" => routes
                .add_service(statusd::v1::statusd_server::StatusdServer::new(Statusd(self.statuses.clone()))),
            "pleg" => routes.add_service(pleg::v1::pleg_server::PlegServer::new(Pleg(self.runtime.clone()))),
            "evictd" => routes.add_service(evictd::v1::evictd_server::EvictdServer::new(self.evictd.clone())),
            _ => routes,
        };
        let stop = self.node.fake_peer(name, routes).await;
        self.peers.insert(name.to_owned(), stop);
    }

    /// Kills a peer and waits until nobody answers on its socket.
    pub async fn kill(&mut self, name: &str) {
        self.peers.remove(name).unwrap().cancel();
        let socket = self.node.run_dir().join(format!("{name}.sock"));
        let gone = async {
            while tokio::net::UnixStream::connect(&socket).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(BOUND, gone).await.expect("the peer is gone");
    }

    /// Asks gateway to stop and waits until it has.
    pub async fn stopped(self) {
        self.stop.cancel();
        tokio::time::timeout(BOUND, self.ended).await.expect("it stops").unwrap();
    }

    pub fn client(&self) -> GatewayClient<PeerChannel> {
        GatewayClient::new(self.node.channel("gateway"))
    }

    /// What GetHealth says of one process, once `wanted` holds of it.
    pub async fn until_health(
        &self,
        process: &str,
        wanted: impl Fn(&[HealthCheck]) -> bool,
    ) -> Vec<HealthCheck> {
        let turned = async {
            loop {
                let checks = self.client().get_health(GetHealthRequest {}).await.unwrap().into_inner().checks;
                let own: Vec<_> = checks.into_iter().filter(|check| check.process == process).collect();
                if wanted(&own) {
                    return own;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(BOUND, turned).await.expect("health turns")
    }

    /// A pod of syncd's, with containers of these names.
    pub fn pod(&self, name: &str, containers: &[&str]) {
        let containers: Vec<_> = containers
            .iter()
            .map(|name| {
                let env = serde_json::json!([{"name": "KEY", "value": "hidden"}]);
                serde_json::json!({"name": name, "image": "i", "env": env})
            })
            .collect();
        let pod = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": uid(name)},
            "spec": {"containers": containers},
        });
        self.syncd.items.lock().unwrap().push(Item::PodJson(serde_json::to_vec(&pod).unwrap()));
    }

    /// A status of statusd's.
    pub fn status(&self, name: &str, status: &Value) {
        let status = PodStatus {
            pod_uid: uid(name),
            name: name.to_owned(),
            namespace: "default".to_owned(),
            version: 1,
            status_json: serde_json::to_vec(status).unwrap(),
        };
        self.statuses.upsert(uid(name), status);
    }

    /// The runtime holds attempt 0 of this container of a pod.
    pub fn runs(&self, pod: &str, container: &str, state: ContainerState) {
        let container = peers::container("id", container, state, jiff::Timestamp::UNIX_EPOCH);
        let pod = RuntimePod {
            uid: uid(pod),
            name: pod.to_owned(),
            namespace: "default".to_owned(),
            sandboxes: vec![peers::sandbox("box", jiff::Timestamp::UNIX_EPOCH, &[])],
            containers: vec![container],
        };
        self.runtime.upsert(pod.uid.clone(), pod);
    }

    /// Path of a file in a container's log folder, which is made.
    pub fn log(&self, pod: &str, container: &str, file: &str) -> PathBuf {
        let folder = self.node.dir().join("logs").join(format!("default_{pod}_{}", uid(pod))).join(container);
        std::fs::create_dir_all(&folder).unwrap();
        folder.join(file)
    }

    pub async fn get(&self, at: SocketAddr, path: &str) -> Answer {
        request(at, "GET", path, &[]).await.unwrap()
    }
}

pub fn uid(pod: &str) -> String {
    format!("uid-of-{pod}")
}

/// One request on a connection of its own; an error when the answer was cut off.
pub async fn request(
    at: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Answer, hyper::Error> {
    let exchange = async {
        let stream = tokio::net::TcpStream::connect(at).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut request = hyper::Request::builder().method(method).uri(path).header("host", "node");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        let content = head.headers.get("content-type").map(|value| value.to_str().unwrap().to_owned());
        Ok(Answer {
            code: head.status.as_u16(),
            content: content.unwrap_or_default(),
            headers: head.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        })
    };
    tokio::time::timeout(BOUND, exchange).await.expect("an answer")
}
