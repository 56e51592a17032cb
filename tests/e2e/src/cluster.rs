//! A real control plane (`tests/cluster/cluster`) for one node, in a network namespace of its own. Owns its life; what it is
//! asked as its administrator goes through curl.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a harness: what fails here fails the test that uses it"
)]

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::real_node::peers;

/// The node's name in it.
pub const NODE: &str = "node-a";

/// etcd and kube-apiserver, perhaps with controllers and a scheduler. All of it goes when this is dropped.
pub struct Cluster {
    dir: PathBuf,
    /// How long certificates are good that it signs.
    signing: Option<String>,
    _parent: tempfile::TempDir,
}

impl Cluster {
    /// Starts one without controllers: quick, and nothing happens in it by itself. Its pods need no service account. The
    /// folder of its programs is built when it is not there.
    ///
    /// # Panics
    /// When it does not start.
    pub fn up() -> Self {
        Self::of("up", None)
    }

    /// Starts a whole one, with kube-controller-manager and kube-scheduler.
    ///
    /// # Panics
    /// When it does not start.
    pub fn whole() -> Self {
        Self::of("whole", None)
    }

    /// As [`Cluster::whole`]; what it signs for nodes is good so long only, as `10m`.
    ///
    /// # Panics
    /// When it does not start.
    pub fn signing_for(duration: &str) -> Self {
        Self::of("whole", Some(duration))
    }

    fn of(order: &str, signing: Option<&str>) -> Self {
        let parent = tempfile::Builder::new().prefix("bhc").tempdir().expect("a folder");
        // The namespace is named by the folder.
        let name = parent.path().file_name().expect("a name").to_string_lossy().replace('.', "");
        // The node's processes are other users, and read the authority's certificate.
        let open = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(parent.path(), open).expect("the folder's mode");
        let signing = signing.map(str::to_owned);
        let cluster = Self { dir: parent.path().join(name), signing, _parent: parent };
        cluster.script(&[order]);
        cluster
    }

