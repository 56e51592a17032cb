//! The secured port of a node in a real cluster: what kubectl does through the API server, and who is turned away.
#![cfg(test)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use bulkhead_e2e::cluster::{Cluster, programs};
use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::{pods, wait};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;

/// Two nodes at once would be one too many for the machine.
static ONE: Mutex<()> = Mutex::const_new(());

const POD: &str = "a-node-a";
const BOUND: Duration = Duration::from_secs(60);

struct Bench {
    cluster: Cluster,
    node: RealNode,
    _config: tempfile::TempDir,
}

impl Bench {
    /// A cluster and a node in it whose secured port takes the cluster's clients.
    async fn up(more: &Value) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let cluster = Cluster::up();
        let folder = tempfile::tempdir().unwrap();
        // gateway reads the authorities itself, as its own user.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let ca = folder.path().join("ca.crt");
        std::fs::copy(pki(&cluster, "ca.crt"), &ca).unwrap();
        let mut config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"x509": {"clientCAFile": ca}},
        });
        for (name, value) in more.as_object().unwrap() {
            config[name] = value.clone();
        }
        let file = folder.path().join("config.yaml");
        std::fs::write(&file, config.to_string()).unwrap();
        let node = RealNode::up_in(&cluster, &["--config", &file.to_string_lossy()]).await;
        Self { cluster, node, _config: folder }
    }

    /// A pod that says something, echoes on a port, and is there in the cluster.
    async fn with_pod() -> Self {
        let bench = Self::up(&json!({})).await;
        let mut pod = pods::simple("a");
        let script = "echo first; echo second >&2; nc -ll -p 8000 -e cat & wait";
        let talk = "while :; do echo tick; sleep 1; done";
        pod["spec"]["containers"] = json!([pods::container("c", script), pods::container("talk", talk)]);
        bench.node.put("a.yaml", &pod);
        wait::within(BOUND, "the copy runs", async || {
            let pod = bench.kubectl(&["get", "pod", POD, "-o", "json"]);
            let pod: Value = serde_json::from_slice(&pod.stdout).ok()?;
            let ready = pod["status"]["containerStatuses"]
                .as_array()?
                .iter()
                .all(|container| container["ready"] == true);
            ready.then_some(())
        })
        .await;
        bench
    }

    /// A command in the cluster's network.
    fn inside(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", namespace(&self.cluster))).arg("--").arg(program);
        command
    }

    fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.inside(&programs("cluster").join("kubectl"));
        command.arg("--kubeconfig").arg(self.cluster.admin_kubeconfig()).args(arguments);
        command.stdin(Stdio::null());
        command
    }

    fn kubectl(&self, arguments: &[&str]) -> Output {
        self.kubectl_command(arguments).output().unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.kubectl(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {said}\n{}", self.node.said());
        String::from_utf8(output.stdout).unwrap()
    }

    /// kubectl with this input; its output.
    fn fed(&self, arguments: &[&str], input: Vec<u8>) -> Vec<u8> {
        let mut command = self.kubectl_command(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", output.status);
        output.stdout
    }

    /// curl at the secured port; code and body.
    fn curl(&self, arguments: &[&str], path: &str) -> (u16, String) {
        let mut curl = self.inside(Path::new("curl"));
        let url = format!("https://192.0.2.10:10250{path}");
        let output = curl
            .args(["-sk", "--path-as-is", "-w", "\n%{http_code}"])
            .args(arguments)
            .arg(url)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, code) = text.rsplit_once('\n').unwrap();
        (code.parse().unwrap(), body.to_owned())
    }

    fn identity(&self, name: &str) -> [String; 4] {
        let file = |kind: &str| pki(&self.cluster, &format!("{name}.{kind}")).to_string_lossy().into_owned();
        ["--cert".to_owned(), file("crt"), "--key".to_owned(), file("key")]
    }
}

fn pki(cluster: &Cluster, file: &str) -> PathBuf {
    cluster.admin_kubeconfig().with_file_name("pki").join(file)
}

fn namespace(cluster: &Cluster) -> String {
    let folder = cluster.admin_kubeconfig();
    let name = folder.parent().and_then(Path::file_name).unwrap().to_string_lossy().into_owned();
    format!("bulkhead-{name}")
}

