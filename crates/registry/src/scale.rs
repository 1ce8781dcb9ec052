//! `/scale`: the replicas of a workload as an `autoscaling/v1` Scale.

use std::sync::PoisonError;

use ::patch::apply::{PathElement, ReplicasPaths, scale_to_parent, scale_to_subresource};
use admission::{Attributes, Reinvocation, quota::WriteCharges};
use meta::{ApiError, GroupVersionKind, Value, selector::LabelSelector, value};

use crate::{
    ResourceResponse, ScalePaths, audit, decode, get as read, managed_fields,
    options::WriteOptions,
    patch::{Patch, PatchType, decode_patched},
    resource_request::ResourceRequest,
    response_format::{self, Projection, ResponseFormat},
    table,
    update::guaranteed_update,
};

pub(crate) async fn get(request: &ResourceRequest<'_>) -> Result<ResourceResponse, ApiError> {
    let format = ResponseFormat::negotiate(request)?;
    read::refuse_export(request)?;
    let entry = read::entry(request, request.query.text("resourceVersion")).await?;
    let object = decode::tree(&request.kind.view(&entry)?)?;
    if let Some(paths) = scale_paths(request)
        && object.at(&steps(&paths.spec_replicas)).is_none()
    {
        let path = paths.spec_replicas.join(".");
        let why = format!("the spec replicas field \".{path}\" does not exist");
        return Err(ApiError::internal(why));
    }
    answer(request, &format, &scale_of(request, &object))
}

pub(crate) async fn update(request: &ResourceRequest<'_>) -> Result<ResourceResponse, ApiError> {
    let format = ResponseFormat::negotiate(request)?;
    let mut options = WriteOptions::read(request.query, "UpdateOptions", false)?;
    options.managed_fields_tracked = true;
    let scale = decode_scale(request, &options, None)?;
    let (schema, ty, _) = scale_type(request)?;
    audit::typed_request_object(request, &scale, (schema, ty), |_| {});
    crate::object_meta::check_name(&scale, &request.info.name)?;
    write(request, &format, &options, &mut |current| {
        let mut scale = scale.clone();
        track(request, &options, current, &mut scale)?;
        Ok(scale)
    })
    .await
}

pub(crate) async fn patch(request: &ResourceRequest<'_>) -> Result<ResourceResponse, ApiError> {
    let patch_type = PatchType::of(request)?;
    let format = ResponseFormat::negotiate(request)?;
    let mut options = WriteOptions::read(request.query, "PatchOptions", patch_type.is_apply())?;
    options.managed_fields_tracked = true;
    audit::request_patch(request, patch_type);
    let (patch, strict) = Patch::parse_strictly(patch_type, &request.body)?;
    let (schema, ty, gvk) = scale_type(request)?;
    let validation = options.field_validation;
    let expected = decode::Expected { gvk: &gvk, schema, ty, validation };
    write(request, &format, &options, &mut |current| {
        let live = scale_with_managed_fields(request, current)?;
        if let Patch::Apply(config) = &patch {
            let applied = managed_fields::merge_scale(request, &options, &live, config)?;
            return decode_scale(request, &options, Some(&applied));
        }
        // A patched scale is checked like any patched object.
        let patched = patch.apply_untyped(&live)?;
        let mut scale = decode_patched(request, &expected, &patch, &strict, Some(&live), patched)?;
        track(request, &options, current, &mut scale)?;
        Ok(scale)
    })
    .await
}

/// Writes the replicas of the next scale into the object.
async fn write(
    request: &ResourceRequest<'_>,
    format: &ResponseFormat,
    options: &WriteOptions,
    next: &mut (dyn FnMut(&Value) -> Result<Value, ApiError> + Send),
) -> Result<ResourceResponse, ApiError> {
    let written = guaranteed_update(request, options, false, &mut |current| {
        let current = current.expect("scaling creates nothing, so there is a current state");
        let mut scale = next(current)?;
        let namespace = &request.info.namespace;
        crate::object_meta::ensure_namespace_matches(request.kind, namespace, &mut scale)?;
        crate::object_meta::check_name(&scale, &request.info.name)?;
        let object = scaled(request, current, &scale)?;
        let live = scale_with_managed_fields(request, current)?;
        *options.scales.lock().unwrap_or_else(PoisonError::into_inner) = Some([scale, live]);
        Ok(object)
    })
    .await?;
    let object = decode::tree(&written.json)?;
    answer(request, format, &scale_of(request, &object))
}

