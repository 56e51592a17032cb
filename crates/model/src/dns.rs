//! Names and name servers: what a pod's `/etc/resolv.conf` says.
//!
//! Owns the API's `dnsPolicy` and `dnsConfig` rules over the node's own file and the cluster's settings, and the limits of
//! what a resolver takes. Must never open a file: the text comes in.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Pod, PodDNSConfig};

use crate::spec;

/// Most name servers that a resolver asks (`MAXNS` of resolv.conf(5)).
pub const MAX_NAMESERVERS: usize = 3;
/// Most names of a search list (KEP-2595).
pub const MAX_SEARCHES: usize = 32;
/// Most characters of a search list, spaces between the names included (KEP-2595).
pub const MAX_SEARCH_CHARS: usize = 2048;

/// What a `resolv.conf` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvConf {
    /// Name servers, the first one asked first.
    pub nameservers: Vec<String>,
    /// Names that are appended to short ones, in order.
    pub searches: Vec<String>,
    /// Options, such as `ndots:5`.
    pub options: Vec<String>,
}

/// What the node's configuration says about names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterDns {
    /// `clusterDNS`.
    pub servers: Vec<String>,
    /// `clusterDomain`, without a dot at its end; empty if there is none.
    pub domain: String,
}

/// A pod's `resolv.conf`, and what had to be changed about what was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDns {
    /// What the pod sees.
    pub conf: ResolvConf,
    /// For people: what was left out and why. Empty for a pod that has what it asked for.
    pub notes: Vec<String>,
}

/// Where a pod's names come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Cluster,
    Node,
    PodAlone,
}

/// Reads a `resolv.conf`: `nameserver`, `search` (the last one counts) and `options`; everything else is left out.
///
/// # Errors
/// The number of the first line that names no server, from 1.
pub fn parse_resolv_conf(text: &str) -> Result<ResolvConf, usize> {
    let mut conf = ResolvConf::default();
    for (number, line) in text.lines().enumerate() {
        let words = line.split_whitespace().take_while(|word| !word.starts_with(['#', ';']));
        let mut words = words.map(ToOwned::to_owned);
        match words.next().as_deref() {
            Some("nameserver") => conf.nameservers.push(words.next().ok_or(number + 1)?),
            Some("search") => {
                let names = words.map(|name| name.strip_suffix('.').map(ToOwned::to_owned).unwrap_or(name));
                // The root alone is no suffix.
                conf.searches = names.filter(|name| !name.is_empty()).collect();
            }
            Some("options") => words.for_each(|option| set_option(&mut conf.options, option)),
            _ => {}
        }
    }
    Ok(conf)
}

/// What `pod` is to see. `node` is the node's own file; `None` where the node is configured to have none.
///
/// `ClusterFirst` on the host's network is `Default`. A cluster without name servers (no `clusterDNS`) gives the node's.
/// With neither, names resolve to nothing: the local host is asked, and no suffix is tried.
pub fn pod_dns(pod: &Pod, cluster: &ClusterDns, node: Option<&ResolvConf>) -> PodDns {
    let mut notes = Vec::new();
    let of_node = node.cloned().unwrap_or_default();
    let mut conf = match origin(pod, cluster, &mut notes) {
        Origin::Cluster => ResolvConf {
            nameservers: cluster.servers.clone(),
            searches: cluster_searches(pod, &cluster.domain).into_iter().chain(of_node.searches).collect(),
            options: vec!["ndots:5".to_owned()],
        },
        Origin::Node if node.is_some() => of_node,
        // A runtime that is given nothing gives the node's file, which is what must not be seen.
        Origin::Node => ResolvConf {
            nameservers: vec!["127.0.0.1".to_owned()],
            searches: vec![".".to_owned()],
            options: Vec::new(),
        },
        Origin::PodAlone => ResolvConf::default(),
    };
    if let Some(own) = pod.spec.as_ref().and_then(|spec| spec.dns_config.as_ref()) {
        add(&mut conf, own);
    }
    fit(&mut conf, &mut notes);
    PodDns { conf, notes }
}

fn origin(pod: &Pod, cluster: &ClusterDns, notes: &mut Vec<String>) -> Origin {
    let policy = pod.spec.as_ref().and_then(|spec| spec.dns_policy.as_deref()).unwrap_or("ClusterFirst");
    match policy {
        "None" => Origin::PodAlone,
        "Default" => Origin::Node,
        "ClusterFirst" if spec::host_network(pod) => Origin::Node,
        _ if cluster.servers.is_empty() => {
            notes.push(format!(
                "dnsPolicy {policy} needs clusterDNS, which the node's configuration does not set: the pod has the node's \
                 name servers"
            ));
            Origin::Node
        }
        _ => Origin::Cluster,
    }
}

