//! No client certificate for the group of cluster administrators is requested from the signer whose
//! certificates the server itself accepts.

use meta::{ApiError, Value};
use x509_parser::x509::X509Name;

use super::{GROUP, REQUESTS, with_subject};
use crate::{Attributes, BoxFuture, Cluster, Operation, Phases, Plugin};

pub struct CertificateSubjectRestriction;

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is(GROUP, REQUESTS, "")
    }

    fn phases(&self) -> Phases {
        Phases::Validating
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let checked = check(object.unwrap_or(&Value::Null));
        let refused = |why| attributes.forbidden(object, why);
        Box::pin(std::future::ready(checked.map_err(refused)))
    }
}

fn check(csr: &Value) -> Result<(), String> {
    if csr.str_at(&["spec", "signerName"]) != CLIENT_SIGNER {
        return Ok(());
    }
    match with_subject(csr.str_at(&["spec", "request"]), is_of_masters) {
        None => Err("failed to parse CSR: PEM block type must be CERTIFICATE REQUEST".to_owned()),
        Some(true) => {
            Err(format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"))
        }
        Some(false) => Ok(()),
    }
}

fn is_of_masters(subject: &X509Name<'_>) -> bool {
    subject.iter_organization().any(|name| match name.as_str() {
        Ok(name) => name == MASTERS,
        // UTF-16 and the like: a signer may read it as text, so the zero bytes do not count.
        Err(_) => name.as_slice().iter().copied().filter(|byte| *byte != 0).eq(MASTERS.bytes()),
    })
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use meta::value;

    use super::*;
    use crate::{
        harness::{cluster, create},
        resources,
    };

    /// A request for an organization: as much of PKCS#10 as the parser reads.
    fn request(organization: &str, utf16: bool) -> String {
        let der = |tag: u8, content: &[u8]| {
            let mut out = vec![tag];
            match content.len() {
                length @ ..128 => out.push(u8::try_from(length).unwrap()),
                length => out.extend([0x81, u8::try_from(length).unwrap()]),
            }
            out.extend(content);
            out
        };
        let text = if utf16 {
            let units = organization.encode_utf16().flat_map(u16::to_be_bytes);
            der(0x1e, &units.collect::<Vec<_>>())
        } else {
            der(0x0c, organization.as_bytes())
        };
        let attribute = der(0x30, &[der(0x06, &[0x55, 0x04, 0x0a]), text].concat());
        let subject = der(0x30, &der(0x31, &attribute));
        let algorithm = der(0x30, &der(0x06, &[0x2b, 0x65, 0x70]));
        let key = der(0x30, &[algorithm.clone(), der(0x03, &[0; 33])].concat());
        let info = der(0x30, &[der(0x02, &[0]), subject, key, der(0xa0, &[])].concat());
        let signature = der(0x03, &[0; 65]);
        let whole = der(0x30, &[info, algorithm, signature].concat());
        let pem = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
            STANDARD.encode(whole)
        );
        STANDARD.encode(pem)
    }

    #[test]
    fn the_group_of_administrators_is_refused() {
        let refused = "certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: use of \
                       kubernetes.io/kube-apiserver-client signer with system:masters group is not \
                       allowed";
        let unreadable = "certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: \
                          failed to parse CSR: PEM block type must be CERTIFICATE REQUEST";
        let cases = [
            (CLIENT_SIGNER, request("system:masters", false), refused),
            (CLIENT_SIGNER, request("system:masters", true), refused),
            (CLIENT_SIGNER, request("system:master", false), ""),
            (CLIENT_SIGNER, request("developers", false), ""),
            ("example.com/other", request("system:masters", false), ""),
            (CLIENT_SIGNER, "eA==".to_owned(), unreadable),
        ];
        for (signer, request, expected) in cases {
            let csr = value!({
                "metadata": {"name": "c"},
                "spec": {"signerName": signer, "request": (request)},
            });
            let created = create(&resources::CERTIFICATE_SIGNING_REQUESTS);
            let outcome =
                created.validate(&CertificateSubjectRestriction, &csr, &cluster(&[], &[]));
            assert_eq!(outcome.message(), expected, "{signer}");
        }
    }
}
