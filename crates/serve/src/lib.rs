//!

pub mod body;
pub mod gzip;
pub mod pki;
pub mod tls;
