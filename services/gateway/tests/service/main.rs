//! The whole of gateway, with every peer faked.

#![cfg(test)]

mod fakes;
mod http;
mod logs;
mod node;
mod pods;
mod secured;
mod sessions;
mod tls;
