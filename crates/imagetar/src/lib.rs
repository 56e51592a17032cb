//! Builds container images from local files, as docker-archive tars that `ctr images import` reads.
//!
//! It serves tests and the demo, where no registry can be assumed. It owns the archive's form and nothing else: it
//! never pulls, never talks to a runtime, and never takes a time, a user name or an order of files from the machine,
//! so that the same input always gives the same image id.
//!
//! ```
//! use bulkhead_imagetar::ImageBuilder;
//!
//! let mut archive = Vec::new();
//! let image = ImageBuilder::new(["local/hello:1"])
//!     .file("/hello", 0o755, b"#!/bin/sh\necho hello\n".as_slice())
//!     .entrypoint(["/hello"])
//!     .write_to(&mut archive)?;
//! assert!(image.id.starts_with("sha256:"));
//! # Ok::<(), bulkhead_imagetar::Error>(())
//! ```

mod archive;
mod builder;
mod elf;
mod error;
mod layer;
pub mod standard;

pub use builder::{Image, ImageBuilder, Source};
pub use error::Error;

#[cfg(test)]
mod tests;