    /// What the kubelet would have: a kubeconfig of `system:node:node-a`.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("node.kubeconfig")
    }

    /// The part of a node's configuration by which it knows who calls it.
    pub fn node_configuration(&self) -> PathBuf {
        self.dir.join("node.yaml")
    }

    /// A kubeconfig whose token may ask for a node's certificate and no more, and the cluster's leave to sign it and what
    /// follows: as kubeadm sets it up.
    ///
    /// # Panics
    /// When the cluster refuses.
    pub fn bootstrap_kubeconfig(&self) -> PathBuf {
        let token = serde_json::json!({
            "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}
        });
        self.ask("POST", "/api/v1/namespaces/kube-system/secrets", &token);
        let own = "system:certificates.k8s.io:certificatesigningrequests";
        for (name, group, role) in [
            ("bootstrap", "system:bootstrappers", "system:node-bootstrapper".to_owned()),
            ("approve", "system:bootstrappers", format!("{own}:nodeclient")),
            ("rotate", "system:nodes", format!("{own}:selfnodeclient")),
        ] {
            let binding = serde_json::json!({
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}]
            });
            self.ask("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding);
        }
        let authority = self.dir.join("pki/ca.crt");
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster":
                {"server": "https://203.0.113.10:6443", "certificate-authority": authority}}],
            "users": [{"name": "c", "user": {"token": "abcdef.0123456789abcdef"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]
        });
        let path = self.dir.join("bootstrap.kubeconfig");
        std::fs::write(&path, config.to_string()).expect("the bootstrap kubeconfig");
        path
    }

    /// That of who may do everything.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.kubeconfig")
    }

    /// The network namespace that the API server is in.
    ///
    /// # Panics
    /// When it is gone.
    pub fn network(&self) -> File {
        let name = format!("/run/netns/{}", self.namespace());
        File::open(&name).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// kubectl as its administrator, inside its network.
    ///
    /// # Panics
    /// When it cannot be run.
    pub fn kubectl(&self, arguments: &[&str]) -> std::process::Output {
        let mut kubectl = Command::new("nsenter");
        kubectl.arg(format!("--net=/run/netns/{}", self.namespace())).arg("--");
        kubectl.arg(programs("cluster").join("kubectl")).arg("--kubeconfig").arg(self.admin_kubeconfig());
        kubectl.args(arguments).stdin(Stdio::null()).output().expect("kubectl")
    }

    /// Links a node's network namespace to the cluster's, so that the node reaches the API server.
    ///
    /// # Panics
    /// When there is none with this name, or it is linked already.
    pub fn connect(&self, node: &str) {
        let own = self.namespace();
        let run = |line: &str| {
            let output = Command::new("ip").args(line.split(' ')).output().expect("ip");
            assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
        };
        run(&format!("-n {node} link add cluster type veth peer name node netns {own}"));
        for (namespace, link, address) in
            [(node, "cluster", "198.51.100.2/24"), (own.as_str(), "node", "198.51.100.1/24")]
        {
            run(&format!("-n {namespace} address add {address} dev {link}"));
            run(&format!("-n {namespace} link set {link} up"));
        }
        run(&format!("-n {node} route add 203.0.113.10/32 via 198.51.100.1"));
        // And back, so that the API server reaches the node by the address that it tells.
        run(&format!("-n {own} route add 192.0.2.10/32 via 198.51.100.2"));
    }

    /// Asks the API server as its administrator; a body is JSON.
    ///
    /// # Panics
    /// When it refuses.
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let pki = |name: &str| self.dir.join("pki").join(name);
        let mut curl = Command::new("nsenter");
        curl.arg(format!("--net=/run/netns/{}", self.namespace())).args([
            "--",
            "curl",
            "-sS",
            "--fail-with-body",
        ]);
        curl.arg("--cacert")
            .arg(pki("ca.crt"))
            .arg("--cert")
            .arg(pki("admin.crt"))
            .arg("--key")
            .arg(pki("admin.key"));
        curl.args(["-X", method, "-H", "Content-Type: application/json"]);
        if !body.is_null() {
            curl.arg("--data-binary").arg("@-");
        }
        curl.arg(format!("https://203.0.113.10:6443{path}"));
        let mut child =
            curl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("curl");
        let mut stdin = child.stdin.take().expect("its input");
        if !body.is_null() {
            stdin.write_all(body.to_string().as_bytes()).expect("its input");
        }
        drop(stdin);
        let output = child.wait_with_output().expect("curl");
        let text = String::from_utf8_lossy(&output.stdout);
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{method} {path}: {text} {why}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// The certificate (PEM) that a request (PEM) asks for, signed by the cluster's authority for a day.
    ///
    /// # Panics
    /// When it cannot be signed.
    pub fn sign(&self, request: &[u8]) -> Vec<u8> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("csr"), request).expect("the request");
        std::fs::write(file("usage"), "extendedKeyUsage=clientAuth,serverAuth\nkeyUsage=digitalSignature\n")
            .expect("usages");
        let pki = |name: &str| self.dir.join("pki").join(name);
        let mut openssl = Command::new("openssl");
        openssl
            .args(["x509", "-req", "-days", "1", "-CAcreateserial", "-copy_extensions", "copy", "-in"])
            .arg(file("csr"));
        openssl.arg("-CA").arg(pki("ca.crt")).arg("-CAkey").arg(pki("ca.key"));
        let output = openssl.arg("-extfile").arg(file("usage")).output().expect("openssl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// Name of its network namespace.
    pub fn namespace(&self) -> String {
        format!("bulkhead-{}", self.dir.file_name().unwrap_or_default().to_string_lossy())
    }

    /// Ends one of its programs, such as `kube-apiserver`.
    ///
    /// # Panics
    /// When there is none.
    pub fn stop(&self, program: &str) {
        self.script(&["stop", program]);
    }

    /// Starts what was [stopped](Cluster::stop), and waits until it answers.
    ///
    /// # Panics
    /// When it does not.
    pub fn start(&self, program: &str) {
        self.script(&["start", program]);
    }

    /// An order of the script's, and what it is about beside the cluster.
    fn script(&self, order: &[&str]) {
        let (order, about) = order.split_first().expect("an order");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cluster/cluster");
        let path = std::env::var("PATH").unwrap_or_default();
        let set = if *order == "whole" { "cluster" } else { "apiserver" };
        let path = format!("{}:{path}", programs(set).display());
        let mut command = Command::new(script);
        command.arg(order).arg(&self.dir).args(about).env("PATH", path).stdin(Stdio::null());
        command.envs(self.signing.as_ref().map(|duration| ("CLUSTER_SIGNING_DURATION", duration)));
        let status = command.status();
        assert!(status.expect("tests/cluster/cluster").success(), "tests/cluster/cluster {order} failed");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.script(&["down"]);
    }
}

/// The peers with those of this set (`cluster`, `apiserver`) among them.
///
/// # Panics
/// When they cannot be built.
pub fn programs(set: &str) -> PathBuf {
    let some = peers();
    let last = if set == "cluster" { "kube-scheduler" } else { "kube-apiserver" };
    if some.join(last).exists() {
        return some;
    }
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers/build");
    let output = Command::new(build).arg(set).stderr(Stdio::inherit()).output();
    let output = output.expect("tests/peers/build");
    assert!(output.status.success(), "tests/peers/build {set} failed");
    String::from_utf8_lossy(&output.stdout).trim().into()
}
