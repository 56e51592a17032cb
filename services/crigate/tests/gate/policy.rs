//! Argument rules: what a policy file refuses never reaches the runtime, and what passes arrives as it was judged.

use std::path::Path;

use bulkhead_api::cri::v1;
use bulkhead_service::{Exit, Service};
use bulkhead_testkit::TestNode;
use bulkhead_testkit::cri::{FakeRuntime, Method};
use bytes::{BufMut, Bytes, BytesMut};
use crigate::{Crigate, Flags};
use http_body_util::Full;
use prost::Message;
use tonic::Code;

use crate::runtime::{ByteRuntime, good};
use crate::support::{BOUND, EMPTY, Gate, Raw, runtime_client};

const POLICY: &str = r#"
[rules]
privileged = false
hostNetwork = false
capabilities = []
seccomp = ["RuntimeDefault"]
hostPaths = { allow = [] }
[[exception]]
namespace = "kube-system"
rules = { privileged = true }
"#;

fn flags(node: &TestNode, text: &str) -> Flags {
    let file = node.dir().join("policy.toml");
    std::fs::write(&file, text).unwrap();
    Flags { policy: Some(file) }
}

async fn gate(runtime: &Path, policy: &str) -> Gate {
    let mut node = TestNode::new().await;
    node.config.container_runtime_endpoint = format!("unix://{}", runtime.display());
    let (flags, identities) = (flags(&node, policy), node.identities());
    Gate::start_flagged(node, identities, flags).await
}

fn confined() -> Option<v1::SecurityProfile> {
    Some(v1::SecurityProfile::default())
}

fn sandbox_config(gate: &Gate, namespace: &str) -> v1::PodSandboxConfig {
    let security = v1::LinuxSandboxSecurityContext { seccomp: confined(), ..Default::default() };
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: "p".into(),
            uid: "u".into(),
            namespace: namespace.into(),
            attempt: 0,
        }),
        log_directory: gate.node.dir().join("logs/default_p_u").display().to_string(),
        linux: Some(v1::LinuxPodSandboxConfig { security_context: Some(security), ..Default::default() }),
        ..Default::default()
    }
}

fn container(
    sandbox: &str,
    config: v1::PodSandboxConfig,
    change: impl FnOnce(&mut v1::ContainerConfig, &mut v1::LinuxContainerSecurityContext),
) -> v1::CreateContainerRequest {
    let mut security = v1::LinuxContainerSecurityContext { seccomp: confined(), ..Default::default() };
    let mut container = v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata { name: "c".into(), attempt: 0 }),
        image: Some(v1::ImageSpec { image: "local/busybox:1".into(), ..Default::default() }),
        log_path: "c/0.log".into(),
        ..Default::default()
    };
    change(&mut container, &mut security);
    container.linux =
        Some(v1::LinuxContainerConfig { security_context: Some(security), ..Default::default() });
    v1::CreateContainerRequest {
        pod_sandbox_id: sandbox.into(),
        config: Some(container),
        sandbox_config: Some(config),
    }
}

fn mount(path: impl AsRef<Path>) -> v1::Mount {
    let host_path = path.as_ref().display().to_string();
    v1::Mount { container_path: "/m".into(), host_path, ..Default::default() }
}

