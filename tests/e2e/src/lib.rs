//! Tests of several processes together. Owns two harnesses: all processes in one, on the fake runtime ([`fake_node`]), and
//! the real thing under its launcher on real peers ([`real_node`]); machines with systemd ([`machine`]); a real control plane ([`cluster`]); and [`storm`], which does to the latter what it must survive.

pub mod cluster;
pub mod compare;
pub mod disk;
pub mod fake_node;
pub mod machine;
pub mod pods;
pub mod real_node;
pub mod storm;
pub mod wait;
