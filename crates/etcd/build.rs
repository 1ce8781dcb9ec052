//! Makes Rust of `proto/etcd.proto`, without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto/etcd.proto");
    let files = protox::compile(["etcd.proto"], ["proto"])?;
    // Keys and values stay slices of the message they came in.
    prost_build::Config::new().bytes(["."]).compile_fds(files)?;
    Ok(())
}
