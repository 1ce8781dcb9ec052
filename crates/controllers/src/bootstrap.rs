//! What a fresh server makes by itself.

use meta::{ApiError, Value, value};

use crate::{Api, Target};

/// Makes an object unless it is there; what is there stays as it is.
pub async fn ensure(api: &dyn Api, target: &Target, object: &Value) -> Result<(), ApiError> {
    let named = target.clone().named(object.str_at(&["metadata", "name"]));
    if api.get(&named).await.is_ok() {
        return Ok(());
    }
    match api.create(target, object).await {
        Ok(_) | Err(ApiError::AlreadyExists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// `default`, and the namespaces that the system lives in.
pub fn system_namespaces() -> Vec<Value> {
    ["default", "kube-system", "kube-public", "kube-node-lease"]
        .map(|name| value!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": (name)}}))
        .to_vec()
}
