//! Generates the protocol's code from `proto/`, with a protobuf compiler written in Rust: nothing to install.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
    println!("cargo::rerun-if-changed={root}");
    let descriptors = protox::compile(["ata/v1/coordinator.proto"], [root])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
