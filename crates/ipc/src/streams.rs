//! Every stream of proto/ as an [`crate::UpdateMessage`]: key and value types, and how they cross the wire.
//!
//! Where the model has a type for the item, that is the value; plain facts travel as the generated message itself.

use bulkhead_api::convert::{
    ProbeItem, StatusItem, WireError, probe_item_from_wire, probe_item_to_wire, runtime_pod_from_wire,
    runtime_pod_to_wire, status_item_from_wire, status_item_to_wire,
};
use bulkhead_api::{evictd, pleg, prober, statusd, syncd, volumed};
use bulkhead_model::runtime::RuntimePod;

use crate::update_message;

update_message!(
    pleg::v1::RuntimePodsUpdate,
    RuntimePod,
    from_wire = |item| runtime_pod_from_wire(item).map(|pod| (pod.uid.clone(), pod)),
    to_wire = |pod: &RuntimePod| runtime_pod_to_wire(pod)
);

update_message!(
    syncd::v1::StatusViewsUpdate,
    StatusItem,
    from_wire = |item| status_item_from_wire(item).map(|item| (item.view.uid.clone(), item)),
    to_wire = |item: &StatusItem| status_item_to_wire(item)
);

update_message!(
    syncd::v1::ProbeViewsUpdate,
    ProbeItem,
    from_wire = |item| probe_item_from_wire(item).map(|item| (item.view.uid.clone(), item)),
    to_wire = |item: &ProbeItem| probe_item_to_wire(item)
);

update_message!(
    syncd::v1::StatsViewsUpdate,
    syncd::v1::StatsView,
    from_wire = |item| keyed(item.uid.clone(), item, "StatsView"),
    to_wire = |item: &syncd::v1::StatsView| item.clone()
);

update_message!(
    syncd::v1::MirrorPodsUpdate,
    syncd::v1::MirrorPod,
    from_wire = |item| keyed(item.uid.clone(), item, "MirrorPod"),
    to_wire = |item: &syncd::v1::MirrorPod| item.clone()
);

update_message!(
    prober::v1::ResultsUpdate,
    prober::v1::ContainerResult,
    from_wire = |item| keyed(item.container_id.clone(), item, "ContainerResult"),
    to_wire = |item: &prober::v1::ContainerResult| item.clone()
);

update_message!(
    volumed::v1::PodVolumesUpdate,
    volumed::v1::PodVolumes,
    from_wire = |item| keyed(item.pod_uid.clone(), item, "PodVolumes"),
    to_wire = |item: &volumed::v1::PodVolumes| item.clone()
);

update_message!(
    statusd::v1::StatusesUpdate,
    statusd::v1::PodStatus,
    from_wire = |item| keyed(item.pod_uid.clone(), item, "PodStatus"),
    to_wire = |item: &statusd::v1::PodStatus| item.clone()
);

update_message!(
    evictd::v1::PressureUpdate,
    evictd::v1::NodePressure,
    from_wire = |item| keyed(item.condition.clone(), item, "NodePressure"),
    to_wire = |item: &evictd::v1::NodePressure| item.clone()
);

fn keyed<T>(key: String, item: T, message: &'static str) -> Result<(String, T), WireError> {
    if key.is_empty() { Err(WireError { message, field: "key" }) } else { Ok((key, item)) }
}
