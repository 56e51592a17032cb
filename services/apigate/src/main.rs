//! The gate to the API server.

fn main() -> std::process::ExitCode {
    bulkhead_service::main::<apigate::Apigate>()
}
