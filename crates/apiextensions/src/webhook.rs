//! Conversion strategy `Webhook`: a webhook server converts objects from one version to another.

mod call;
mod services;

use std::sync::Arc;

use client::{ClusterIp, ServiceResolver, WebhookDials};
use endpoints::LoopbackClient;
use meta::{ApiError, FieldErrors, Map, Number, Value, field::path, names, value};
use registry::{BoxFuture, Conversion, RemoteConverter};

use self::{
    call::{Address, Caller},
    services::LocalServices,
};
use crate::{crd::Crd, prune_and_default::VersionSchema};

/// The webhook of one definition.
pub(crate) struct ConversionWebhook {
    config: Value,
    /// `v1` or `v1beta1`: the first of the given ones that is known here.
    review_version: Option<&'static str>,
    versions: Vec<Arc<VersionSchema>>,
    services: Arc<dyn ServiceResolver>,
    caller: Caller,
}

impl ConversionWebhook {
    /// None: the definition converts by itself.
    pub(crate) fn of(
        crd: &Crd,
        versions: Vec<Arc<VersionSchema>>,
        local: &LoopbackClient,
        dials: &WebhookDials,
    ) -> Option<Self> {
        if crd.conversion.str_at(&["strategy"]) != "Webhook" {
            return None;
        }
        let webhook = crd.conversion.get("webhook").cloned().unwrap_or_default();
        let given = webhook.items_at(&["conversionReviewVersions"]).iter();
        let review_version = given.filter_map(Value::as_str).find_map(|version| match version {
            "v1" => Some("v1"),
            "v1beta1" => Some("v1beta1"),
            _ => None,
        });
        let config = webhook.get("clientConfig").cloned().unwrap_or_default();
        let dial = dials.of(config.get("service").is_some());
        let caller = Caller::new(config.str_at(&["caBundle"]), dial);
        let services = Arc::new(ClusterIp(LocalServices(local.clone())));
        Some(Self { config, review_version, versions, services, caller })
    }

    async fn convert_all(
        &self,
        objects: Vec<Value>,
        api_version: &str,
    ) -> Result<Vec<Value>, ApiError> {
        let Some(first) = objects.first() else { return Ok(objects) };
        let from = shown_kind(first);
        let failed =
            |why: String| ApiError::Storage(format!("conversion webhook for {from} failed: {why}"));
        let version = self
            .review_version
            .ok_or_else(|| ApiError::Storage("no supported conversion review versions".into()))?;
        let uid = uuid::Uuid::new_v4().to_string();
        let review = value!({
            "kind": "ConversionReview",
            "apiVersion": (format!("apiextensions.k8s.io/{version}")),
            "request": {
                "uid": (uid.as_str()),
                "desiredAPIVersion": (api_version),
                "objects": (objects.clone()),
            },
        });
        let address = self.address().await.map_err(failed)?;
        let body = meta::json::to_string(&review);
        let tree_bytes_max = call::answer_tree_bytes_max(body.len());
        let answer = self.caller.post(&address, body.into()).await.map_err(failed)?;
        let options = codec::json::DecodeOptions { strict: false };
        let answer = codec::json::decode_any_within(&answer, options, tree_bytes_max)
            .map_err(|error| failed(error.to_string()))?
            .value;
        let converted = read_answer(&answer, version, &uid).map_err(failed)?;
        if converted.len() != objects.len() {
            return Err(ApiError::Storage(format!(
                "conversion webhook for {from} returned {} objects, expected {}",
                converted.len(),
                objects.len()
            )));
        }
        let pairs = converted.into_iter().zip(&objects).enumerate();
        pairs
            .map(|(at, (converted, original))| {
                let refused = |why: String| {
                    ApiError::Storage(format!("conversion webhook for {from} returned {why}"))
                };
                check_version(&converted, original, api_version)
                    .map_err(|why| refused(format!("invalid object at index {at}: {why}")))?;
                check_identity(&converted, original)
                    .map_err(|why| refused(format!("invalid object: {why}")))?;
                self.accept(converted, original, api_version)
                    .map_err(|why| refused(format!("invalid metadata: {why}")))
            })
            .collect()
    }

