//! The whole gate: its sockets in front, a fake API server behind.

#![cfg(test)]

mod certificates;
mod credential;
mod faults;
mod kube;
mod rights;
mod serving;
mod support;
