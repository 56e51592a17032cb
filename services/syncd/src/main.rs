//! syncd: desired pods and their workers.

fn main() -> std::process::ExitCode {
    bulkhead_service::main::<syncd::Syncd>()
}
