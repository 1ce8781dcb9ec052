//! The objects of a request in the version that a webhook or policy matched, as clients would get
//! them.

use bytes::Bytes;
use meta::{ApiError, GroupVersionKind, GroupVersionResource, Value};

use crate::{Attributes, Cluster};

/// An object in one version. The JSON is made once, for all webhooks that are called with it.
#[derive(Clone, Debug)]
pub(crate) struct VersionedObject {
    pub(crate) json: Bytes,
    /// Decoded from the JSON: with the fields that Go always writes, which expressions and patches
    /// rely on.
    pub(crate) value: Value,
}

impl VersionedObject {
    pub(crate) fn new(
        cluster: &Cluster,
        (gvr, gvk): (&GroupVersionResource, &GroupVersionKind),
        object: &Value,
    ) -> Result<Self, ApiError> {
        let json: Bytes = cluster.objects.encode(gvr, gvk, object).into();
        let value = decode(&json)?;
        Ok(Self { json, value })
    }
}

pub(crate) fn decode(json: &[u8]) -> Result<Value, ApiError> {
    let options = codec::json::DecodeOptions { strict: false };
    Ok(codec::json::decode_any_body(json, options).map_err(ApiError::internal)?.value)
}

/// An object of the request's version in another one.
pub(crate) async fn convert(
    cluster: &Cluster,
    object: &Value,
    from: &GroupVersionResource,
    to: &GroupVersionResource,
) -> Result<Value, ApiError> {
    if from == to {
        return Ok(object.clone());
    }
    let mut converted = cluster.objects.convert(object.clone(), from, to).await?;
    // Conversion goes by the stored form, which has no resourceVersion. Without it an update would
    // overwrite whatever is stored.
    if let Some(version) = object.at(&["metadata", "resourceVersion"]) {
        converted.set_at(&["metadata", "resourceVersion"], version.clone());
    }
    Ok(converted)
}

/// Both objects of a request in one version.
#[derive(Clone, Debug)]
pub(crate) struct VersionedObjects {
    pub(crate) object: Option<VersionedObject>,
    pub(crate) old: Option<VersionedObject>,
}

impl VersionedObjects {
    pub(crate) async fn new(
        attributes: &Attributes<'_>,
        cluster: &Cluster,
        object: Option<&Value>,
        to: (&GroupVersionResource, &GroupVersionKind),
    ) -> Result<Self, ApiError> {
        let target = if to.1 == attributes.gvk { attributes.gvr } else { to.0 };
        Ok(Self {
            object: in_version(cluster, object, attributes.gvr, target, to).await?,
            old: in_version(cluster, attributes.old, attributes.gvr, target, to).await?,
        })
    }
}

async fn in_version(
    cluster: &Cluster,
    object: Option<&Value>,
    from: &GroupVersionResource,
    target: &GroupVersionResource,
    to: (&GroupVersionResource, &GroupVersionKind),
) -> Result<Option<VersionedObject>, ApiError> {
    match object {
        None => Ok(None),
        Some(object) if from == target => VersionedObject::new(cluster, to, object).map(Some),
        Some(object) => {
            let converted = convert(cluster, object, from, target).await?;
            VersionedObject::new(cluster, to, &converted).map(Some)
        }
    }
}
