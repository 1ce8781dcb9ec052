//! The group `certificates.k8s.io`.

pub(crate) mod certificate_signing_request;
pub(crate) mod cluster_trust_bundle;
pub(crate) mod pem;
pub(crate) mod pod_certificate_request;
