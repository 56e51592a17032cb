//! End to end, on a real containerd: volumes as containers see them.
#![cfg(test)]

use std::path::Path;

use bulkhead_e2e::real_node::RealNode;
use bulkhead_e2e::{pods, wait};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

static ONE_NODE: Mutex<()> = Mutex::const_new(());

async fn turn() -> MutexGuard<'static, ()> {
    ONE_NODE.lock().await
}

/// A pod whose container runs `script` once `/out` (the folder `out` of the node) can be written to.
fn pod(name: &str, script: &str, mounts: &[Value], volumes: &[Value], out: &Path) -> Value {
    let mut pod = pods::simple(name);
    pod["spec"]["containers"][0] = pods::container("c", &format!("{script}; sleep 100000 & wait"));
    let own = json!({"name": "out", "mountPath": "/out"});
    pod["spec"]["containers"][0]["volumeMounts"] = mounts.iter().cloned().chain([own]).collect();
    let own = json!({"name": "out", "hostPath": {"path": out, "type": "Directory"}});
    pod["spec"]["volumes"] = volumes.iter().cloned().chain([own]).collect();
    pod
}

/// What a container wrote to `/out/NAME.done`, once it is whole.
async fn said(out: &Path, name: &str) -> String {
    let file = out.join(format!("{name}.done"));
    wait::until(&format!("{name} says what it sees"), async || std::fs::read_to_string(&file).ok()).await
}

/// Writes what `commands` print to `/out/NAME.done`, whole at once.
fn say(name: &str, commands: &str) -> String {
    format!("( {commands} ) >/out/{name}.part 2>&1; mv /out/{name}.part /out/{name}.done")
}

fn waiting(node: &RealNode, pod: &str) -> Option<(String, String)> {
    let container = node.containers(pod).into_iter().find(|container| container.name == "c")?;
    let waiting = container.state?.waiting?;
    Some((waiting.reason?, waiting.message.unwrap_or_default()))
}

#[tokio::test]
async fn volumes_are_what_the_pod_asks_for_and_never_more() {
    let _turn = turn().await;
    let mut node = RealNode::up(&[]).await;
    let out = node.state().join("out");
    std::fs::create_dir(&out).unwrap();
    std::fs::set_permissions(&out, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let volume = json!({"name": "v", "emptyDir": {}});

    // Known fault V5: a link that leads out of the volume, absolute or by `..`; one that stays inside is fine.
    for (name, link) in [
        ("root", "ln -s / /v/x"),
        ("climbs", "ln -s ../../../../.. /v/x"),
        ("stays", "mkdir -p /v/a; echo inside >/v/a/f; ln -s a /v/x"),
    ] {
        let mount = json!({"name": "v", "mountPath": "/sub", "subPath": "x"});
        let mut pod =
            pod(name, &say(name, "ls /sub; cat /sub/f"), &[mount], std::slice::from_ref(&volume), &out);
        let mut init = pods::container("make", link);
        init["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
        pod["spec"]["initContainers"] = json!([init]);
        node.put(&format!("{name}.yaml"), &pod);
    }
    assert_eq!(said(&out, "stays").await, "f\ninside\n");
    for name in ["root", "climbs"] {
        let (reason, message) = wait::until(&format!("{name} is refused: {}", node.said()), async || {
            waiting(&node, name).filter(|(reason, _)| reason == "CreateContainerConfigError")
        })
        .await;
        assert!(
            message.contains("leads out of the volume") && message.contains("`v`"),
            "{reason}: {message}"
        );
        assert!(!out.join(format!("{name}.done")).exists(), "{name} never ran");
    }

    // A part that is missing is made; variables are put into its name; the pod's group owns what is made.
    let mount = json!({"name": "v", "mountPath": "/sub", "subPathExpr": "logs/$(NAME)"});
    let script = say("expr", "touch /sub/f; stat -c '%a %g' /sub /sub/f; id -G");
    let mut expr = pod("expr", &script, &[mount], std::slice::from_ref(&volume), &out);
    expr["spec"]["containers"][0]["env"] = json!([{"name": "NAME", "value": "web-0"}]);
    expr["spec"]["securityContext"] = json!({"fsGroup": 1234, "runAsUser": 1000});
    node.put("expr.yaml", &expr);
    let text = said(&out, "expr").await;
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "2777 1234", "{text}");
    assert!(lines[1].ends_with(" 1234") && lines[2].contains("1234"), "{text}");

    // Known fault V1: the size of memory. The pod's own fields as files.
    let memory = json!({"name": "ram", "emptyDir": {"medium": "Memory", "sizeLimit": "100Mi"}});
    let info = json!({"name": "info", "downwardAPI": {"items": [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "limits/memory", "mode": 256, "resourceFieldRef": {"containerName": "c", "resource": "limits.memory", "divisor": "1Mi"}}]}});
    let mounts = [json!({"name": "ram", "mountPath": "/ram"}), json!({"name": "info", "mountPath": "/info"})];
    let see = "df -m /ram | tail -n 1 | awk '{print $2}'; cat /info/labels; echo; cat /info/limits/memory; echo; \
        stat -L -c '%a %u' /info/limits/memory; touch /info/x 2>/dev/null || echo read-only";
    let mut sees = pod("sees", &say("sees", see), &mounts, &[memory, info], &out);
    sees["metadata"]["labels"] = json!({"app": "web"});
    sees["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "64Mi"}});
    node.put("sees.yaml", &sees);
    assert_eq!(said(&out, "sees").await, "64\napp=\"web\"\n64\n400 0\nread-only\n");

    // Nothing of them stays mounted.
    for name in ["root", "climbs", "stays", "expr", "sees"] {
        node.take(&format!("{name}.yaml"));
    }
    let pods = node.state().join("kubelet/pods");
    let pods = if pods.exists() { pods } else { node.state().to_owned() };
    wait::until("all mounts are gone", async || {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let left =
            table.lines().any(|line| line.contains(&*pods.to_string_lossy()) && line.contains("volume"));
        (!left && node.pods().is_empty()).then_some(())
    })
    .await;
    assert!(node.down().await, "{}", node.said());
}
