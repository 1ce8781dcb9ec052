//! Service accounts.

pub(crate) mod token;

use meta::Value;
use registry::{Column, Strategy, WriteContext};

pub(crate) struct ServiceAccount;

const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

impl Strategy for ServiceAccount {
    fn prepare_for_create(&self, account: &mut Value, _cx: &WriteContext<'_>) {
        keep_names_of_secrets(account);
    }

    fn prepare_for_update(&self, account: &mut Value, _old: &Value, _cx: &WriteContext<'_>) {
        keep_names_of_secrets(account);
    }

    fn warnings(&self, _subresource: &str, account: &Value, old: Option<&Value>) -> Vec<String> {
        let is_marked =
            |account: &Value| account.at(&["metadata", "annotations", ENFORCE]).is_some();
        if !is_marked(account) || old.is_some_and(is_marked) {
            return Vec::new();
        }
        vec![format!(
            "metadata.annotations[{ENFORCE}]: deprecated in v1.32+; prefer separate namespaces to \
             isolate access to mounted secrets"
        )]
    }

    fn columns(&self) -> Vec<Column> {
        vec![Column::NAME, Column::AGE]
    }
}

/// A secret is in the account's own namespace: everything but its name would be a claim to something else.
fn keep_names_of_secrets(account: &mut Value) {
    let secrets = account.at_mut(&["secrets"]).and_then(Value::as_array_mut);
    for secret in secrets.into_iter().flatten().filter_map(Value::as_object_mut) {
        secret.retain(|key, _| key == "name");
    }
}
