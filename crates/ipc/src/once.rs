//! One look at a publisher's whole state, for who needs it now and then and does not want to keep it.

use std::collections::BTreeMap;

use bulkhead_api::common::v1::Part;
use tonic::{Status, Streaming};

use crate::update::UpdateMessage;

/// Reads a stream up to the end of its first whole snapshot. Dropping the stream then ends it.
///
/// # Errors
/// When the stream ends before, or a message cannot be understood. No deadline: a publisher that starts is silent until its
/// state is whole.
pub async fn whole<M: UpdateMessage>(mut stream: Streaming<M>) -> Result<BTreeMap<M::Key, M::Value>, Status> {
    let mut items = BTreeMap::new();
    loop {
        let message = stream.message().await?;
        let message = message.ok_or_else(|| Status::unavailable("the peer ended the stream"))?;
        let update = message.into_update().map_err(|error| Status::data_loss(error.to_string()))?;
        items.extend(update.upserts);
        match update.part {
            Part::Snapshot => {}
            // Changes come only after the end of the snapshot.
            Part::SnapshotEnd | Part::Delta => return Ok(items),
        }
    }
}
