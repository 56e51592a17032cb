//! The gate to the container runtime.

fn main() -> std::process::ExitCode {
    bulkhead_service::main::<crigate::Crigate>()
}
