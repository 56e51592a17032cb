//! Compiles proto/ with protox: no installed protoc is needed.

use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    // Relative to this package, where cargo runs this: two checkouts may share one target folder.
    let proto = Path::new("../../proto");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    println!("cargo::rerun-if-changed={}", proto.display());
    let mut files = vec!["cri/v1/api.proto".into()];
    for package in std::fs::read_dir(proto.join("bulkhead"))? {
        let name = package?.file_name();
        let name = name.to_string_lossy();
        files.push(format!("bulkhead/{name}/v1/{name}.proto"));
    }
    files.sort();
    let descriptors = protox::compile(&files, [proto])?;
    // For the test that compares the API with its snapshot.
    std::fs::write(out.join("descriptors.bin"), prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure()
        .build_transport(false)
        .include_file("mod.rs")
        // Wide messages live in few places; boxing keeps enums of requests small.
        .compile_fds(descriptors)?;
    Ok(())
}
