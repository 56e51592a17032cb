//! The whole gate: its sockets in front, a runtime of each kind behind.

#![cfg(test)]

mod faults;
mod limits;
mod passing;
mod policy;
mod rights;
mod runtime;
mod support;
mod tracing;
