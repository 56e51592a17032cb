//! A static pod's manifest: read, made a pod of, and given to the rules that look at a pod before it runs.
#![no_main]

use bulkhead_model::dns::ClusterDns;
use bulkhead_model::env::{PodFacts, container_command, container_env, downward_files};
use bulkhead_model::hosts::{PodName, hosts_file};
use bulkhead_model::qos::QosClass;
use bulkhead_model::quantity::Quantity;
use bulkhead_model::static_pod::{Origin, StaticSource, make_static_pod};
use bulkhead_model::{confinement, dns, hash, manifest, ports, probe_view, resources, status_view, sysctl};
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(items) = manifest::parse_all(bytes) {
        assert!(items.len() <= manifest::MAX_ITEMS);
    }
    let Ok(read) = manifest::parse(bytes) else { return };
    assert!(read.warnings.len() <= manifest::MAX_WARNINGS);
    let source = StaticSource { origin: Origin::File("/m/a.yaml"), node_name: "node-a" };
    let pod = make_static_pod(read.pod.clone(), &source, Timestamp::UNIX_EPOCH);
    let again = make_static_pod(read.pod, &source, Timestamp::UNIX_EPOCH);
    assert_eq!(pod.metadata.uid, again.metadata.uid, "one manifest is one pod");

    let qos = QosClass::of(&pod);
    let status = status_view::StatusView::new(&pod, qos.as_str());
    let probes = probe_view::ProbeView::new(&pod);
    let _ = (resources::pod(&pod), ports::mappings(&pod), sysctl::check(&pod, &[]));
    let _ = confinement::check(&pod, confinement::Kernel::default());
    let cluster = ClusterDns { servers: vec!["10.96.0.10".to_owned()], domain: "cluster.local".to_owned() };
    let _ = dns::pod_dns(&pod, &cluster, None);
    if let Ok(name) = PodName::of(&pod, "cluster.local") {
        let _ = hosts_file(&pod, &name, &["10.0.0.1".to_owned()], "127.0.0.1 localhost\n");
    }
    let facts = PodFacts {
        pod: &pod,
        node_name: "node-a",
        pod_ips: &[],
        host_ips: &[],
        allocatable_cpu: Quantity::from_milli(1500),
        allocatable_memory: Quantity::from_milli(1 << 30),
    };
    let spec = pod.spec.as_ref();
    for container in spec.into_iter().flat_map(|spec| &spec.containers) {
        hash::container_hash(container);
        if let Ok(env) = container_env(container, &facts) {
            let _ = container_command(container, &env);
        }
    }
    for volume in spec.into_iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        if let Some(source) = &volume.downward_api {
            let _ = downward_files(source, &facts);
        }
    }
    let _ = (status, probes);
});
