//! Fakes with state and the harness for real peers. Test code only.

pub mod apiserver;
pub mod certificates;
pub mod cri;
pub mod node;
pub mod peers;

pub use node::TestNode;
