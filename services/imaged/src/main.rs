//! imaged: images on the node.

fn main() -> std::process::ExitCode {
    bulkhead_service::main::<imaged::Imaged>()
}
