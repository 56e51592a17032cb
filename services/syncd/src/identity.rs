//! A pod's names and name servers: reads the node's files for the rules of [`bulkhead_model::dns`] and
//! [`bulkhead_model::hosts`]. Blocking work: runs in a blocking thread. Must never write.

use std::io::Read;
use std::path::{Path, PathBuf};

use bulkhead_model::dns::{ClusterDns, PodDns, parse_resolv_conf, pod_dns};
use bulkhead_model::hosts::{NameTooLong, PodName, hosts_file};
use k8s_openapi::api::core::v1::Pod;

/// Most bytes of a node's file that are read: any resolver stops long before.
const MAX_BYTES: u64 = 1 << 20;
/// The node's own names, for pods on its network.
const NODE_HOSTS: &str = "/etc/hosts";

/// What the node's configuration says about names.
#[derive(Clone, Debug, Default)]
pub struct NameSettings {
    /// `clusterDNS` and `clusterDomain`.
    pub cluster: ClusterDns,
    /// `resolvConf`; `None` when it is empty: pods see nothing of the node's.
    pub resolv_conf: Option<PathBuf>,
}

/// One pod's names.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Host name and domain.
    pub name: PodName,
    /// Its `resolv.conf`.
    pub dns: PodDns,
}

/// Why a pod's names cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The node's `resolv.conf` is not there, or not readable.
    #[error("cannot read {path}, which resolvConf of the node's configuration names")]
    ResolvConf {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The node's `resolv.conf` cannot be understood.
    #[error(
        "{path}, which resolvConf of the node's configuration names, has a nameserver without an address in line {line}"
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
    },
    /// The pod's name does not fit.
    #[error(transparent)]
    Name(#[from] NameTooLong),
}

impl Identity {
    /// Reads what the pod's names depend on.
    ///
    /// # Errors
    /// When the node's file cannot be used, whatever the pod's policy: it would be missed with the next pod. And when the
    /// pod's full name does not fit the kernel.
    pub fn of(pod: &Pod, settings: &NameSettings) -> Result<Self, IdentityError> {
        let node = match &settings.resolv_conf {
            None => None,
            Some(path) => {
                let text =
                    read(path).map_err(|source| IdentityError::ResolvConf { path: path.clone(), source })?;
                let conf = parse_resolv_conf(&text);
                Some(conf.map_err(|line| IdentityError::Line { path: path.clone(), line })?)
            }
        };
        Ok(Self {
            name: PodName::of(pod, &settings.cluster.domain)?,
            dns: pod_dns(pod, &settings.cluster, node.as_ref()),
        })
    }

    /// The text of the pod's `/etc/hosts`. A node without such a file has no names to give.
    pub fn hosts(&self, pod: &Pod, ips: &[String]) -> String {
        let host_network = bulkhead_model::spec::host_network(pod);
        let of_node =
            if host_network { read(Path::new(NODE_HOSTS)).unwrap_or_default() } else { String::new() };
        hosts_file(pod, &self.name, ips, &of_node)
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use bulkhead_base::chain;

    use super::*;

    /// The last part of known fault D1.
    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("resolv.conf");
        let settings = NameSettings { resolv_conf: Some(path.clone()), ..Default::default() };
        let error = Identity::of(&Pod::default(), &settings).unwrap_err();
        let text = chain(&error).to_string();
        assert!(text.contains("resolvConf") && text.contains(&path.display().to_string()), "{text}");
        std::fs::write(&path, "search a\nnameserver\n").unwrap();
        assert!(Identity::of(&Pod::default(), &settings).unwrap_err().to_string().contains("line 2"));
        std::fs::write(&path, "nameserver 192.0.2.1\n").unwrap();
        assert_eq!(Identity::of(&Pod::default(), &settings).unwrap().dns.conf.nameservers, ["192.0.2.1"]);
        let none = NameSettings::default();
        assert_eq!(Identity::of(&Pod::default(), &none).unwrap().dns.conf.nameservers, ["127.0.0.1"]);
    }
}
