//! What statusd takes from the node's configuration and flags.

use bulkhead_service::Context;

use crate::capacity::{self, Limits};

/// Settings of this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Name of the node.
    pub(crate) node_name: String,
    /// `port`.
    pub(crate) port: u16,
    /// `enableControllerAttachDetach`.
    pub(crate) attach_detach: bool,
    /// Of the node's resources.
    pub(crate) limits: Limits,
}

impl Settings {
    /// Reads them.
    pub(crate) fn new(context: &Context) -> Self {
        let config = &context.config;
        Self {
            node_name: context.flags.node_name(),
            port: config.port,
            attach_detach: config.enable_controller_attach_detach,
            limits: capacity::limits(config),
        }
    }
}
