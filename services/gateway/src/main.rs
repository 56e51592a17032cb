//! gateway: the node's read-only face.

fn main() -> std::process::ExitCode {
    bulkhead_service::main::<gateway::Gateway>()
}