/// The object with the replicas of a scale, and what the scale says about the object's identity and managers.
fn scaled(
    request: &ResourceRequest<'_>,
    current: &Value,
    scale: &Value,
) -> Result<Value, ApiError> {
    let mut object = current.clone();
    let replicas = scale.i64_at(&["spec", "replicas"]).unwrap_or_default();
    // The schema of a custom resource may allow negative replicas.
    if replicas < 0 && !request.kind.is_custom() {
        return Err(negative(scale, replicas));
    }
    set_replicas(request, &mut object, replicas);
    for field in ["resourceVersion", "uid"] {
        let at = ["metadata", field];
        let given = scale.str_at(&at);
        if !given.is_empty() {
            object.set_at(&at, given);
        } else if !request.kind.is_custom() {
            object.remove_at(&at);
        }
    }
    let version = request.kind.group_version().to_string();
    scale_to_parent(scale, &mut object, &version, &replicas_paths(request))
        .map_err(ApiError::internal)?;
    Ok(object)
}

fn set_replicas(request: &ResourceRequest<'_>, object: &mut Value, replicas: i64) {
    match scale_paths(request) {
        None => object.set_at(&["spec", "replicas"], replicas),
        Some(paths) => object.set_at(&steps(&paths.spec_replicas), replicas),
    }
}

/// A write to a scale as admission sees it: its kind, and the scale of the current object. None: it is
/// no such write.
pub(crate) fn admitted(
    request: &ResourceRequest<'_>,
    current: &Value,
) -> Option<(GroupVersionKind, Value)> {
    let gvk = || GroupVersionKind::new("autoscaling", "v1", "Scale");
    (request.info.subresource == "scale").then(|| (gvk(), scale_of(request, current)))
}

/// Asks mutating admission about a scale. Compat: it sees the scale as it was sent, and the managers of the
/// replicas; validating admission sees those of the objects.
pub(crate) async fn admit(
    request: &ResourceRequest<'_>,
    options: &WriteOptions,
    attributes: &Attributes<'_>,
    current: &Value,
    object: &mut Value,
) -> Result<(), ApiError> {
    let scales = options.scales.lock().unwrap_or_else(PoisonError::into_inner).take();
    let [mut scale, live] = scales.ok_or_else(|| ApiError::internal("a write without a scale"))?;
    // What is not filled in by the client is part of the type.
    for (at, empty) in [(["spec", "replicas"], 0i64), (["status", "replicas"], 0)] {
        if scale.at(&at).is_none() {
            scale.set_at(&at, empty);
        }
    }
    let sent = scale.clone();
    let asked = Attributes {
        old: Some(&live),
        reinvocation: Reinvocation::default(),
        charges: WriteCharges::default(),
        ..*attributes
    };
    request.engine.admission.admit(&asked, Some(&mut scale)).await?;
    if scale != sent {
        *object = scaled(request, current, &scale)?;
    }
    Ok(())
}

/// The scale of an object, with the managedFields of its replicas.
fn scale_with_managed_fields(
    request: &ResourceRequest<'_>,
    object: &Value,
) -> Result<Value, ApiError> {
    let mut scale = scale_of(request, object);
    scale_to_subresource(object, &mut scale, &replicas_paths(request))
        .map_err(ApiError::internal)?;
    Ok(scale)
}

/// Updates the managedFields of the replicas.
fn track(
    request: &ResourceRequest<'_>,
    options: &WriteOptions,
    current: &Value,
    scale: &mut Value,
) -> Result<(), ApiError> {
    let live = scale_with_managed_fields(request, current)?;
    managed_fields::track_scale(request, options, &live, scale)
}

/// The replicas path of each version.
fn replicas_paths(request: &ResourceRequest<'_>) -> ReplicasPaths {
    if let Some(custom) = &request.kind.custom {
        return custom.replicas_paths.as_ref().clone();
    }
    let path = || Some(vec![PathElement::field("spec"), PathElement::field("replicas")]);
    let group = &request.kind.gvk().group;
    // managedFields entries may have versions that are no longer served.
    let old = ["v1beta1", "v1beta2"].map(|version| format!("{group}/{version}"));
    let own = [request.kind.group_version().to_string()];
    own.into_iter().chain(old).map(|version| (version, path())).collect()
}

