//! The process that mounts: see the crate `volumed`.

fn main() -> std::process::ExitCode {
    bulkhead_service::main::<volumed::Volumed>()
}
