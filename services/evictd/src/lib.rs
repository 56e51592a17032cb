//! evictd
