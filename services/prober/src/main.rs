//! The process `prober`: see `README.md`.

fn main() -> std::process::ExitCode {
    bulkhead_service::main::<prober::Prober>()
}
