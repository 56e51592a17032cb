//! Variables that tell a container where services are, as Docker's links did.

use std::collections::BTreeMap;

/// What variables need of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Its cluster IP. A service without one (headless, or of another kind) gives no variables.
    pub ip: String,
    /// In the order of its spec.
    pub ports: Vec<ServicePort>,
}

/// One of its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Empty when there is only one.
    pub name: String,
    /// Number.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

/// The variables of these services.
pub fn service_variables<'a>(services: impl IntoIterator<Item = &'a Service>) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for service in services {
        let Some(first) = service.ports.first() else { continue };
        let name = variable(&service.name);
        variables.insert(format!("{name}_SERVICE_HOST"), service.ip.clone());
        variables.insert(format!("{name}_SERVICE_PORT"), first.port.to_string());
        variables.insert(format!("{name}_PORT"), url(service, first));
        for port in &service.ports {
            if !port.name.is_empty() {
                variables
                    .insert(format!("{name}_SERVICE_PORT_{}", variable(&port.name)), port.port.to_string());
            }
            let prefix = format!("{name}_PORT_{}_{}", port.port, port.protocol.to_uppercase());
            variables.insert(format!("{prefix}_PROTO"), port.protocol.to_lowercase());
            variables.insert(format!("{prefix}_PORT"), port.port.to_string());
            variables.insert(format!("{prefix}_ADDR"), service.ip.clone());
            variables.insert(prefix, url(service, port));
        }
    }
    variables
}

fn variable(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

fn url(service: &Service, port: &ServicePort) -> String {
    let host = if service.ip.contains(':') { format!("[{}]", service.ip) } else { service.ip.clone() };
    format!("{}://{host}:{}", port.protocol.to_lowercase(), port.port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, ip: &str, ports: &[(&str, i32, &str)]) -> Service {
        let port = |(name, port, protocol): &(&str, i32, &str)| ServicePort {
            name: (*name).to_owned(),
            port: *port,
            protocol: (*protocol).to_owned(),
        };
        Service { name: name.to_owned(), ip: ip.to_owned(), ports: ports.iter().map(port).collect() }
    }

    #[test]
    fn every_port_and_the_first_one_twice() {
        let services = [service("redis-primary", "10.0.0.11", &[("", 6379, "TCP")])];
        let seen: Vec<_> = service_variables(&services).into_iter().collect();
        let expected = [
            ("REDIS_PRIMARY_PORT", "tcp://10.0.0.11:6379"),
            ("REDIS_PRIMARY_PORT_6379_TCP", "tcp://10.0.0.11:6379"),
            ("REDIS_PRIMARY_PORT_6379_TCP_ADDR", "10.0.0.11"),
            ("REDIS_PRIMARY_PORT_6379_TCP_PORT", "6379"),
            ("REDIS_PRIMARY_PORT_6379_TCP_PROTO", "tcp"),
            ("REDIS_PRIMARY_SERVICE_HOST", "10.0.0.11"),
            ("REDIS_PRIMARY_SERVICE_PORT", "6379"),
        ];
        assert_eq!(seen, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn named_ports_and_addresses_of_both_families() {
        let seen =
            service_variables(&[service("dns", "fd00::a", &[("dns-udp", 53, "UDP"), ("x", 54, "TCP")])]);
        for (name, value) in [
            ("DNS_SERVICE_PORT", "53"),
            ("DNS_SERVICE_PORT_DNS_UDP", "53"),
            ("DNS_SERVICE_PORT_X", "54"),
            ("DNS_PORT", "udp://[fd00::a]:53"),
            ("DNS_PORT_54_TCP", "tcp://[fd00::a]:54"),
            ("DNS_PORT_53_UDP_PROTO", "udp"),
            ("DNS_SERVICE_HOST", "fd00::a"),
        ] {
            assert_eq!(seen.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(service_variables(&[service("none", "10.0.0.1", &[])]).is_empty());
    }
}