fn negative(scale: &Value, replicas: i64) -> ApiError {
    let mut errors = meta::FieldErrors::default();
    let field = meta::field::path("spec").child("replicas");
    errors.invalid(field, replicas, "must be greater than or equal to 0");
    let name = scale.str_at(&["metadata", "name"]).to_owned();
    ApiError::Invalid {
        kind: meta::GroupKind::new("autoscaling", "Scale"),
        name,
        errors: Box::new(errors),
    }
}

fn scale_paths<'a>(request: &'a ResourceRequest<'_>) -> Option<&'a ScalePaths> {
    request.kind.custom.as_ref()?.scale.as_ref()
}

fn steps(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

/// The numbers in a scale.
struct ReplicaCounts {
    replicas: i64,
    current: i64,
    selector: String,
}

impl ReplicaCounts {
    /// By the paths in the definition of a custom resource.
    fn of_custom(paths: &ScalePaths, object: &Value) -> Self {
        let number = |path: &[String]| object.i64_at(&steps(path)).unwrap_or_default();
        let selector = paths.label_selector.as_ref().map(|path| object.str_at(&steps(path)));
        Self {
            replicas: number(&paths.spec_replicas),
            current: number(&paths.status_replicas),
            selector: selector.unwrap_or_default().to_owned(),
        }
    }

    fn of_builtin(object: &Value) -> Self {
        let selector = match object.at(&["spec", "selector"]) {
            // ReplicationControllers select by plain labels.
            Some(labels) if object.str_at(&["kind"]) == "ReplicationController" => {
                LabelSelector::from_labels(labels).to_string()
            }
            selector => {
                LabelSelector::from_object(selector).map(|s| s.to_string()).unwrap_or_default()
            }
        };
        Self {
            replicas: object.i64_at(&["spec", "replicas"]).unwrap_or_default(),
            current: object.i64_at(&["status", "replicas"]).unwrap_or_default(),
            selector,
        }
    }
}

pub(crate) fn scale_of(request: &ResourceRequest<'_>, object: &Value) -> Value {
    let numbers = match scale_paths(request) {
        Some(paths) => ReplicaCounts::of_custom(paths, object),
        None => ReplicaCounts::of_builtin(object),
    };
    let mut metadata = Value::object();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.at(&["metadata", field]) {
            metadata.set_at(&[field], value.clone());
        }
    }
    value!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": (metadata),
        "spec": {"replicas": (numbers.replicas)},
        "status": {"replicas": (numbers.current), "selector": (numbers.selector)},
    })
}

/// Decodes a scale from the body, or from a patched tree.
fn decode_scale(
    request: &ResourceRequest<'_>,
    options: &WriteOptions,
    patched: Option<&Value>,
) -> Result<Value, ApiError> {
    let (schema, ty, gvk) = scale_type(request)?;
    let validation = options.field_validation;
    let expected = decode::Expected { gvk: &gvk, schema, ty, validation };
    match patched {
        None => decode::body(request, &expected),
        Some(patched) => {
            let json = meta::json::to_string(patched);
            decode::decode(request, codec::negotiate::MediaType::Json, json.as_bytes(), &expected)
        }
    }
}

fn answer(
    request: &ResourceRequest<'_>,
    format: &ResponseFormat,
    scale: &Value,
) -> Result<ResourceResponse, ApiError> {
    let (schema, ty, _) = scale_type(request)?;
    let package = if request.kind.is_custom() { "v1" } else { "autoscaling" };
    format.check_transform_of(false, || format!("{package}.Scale"))?;
    let mut json = Vec::new();
    codec::json::encode(scale, schema, ty, &mut json);
    let projected = match format.projection {
        Projection::Object => {
            return response_format::typed(request, format, 200, json.into(), (schema, ty));
        }
        Projection::Metadata => {
            response_format::metadata_as_object(&json[response_format::metadata_range(&json)?])
        }
        Projection::Table(include) => table::of_scale(request, include, scale, &json)?,
    };
    let name = response_format::projection_kind(&format.projection);
    let (schema, ty, _) = request.engine.meta_type(name)?;
    response_format::typed(request, format, 200, format.in_version(projected), (schema, ty))
}

fn scale_type<'a>(
    request: &'a ResourceRequest<'_>,
) -> Result<(&'a schema::Schema, schema::TypeId, GroupVersionKind), ApiError> {
    let schema = &request.engine.schema;
    let ty = schema.by_name("io.k8s.api.autoscaling.v1.Scale");
    let ty = ty.ok_or_else(|| ApiError::internal("no schema for Scale"))?;
    Ok((schema, ty, GroupVersionKind::new("autoscaling", "v1", "Scale")))
}

#[cfg(test)]
mod tests;
