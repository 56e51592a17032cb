//! End-to-end tests on real peers.