fn bytes(length: u32) -> Vec<u8> {
    // No byte of it is where a multiple of a power of two would have it again.
    (0..length).map(|n| u8::try_from((n ^ n >> 11) % 253).unwrap()).collect()
}

fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A child that ends with the test.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn kubectl_reaches_into_a_pod() {
    let _one = ONE.lock().await;
    let mut bench = Bench::with_pod().await;
    let all = bench.text(&["logs", POD]);
    assert!(all.contains("first\n") && all.contains("second\n"), "{all}");
    assert_eq!(bench.text(&["logs", POD, "--limit-bytes=3"]).len(), 3);
    assert_eq!(bench.text(&["logs", POD, "--tail=0"]), "");

    // Output, errors and codes of commands.
    let output = bench.kubectl(&["exec", POD, "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(output.stdout, b"out\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("err\n"), "{output:?}");
    let output = bench.kubectl(&["exec", POD, "-c", "nope", "--", "true"]);
    assert!(!output.status.success(), "{output:?}");
    assert!(!bench.kubectl(&["exec", POD, "--", "/no/such/program"]).status.success());

    // Much of both ways at once, to the byte.
    let sent = bytes(100 * 1024 * 1024);
    let got = bench.fed(&["exec", "-i", POD, "--", "cat"], sent.clone());
    assert_eq!((got.len(), sum(&got)), (sent.len(), sum(&sent)));
    let told = bench.fed(&["exec", "-i", POD, "--", "sha256sum"], sent.clone());
    assert_eq!(String::from_utf8_lossy(&told).split_whitespace().next(), Some(sum(&sent).as_str()));

    // What the API server passes on of the node itself.
    assert_eq!(bench.text(&["get", "--raw", "/api/v1/nodes/node-a/proxy/healthz"]), "ok");
    let config: Value =
        serde_json::from_str(&bench.text(&["get", "--raw", "/api/v1/nodes/node-a/proxy/configz"])).unwrap();
    assert_eq!(config["kubeletconfig"]["port"], 10250);
    assert!(
        bench
            .text(&["get", "--raw", "/api/v1/nodes/node-a/proxy/metrics/resource"])
            .contains("node_cpu_usage")
    );

    // Files, and a terminal's first process.
    let file = tempfile::NamedTempFile::new().unwrap();
    let sent = bytes(20 * 1024 * 1024);
    std::fs::write(file.path(), &sent).unwrap();
    let from = file.path().to_string_lossy().into_owned();
    bench.text(&["cp", &from, &format!("{POD}:/tmp/there")]);
    let back = tempfile::NamedTempFile::new().unwrap();
    let to = back.path().to_string_lossy().into_owned();
    bench.text(&["cp", &format!("{POD}:/tmp/there"), &to]);
    assert_eq!(sum(&std::fs::read(back.path()).unwrap()), sum(&sent));

    // The output of the first process goes on for as long as somebody looks.
    let mut attach = bench.inside(Path::new("timeout"));
    attach
        .arg("4")
        .arg(programs("cluster").join("kubectl"))
        .arg("--kubeconfig")
        .arg(bench.cluster.admin_kubeconfig());
    let attached = attach.args(["attach", POD, "-c", "talk"]).stdin(Stdio::null()).output().unwrap();
    assert!(String::from_utf8_lossy(&attached.stdout).matches("tick\n").count() >= 2, "{attached:?}");
    let mut follow = bench.inside(Path::new("timeout"));
    follow
        .arg("4")
        .arg(programs("cluster").join("kubectl"))
        .arg("--kubeconfig")
        .arg(bench.cluster.admin_kubeconfig());
    let followed =
        follow.args(["logs", "-f", "--tail=1", POD, "-c", "talk"]).stdin(Stdio::null()).output().unwrap();
    assert!(String::from_utf8_lossy(&followed.stdout).matches("tick\n").count() >= 3, "{followed:?}");

    // gateway dies: what comes after it is as before.
    let pid = bench.node.kill("gateway");
    bench.node.back("gateway", pid, BOUND).await;
    assert_eq!(bench.text(&["exec", POD, "--", "echo", "again"]), "again\n");
    assert!(bench.node.down().await, "{}", bench.node.said());
}

/// The forward's end of a port on this machine.
fn connect(port: u16) -> TcpStream {
    for _ in 0..300 {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => {
                stream.set_read_timeout(Some(BOUND)).unwrap();
                return stream;
            }
            Err(_) => std::thread::park_timeout(Duration::from_millis(100)),
        }
    }
    panic!("nothing listens on {port}");
}

