//! Ports: what the runtime maps, and which host ports two pods cannot both have.
//!
//! A mapping is one (protocol, host address, host port, container port), so that two host ports of one container
//! port, and TCP and UDP on one number, are all kept. Must never open a socket.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod};

use crate::spec::{self, ContainerKind};

/// A transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// `TCP`, the default.
    #[default]
    Tcp,
    /// `UDP`.
    Udp,
    /// `SCTP`.
    Sctp,
}

/// One port mapping of a pod's sandbox.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortMapping {
    /// The protocol.
    pub protocol: Protocol,
    /// The port in the pod, 1 to 65535.
    pub container_port: u16,
    /// The node's port; 0 if none is mapped.
    pub host_port: u16,
    /// The node's address that is mapped; empty for all.
    pub host_ip: String,
}

/// A port of the node that a pod takes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// The protocol.
    pub protocol: Protocol,
    /// The port, 1 to 65535.
    pub port: u16,
    /// The address; `None` for all.
    pub ip: Option<IpAddr>,
}

impl Protocol {
    /// Reads the API's text; the empty text is TCP. `None` for text that the API does not know.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "TCP" => Some(Self::Tcp),
            "UDP" => Some(Self::Udp),
            "SCTP" => Some(Self::Sctp),
            _ => None,
        }
    }

    /// The API's text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

impl HostPort {
    /// Whether both cannot be taken at once. No address means all of them, of both families.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        let same_address = self.ip.is_none() || other.ip.is_none() || self.ip == other.ip;
        self.protocol == other.protocol && self.port == other.port && same_address
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.port, self.protocol.as_str())?;
        self.ip.iter().try_for_each(|ip| write!(f, " on {ip}"))
    }
}

/// Port mappings of the pod's sandbox, without repetition: those of app containers and sidecars, in spec order. Empty
/// for a host-network pod, which has nothing to map. Ports out of range are left out: nothing lets them through.
pub fn mappings(pod: &Pod) -> Vec<PortMapping> {
    if spec::host_network(pod) {
        return Vec::new();
    }
    let mut seen = BTreeSet::new();
    let all = ports(pod).filter_map(|port| {
        Some(PortMapping {
            protocol: protocol(port)?,
            container_port: u16::try_from(port.container_port).ok().filter(|port| *port > 0)?,
            host_port: u16::try_from(port.host_port.unwrap_or(0)).ok()?,
            host_ip: port.host_ip.clone().unwrap_or_default(),
        })
    });
    all.filter(|mapping| seen.insert(mapping.clone())).collect()
}

/// Ports of the node that the pod takes. In a host-network pod every container port is one.
pub fn host_ports(pod: &Pod) -> Vec<HostPort> {
    let host_network = spec::host_network(pod);
    ports(pod).filter_map(|port| host_port(port, host_network)).collect()
}

/// The first port that `wanted` takes and one of `others` has, with that pod. A pod never conflicts with itself (the
/// same UID).
pub fn first_conflict<'a>(
    wanted: &Pod,
    others: impl IntoIterator<Item = &'a Pod>,
) -> Option<(HostPort, &'a Pod)> {
    let wanted_ports = host_ports(wanted);
    if wanted_ports.is_empty() {
        return None;
    }
    let uid = &wanted.metadata.uid;
    others.into_iter().filter(|other| uid.is_none() || other.metadata.uid != *uid).find_map(|other| {
        let taken = host_ports(other);
        let hit = wanted_ports.iter().find(|port| taken.iter().any(|other| port.conflicts_with(other)))?;
        Some((hit.clone(), other))
    })
}

pub(crate) fn host_port(port: &ContainerPort, host_network: bool) -> Option<HostPort> {
    let stated = port.host_port.filter(|port| *port != 0);
    let number = stated.or(host_network.then_some(port.container_port))?;
    let number = u16::try_from(number).ok().filter(|number| *number > 0)?;
    let ip =
        port.host_ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok()).filter(|ip| !ip.is_unspecified());
    Some(HostPort { protocol: protocol(port)?, port: number, ip })
}

fn protocol(port: &ContainerPort) -> Option<Protocol> {
    Protocol::parse(port.protocol.as_deref().unwrap_or(""))
}

