//! From the runtime's answers to pods, open to fuzzing. Nobody else may use this.

use bulkhead_cri::wire;
use bulkhead_model::runtime::{RuntimePod, Sandbox};

use crate::convert;
use crate::listing::{PodListing, by_pod, rows};

/// What the lists and the statuses of everything on them make: every container takes the next status, in turn.
pub fn pods(
    sandboxes: &[wire::PodSandbox],
    containers: &[wire::Container],
    networks: &[wire::PodSandboxStatus],
    statuses: &[wire::ContainerStatus],
) -> Vec<RuntimePod> {
    let rows = rows(sandboxes, containers);
    let mut networks = networks.iter().cycle();
    let mut statuses = statuses.iter().cycle();
    let mut sandbox = |listed: &wire::PodSandbox| Sandbox {
        ips: networks.next().map(|status| convert::network(status).ips).unwrap_or_default(),
        ..convert::sandbox(listed)
    };
    let mut container = |listed: wire::Container| Some(convert::container(listed, statuses.next()?.clone()));
    let pod = |listing: PodListing| RuntimePod {
        uid: listing.uid,
        name: listing.name,
        namespace: listing.namespace,
        sandboxes: listing.sandboxes.iter().map(&mut sandbox).collect(),
        containers: listing.containers.into_iter().filter_map(&mut container).collect(),
    };
    by_pod(&rows).filter_map(PodListing::of).map(pod).collect()
}

#[cfg(test)]
mod tests {
    use bulkhead_api::convert::{runtime_pod_from_wire, runtime_pod_to_wire};
    use proptest::prelude::*;

    use super::*;
    use crate::fake;

    /// A message with some of its bytes changed, as far as it still is one.
    fn bent<T: prost::Message + Default>(message: &T, changes: &[(prop::sample::Index, u8)]) -> T {
        let mut bytes = message.encode_to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        T::decode(bytes.as_slice()).unwrap_or_default()
    }

    proptest! {
        #[test]
        fn any_answer_of_the_runtime_is_survived(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        ) {
            let (sandbox, container) = (fake::sandbox("u", "s1"), fake::container("u", "c1", "app"));
            let (network, status) = (fake::sandbox_status(&sandbox), fake::status(&container));
            let listed = [bent(&container, &changes), container];
            let read = pods(&[bent(&sandbox, &changes), sandbox], &listed, &[bent(&network, &changes)], &[bent(&status, &changes)]);
            for pod in read {
                let told = runtime_pod_from_wire(runtime_pod_to_wire(&pod));
                prop_assert_eq!(told.ok(), Some(pod), "what pleg publishes is what others read");
            }
        }
    }
}