/// Sends `sent` and takes as much back; the sum of that.
fn echo(mut stream: TcpStream, sent: &[u8]) -> String {
    // The runtime gives the other direction a second once one has ended: nobody ends his before he has all.
    let mut writer = stream.try_clone().unwrap();
    let mut got = vec![0; sent.len()];
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(sent).unwrap());
        stream.read_exact(&mut got).unwrap();
    });
    sum(&got)
}

/// Sends and takes a part, and breaks off with a reset.
fn reset(mut stream: TcpStream, sent: &[u8]) {
    stream.write_all(&sent[..128 * 1024]).unwrap();
    stream.read_exact(&mut [0; 64 * 1024]).unwrap();
    let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &at_once).unwrap();
}

#[tokio::test]
async fn one_broken_connection_leaves_the_others_of_a_forward() {
    let _one = ONE.lock().await;
    let mut bench = Bench::with_pod().await;
    let said = tempfile::NamedTempFile::new().unwrap();
    // Nobody listens on 8001.
    let ports = ["port-forward", &format!("pod/{POD}"), "18000:8000", "18001:8001"];
    let mut forward = bench.kubectl_command(&ports);
    let mut forward = Ending(forward.stdout(Stdio::null()).stderr(said.reopen().unwrap()).spawn().unwrap());
    let network = bench.cluster.network();
    let echoes = std::thread::spawn(move || {
        nix::sched::setns(&network, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        let sent = bytes(1024 * 1024);
        let refused = || connect(18001).read_to_end(&mut Vec::new());
        assert!(refused().is_ok_and(|read| read == 0));
        // All of them are open before the first one breaks. The pod's nc takes but two at a time, and the system resets some of
        // those beyond: each one is heard of before the next one comes.
        let all: Vec<_> = (0..50)
            .map(|_| {
                let mut stream = connect(18000);
                stream.write_all(b"x").unwrap();
                stream.read_exact(&mut [0]).unwrap();
                stream
            })
            .collect();
        std::thread::scope(|scope| {
            let all: Vec<_> = all
                .into_iter()
                .enumerate()
                .map(|(number, stream)| {
                    let sent = &sent;
                    scope.spawn(move || {
                        if number == 7 {
                            reset(stream, sent);
                        } else {
                            assert_eq!(echo(stream, sent), sum(sent));
                        }
                    })
                })
                .collect();
            for one in all {
                one.join().unwrap();
            }
        });
        // It goes on after them.
        assert!(refused().is_ok_and(|read| read == 0));
        assert_eq!(echo(connect(18000), &sent), sum(&sent));
    });
    let echoed = echoes.join();
    let said = std::fs::read_to_string(said.path()).unwrap_or_default();
    assert!(echoed.is_ok(), "{said}\n{}", bench.node.said());
    assert!(forward.0.try_wait().unwrap().is_none(), "{said}");
    drop(forward);
    assert!(bench.node.down().await, "{}", bench.node.said());
}

/// A WebSocket straight to the secured port, as the cluster's administrator: TLS is openssl's.
struct WebSocket {
    openssl: Ending,
    to: std::process::ChildStdin,
    from: std::process::ChildStdout,
    /// The protocol that was agreed on.
    protocol: String,
}

impl WebSocket {
    fn open(bench: &Bench, path: &str, protocols: &str) -> Self {
        let mut openssl = bench.inside(Path::new("openssl"));
        openssl.args(["s_client", "-quiet", "-connect", "192.0.2.10:10250"]).args(
            bench.identity("admin").map(|part| {
                if part.starts_with("--") {
                    part.trim_start_matches('-').replace("cert", "-cert").replace("key", "-key")
                } else {
                    part
                }
            }),
        );
        openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = openssl.spawn().unwrap();
        let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {protocols}\r\n\r\n"
        );
        to.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            from.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let agreed = head
            .to_lowercase()
            .lines()
            .find_map(|line| line.strip_prefix("sec-websocket-protocol: ").map(str::to_owned));
        Self { openssl: Ending(child), to, from, protocol: agreed.unwrap_or_default() }
    }

    /// Sends a message of less than 64 KiB.
    fn send(&mut self, message: &[u8]) {
        let mut frame = vec![0x82];
        match u8::try_from(message.len()).ok().filter(|length| *length < 126) {
            Some(length) => frame.push(0x80 | length),
            None => {
                frame.push(0x80 | 126);
                frame.extend(u16::try_from(message.len()).unwrap().to_be_bytes());
            }
        }
        // Masked with nothing.
        frame.extend([0; 4]);
        frame.extend(message);
        self.to.write_all(&frame).unwrap();
    }

    /// The next message: its channel and content; `None`: the other side closes.
    fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            let mut head = [0; 2];
            self.from.read_exact(&mut head).ok()?;
            let mut length = u64::from(head[1] & 0x7f);
            if length == 126 {
                let mut more = [0; 2];
                self.from.read_exact(&mut more).ok()?;
                length = u16::from_be_bytes(more).into();
            } else if length == 127 {
                let mut more = [0; 8];
                self.from.read_exact(&mut more).ok()?;
                length = u64::from_be_bytes(more);
            }
            let mut content = vec![0; usize::try_from(length).unwrap()];
            self.from.read_exact(&mut content).ok()?;
            match head[0] & 0x0f {
                0..=2 => {
                    let (channel, content) = content.split_first()?;
                    return Some((*channel, content.to_vec()));
                }
                8 => return None,
                _ => {}
            }
        }
    }

    /// All output, and the status at the end.
    fn rest(mut self) -> (String, Value) {
        let (mut output, mut status) = (Vec::new(), Value::Null);
        while let Some((channel, content)) = self.receive() {
            match channel {
                1 => output.extend(content),
                3 => status = serde_json::from_slice(&content).unwrap(),
                _ => {}
            }
        }
        drop(self.openssl);
        (String::from_utf8(output).unwrap(), status)
    }
}

