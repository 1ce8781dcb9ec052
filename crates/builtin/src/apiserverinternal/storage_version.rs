//! Which versions the API servers store a resource in.

mod validation;

use meta::{FieldErrors, Value};
use registry::{Column, Strategy};

use crate::printer_cells::{SHOWN_MAX, UNSET, text_or, with_more};

pub(crate) struct StorageVersion;

impl Strategy for StorageVersion {
    fn validate_subresource(
        &self,
        _subresource: &str,
        version: &Value,
        _old: &Value,
        errors: &mut FieldErrors,
    ) {
        validation::status(version, errors);
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("CommonEncodingVersion", |version, _| {
                text_or(version, &["status", "commonEncodingVersion"], UNSET)
            }),
            Column::new("StorageVersions", |version, _| by_server(version).into()),
            Column::AGE,
        ]
    }
}

/// `kube-apiserver-1234=apps/v1`
fn by_server(version: &Value) -> String {
    let servers = version.items_at(&["status", "storageVersions"]).iter();
    let servers: Vec<String> = servers
        .map(|server| {
            format!("{}={}", server.str_at(&["apiServerID"]), server.str_at(&["encodingVersion"]))
        })
        .collect();
    if servers.is_empty() { UNSET.to_owned() } else { with_more(&servers, SHOWN_MAX, ",") }
}
