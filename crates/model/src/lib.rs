//! Pod, container, probe, threshold and status rules.
//!
//! Owns every rule that says what a node should do about a pod, as pure functions over Kubernetes' own types
//! (k8s-openapi) and over what the runtime was seen to hold ([`runtime`]). Must never know tokio, tonic, a file
//! descriptor or a clock: what time it is comes in as an argument.

pub mod actions;
pub mod admission;
pub mod capacity;
pub mod confinement;
pub mod decision;
pub mod dns;
pub mod env;
pub mod event;
pub mod eviction;
pub mod grace;
pub mod hash;
pub mod hook;
pub mod hosts;
pub mod image;
pub mod manifest;
pub mod names;
pub mod node_labels;
pub mod phase;
pub mod ports;
pub mod probe;
pub mod probe_view;
pub mod qos;
pub mod quantity;
pub mod resize;
pub mod resources;
pub mod runtime;
pub mod runtime_features;
pub mod signal;
pub mod spec;
pub mod start_time;
pub mod static_pod;
pub mod status;
pub mod status_view;
pub mod sysctl;
pub mod termination_message;
