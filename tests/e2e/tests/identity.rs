//! Who a pod is and what it may: names, name servers, confinement, and whether the node takes it at all.
#![cfg(test)]

use std::os::unix::fs::PermissionsExt;

use bulkhead_e2e::fake_node::FakeNode;
use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::{pods, wait};
use bulkhead_testkit::cri::Method;
use serde_json::{Value, json};

fn with_port(name: &str, port: u16) -> Value {
    let mut pod = pods::simple(name);
    pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": port}]);
    pod
}

fn asking(name: &str, cpu: &str) -> Value {
    let mut pod = pods::simple(name);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
    pod
}

async fn failed_with(node: &FakeNode, name: &str, reason: &str) -> String {
    let status = node
        .status_where(name, reason, |s| {
            s.phase.as_deref() == Some("Failed") && s.reason.as_deref() == Some(reason)
        })
        .await;
    status.message.unwrap_or_default()
}

#[tokio::test]
async fn a_pod_that_does_not_fit_fails_with_the_reason_and_nothing_is_made_for_it() {
    let mut node = FakeNode::up().await;
    node.put("a.yaml", &with_port("a", 8080));
    node.ready("a").await;
    let made = node.runtime.log().count(Method::RunPodSandbox);
    node.put("b.yaml", &with_port("b", 8080));
    let message = failed_with(&node, "b", "NodePorts").await;
    assert!(message.contains("8080/TCP") && message.contains("a-node-a"), "{message}");
    node.put("c.yaml", &asking("c", "10000"));
    failed_with(&node, "c", "OutOfcpu").await;
    let mut windows = pods::simple("d");
    windows["spec"]["os"] = json!({"name": "windows"});
    node.put("d.yaml", &windows);
    failed_with(&node, "d", "PodOSNotSupported").await;
    let mut sysctl = pods::simple("e");
    sysctl["spec"]["hostNetwork"] = json!(true);
    sysctl["spec"]["securityContext"] =
        json!({"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]});
    node.put("e.yaml", &sysctl);
    failed_with(&node, "e", "SysctlForbidden").await;
    // A restart changes nothing of that, although there is room by then.
    node.kill("syncd");
    node.take("a.yaml");
    node.start("syncd");
    wait::until("a is gone", async || node.status("a").is_none().then_some(())).await;
    node.put("f.yaml", &pods::simple("f"));
    node.ready("f").await;
    failed_with(&node, "b", "NodePorts").await;
    assert_eq!(node.runtime.log().count(Method::RunPodSandbox), made + 1, "only f got a sandbox");
    // Put anew it is another attempt.
    node.take("b.yaml");
    wait::until("b is gone", async || node.status("b").is_none().then_some(())).await;
    node.put("b.yaml", &with_port("b", 8080));
    node.ready("b").await;
}

#[tokio::test]
async fn what_runs_is_never_rejected_whatever_became_of_the_node() {
    let mut node = FakeNode::up().await;
    for name in ["a", "b"] {
        node.put(&format!("{name}.yaml"), &pods::simple(name));
        node.ready(name).await;
    }
    let before = node.running();
    node.kill("syncd");
    node.node.config.max_pods = 1;
    // Not even its own memory is needed for it.
    for entry in walk(node.node.dir()) {
        if entry.ends_with("syncd/pods.json") {
            std::fs::remove_file(entry).unwrap();
        }
    }
    node.start("syncd");
    node.put("c.yaml", &pods::simple("c"));
    failed_with(&node, "c", "OutOfpods").await;
    assert_eq!(node.running(), before);
    for name in ["a", "b"] {
        node.ready(name).await;
    }
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => found.extend(walk(&path)),
            false => found.push(path),
        }
    }
    found
}

#[tokio::test]
async fn name_servers_come_from_the_nodes_file_and_a_missing_one_is_named() {
    let mut node = FakeNode::up().await;
    node.kill("syncd");
    let file = node.node.dir().join("resolv.conf");
    node.node.config.resolv_conf = file.display().to_string();
    node.node.config.cluster_dns = vec!["10.96.0.10".parse().unwrap()];
    node.node.config.cluster_domain = "cluster.local".into();
    node.start("syncd");
    node.put("a.yaml", &pods::with_spec(pods::simple("a"), "dnsPolicy", json!("ClusterFirst")));
    let why = node
        .status_where("a", "says what is missing", |s| {
            let waiting = s.container_statuses.as_ref().and_then(|c| c.first()?.state.clone()?.waiting);
            waiting.and_then(|w| w.message).is_some_and(|m| m.contains("resolv.conf"))
        })
        .await;
    assert_eq!(why.phase.as_deref(), Some("Pending"));
    std::fs::write(&file, "search d1.test\nnameserver 10.0.0.1\n").unwrap();
    node.ready("a").await;
    let dns = node.runtime.sandboxes()[0].config.dns_config.clone().unwrap();
    assert_eq!((dns.servers, dns.options), (vec!["10.96.0.10".to_owned()], vec!["ndots:5".to_owned()]));
    assert_eq!(dns.searches, ["default.svc.cluster.local", "svc.cluster.local", "cluster.local", "d1.test"]);
    // Its hosts file is its own.
    let mounts = node.runtime.containers()[0].config.mounts.clone();
    let hosts = mounts.iter().find(|mount| mount.container_path == "/etc/hosts").unwrap();
    assert!(std::fs::read_to_string(&hosts.host_path).unwrap().ends_with("\ta-node-a\n"));
}

/// What the pod's only container wrote, once it wrote all of it.
async fn said(node: &RealNode, pod: &str) -> String {
    wait::until(&format!("{pod} said all"), async || {
        let log = node.text(&["logs", &format!("{pod}-node-a"), "-c", "c"])?;
        log.contains("\nend\n").then_some(log)
    })
    .await
}