#[tokio::test]
async fn websockets_stream_to_the_end_of_the_command() {
    let _one = ONE.lock().await;
    let mut bench = Bench::with_pod().await;
    let exec = |words: &[&str], more: &str| {
        let command: Vec<_> = words
            .iter()
            .map(|word| format!("command={}", word.replace(' ', "+").replace(';', "%3B")))
            .collect();
        format!("/exec/default/{POD}/c?{}&output=1{more}", command.join("&"))
    };
    // Without input asked for, output goes on until the command's end, whose code is told.
    let path = exec(&["sh", "-c", "echo 1; sleep 1; echo 2; exit 3"], "");
    for protocols in ["v5.channel.k8s.io, v4.channel.k8s.io", "v4.channel.k8s.io"] {
        let (output, status) = WebSocket::open(&bench, &path, protocols).rest();
        assert_eq!(output, "1\n2\n", "{protocols}");
        assert_eq!(status["details"]["causes"][0]["message"], "3", "{protocols}: {status}");
    }
    let mut socket =
        WebSocket::open(&bench, &exec(&["wc", "-c"], "&input=1"), "v5.channel.k8s.io, v4.channel.k8s.io");
    let agreed = socket.protocol.clone();
    for _ in 0..1024 {
        socket.send(&[&[0][..], &[b'x'; 10 * 1024]].concat());
    }
    if agreed == "v5.channel.k8s.io" {
        // The end of the input alone.
        socket.send(&[255, 0]);
        let (output, status) = socket.rest();
        assert_eq!((output.trim(), &status["status"]), ("10485760", &json!("Success")));
    }
    assert!(bench.node.down().await, "{}", bench.node.said());
}

