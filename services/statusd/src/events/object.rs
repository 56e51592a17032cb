//! The Event as the API has it. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Regarding;
use super::correlate::Entry;

/// Who says it: tools look for the kubelet's.
const COMPONENT: &str = "kubelet";
/// Where Events of what has no namespace are.
const NAMESPACE: &str = "default";

/// Who tells.
#[derive(Clone, Debug)]
pub(super) struct Author {
    /// Name of the node.
    pub(super) node: String,
    /// UID of the node, while it is registered.
    pub(super) uid: watch::Receiver<Option<String>>,
}

impl Author {
    /// Name of what it happened to.
    pub(super) fn name_of<'a>(&'a self, regarding: &'a Regarding) -> &'a str {
        match regarding {
            Regarding::Node => &self.node,
            Regarding::Pod { name, .. } => name,
        }
    }

    /// The whole Event.
    pub(super) fn object(&self, entry: &Entry) -> Event {
        let Entry { happened, name, count, first } = entry;
        let event = &happened.event;
        Event {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace_of(&happened.regarding).to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: self.reference(&happened.regarding),
            type_: Some(event.severity.as_str().to_owned()),
            reason: Some(event.reason.clone().into_owned()),
            message: Some(event.message.clone()),
            count: Some(i32::try_from(*count).unwrap_or(i32::MAX)),
            first_timestamp: Some(seconds(*first)),
            last_timestamp: Some(seconds(happened.at)),
            source: Some(EventSource {
                component: Some(COMPONENT.to_owned()),
                host: Some(self.node.clone()),
            }),
            reporting_component: Some(COMPONENT.to_owned()),
            reporting_instance: Some(self.node.clone()),
            ..Event::default()
        }
    }

    fn reference(&self, regarding: &Regarding) -> ObjectReference {
        let kind = |kind: &str| ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(kind.to_owned()),
            ..ObjectReference::default()
        };
        match regarding {
            Regarding::Node => ObjectReference {
                name: Some(self.node.clone()),
                uid: self.uid.borrow().clone(),
                ..kind("Node")
            },
            Regarding::Pod { uid, namespace, name, field_path } => ObjectReference {
                name: Some(name.clone()),
                namespace: Some(namespace.clone()),
                uid: Some(uid.clone()),
                field_path: (!field_path.is_empty()).then(|| field_path.clone()),
                ..kind("Pod")
            },
        }
    }
}

/// Where its Event is.
pub(super) fn namespace_of(regarding: &Regarding) -> &str {
    match regarding {
        Regarding::Node => NAMESPACE,
        Regarding::Pod { namespace, .. } => namespace,
    }
}

/// The merge patch that makes the existing Event this one.
pub(super) fn patch(entry: &Entry) -> Value {
    json!({
        "count": entry.count,
        "lastTimestamp": seconds(entry.happened.at),
        "message": entry.happened.event.message,
    })
}

/// The API's times have no parts of seconds.
fn seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}
