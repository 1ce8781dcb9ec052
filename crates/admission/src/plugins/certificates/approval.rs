//! Approving or denying a certificate request needs the verb `approve` on its signer.

use meta::{ApiError, Value, field::quote};

use super::{GROUP, REQUESTS, is_authorized_for_signer};
use crate::{Attributes, BoxFuture, Cluster, Operation, Phases, Plugin};

pub struct CertificateApproval;

impl Plugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Update
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is(GROUP, REQUESTS, "approval")
    }

    fn phases(&self) -> Phases {
        Phases::Validating
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            // Of the stored request: this one may name another signer.
            let signer = attributes.old.map_or("", |old| old.str_at(&["spec", "signerName"]));
            if is_authorized_for_signer(attributes, cluster, "approve", signer).await {
                return Ok(());
            }
            let signer = quote(signer);
            let why = format!("user not permitted to approve requests with signerName {signer}");
            Err(attributes.forbidden(object, why))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::{cluster, create, update, yaml},
        resources,
    };

    #[test]
    fn approval_needs_a_right_on_the_signer() {
        let csr = yaml("{metadata: {name: c}, spec: {signerName: example.com/s}}");
        let other = yaml("{metadata: {name: c}, spec: {signerName: mine.com/s}}");
        let refused = "certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: user not \
                       permitted to approve requests with signerName \"example.com/s\"";
        let cases: [(&'static [&'static str], &str); 6] = [
            (&["approve signers example.com/s"], ""),
            (&["approve signers example.com/*"], ""),
            (&[], refused),
            (&["approve signers example.com"], refused),
            (&["sign signers example.com/s"], refused),
            // The signer is that of the stored request.
            (&["approve signers mine.com/s"], refused),
        ];
        let request = update(&resources::CERTIFICATE_SIGNING_REQUESTS, csr.clone());
        let request = request.subresource("approval");
        for (rights, expected) in cases {
            let outcome = request.validate(&CertificateApproval, &other, &cluster(&[], rights));
            assert_eq!(outcome.message(), expected, "{rights:?}");
        }
        let elsewhere = [
            update(&resources::CERTIFICATE_SIGNING_REQUESTS, csr.clone()),
            create(&resources::CERTIFICATE_SIGNING_REQUESTS).subresource("approval"),
            update(&resources::PODS, csr.clone()).subresource("approval"),
        ];
        for request in elsewhere {
            let outcome = request.validate(&CertificateApproval, &csr, &cluster(&[], &[]));
            assert_eq!(outcome.message(), "");
        }
    }
}
