//! Generates the protocol's code from `proto/` with a protobuf compiler written in Rust, so no `protoc` is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Read at run time: one target directory may serve several checkouts.
    let root = format!("{}/../../proto", std::env::var("CARGO_MANIFEST_DIR")?);
    println!("cargo::rerun-if-changed={root}");
    let descriptors = protox::compile(["ata/v1/coordinator.proto"], [&root])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
