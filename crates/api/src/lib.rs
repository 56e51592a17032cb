//! The wire: generated code of proto/, the access file, and conversions between wire and model.
//!
//! Owns every message that crosses a process boundary. Must never open a socket: that is `bulkhead-ipc`.

pub mod access;
pub mod convert;

/// Generated from proto/: nested by package, such as `proto::bulkhead::syncd::v1`.
#[expect(
    missing_docs,
    clippy::all,
    clippy::restriction,
    clippy::pedantic,
    reason = "generated code; its comments are in proto/"
)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/mod.rs"));
}

/// The container runtime interface.
pub mod cri {
    pub use crate::proto::runtime::v1;
}

pub use proto::bulkhead::{
    common, crigate, evictd, gateway, imaged, pleg, prober, process, statusd, syncd, volumed,
};

/// All of proto/ as an encoded `FileDescriptorSet`, with comments.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Every `package.Service/Method` of proto/, for tests.
#[cfg(test)]
fn proto_index() -> std::collections::BTreeSet<String> {
    let set: prost_types::FileDescriptorSet = prost::Message::decode(DESCRIPTORS).unwrap();
    set.file
        .iter()
        .flat_map(|f| {
            f.service.iter().flat_map(move |s| {
                s.method.iter().map(move |m| format!("{}.{}/{}", f.package(), s.name(), m.name()))
            })
        })
        .collect()
}
