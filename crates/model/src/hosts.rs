//! A pod's own name: its host name, and the `/etc/hosts` that its containers share.
//!
//! Owns the rules of `hostname`, `subdomain`, `setHostnameAsFQDN`, `hostnameOverride` and `hostAliases`. Must never
//! touch a file: the node's own text comes in.

use k8s_openapi::api::core::v1::Pod;

use crate::spec;

/// Longest host name that a pod is given from its own name: one DNS label.
pub const MAX_HOSTNAME: usize = 63;
/// Longest host name that Linux takes, in bytes (`__NEW_UTS_LEN`).
pub const MAX_KERNEL_HOSTNAME: usize = 64;

/// A pod's name on the network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodName {
    /// Host name, without a dot.
    pub host: String,
    /// `subdomain.namespace.svc.clusterDomain`; empty without a `subdomain`.
    pub domain: String,
    /// What the kernel of the pod's UTS namespace is told. Empty for a host-network pod: it has the node's.
    pub kernel: String,
}

/// A full name that is too long for the kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the pod's full host name {name} has {} bytes, and Linux takes {MAX_KERNEL_HOSTNAME}: shorten hostname or subdomain, or do \
     not set setHostnameAsFQDN", .name.len()
)]
pub struct NameTooLong {
    /// The full name.
    pub name: String,
}

impl PodName {
    /// The names of `pod` in a cluster of this domain.
    ///
    /// # Errors
    /// With `setHostnameAsFQDN`, when the kernel does not take the full name.
    pub fn of(pod: &Pod, cluster_domain: &str) -> Result<Self, NameTooLong> {
        let of_spec = pod.spec.as_ref();
        let host_network = spec::host_network(pod);
        let whole = text(of_spec.and_then(|spec| spec.hostname_override.as_ref()));
        if let Some(name) = whole.filter(|_| !host_network) {
            return Ok(Self { host: name.to_owned(), domain: String::new(), kernel: name.to_owned() });
        }
        let own = text(of_spec.and_then(|spec| spec.hostname.as_ref()));
        let host = cut(own.or(pod.metadata.name.as_deref()).unwrap_or_default());
        let domain = text(of_spec.and_then(|spec| spec.subdomain.as_ref()));
        let domain = domain.map_or_else(String::new, |subdomain| {
            let namespace = text(pod.metadata.namespace.as_ref()).unwrap_or("default");
            format!("{subdomain}.{namespace}.svc.{cluster_domain}").trim_end_matches('.').to_owned()
        });
        let full = of_spec.and_then(|spec| spec.set_hostname_as_fqdn).unwrap_or(false) && !domain.is_empty();
        let kernel = match (host_network, full) {
            (true, _) => String::new(),
            (false, false) => host.clone(),
            (false, true) => format!("{host}.{domain}"),
        };
        if kernel.len() > MAX_KERNEL_HOSTNAME {
            return Err(NameTooLong { name: kernel });
        }
        Ok(Self { host, domain, kernel })
    }
}

/// The text of a pod's `/etc/hosts`, in the kubelet's form. `of_node` is the node's own file, for host-network pods.
pub fn hosts_file(pod: &Pod, name: &PodName, ips: &[String], of_node: &str) -> String {
    let mut text = if spec::host_network(pod) {
        let mut text = format!("# Kubernetes-managed hosts file (host network).\n{of_node}");
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text
    } else {
        let mut text = LOCAL.to_owned();
        for ip in ips {
            let full = (!name.domain.is_empty()).then(|| format!("\t{}.{}", name.host, name.domain));
            text.push_str(&format!("{ip}{}\t{}\n", full.unwrap_or_default(), name.host));
        }
        text
    };
    let aliases = pod.spec.as_ref().and_then(|spec| spec.host_aliases.as_deref()).unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        text.push_str(&format!("{}\t{names}\n", alias.ip));
    }
    text
}

const LOCAL: &str = "\
# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
";

fn text(value: Option<&String>) -> Option<&str> {
    value.map(String::as_str).filter(|text| !text.is_empty())
}

