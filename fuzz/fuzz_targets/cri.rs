//! The runtime's answers: lists and statuses, as far as pods; and pods on the wire and back.
#![no_main]

use bulkhead_api::convert::{runtime_pod_from_wire, runtime_pod_to_wire};
use bulkhead_cri::wire;
use libfuzzer_sys::fuzz_target;
use prost::Message;

/// The next message: its length in two bytes, then itself. What is no message is an empty one.
fn next<T: Message + Default>(bytes: &mut &[u8]) -> T {
    let (length, rest) = bytes.split_at(bytes.len().min(2));
    let length = length.iter().fold(0, |sum, byte| sum * 256 + usize::from(*byte)).min(rest.len());
    let (message, rest) = rest.split_at(length);
    *bytes = rest;
    T::decode(message).unwrap_or_default()
}

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes;
    let sandboxes: wire::ListPodSandboxResponse = next(&mut bytes);
    let containers: wire::ListContainersResponse = next(&mut bytes);
    let network: wire::PodSandboxStatusResponse = next(&mut bytes);
    let status: wire::ContainerStatusResponse = next(&mut bytes);
    let further: wire::ContainerStatusResponse = next(&mut bytes);
    let networks: Vec<_> = network.status.into_iter().collect();
    let statuses: Vec<_> = status.status.into_iter().chain(further.status).collect();
    let pods = pleg::fuzz::pods(&sandboxes.items, &containers.containers, &networks, &statuses);
    for pod in pods {
        for container in &pod.containers {
            assert!(container.message.len() <= 1024 && container.reason.len() <= 1024);
        }
        let back = runtime_pod_from_wire(runtime_pod_to_wire(&pod));
        assert_eq!(back.ok(), Some(pod), "what pleg publishes is what others read");
    }
});
