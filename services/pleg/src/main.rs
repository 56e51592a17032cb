//! The pleg process: see the library for what it does.

fn main() -> std::process::ExitCode {
    bulkhead_service::main::<pleg::Pleg>()
}
