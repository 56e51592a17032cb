//! The node's `resolv.conf` and `hosts`, and what pods get of them.
#![no_main]

use bulkhead_model::dns::{ClusterDns, MAX_SEARCH_CHARS, MAX_SEARCHES, parse_resolv_conf, pod_dns};
use bulkhead_model::hosts::{PodName, hosts_file};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let conf = parse_resolv_conf(&text).ok();
    let cluster = ClusterDns { servers: vec!["10.96.0.10".to_owned()], domain: "cluster.local".to_owned() };
    for (policy, host_network) in
        [("ClusterFirst", false), ("ClusterFirst", true), ("Default", false), ("None", false), ("ClusterFirstWithHostNet", true)]
    {
        let mut pod = Pod::default();
        pod.metadata.namespace = Some("ns".to_owned());
        pod.metadata.name = Some("a".to_owned());
        pod.spec = Some(PodSpec {
            dns_policy: Some(policy.to_owned()),
            host_network: Some(host_network),
            ..PodSpec::default()
        });
        let dns = pod_dns(&pod, &cluster, conf.as_ref());
        assert!(dns.conf.nameservers.len() <= 3 && dns.conf.searches.len() <= MAX_SEARCHES);
        assert!(dns.conf.searches.join(" ").chars().count() <= MAX_SEARCH_CHARS);
        let name = PodName::of(&pod, "cluster.local").unwrap_or_default();
        let hosts = hosts_file(&pod, &name, &["10.0.0.1".to_owned()], &text);
        assert!(hosts.ends_with('\n'));
    }
});
