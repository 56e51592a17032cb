//! The shape that every stream's message has, apart from what its items are.

use bulkhead_api::common::v1::{Part, StreamVersion};

/// One message of a stream, in terms of keys and values.
#[derive(Clone, Debug, PartialEq)]
pub struct Update<K, V> {
    /// Changes whenever the publisher restarts.
    pub epoch: String,
    /// Grows within an epoch.
    pub generation: u64,
    /// Whether this is a change or a piece of the whole.
    pub part: Part,
    /// New and changed entries.
    pub upserts: Vec<(K, V)>,
    /// Keys that are gone.
    pub removed: Vec<K>,
}

/// A generated message that carries an [`Update`]. Implement it with [`crate::update_message!`].
pub trait UpdateMessage: Sized + Send + 'static {
    /// Key of an item: a pod UID or a container id.
    type Key: Ord + Clone + Send + Sync + 'static;
    /// The item as the model knows it.
    type Value: PartialEq + Send + Sync + 'static;
    /// Reads the message.
    ///
    /// # Errors
    /// When an item cannot be understood. The stream is then opened again.
    fn into_update(self) -> Result<Update<Self::Key, Self::Value>, bulkhead_api::convert::WireError>;
    /// Writes the message.
    fn from_update(update: Update<Self::Key, std::sync::Arc<Self::Value>>) -> Self;
}

/// Splits the version of a message.
pub fn version(version: Option<StreamVersion>) -> (String, u64) {
    version.map(|v| (v.epoch, v.generation)).unwrap_or_default()
}

/// Implements [`UpdateMessage`] for a generated `...Update` message whose keys are strings.
///
/// `update_message!(Message, Value, from_wire = |item| Result<(String, Value), WireError>, to_wire = |&Value| Item)`
#[macro_export]
macro_rules! update_message {
    ($message:ty, $value:ty, from_wire = $from:expr, to_wire = $to:expr) => {
        impl $crate::UpdateMessage for $message {
            type Key = String;
            type Value = $value;
            fn into_update(self) -> Result<$crate::Update<String, $value>, bulkhead_api::convert::WireError> {
                let part = self.part();
                let (epoch, generation) = $crate::update::version(self.version);
                let upserts = self.upserts.into_iter().map($from).collect::<Result<Vec<_>, _>>()?;
                Ok($crate::Update { epoch, generation, part, upserts, removed: self.removed })
            }
            fn from_update(update: $crate::Update<String, std::sync::Arc<$value>>) -> Self {
                let to = $to;
                Self {
                    version: Some(bulkhead_api::common::v1::StreamVersion {
                        epoch: update.epoch,
                        generation: update.generation,
                    }),
                    part: update.part.into(),
                    upserts: update.upserts.iter().map(|(_, value)| to(value)).collect(),
                    removed: update.removed,
                }
            }
        }
    };
}
