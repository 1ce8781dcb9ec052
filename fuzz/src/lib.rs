//! Random input for everything that reads what others wrote, on stable Rust and without instruments.
//!
//! [`objects`] makes objects of any built-in type from the schema, [`mutate`] damages bytes, [`targets`] are the decoders with
//! what must hold of each, and [`drive()`] feeds one from the other. All randomness comes from a seed ([`random`]), so that a
//! failure can be had again.
//!
//! `cargo test -p fuzz` drives every target for about a second. For hours:
//!
//! ```text
//! cargo run --release -p fuzz -- all --seconds 3600          # every target in turn
//! cargo run --release -p fuzz -- yaml --seed 7               # one target until it fails
//! ```

pub mod drive;
pub mod mutate;
pub mod objects;
pub mod random;
pub mod targets;

use std::sync::OnceLock;

use builtin::Definitions;
use codec::protobuf::Tables;

pub use self::drive::{Report, drive};
pub use self::objects::Objects;
pub use self::random::Random;
pub use self::targets::{TARGETS, Target};

/// The built-in types, loaded once.
pub fn definitions() -> &'static Definitions {
    static DEFINITIONS: OnceLock<Definitions> = OnceLock::new();
    DEFINITIONS.get_or_init(Definitions::load)
}

/// How they look in protobuf.
pub fn tables() -> &'static Tables {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    TABLES.get_or_init(|| Tables::new(&definitions().schema))
}