#[tokio::test]
async fn what_the_policy_refuses_does_not_arrive_and_says_which_rule_and_file() {
    let directory = tempfile::tempdir().unwrap();
    let fake = FakeRuntime::start(directory.path()).await.unwrap();
    fake.add_image("local/busybox:1");
    let gate = gate(fake.socket(), POLICY).await;
    let mut syncd = runtime_client(&gate, "syncd");
    let config = sandbox_config(&gate, "default");
    let run = |config: v1::PodSandboxConfig| v1::RunPodSandboxRequest {
        config: Some(config),
        ..Default::default()
    };
    let sandbox = syncd.run_pod_sandbox(run(config.clone())).await.unwrap().into_inner().pod_sandbox_id;

    let mut host = config.clone();
    let options = v1::NamespaceOption { network: v1::NamespaceMode::Node.into(), ..Default::default() };
    host.linux.as_mut().unwrap().security_context.as_mut().unwrap().namespace_options = Some(options);
    let refused = syncd.run_pod_sandbox(run(host)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(
        refused.message(),
        format!(
            "`syncd` may not call RuntimeService/RunPodSandbox for pod default/p: the sandbox uses the host's network \
             (rule rules.hostNetwork); the node policy {} decides that",
            gate.node.dir().join("policy.toml").display()
        )
    );
    let pods = gate.node.root_dir().join("pods");
    std::fs::create_dir_all(pods.join("u/volumes")).unwrap();
    std::fs::create_dir_all(pods.join("other")).unwrap();
    std::os::unix::fs::symlink("/etc", pods.join("u/volumes/link")).unwrap();
    type Change = Box<dyn FnOnce(&mut v1::ContainerConfig, &mut v1::LinuxContainerSecurityContext)>;
    let refused: [(Change, &str); 9] = [
        (Box::new(|_, s| s.privileged = true), "rules.privileged"),
        (Box::new(|_, s| s.seccomp = None), "rules.seccomp"),
        (
            Box::new(|_, s| {
                s.capabilities.get_or_insert_default().add_capabilities = vec!["SYS_ADMIN".into()]
            }),
            "rules.capabilities",
        ),
        (
            Box::new(|_, s| {
                s.capabilities.get_or_insert_default().add_ambient_capabilities = vec!["SYS_ADMIN".into()]
            }),
            "rules.capabilities",
        ),
        (Box::new(|c, _| c.mounts = vec![mount("/etc")]), "rules.hostPaths"),
        (
            Box::new({
                let p = pods.clone();
                move |c, _| c.mounts = vec![mount(p.join("other"))]
            }),
            "rules.hostPaths",
        ),
        (
            Box::new({
                let p = pods.clone();
                move |c, _| c.mounts = vec![mount(p.join("u/volumes/link"))]
            }),
            "rules.hostPaths",
        ),
        (
            Box::new({
                let p = pods.clone();
                move |c, _| c.mounts = vec![mount(p.join("u/volumes/../../other"))]
            }),
            "rules.hostPaths",
        ),
        (Box::new(|c, _| c.log_path = "../../x".into()), "rules.hostPaths"),
    ];
    for (change, rule) in refused {
        let error = syncd.create_container(container(&sandbox, config.clone(), change)).await.unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied, "{rule}");
        assert!(error.message().contains(&format!("(rule {rule})")), "{}", error.message());
    }
    assert_eq!((fake.log().count(Method::CreateContainer), fake.log().count(Method::RunPodSandbox)), (0, 1));
    assert_eq!(gate.count("syncd", "RuntimeService/CreateContainer").await, (0, 9, 0));

    let own = |c: &mut v1::ContainerConfig, _: &mut _| c.mounts = vec![mount(pods.join("u/volumes/new"))];
    syncd.create_container(container(&sandbox, config.clone(), own)).await.unwrap();
    let system = sandbox_config(&gate, "kube-system");
    let privileged = |c: &mut v1::ContainerConfig, s: &mut v1::LinuxContainerSecurityContext| {
        c.metadata = Some(v1::ContainerMetadata { name: "c".into(), attempt: 1 });
        s.privileged = true;
    };
    let made = container(&sandbox, system, privileged);
    syncd.create_container(made).await.unwrap();
    assert_eq!(fake.log().count(Method::CreateContainer), 2);
}

fn framed(flag: u8, payload: &[u8]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(flag);
    bytes.put_u32(u32::try_from(payload.len()).unwrap());
    bytes.extend_from_slice(payload);
    bytes.freeze()
}

#[tokio::test]
async fn only_what_was_understood_is_sent() {
    let runtime = ByteRuntime::start(|_| Some(good(vec![http_body_frame()])));
    let gate = gate(&runtime.socket(), "[rules]\nprivileged = false\n").await;
    let mut raw = gate.raw("syncd").await;
    let request = |bytes: Bytes| Raw::request("RuntimeService/RunPodSandbox").map(|_| Full::new(bytes));
    let message = v1::RunPodSandboxRequest { runtime_handler: "h".into(), ..Default::default() };
    let plain = message.encode_to_vec();

    // A field of another release: number 1000, one byte of text.
    let mut newer = plain.clone();
    newer.extend_from_slice(&[0xc2, 0x3e, 0x01, b'x']);
    let answer = raw.call(request(framed(0, &newer))).await;
    assert_eq!(answer.status().code(), Code::Ok);
    let arrived: Vec<_> =
        runtime.arrived().into_iter().filter(|a| a.path.ends_with("RunPodSandbox")).collect();
    assert_eq!(arrived.len(), 1);
    assert_eq!(arrived[0].body, framed(0, &plain), "what was judged, and no more");

    let two = [framed(0, &plain), framed(0, &plain)].concat();
    for (bytes, why) in [
        (framed(1, &plain), "compressed"),
        (framed(0, b"\xff\xff"), "no message of this method"),
        (Bytes::from(two), "exactly one message"),
        (Bytes::new(), "no message"),
        (framed(0, &vec![0; 3 << 20]), "larger than"),
    ] {
        let status = raw.call(request(bytes)).await.status();
        assert_eq!(status.code(), Code::PermissionDenied, "{why}");
        assert!(status.message().contains(why), "{}", status.message());
    }
    assert!(!runtime.arrived().iter().any(|a| a.path.ends_with("RunPodSandbox")), "nothing of it arrived");
    // Other methods are not looked at.
    let other = Raw::request("RuntimeService/StopPodSandbox").map(|_| Full::new(framed(0, b"\xff\xff")));
    assert_eq!(raw.call(other).await.status().code(), Code::Ok);
}

fn http_body_frame() -> hyper::body::Frame<Bytes> {
    hyper::body::Frame::data(Bytes::from_static(EMPTY))
}

#[tokio::test]
async fn a_broken_policy_file_refuses_the_start_with_line_and_field() {
    let node = TestNode::new().await;
    let flags = flags(&node, "[rules]\nprivileged = 1\n");
    let run = Crigate::run(node.context(Crigate::NAME), flags);
    let error = tokio::time::timeout(BOUND, run).await.expect("an end").unwrap_err();
    assert_eq!(error.exit, Exit::Configuration);
    let text = bulkhead_base::chain(&error).to_string();
    assert!(text.contains("policy.toml") && text.contains("line 2") && text.contains("privileged"), "{text}");
}