fn saying(name: &str, script: &str) -> Value {
    let mut pod = pods::simple(name);
    pod["spec"]["containers"][0] =
        pods::container("c", &format!("{script}; echo; echo end; sleep 100000 & wait"));
    pod
}

#[tokio::test]
async fn pods_see_their_names_and_are_confined_on_a_real_runtime() {
    // Where every process can read them: the test's own folder is closed to other users.
    let readable = |text: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
        file
    };
    let resolv = readable(
        "search default.svc.cluster.local cluster.local d1.test.\n# comment\nnameserver 10.0.0.1\n\
         nameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 10.0.0.3\noptions ndots:1 timeout:2\n",
    );
    let config = readable(&format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nclusterDNS: [10.96.0.10]\n\
         clusterDomain: cluster.local\nresolvConf: {}\nallowedUnsafeSysctls: [net.ipv4.conf.*]\n",
        resolv.path().display()
    ));
    let mut node = RealNode::up(&["--config", &config.path().to_string_lossy()]).await;
    let profiles = node.state().join("root/seccomp");
    std::fs::create_dir_all(&profiles).unwrap();
    let profile = json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]
    });
    std::fs::write(profiles.join("no-mkdir.json"), profile.to_string()).unwrap();

    let names = "cat /etc/resolv.conf /etc/hosts; echo host=$(hostname)";
    let mut named = saying("named", names);
    named["spec"]["hostname"] = json!("web");
    named["spec"]["subdomain"] = json!("sub");
    named["spec"]["setHostnameAsFQDN"] = json!(true);
    named["spec"]["hostAliases"] = json!([{"ip": "192.0.2.7", "hostnames": ["alias.test"]}]);
    node.put("named.yaml", &named);
    let mut default = saying("default", names);
    default["spec"]["dnsPolicy"] = json!("Default");
    node.put("default.yaml", &default);
    let mut alone = saying("alone", names);
    alone["spec"]["dnsPolicy"] = json!("None");
    alone["spec"]["dnsConfig"] = json!({"nameservers": ["192.0.2.53"], "options": [{"name": "edns0"}]});
    node.put("alone.yaml", &alone);
    let mut of_host = saying("of-host", names);
    of_host["spec"]["hostNetwork"] = json!(true);
    of_host["spec"]["hostAliases"] = json!([{"ip": "192.0.2.7", "hostnames": ["alias.test"]}]);
    node.put("of-host.yaml", &of_host);
    let confined = "grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; id; mkdir /tmp/x 2>&1; \
                    cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/net/ipv4/conf/all/log_martians \
                    /proc/self/oom_score_adj";
    let mut strict = saying("strict", confined);
    strict["spec"]["securityContext"] = json!({
        "runAsUser": 1000, "runAsGroup": 2000, "supplementalGroups": [3000],
        "sysctls": [
            {"name": "net.ipv4.ip_unprivileged_port_start", "value": "80"},
            {"name": "net/ipv4/conf/all/log_martians", "value": "1"}
        ]
    });
    strict["spec"]["containers"][0]["securityContext"] = json!({
        "capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false,
        "seccompProfile": {"type": "Localhost", "localhostProfile": "no-mkdir.json"}
    });
    // Guaranteed: the score that the kernel may not let this machine set.
    strict["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "100m", "memory": "64Mi"}});
    node.put("strict.yaml", &strict);
    node.put(
        "arm.yaml",
        &pods::with_spec(pods::simple("arm"), "nodeSelector", json!({"kubernetes.io/arch": "none"})),
    );

    let text = said(&node, "named").await;
    for line in [
        "nameserver 10.96.0.10\n",
        "search default.svc.cluster.local svc.cluster.local cluster.local d1.test\n",
        "options ndots:5\n",
        "\tweb.sub.default.svc.cluster.local\tweb\n",
        "# Entries added by HostAliases.\n192.0.2.7\talias.test\n",
        "host=web.sub.default.svc.cluster.local\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
    let ip = node.pods()["named"].status.clone().and_then(|s| s.pod_ip).unwrap_or_default();
    assert!(text.contains(&format!("\n{ip}\tweb.")), "{ip}: {text}");
    let text = said(&node, "default").await;
    for line in [
        "nameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 10.0.0.3\n",
        "search default.svc.cluster.local cluster.local d1.test\n",
        "options ndots:1 timeout:2\n",
        "host=default-node-a\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
    let text = said(&node, "alone").await;
    assert!(text.contains("nameserver 192.0.2.53\n") && text.contains("options edns0\n"), "{text}");
    assert!(!text.contains("search") && !text.contains("10.0.0"), "{text}");
    let text = said(&node, "of-host").await;
    let own = std::fs::read_to_string("/etc/hosts").unwrap();
    assert!(text.contains(&format!("# Kubernetes-managed hosts file (host network).\n{own}")), "{text}");
    assert!(text.contains("192.0.2.7\talias.test\n") && text.contains("nameserver 10.0.0.1\n"), "{text}");
    let text = said(&node, "strict").await;
    for line in [
        "CapEff:\t0000000000000000\n",
        "CapBnd:\t0000000000000000\n",
        "NoNewPrivs:\t1\n",
        "Seccomp:\t2\n",
        "uid=1000 gid=2000 groups=2000,3000\n",
        "mkdir: can't create directory '/tmp/x': Operation not permitted\n80\n1\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
    wait::until("the pod for another machine failed", async || {
        let status = node.pods().remove("arm")?.status?;
        (status.reason.as_deref() == Some("NodeAffinity")).then_some(())
    })
    .await;
    assert!(node.down().await, "{}", node.said());
}