    /// Takes over what a webhook may change: everything but most of the metadata.
    fn accept(
        &self,
        mut converted: Value,
        original: &Value,
        api_version: &str,
    ) -> Result<Value, String> {
        restore_metadata(&mut converted, original)?;
        if let Some(shape) = self.versions.iter().find(|shape| shape.api_version == api_version) {
            shape.convert_without_webhook(&mut converted);
        }
        Ok(converted)
    }

    async fn address(&self) -> Result<Address, String> {
        let url = self.config.str_at(&["url"]);
        if !url.is_empty() {
            return Address::of_url(url);
        }
        let service = |field: &str| self.config.str_at(&["service", field]);
        let (namespace, name) = (service("namespace"), service("name"));
        let port = self.config.i64_at(&["service", "port"]).unwrap_or(443);
        let port = u16::try_from(port).map_err(|error| error.to_string())?;
        let mut address = Address::of_service(namespace, name, port, service("path"));
        let found = self.services.resolve(namespace, name, port).await;
        address.connect_to = Some(found.map_err(|why| address.unreachable(&why.to_string()))?);
        Ok(address)
    }
}

fn check_version(converted: &Value, original: &Value, api_version: &str) -> Result<(), String> {
    let got = converted.str_at(&["apiVersion"]);
    if got != api_version {
        return Err(format!("invalid groupVersion (expected {api_version}, received {got})"));
    }
    let (expected, got) = (original.str_at(&["kind"]), converted.str_at(&["kind"]));
    if expected != got {
        return Err(format!("invalid kind (expected {expected}, received {got})"));
    }
    Ok(())
}

fn shown_kind(object: &Value) -> String {
    format!("{}, Kind={}", object.str_at(&["apiVersion"]), object.str_at(&["kind"]))
}

/// What a webhook answered: the converted objects, or why there are none.
fn read_answer(answer: &Value, version: &str, uid: &str) -> Result<Vec<Value>, String> {
    let expected = format!("apiextensions.k8s.io/{version}");
    let (api_version, kind) = (answer.str_at(&["apiVersion"]), answer.str_at(&["kind"]));
    if version == "v1" && (api_version != expected || kind != "ConversionReview") {
        // Compat: of what says neither, a slash is left.
        let got = if api_version.is_empty() && !kind.is_empty() { "/" } else { api_version };
        return Err(format!(
            "expected webhook response of {expected}, Kind=ConversionReview, got {got}, \
             Kind={kind}"
        ));
    }
    let Some(response) = answer.get("response").filter(|response| !response.is_null()) else {
        return Err("no response provided".to_owned());
    };
    let got = response.str_at(&["uid"]);
    if version == "v1" && got != uid {
        let quote = meta::field::quote;
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(got)));
    }
    let status = response.str_at(&["result", "status"]);
    if status != "Success" {
        return Err(match response.str_at(&["result", "message"]) {
            "" => format!("response.result.status was '{status}', not 'Success'"),
            message => message.to_owned(),
        });
    }
    Ok(response.items_at(&["convertedObjects"]).to_vec())
}

/// A webhook gives back the objects that it was given.
fn check_identity(converted: &Value, original: &Value) -> Result<(), String> {
    for (field, shown) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let at = ["metadata", field];
        let (expected, got) = (original.str_at(&at), converted.str_at(&at));
        if expected != got {
            return Err(format!("must have the same {shown}: {expected} != {got}"));
        }
    }
    Ok(())
}

