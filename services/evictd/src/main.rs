//! The process `evictd`: see `README.md`.

fn main() -> std::process::ExitCode {
    bulkhead_service::main::<evictd::Evictd>()
}