fn ports(pod: &Pod) -> impl Iterator<Item = &ContainerPort> {
    let lasting = spec::containers(pod).into_iter().filter(|item| item.kind != ContainerKind::Init);
    lasting.flat_map(|item| {
        let container: &Container = item.container;
        container.ports.iter().flatten()
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    /// `hostIP:hostPort:containerPort/PROTOCOL`.
    fn port(text: &str) -> ContainerPort {
        let (numbers, protocol) = text.split_once('/').unwrap_or((text, ""));
        let mut parts = numbers.rsplitn(3, ':');
        let container_port = parts.next().unwrap().parse().unwrap();
        let host_port = parts.next().map(|port| port.parse().unwrap());
        let host_ip = parts.next().map(str::to_owned);
        let protocol = (!protocol.is_empty()).then(|| protocol.to_owned());
        ContainerPort { container_port, host_port, host_ip, name: None, protocol }
    }

    fn pod(uid: &str, host_network: bool, ports: &[&str]) -> Pod {
        let ports = ports.iter().map(|text| port(text)).collect();
        let container = Container { name: "c".into(), ports: Some(ports), ..Default::default() };
        Pod {
            metadata: ObjectMeta { uid: Some(uid.into()), ..Default::default() },
            spec: Some(PodSpec {
                host_network: Some(host_network),
                containers: vec![container],
                ..Default::default()
            }),
            status: None,
        }
    }

    #[test]
    fn no_mapping_is_lost_and_none_comes_twice() {
        let p = pod(
            "a",
            false,
            &[
                "80",
                "8080:80",
                "8081:80",
                "8081:80/TCP",
                "8081:80/UDP",
                "127.0.0.1:8080:80",
                "1:0",
                "70000:1",
            ],
        );
        let seen: Vec<_> = mappings(&p)
            .iter()
            .map(|m| format!("{}:{}:{}/{}", m.host_ip, m.host_port, m.container_port, m.protocol.as_str()))
            .collect();
        assert_eq!(
            seen,
            [":0:80/TCP", ":8080:80/TCP", ":8081:80/TCP", ":8081:80/UDP", "127.0.0.1:8080:80/TCP"]
        );
        assert!(mappings(&pod("a", true, &["80"])).is_empty(), "host network");
        assert!(mappings(&Pod::default()).is_empty());
    }

    #[test]
    fn sidecars_count_and_init_containers_do_not() {
        let mut p = pod("a", false, &["1:80"]);
        let init = |policy: Option<&str>, text| Container {
            name: "i".into(),
            restart_policy: policy.map(Into::into),
            ports: Some(vec![port(text)]),
            ..Default::default()
        };
        p.spec.as_mut().unwrap().init_containers =
            Some(vec![init(None, "2:80"), init(Some("Always"), "3:80")]);
        assert_eq!(host_ports(&p).iter().map(|port| port.port).collect::<Vec<_>>(), [3, 1]);
    }

    #[test]
    fn conflicts() {
        let table: &[(&str, &str, bool)] = &[
            ("80:80", "80:81", true),
            ("80:80", "81:80", false),
            ("80:80", "80:80/UDP", false),
            ("80:80/SCTP", "80:80/SCTP", true),
            ("127.0.0.1:80:80", "80:80", true),
            ("127.0.0.1:80:80", "127.0.0.2:80:80", false),
            ("127.0.0.1:80:80", "0.0.0.0:80:80", true),
            ("127.0.0.1:80:80", ":::80:80", true),
            ("80", "80", false),
        ];
        for (a, b, expected) in table {
            let (one, two) = (pod("a", false, &[a]), pod("b", false, &[b]));
            assert_eq!(first_conflict(&one, [&two]).is_some(), *expected, "{a} and {b}");
            assert_eq!(first_conflict(&two, [&one]).is_some(), *expected, "{b} and {a}");
        }
        let (net, mapped) = (pod("a", true, &["7777"]), pod("b", false, &["7777:80"]));
        let (port, other) = first_conflict(&net, [&mapped]).unwrap();
        assert_eq!((port.to_string().as_str(), other.metadata.uid.as_deref()), ("7777/TCP", Some("b")));
        assert!(first_conflict(&net, [&net]).is_none(), "itself");
    }
}