/// Of the metadata a webhook may change labels and annotations only.
fn restore_metadata(converted: &mut Value, original: &Value) -> Result<(), String> {
    let given = match converted.get("metadata") {
        Some(Value::Object(given)) => given.clone(),
        Some(other) => {
            return Err(format!("invalid metadata of type {} in converted object", go_type(other)));
        }
        None => return Err("missing metadata in converted object".to_owned()),
    };
    let original = original.get("metadata").and_then(Value::as_object).cloned();
    let mut metadata = original.unwrap_or_default();
    for field in ["labels", "annotations"] {
        match given.get(field) {
            None | Some(Value::Null) => drop(metadata.remove(field)),
            Some(Value::Object(texts)) => {
                check_texts(field, texts, metadata.get(field))?;
                metadata.insert(field, Value::Object(texts.clone()));
            }
            Some(other) => {
                let ty = go_type(other);
                return Err(format!("invalid metadata.{field} of type {ty} in converted object"));
            }
        }
    }
    converted.set_at(&["metadata"], Value::Object(metadata));
    Ok(())
}

/// What a webhook has changed must be as clients have to write it.
fn check_texts(field: &str, texts: &Map, original: Option<&Value>) -> Result<(), String> {
    for (key, text) in texts.iter() {
        if text.as_str().is_none() {
            let ty = go_type(text);
            return Err(format!(
                "metadata.{field}[{key}] must be a string, but is {ty} in converted object"
            ));
        }
    }
    let texts = Value::Object(texts.clone());
    if original == Some(&texts) {
        return Ok(());
    }
    let mut errors = FieldErrors::default();
    if field == "labels" {
        names::validate_labels(Some(&texts), &path("metadata").child("labels"), &mut errors);
    } else {
        // Compat: upstream's path lacks the last letter.
        names::validate_annotations(
            Some(&texts),
            &path("metadata").child("annotation"),
            &mut errors,
        );
    }
    if errors.is_empty() { Ok(()) } else { Err(errors.to_string()) }
}

/// What Go calls the type of a JSON value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) | Value::Raw(_) => "map[string]interface {}",
        Value::Number(Number::Int(_)) => "int64",
        Value::Number(Number::Float(_)) => "float64",
    }
}

impl RemoteConverter for ConversionWebhook {
    fn convert<'a>(
        &'a self,
        objects: Vec<Value>,
        api_version: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Value>, ApiError>> {
        Box::pin(self.convert_all(objects, api_version))
    }
}

/// Between versions that only a webhook knows to convert.
pub(crate) struct WebhookConversion(pub(crate) Arc<ConversionWebhook>);

impl Conversion for WebhookConversion {
    fn to_stored(&self, object: Value) -> Value {
        object
    }

    fn to_served(&self, object: Value) -> Value {
        object
    }

    fn remote(&self) -> Option<&dyn RemoteConverter> {
        Some(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_changes_labels_and_annotations_of_the_metadata_and_nothing_else() {
        let original = value!({"metadata": {"name": "a", "uid": "u", "labels": {"x": "y"}, "generation": 3i64}});
        let mut converted = value!({"metadata": {"name": "a", "uid": "u", "annotations": {"k": "v"}, "generation": 9i64}});
        restore_metadata(&mut converted, &original).unwrap();
        let expected = value!({"metadata": {"name": "a", "uid": "u", "annotations": {"k": "v"}, "generation": 3i64}});
        assert_eq!(converted, expected);
        let renamed = value!({"metadata": {"name": "b", "uid": "u"}});
        let refused = check_identity(&renamed, &original).unwrap_err();
        assert_eq!(refused, "must have the same name: a != b");
    }

    #[test]
    fn an_answer_has_to_be_meant_for_the_question() {
        let cases = [
            (
                value!({}),
                "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got , Kind=",
            ),
            (value!({"response": null}), "no response provided"),
            (value!({"response": {"uid": "x"}}), r#"expected response.uid="u", got "x""#),
            (
                value!({"response": {"uid": "u", "result": {"status": "Failed", "message": "no"}}}),
                "no",
            ),
            (value!({"response": {"uid": "u"}}), "response.result.status was '', not 'Success'"),
        ];
        for (at, (mut answer, expected)) in cases.into_iter().enumerate() {
            if at > 0 {
                answer.set_at(&["kind"], "ConversionReview");
                answer.set_at(&["apiVersion"], "apiextensions.k8s.io/v1");
            }
            assert_eq!(read_answer(&answer, "v1", "u").unwrap_err(), expected);
        }
    }
}