/// What makes `service` and `service.namespace` names.
fn cluster_searches(pod: &Pod, domain: &str) -> Vec<String> {
    if domain.is_empty() {
        return Vec::new();
    }
    let namespace = pod.metadata.namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or("default");
    vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.to_owned()]
}

/// The pod's own servers and names come after the others; an option of its own replaces one of the same name.
fn add(conf: &mut ResolvConf, own: &PodDNSConfig) {
    conf.nameservers.extend(own.nameservers.iter().flatten().cloned());
    conf.searches.extend(own.searches.iter().flatten().cloned());
    for option in own.options.iter().flatten() {
        let name = option.name.as_deref().unwrap_or("");
        let text = match option.value.as_deref() {
            Some(value) if !value.is_empty() => format!("{name}:{value}"),
            _ => name.to_owned(),
        };
        if !name.is_empty() {
            set_option(&mut conf.options, text);
        }
    }
}

/// One option of each name: the last one that was set, where the first one stood.
fn set_option(options: &mut Vec<String>, option: String) {
    let name = |option: &str| option.split_once(':').map_or(option, |(name, _)| name).to_owned();
    match options.iter_mut().find(|other| name(other) == name(&option)) {
        Some(other) => *other = option,
        None => options.push(option),
    }
}

/// Nothing twice, and not more than resolvers take.
fn fit(conf: &mut ResolvConf, notes: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    conf.nameservers.retain(|server| seen.insert(server.clone()));
    let mut seen = BTreeSet::new();
    conf.searches.retain(|name| seen.insert(name.clone()));
    if conf.nameservers.len() > MAX_NAMESERVERS {
        conf.nameservers.truncate(MAX_NAMESERVERS);
        notes.push(format!(
            "more than {MAX_NAMESERVERS} name servers: only {} are asked",
            conf.nameservers.join(" ")
        ));
    }
    let mut chars = 0;
    let fitting = conf.searches.iter().take(MAX_SEARCHES).take_while(|name| {
        chars += name.chars().count() + usize::from(chars > 0);
        chars <= MAX_SEARCH_CHARS
    });
    let fitting = fitting.count();
    if fitting < conf.searches.len() {
        notes.push(format!(
            "a search list of {} names is longer than {MAX_SEARCHES} names or {MAX_SEARCH_CHARS} characters: only the \
             first {fitting} are tried",
            conf.searches.len()
        ));
        conf.searches.truncate(fitting);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value) -> Pod {
        let mut spec = spec.clone();
        spec["containers"] = json!([]);
        serde_json::from_value(json!({"metadata": {"namespace": "default"}, "spec": spec})).unwrap()
    }

    fn cluster() -> ClusterDns {
        ClusterDns { servers: vec!["10.96.0.10".into()], domain: "cluster.local".into() }
    }

    fn text(conf: &ResolvConf) -> String {
        format!("{} | {} | {}", conf.nameservers.join(" "), conf.searches.join(" "), conf.options.join(" "))
    }

    const HOST: &str = "\
# made by hand
search gone.test
search default.svc.cluster.local cluster.local. d1.test. d2.test d3.test d4.test d5.test d6.test d7.test d8.test . # why
nameserver 10.0.0.1
nameserver 10.0.0.1 ; twice
nameserver 10.0.0.2
  nameserver\t10.0.0.3
; nameserver 10.0.0.9
domain ignored.test
options ndots:1 timeout:2
";

    #[test]
    fn the_nodes_file_is_read() {
        let conf = parse_resolv_conf(HOST).unwrap();
        assert_eq!(conf.nameservers, ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        assert_eq!(conf.searches[..3], ["default.svc.cluster.local", "cluster.local", "d1.test"]);
        assert_eq!(conf.searches.len(), 10);
        assert_eq!(conf.options, ["ndots:1", "timeout:2"]);
        assert_eq!(parse_resolv_conf("options a\nnameserver # none\n"), Err(2));
        assert_eq!(parse_resolv_conf(""), Ok(ResolvConf::default()));
        assert_eq!(
            parse_resolv_conf("options ndots:1\noptions ndots:2 rotate\n").unwrap().options,
            ["ndots:2", "rotate"]
        );
    }

    /// Known fault D1.
    #[test]
    fn each_policy() {
        let node = parse_resolv_conf(HOST).unwrap();
        let d = "d1.test d2.test d3.test d4.test d5.test d6.test d7.test d8.test";
        let of_cluster =
            format!("10.96.0.10 | default.svc.cluster.local svc.cluster.local cluster.local {d} | ndots:5");
        let of_node = format!(
            "10.0.0.1 10.0.0.2 10.0.0.3 | default.svc.cluster.local cluster.local {d} | ndots:1 timeout:2"
        );
        let own = json!({"nameservers": ["192.0.2.1"], "searches": ["x.test"], "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]});
        let table = [
            (json!({}), of_cluster.clone()),
            (json!({"dnsPolicy": "ClusterFirst"}), of_cluster.clone()),
            (json!({"dnsPolicy": "ClusterFirst", "hostNetwork": true}), of_node.clone()),
            (json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true}), of_cluster.clone()),
            (json!({"dnsPolicy": "Default"}), of_node.clone()),
            (json!({"dnsPolicy": "None", "dnsConfig": own}), "192.0.2.1 | x.test | ndots:2 edns0".into()),
            (
                json!({"dnsPolicy": "ClusterFirst", "dnsConfig": own}),
                of_cluster
                    .replace("10.96.0.10", "10.96.0.10 192.0.2.1")
                    .replace(d, &format!("{d} x.test"))
                    .replace("ndots:5", "ndots:2 edns0"),
            ),
        ];
        for (spec, expected) in table {
            let dns = pod_dns(&pod(&spec), &cluster(), Some(&node));
            assert_eq!(text(&dns.conf), expected, "{spec}");
            assert_eq!(dns.notes, [""; 0], "{spec}");
        }
    }

    #[test]
    fn settings_that_are_missing() {
        let node = parse_resolv_conf("nameserver 10.0.0.1\nsearch n.test\noptions rotate\n").unwrap();
        let none = pod_dns(&pod(&json!({})), &ClusterDns::default(), Some(&node));
        assert_eq!(text(&none.conf), "10.0.0.1 | n.test | rotate");
        assert!(none.notes[0].contains("clusterDNS"), "{:?}", none.notes);
        let no_domain = ClusterDns { domain: String::new(), ..cluster() };
        let dns = pod_dns(&pod(&json!({})), &no_domain, Some(&node));
        assert_eq!(text(&dns.conf), "10.96.0.10 | n.test | ndots:5");
        // resolvConf: "" in the node's configuration
        assert_eq!(
            text(&pod_dns(&pod(&json!({})), &cluster(), None).conf),
            "10.96.0.10 | default.svc.cluster.local svc.cluster.local cluster.local | ndots:5"
        );
        assert_eq!(
            text(&pod_dns(&pod(&json!({"dnsPolicy": "Default"})), &cluster(), None).conf),
            "127.0.0.1 | . | "
        );
    }

    #[test]
    fn what_is_too_much_is_cut_once_and_said() {
        let names = |count: usize| (0..count).map(|i| format!("d{i}.test")).collect::<Vec<_>>();
        let node = ResolvConf { searches: names(40), nameservers: names(5), ..Default::default() };
        let dns = pod_dns(&pod(&json!({})), &cluster(), Some(&node));
        assert_eq!((dns.conf.searches.len(), dns.conf.searches[2].as_str()), (32, "cluster.local"));
        assert_eq!((dns.conf.searches[31].as_str(), dns.notes.len()), ("d28.test", 1));
        let dns = pod_dns(&pod(&json!({"dnsPolicy": "Default"})), &cluster(), Some(&node));
        assert_eq!((dns.conf.nameservers.len(), dns.notes.len()), (3, 2));
        let long =
            ResolvConf { searches: (0..20).map(|i| format!("{i:0>204}")).collect(), ..Default::default() };
        let dns = pod_dns(&pod(&json!({"dnsPolicy": "Default"})), &cluster(), Some(&long));
        // Ten names of 204 characters and nine spaces are 2049.
        assert_eq!(dns.conf.searches.len(), 9);
    }

    proptest! {
        #[test]
        fn any_file_gives_what_a_resolver_takes(file in "(nameserver|search|options|#|[a-z.]{1,40}|[ \t\n;]){0,200}", policy in 0..4_usize) {
            let policy = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"][policy];
            if let Ok(node) = parse_resolv_conf(&file) {
                let conf = pod_dns(&pod(&json!({"dnsPolicy": policy})), &cluster(), Some(&node)).conf;
                prop_assert!(conf.nameservers.len() <= MAX_NAMESERVERS && conf.searches.len() <= MAX_SEARCHES);
                prop_assert!(conf.searches.join(" ").len() <= MAX_SEARCH_CHARS);
                let set: BTreeSet<_> = conf.searches.iter().collect();
                prop_assert_eq!(set.len(), conf.searches.len());
            }
        }
    }
}