#[tokio::test]
async fn nobody_reaches_a_node_past_its_api_server() {
    let _one = ONE.lock().await;
    let mut bench = Bench::up(&json!({})).await;
    wait::within(BOUND, "the node has its certificate", async || {
        (bench.curl(&[], "/pods").0 == 401).then_some(())
    })
    .await;
    let (admin, node) = (bench.identity("admin"), bench.identity("node"));
    let (admin, node) = (admin.each_ref().map(String::as_str), node.each_ref().map(String::as_str));
    for path in
        ["/pods", "/exec/default/x/y", "/metrics", "/healthz", "/nope", "//pods", "/metrics/..%2fpods"]
    {
        assert_eq!(bench.curl(&[], path).0, 401, "{path}");
        assert_eq!(bench.curl(&["-H", "Authorization: Bearer nonsense"], path).0, 401, "{path}");
        // The node itself has no right to the node.
        let (code, body) = bench.curl(&node, path);
        assert_eq!(code, 403, "{path}: {body}");
        assert!(body.starts_with("Forbidden (user=system:node:node-a, verb="), "{body}");
    }
    for path in ["/pods", "/metrics", "/healthz"] {
        assert_eq!(bench.curl(&admin, path).0, 200, "{path}");
    }

    // A service account's token, with the narrow right and not the wide one.
    let make = |path: &str, body: &Value| bench.cluster.ask("POST", path, body);
    make("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "prom"}}));
    let rules = json!([{"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]}]);
    make(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        &json!({"metadata": {"name": "prom"}, "rules": rules}),
    );
    let subjects = json!([{"kind": "ServiceAccount", "name": "prom", "namespace": "default"}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "prom"});
    let binding = json!({"metadata": {"name": "prom"}, "subjects": subjects, "roleRef": role});
    make("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding);
    let token = |audience: &Value| {
        let request = json!({"spec": {"audiences": audience, "expirationSeconds": 600}});
        let made = make("/api/v1/namespaces/default/serviceaccounts/prom/token", &request);
        format!("Authorization: Bearer {}", made["status"]["token"].as_str().unwrap())
    };
    let header = token(&json!(null));
    wait::within(BOUND, "the right is known", async || {
        (bench.curl(&["-H", &header], "/metrics/resource").0 == 200).then_some(())
    })
    .await;
    assert_eq!(bench.curl(&["-H", &header], "/pods").0, 403);
    assert_eq!(
        bench.curl(&["-H", &token(&json!(["elsewhere"]))], "/metrics/resource").0,
        401,
        "another audience"
    );
    assert!(bench.node.down().await, "{}", bench.node.said());
}

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Requests for serving certificates.
fn serving(cluster: &Cluster) -> Vec<Value> {
    let all = cluster.ask("GET", REQUESTS, &Value::Null);
    let items = all["items"].as_array().unwrap().clone();
    let wanted = |item: &Value| item["spec"]["signerName"] == "kubernetes.io/kubelet-serving";
    items.into_iter().filter(wanted).collect()
}

/// Waits for the node's request, sees that nothing is shown before it is signed, and signs it.
async fn sign(cluster: &Cluster) {
    let request = wait::within(2 * BOUND, "the request", async || serving(cluster).pop()).await;
    assert_eq!(request["spec"]["usages"], json!(["digital signature", "server auth"]));
    assert_eq!(request["spec"]["username"], "system:node:node-a");
    let mut curl = Command::new("nsenter");
    curl.arg(format!("--net=/run/netns/{}", namespace(cluster)));
    let shown = curl.args(["--", "curl", "-sk", "https://192.0.2.10:10250/healthz"]).output().unwrap();
    assert_eq!(shown.status.code(), Some(35), "no TLS: {shown:?}");

    let name = request["metadata"]["name"].as_str().unwrap();
    let mut approved = request.clone();
    approved["status"]["conditions"] =
        json!([{"type": "Approved", "status": "True", "reason": "Test", "message": "by a test"}]);
    let mut approved = cluster.ask("PUT", &format!("{REQUESTS}/{name}/approval"), &approved);
    let pem =
        serde_json::from_value::<k8s_openapi::ByteString>(request["spec"]["request"].clone()).unwrap().0;
    let certificate = cluster.sign(&pem);
    approved["status"]["certificate"] = json!(bulkhead_testkit::apiserver::base64(&certificate));
    cluster.ask("PUT", &format!("{REQUESTS}/{name}/status"), &approved);
}

#[tokio::test]
async fn the_cluster_signs_what_a_node_shows() {
    let _one = ONE.lock().await;
    let cluster = Cluster::up();
    let file = tempfile::NamedTempFile::new().unwrap();
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "serverTLSBootstrap": true,
    });
    std::fs::write(file.path(), config.to_string()).unwrap();
    let config = file.path().to_string_lossy().into_owned();
    // The node is well once it has its certificate.
    let flags = ["--config", config.as_str()];
    let (mut node, ()) = tokio::join!(RealNode::up_in(&cluster, &flags), sign(&cluster));
    assert_eq!(serving(&cluster).len(), 1, "one request was enough");
    assert!(node.down().await, "{}", node.said());
}
