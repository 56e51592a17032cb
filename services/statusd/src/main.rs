//! statusd: status of pods and of the node.

fn main() -> std::process::ExitCode {
    bulkhead_service::main::<statusd::Statusd>()
}
