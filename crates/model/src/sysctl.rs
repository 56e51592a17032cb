//! Kernel settings of a pod (`securityContext.sysctls`): which ones a pod may set.
//!
//! Owns the list of the API's "Using sysctls in a Kubernetes Cluster": those that reach no further than the pod are safe, the
//! other ones of a pod's namespaces need `allowedUnsafeSysctls`, and none may reach the node's own.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

use crate::spec;

/// Safe for every pod: they are the pod's own and touch no other.
const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// Which namespace a setting belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Network,
}

/// The pod's settings by name, with dots.
pub fn sysctls(pod: &Pod) -> BTreeMap<String, String> {
    let security = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let listed = security.and_then(|security| security.sysctls.as_ref()).into_iter().flatten();
    listed.map(|sysctl| (dotted(&sysctl.name), sysctl.value.clone())).collect()
}

/// Refuses the first setting that this pod may not have. `allowed`: `allowedUnsafeSysctls`, names or patterns ending in `*`.
///
/// # Errors
/// A text that names the setting and says why.
pub fn check(pod: &Pod, allowed: &[String]) -> Result<(), String> {
    let host_ipc = pod.spec.as_ref().and_then(|spec| spec.host_ipc).unwrap_or(false);
    for name in sysctls(pod).keys() {
        let refuse = |why: &str| Err(format!("forbidden sysctl {name}: {why}"));
        match namespace(name) {
            None => return refuse("it is the whole node's, not a pod's"),
            Some(Namespace::Network) if spec::host_network(pod) => {
                return refuse("with hostNetwork it would be the node's");
            }
            Some(Namespace::Ipc) if host_ipc => return refuse("with hostIPC it would be the node's"),
            Some(_) => {}
        }
        if !SAFE.contains(&name.as_str()) && !allowed.iter().any(|pattern| matches(pattern, name)) {
            return refuse("it is unsafe, and the node's allowedUnsafeSysctls does not name it");
        }
    }
    Ok(())
}

/// Refuses a pattern of `allowedUnsafeSysctls` that would let a pod change the node's own settings.
pub fn pattern_is_of_pods(pattern: &str) -> bool {
    let stem = dotted(pattern);
    namespace(stem.strip_suffix('*').unwrap_or(&stem)).is_some()
}

fn namespace(name: &str) -> Option<Namespace> {
    let ipc = name == "kernel.sem"
        || ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|prefix| name.starts_with(prefix));
    if ipc {
        return Some(Namespace::Ipc);
    }
    name.starts_with("net.").then_some(Namespace::Network)
}

fn matches(pattern: &str, name: &str) -> bool {
    let pattern = dotted(pattern);
    pattern.strip_suffix('*').map_or(pattern == name, |stem| name.starts_with(stem))
}

/// `net/ipv4/conf/eth0.1/x` and `net.ipv4.conf.eth0/1.x` are one: the first separator tells which is which.
fn dotted(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.get(at..).is_some_and(|rest| rest.starts_with('/')) => {
            let swap = |c| match c {
                '/' => '.',
                '.' => '/',
                c => c,
            };
            name.chars().map(swap).collect()
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, spec: &Value) -> Pod {
        let mut spec = spec.clone();
        spec["containers"] = json!([]);
        spec["securityContext"] = json!({"sysctls": [{"name": name, "value": "1"}]});
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    /// `hostNetwork` with `net.*`: kubernetes/kubernetes#118702.
    #[test]
    fn what_a_pod_may_set() {
        let host_net = json!({"hostNetwork": true});
        let host_ipc = json!({"hostIPC": true});
        let table: [(&str, Value, &[&str], Option<&str>); 13] = [
            ("net.ipv4.tcp_syncookies", json!({}), &[], None),
            ("net/ipv4/tcp_syncookies", json!({}), &[], None),
            ("kernel.shm_rmid_forced", json!({}), &[], None),
            ("kernel.shm_rmid_forced", host_ipc.clone(), &[], Some("hostIPC")),
            ("net.ipv4.tcp_syncookies", host_net.clone(), &[], Some("hostNetwork")),
            ("net.core.somaxconn", json!({}), &[], Some("unsafe")),
            ("net.core.somaxconn", json!({}), &["net.core.somaxconn"], None),
            ("net.core.somaxconn", json!({}), &["net.core.*"], None),
            ("net.core.somaxconn", host_net, &["net.*"], Some("hostNetwork")),
            ("kernel.msgmax", json!({}), &["kernel.msg*"], None),
            ("kernel.msgmax", host_ipc, &["kernel.msg*"], Some("hostIPC")),
            ("vm.swappiness", json!({}), &["vm.*"], Some("whole node's")),
            ("kernel.panic", json!({}), &["*"], Some("whole node's")),
        ];
        for (name, spec, allowed, refusal) in table {
            let allowed: Vec<_> = allowed.iter().map(|text| (*text).to_owned()).collect();
            let result = check(&pod(name, &spec), &allowed);
            match refusal {
                None => assert_eq!(result, Ok(()), "{name} {spec}"),
                Some(text) => assert!(result.unwrap_err().contains(text), "{name} {spec}"),
            }
        }
    }

    #[test]
    fn names_have_dots_whatever_was_written() {
        for (written, name) in [
            ("net/ipv4/conf/eth0.1/forwarding", "net.ipv4.conf.eth0/1.forwarding"),
            ("net.ipv4.conf.eth0/1.forwarding", "net.ipv4.conf.eth0/1.forwarding"),
            ("kernel.sem", "kernel.sem"),
            ("", ""),
        ] {
            assert_eq!(dotted(written), name);
        }
        assert!(pattern_is_of_pods("kernel.msg*") && pattern_is_of_pods("net.*"));
        assert!(!pattern_is_of_pods("*") && !pattern_is_of_pods("vm.*") && !pattern_is_of_pods("n*"));
    }
}
