//!

pub mod body;
pub mod connection;
pub mod gzip;
pub mod lifecycle;
pub mod listener;
pub mod pki;
pub mod tls;

pub use body::Body;