/// The first bytes of a name that make a label.
fn cut(name: &str) -> String {
    let mut name = name.to_owned();
    name.truncate(name.floor_char_boundary(MAX_HOSTNAME));
    name.trim_end_matches(['-', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value) -> Pod {
        let mut spec = spec.clone();
        spec["containers"] = json!([]);
        serde_json::from_value(json!({"metadata": {"name": "web-node-a", "namespace": "shop"}, "spec": spec}))
            .unwrap()
    }

    #[test]
    fn names() {
        let fqdn = json!({"subdomain": "sub", "setHostnameAsFQDN": true});
        let table = [
            (json!({}), "cluster.local", ("web-node-a", "", "web-node-a")),
            (json!({"hostname": "own"}), "cluster.local", ("own", "", "own")),
            (
                json!({"hostname": "own", "subdomain": "sub"}),
                "cluster.local",
                ("own", "sub.shop.svc.cluster.local", "own"),
            ),
            (fqdn.clone(), "c", ("web-node-a", "sub.shop.svc.c", "web-node-a.sub.shop.svc.c")),
            (fqdn, "", ("web-node-a", "sub.shop.svc", "web-node-a.sub.shop.svc")),
            (json!({"setHostnameAsFQDN": true}), "c", ("web-node-a", "", "web-node-a")),
            (json!({"hostNetwork": true, "hostname": "own"}), "c", ("own", "", "")),
            (
                json!({"hostnameOverride": "any.name.test", "hostname": "own", "subdomain": "s"}),
                "c",
                ("any.name.test", "", "any.name.test"),
            ),
        ];
        for (spec, domain, (host, of, kernel)) in table {
            let name = PodName::of(&pod(&spec), domain).unwrap();
            assert_eq!(
                (name.host.as_str(), name.domain.as_str(), name.kernel.as_str()),
                (host, of, kernel),
                "{spec}"
            );
        }
    }

    #[test]
    fn names_that_are_too_long() {
        let mut long = pod(&json!({}));
        long.metadata.name = Some(format!("{}-{}", "a".repeat(62), "b".repeat(30)));
        assert_eq!(PodName::of(&long, "").unwrap().kernel, "a".repeat(62));
        let full = |subdomain: usize| {
            pod(&json!({"hostname": "h", "subdomain": "s".repeat(subdomain), "setHostnameAsFQDN": true}))
        };
        // h. + s… + .shop.svc.c
        assert_eq!(PodName::of(&full(51), "c").unwrap().kernel.len(), 64);
        let error = PodName::of(&full(52), "c").unwrap_err().to_string();
        assert!(error.contains("65 bytes") && error.contains("setHostnameAsFQDN"), "{error}");
    }

    #[test]
    fn the_file_is_the_kubelets() {
        let aliases = json!([{"ip": "127.0.0.1", "hostnames": ["foo.local", "bar.local"]}, {"ip": "10.1.2.3", "hostnames": ["foo.remote"]}]);
        let own = pod(&json!({"hostname": "h", "subdomain": "sub", "hostAliases": aliases}));
        let name = PodName::of(&own, "cluster.local").unwrap();
        let text = hosts_file(&own, &name, &["10.88.0.5".into(), "fd00::5".into()], "");
        assert_eq!(
            text,
            "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
             fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n\
             10.88.0.5\th.sub.shop.svc.cluster.local\th\nfd00::5\th.sub.shop.svc.cluster.local\th\n\
             \n# Entries added by HostAliases.\n127.0.0.1\tfoo.local\tbar.local\n10.1.2.3\tfoo.remote\n"
        );
        let plain = pod(&json!({}));
        let name = PodName::of(&plain, "").unwrap();
        assert!(
            hosts_file(&plain, &name, &["10.88.0.5".into()], "")
                .ends_with("ip6-allrouters\n10.88.0.5\tweb-node-a\n")
        );
    }

    #[test]
    fn a_host_network_pod_has_the_nodes_file_and_its_own_aliases() {
        let aliases = json!([{"ip": "10.1.2.3", "hostnames": ["x"]}]);
        let host = pod(&json!({"hostNetwork": true, "hostAliases": aliases}));
        let text = hosts_file(&host, &PodName::default(), &["192.0.2.1".into()], "127.0.0.1 node");
        assert_eq!(
            text,
            "# Kubernetes-managed hosts file (host network).\n127.0.0.1 node\n\n# Entries added by HostAliases.\n10.1.2.3\tx\n"
        );
    }
}
