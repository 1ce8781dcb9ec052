//! What a webhook or a policy has made of an object, decoded as kube-apiserver decodes it.

use meta::{
    ApiError, GroupVersion, GroupVersionKind, GroupVersionResource, Value, field::quote, json,
};

use crate::{Cluster, Operation, versioned::VersionedObject};

/// A patched object.
pub(crate) enum Patched {
    Object(VersionedObject),
    /// Compat: the error comes after all webhooks and policies were asked, so it is no failure of this one.
    Unusable(Unusable),
}

/// Why no request can go on with a patched object.
pub(crate) enum Unusable {
    /// It says that it is of another kind; why it is not converted.
    OtherKind(String),
    /// It is a custom object that says that it is of another version of its group; that version, and why it is not
    /// converted.
    OtherVersion(String, String),
    /// It is a custom object whose metadata is no object.
    NoMetadata,
}

impl Unusable {
    pub(crate) fn into_error(self) -> ApiError {
        match self {
            Self::OtherKind(why) | Self::OtherVersion(_, why) => ApiError::Storage(why),
            Self::NoMetadata => ApiError::internal("system metadata was not initialized"),
        }
    }
}

/// Decodes a patched object. What says that it is of another kind is decoded as that. `strict`: unknown fields of
/// built-in kinds are an error.
pub(crate) fn decode(
    cluster: &Cluster,
    operation: Operation,
    (resource, kind): (&GroupVersionResource, &GroupVersionKind),
    patched: &Value,
    strict: bool,
) -> Result<Patched, ApiError> {
    let json = json::to_string(patched);
    let own = kind.group_version().to_string();
    let stated = |field: &str, own: &str| match patched.str_at(&[field]) {
        "" => own.to_owned(),
        given => given.to_owned(),
    };
    let (api_version, name) = (stated("apiVersion", &own), stated("kind", &kind.kind));
    if cluster.objects.is_custom(resource) {
        if patched.str_at(&["kind"]).is_empty() {
            return Err(ApiError::Internal(format!("Object 'Kind' is missing in '{json}'")));
        }
        if api_version != own {
            let slash = if api_version.contains('/') { "" } else { "/" };
            let why = format!(
                "{slash}{api_version}, Kind={name} is unstructured and is not suitable for \
                 converting to {}",
                quote(&own)
            );
            let same_group =
                GroupVersion::parse(&api_version).is_some_and(|stated| stated.group == kind.group);
            return Ok(Patched::Unusable(if same_group {
                Unusable::OtherVersion(api_version, why)
            } else {
                Unusable::OtherKind(why)
            }));
        }
        let has_metadata = patched.get("metadata").is_none_or(|own| own.as_object().is_some());
        if operation == Operation::Create && !has_metadata {
            return Ok(Patched::Unusable(Unusable::NoMetadata));
        }
    } else if api_version != own || name != kind.kind {
        let version = GroupVersion::parse(&api_version);
        let version = version.ok_or_else(|| {
            ApiError::Internal(format!("unexpected GroupVersion string: {api_version}"))
        })?;
        let other = version.with_kind(name.as_str());
        let decoded = cluster.objects.decode_typed(&other, json.as_bytes(), strict);
        decoded.map_err(ApiError::Internal)?;
        // Go calls the package of the internal type as the group is called.
        let package = match kind.group.split('.').next() {
            None | Some("") => "core",
            Some(group) => group,
        };
        let why = format!(
            "converting ({}.{name}) to ({package}.{}): unknown conversion",
            other.version, kind.kind
        );
        return Ok(Patched::Unusable(Unusable::OtherKind(why)));
    }
    let mut object = cluster.objects.decode_changed(resource, kind, json.as_bytes(), strict)?;
    // What is no object of the definition is for validation to refuse.
    if name != kind.kind {
        object.set_at(&["kind"], name);
    }
    VersionedObject::new(cluster, (resource, kind), &object).map(Patched::Object)
}
