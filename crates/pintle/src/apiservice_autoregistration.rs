//! Creates an APIService for every group-version that this server serves, and deletes those of custom
//! resources that are no longer served.

use std::collections::HashSet;

use aggregator::{ServedGroupVersion, local_api_service};
use controllers::{Api as _, Target, get_or_create};
use futures_util::future::try_join_all;
use meta::{ApiError, Value};

use crate::{in_process::Api, servers::REGISTRATION_GROUP};

/// The label of APIServices of custom resources.
const AUTOMANAGED: [&str; 3] = ["metadata", "labels", "kube-aggregator.kubernetes.io/automanaged"];

/// Creates missing APIServices and deletes those of custom resources that are no longer served.
pub(crate) async fn sync_api_services(
    api: &Api,
    served: &[ServedGroupVersion],
) -> Result<(), ApiError> {
    let target = Target::cluster(REGISTRATION_GROUP, "v1", "apiservices");
    let wanted = served.iter().filter(|served| served.group_version.group != REGISTRATION_GROUP);
    let wanted: Vec<Value> = wanted.map(local_api_service).collect();
    let known = api.list(&target).await?;
    let name = |object: &Value| object.str_at(&["metadata", "name"]).to_owned();
    let ready: HashSet<String> =
        known.iter().filter(|object| is_available(object)).map(name).collect();
    let missing = wanted.iter().filter(|object| !ready.contains(&name(object)));
    try_join_all(missing.map(|object| register_api_service(api, &target, object))).await?;

    let wanted: HashSet<String> = wanted.iter().map(name).collect();
    let gone = known.iter().filter(|object| object.str_at(&AUTOMANAGED) == "true");
    for object in gone.filter(|object| !wanted.contains(&name(object))) {
        let named = target.clone().named(&name(object));
        match api.delete(&named, &Value::object()).await {
            Ok(()) | Err(ApiError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_available(object: &Value) -> bool {
    !object.items_at(&["status", "conditions"]).is_empty()
}

async fn register_api_service(api: &Api, target: &Target, object: &Value) -> Result<(), ApiError> {
    let mut current = get_or_create(api, target, object).await?;
    if is_available(&current) {
        return Ok(());
    }
    let named = target.clone().named(object.str_at(&["metadata", "name"]));
    if let Some(status) = object.get("status") {
        current.set_at(&["status"], status.clone());
    }
    api.update(&Target { subresource: "status", ..named }, &current).await.map(drop)
}
