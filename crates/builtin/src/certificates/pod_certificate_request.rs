//! Pod certificate requests.

mod validation;

use std::sync::Arc;

use meta::{
    ApiError, FieldErrors, Str, Value,
    authorization::{Attributes, Authorizer},
    field::path,
    time::Time,
};
use registry::{BoxFuture, Column, Strategy, WriteAuthorizer, WriteRequest};

use crate::printer_cells::{labels, text};

pub(crate) struct PodCertificateRequest;

impl Strategy for PodCertificateRequest {
    fn validate(&self, request: &Value, errors: &mut FieldErrors) {
        validation::request(request, errors);
    }

    fn validate_update(&self, request: &Value, old: &Value, errors: &mut FieldErrors) {
        validation::request_update(request, old, errors);
    }

    fn validate_subresource(
        &self,
        _subresource: &str,
        request: &Value,
        old: &Value,
        errors: &mut FieldErrors,
    ) {
        validation::status_update(request, old, Time::now(), errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("PodName", |request, _| text(request, &["spec", "podName"])),
            Column::new("ServiceAccountName", |request, _| {
                text(request, &["spec", "serviceAccountName"])
            }),
            Column::new("NodeName", |request, _| text(request, &["spec", "nodeName"])),
            Column::new("SignerName", |request, _| text(request, &["spec", "signerName"])),
            Column::new("State", |request, _| state(request).into()),
            Column::new("UnverifiedUserAnnotations", |request, _| {
                labels(request, &["spec", "unverifiedUserAnnotations"])
            }),
        ]
    }
}

/// The last condition that decides; validation sees to it that there is only one.
fn state(request: &Value) -> &str {
    let conditions = request.items_at(&["status", "conditions"]).iter();
    let types = conditions.map(|condition| condition.str_at(&["type"]));
    types.rev().find(|name| matches!(*name, "Issued" | "Denied" | "Failed")).unwrap_or("Pending")
}

/// A client that writes the status needs the right to `sign` for the request's signer.
pub(crate) struct SignWriteAuthorizer(pub(crate) Arc<dyn Authorizer>);

impl WriteAuthorizer for SignWriteAuthorizer {
    fn check<'a>(&'a self, write: &'a WriteRequest<'a>) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(old) = write.old.filter(|_| write.info.subresource == "status") else {
                return Ok(());
            };
            if write.object.get("status") == old.get("status") {
                return Ok(());
            }
            let signer = old.str_at(&["spec", "signerName"]);
            let domain = signer.split('/').next().unwrap_or_default();
            for name in [signer.to_owned(), format!("{domain}/*")] {
                let sign = Attributes {
                    version: "*",
                    name: &name,
                    ..Attributes::of_resource(write.user, "sign", "certificates.k8s.io", "signers")
                };
                if self.0.authorize(&sign).await.is_allowed() {
                    return Ok(());
                }
            }
            let user = meta::field::quote(&write.user.name);
            let signer = meta::field::quote(signer);
            let mut errors = FieldErrors::default();
            let why = format!("User {user} is not permitted to \"sign\" for signer {signer}");
            errors.forbidden(path("spec").child("signerName"), &why);
            let kind = meta::GroupKind {
                group: write.info.group.clone(),
                kind: Str::new_static("PodCertificateRequest"),
            };
            let name = write.object.str_at(&["metadata", "name"]).to_owned();
            Err(ApiError::Invalid { kind, name, errors: Box::new(errors) })
        })
    }
}
