//! Issuing a certificate needs the verb `sign` on the signer of the request.

use meta::{ApiError, Value, field::quote};

use super::{GROUP, REQUESTS, is_authorized_for_signer};
use crate::{Attributes, BoxFuture, Cluster, Operation, Phases, Plugin};

pub struct CertificateSigning;

impl Plugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Update
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is(GROUP, REQUESTS, "status")
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
            let (Some(new), Some(old)) = (object, attributes.old) else { return Ok(()) };
            let unchanged = new.str_at(&["status", "certificate"])
                == old.str_at(&["status", "certificate"])
                && new.items_at(&["status", "conditions"])
                    == old.items_at(&["status", "conditions"]);
            let signer = old.str_at(&["spec", "signerName"]);
            if unchanged || is_authorized_for_signer(attributes, cluster, "sign", signer).await {
                return Ok(());
            }
            let signer = quote(signer);
            let why = format!("user not permitted to sign requests with signerName {signer}");
            Err(attributes.forbidden(object, why))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::{cluster, update, yaml},
        resources,
    };

    #[test]
    fn signing_needs_a_right_on_the_signer() {
        let csr = |status: &str| {
            yaml(&format!(
                "{{metadata: {{name: c}}, spec: {{signerName: a.b/s}}, status: {status}}}"
            ))
        };
        let refused = "certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: user not \
                       permitted to sign requests with signerName \"a.b/s\"";
        let cases: [(&'static [&'static str], &str, &str); 6] = [
            (&["sign signers a.b/s"], "{certificate: eA==}", ""),
            (&["sign signers a.b/*"], "{conditions: [{type: Failed}]}", ""),
            (&[], "{certificate: eA==}", refused),
            (&["approve signers a.b/s"], "{conditions: [{type: Failed}]}", refused),
            (&[], "{}", ""),
            (&[], "{conditions: []}", ""),
        ];
        for (rights, status, expected) in cases {
            let request = update(&resources::CERTIFICATE_SIGNING_REQUESTS, csr("{}"));
            let cluster = cluster(&[], rights);
            let status_request = request.subresource("status");
            let outcome = status_request.validate(&CertificateSigning, &csr(status), &cluster);
            assert_eq!(outcome.message(), expected, "{rights:?} {status}");
        }
    }
}
