//! `/scale`: the replicas of a workload, in a shape of their own that autoscalers know.

use meta::{ApiError, GroupVersionKind, Value, selector::LabelSelector, value};

use crate::{
    Answer, decode, get as read,
    options::WriteOptions,
    patch::{Change, PatchType},
    response::{self, Form},
    rest::Rest,
    update::change,
};

pub(crate) async fn get(rest: &Rest<'_>) -> Result<Answer, ApiError> {
    let form = Form::negotiate(rest)?;
    let entry = read::entry(rest, rest.query.text("resourceVersion")).await?;
    let object = decode::tree(&rest.kind.view(&entry))?;
    answer(rest, &form, &scale_of(&object))
}

pub(crate) async fn update(rest: &Rest<'_>) -> Result<Answer, ApiError> {
    let form = Form::negotiate(rest)?;
    let options = WriteOptions::read(rest.query, "UpdateOptions", false)?;
    let scale = decode_scale(rest, &options, None)?;
    write(rest, &form, &options, &mut |_| Ok(scale.clone())).await
}

pub(crate) async fn patch(rest: &Rest<'_>) -> Result<Answer, ApiError> {
    let patch_type = PatchType::of(rest)?;
    let form = Form::negotiate(rest)?;
    let options = WriteOptions::read(rest.query, "PatchOptions", patch_type == PatchType::Apply)?;
    let change_of = Change::parse(patch_type, &rest.body)?;
    write(rest, &form, &options, &mut |current| {
        let patched = change_of.apply_untyped(&scale_of(current))?;
        decode_scale(rest, &options, Some(&patched))
    })
    .await
}

/// Writes the replicas that the next scale asks for into the object.
async fn write(
    rest: &Rest<'_>,
    form: &Form,
    options: &WriteOptions,
    next: &mut (dyn FnMut(&Value) -> Result<Value, ApiError> + Send),
) -> Result<Answer, ApiError> {
    let written = change(rest, options, false, &mut |current| {
        let current = current.expect("scaling creates nothing, so there is a current state");
        let scale = next(current)?;
        crate::object_meta::check_name(&scale, &rest.info.name)?;
        let mut object = current.clone();
        let replicas = scale.i64_at(&["spec", "replicas"]).unwrap_or_default();
        if replicas < 0 {
            return Err(negative(&scale, replicas));
        }
        object.set_at(&["spec", "replicas"], replicas);
        for field in ["resourceVersion", "uid"] {
            let at = ["metadata", field];
            match scale.str_at(&at) {
                "" => drop(object.remove_at(&at)),
                given => object.set_at(&at, given),
            }
        }
        Ok(object)
    })
    .await?;
    let object = decode::tree(&written.json)?;
    answer(rest, form, &scale_of(&object))
}

fn negative(scale: &Value, replicas: i64) -> ApiError {
    let mut errors = meta::FieldErrors::default();
    let field = meta::field::path("spec").child("replicas");
    errors.invalid(field, replicas, "must be greater than or equal to 0");
    let name = scale.str_at(&["metadata", "name"]).to_owned();
    ApiError::Invalid { kind: meta::GroupKind::new("autoscaling", "Scale"), name, errors }
}

fn scale_of(object: &Value) -> Value {
    let mut metadata = Value::object();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.at(&["metadata", field]) {
            metadata.set_at(&[field], value.clone());
        }
    }
    let selector = match object.at(&["spec", "selector"]) {
        // ReplicationControllers select by plain labels.
        Some(labels) if object.str_at(&["kind"]) == "ReplicationController" => {
            LabelSelector::from_labels(labels).to_string()
        }
        selector => LabelSelector::from_object(selector).map(|s| s.to_string()).unwrap_or_default(),
    };
    value!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": (metadata),
        "spec": {"replicas": (object.i64_at(&["spec", "replicas"]).unwrap_or_default())},
        "status": {
            "replicas": (object.i64_at(&["status", "replicas"]).unwrap_or_default()),
            "selector": (selector),
        },
    })
}

/// A scale from the body, or from a patched tree.
fn decode_scale(
    rest: &Rest<'_>,
    options: &WriteOptions,
    patched: Option<&Value>,
) -> Result<Value, ApiError> {
    let (schema, ty, gvk) = scale_type(rest)?;
    let validation = options.field_validation;
    let expected = decode::Expected { gvk: &gvk, schema, ty, validation };
    match patched {
        None => decode::body(rest, &expected),
        Some(patched) => {
            let json = meta::json::to_string(patched);
            decode::decode(rest, codec::negotiate::MediaType::Json, json.as_bytes(), &expected)
        }
    }
}

fn answer(rest: &Rest<'_>, form: &Form, scale: &Value) -> Result<Answer, ApiError> {
    let (schema, ty, _) = scale_type(rest)?;
    let mut json = Vec::new();
    codec::json::encode(scale, schema, ty, &mut json);
    response::typed(rest, form, 200, json.into(), (schema, ty))
}

fn scale_type<'a>(
    rest: &'a Rest<'_>,
) -> Result<(&'a schema::Schema, schema::TypeId, GroupVersionKind), ApiError> {
    let schema = &rest.engine.schema;
    let ty = schema.by_name("io.k8s.api.autoscaling.v1.Scale");
    let ty = ty.ok_or_else(|| ApiError::internal("no schema for Scale"))?;
    Ok((schema, ty, GroupVersionKind::new("autoscaling", "v1", "Scale")))
}
