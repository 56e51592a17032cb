//! Tests of several processes together. Owns two harnesses: all processes in one, on the fake runtime ([`fake_node`]), and
//! the real thing under its launcher on real peers ([`real_node`]).

pub mod fake_node;
pub mod pods;
pub mod real_node;
pub mod wait;
