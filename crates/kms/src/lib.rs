//! Encryption at rest with keys that somebody else keeps: a KMS plugin, version 2 of its API, asked
//! over gRPC on a Unix socket.
//!
//! The plugin never sees an object. It encrypts a seed, made here at random; each value gets a key of
//! its own, derived from the seed. `envelope` has the bytes, `client` the calls, `provider` the life of
//! a seed.
//!
//! A crate of its own for the same reason as `etcd`: nothing above [`store::encrypt::Remote`] needs gRPC.

mod client;
mod envelope;
mod provider;

pub use provider::connect;
