//! Service account tokens that another program signs (`--service-account-signing-endpoint`): a gRPC
//! service `v1.ExternalJWTSigner` on a unix socket, which has the private key and says which public
//! keys verify tokens. Rules and messages are kube-apiserver's. A crate of its own, because gRPC takes
//! long to build.

mod client;
mod key_cache;
mod metrics;
mod signer;

pub use self::{
    key_cache::{KeyCache, VerificationKey},
    metrics::Metrics,
    signer::ExternalSigner,
};
