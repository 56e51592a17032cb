//! KubeletConfiguration (`kubelet.config.k8s.io/v1beta1`) and the kubelet's flags: reading, merging, defaults, validation,
//! printing.
//!
//! Owns what the configuration file, its drop-in directory and flags mean. [`Files::read`] does the I/O, [`parse`] and
//! everything beneath it is pure. Must never act on a field, and must never accept one silently: what a file says is
//! understood, implemented and in bounds, or the whole configuration is refused with file, line, field and what to do. Only
//! names that the kubelet ignores with a warning are ignored, with a warning
//! (`docs/decisions/0004-unknown-fields-are-warned-of.md`).

mod de;
mod duration;
mod error;
mod flags;
mod implemented;
mod kubelet;
mod load;
mod merge;
mod tree;
mod unset;
mod validate;

pub use duration::{Duration, DurationError};
pub use error::{ConfigError, Position, Problem, Problems};
pub use flags::{About, FLAGS, Flag, Given, Kind};
pub use implemented::{IMPLEMENTED, Implemented, Values, unimplemented};
pub use kubelet::{
    Anonymous, Authentication, Authorization, AuthorizationWebhook, CrashLoopBackOff, Headers,
    KubeletConfiguration, LogFormatOptions, LogOptions, Logging, MemoryReservation, MemorySwap,
    ShutdownByPriority, Taint, Tracing, UserNamespaces, VModuleItem, Webhook, X509,
};
pub use load::{Examined, Files, Loaded, MAX_DROP_INS, MAX_FILE_BYTES, Source, examine, load, parse};
pub use validate::validate;

/// The only `apiVersion` that a configuration file may have.
pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
/// The only `kind` that a configuration file may have.
pub const KIND: &str = "KubeletConfiguration";

/// Names that `tlsCipherSuites` may hold: what the TLS library has. The kubelet knows more; those are weak, and refused by
/// name rather than left out. Two are names that Go had first.
pub const TLS_CIPHER_SUITES: [&str; 11] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];
