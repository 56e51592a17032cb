//! statusd
