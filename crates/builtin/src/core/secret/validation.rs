//! Validation of secrets.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use meta::{FieldErrors, Value};

use crate::validation::{
    cursor::Field,
    data::{DATA_BYTES_MAX, decoded_len, frozen, key_rule},
};

pub(crate) fn validate(secret: &Value, errors: &mut FieldErrors) {
    let root = Field::root(secret);
    let data = root.get("data");
    let mut bytes = 0;
    for (key, value) in data.entries() {
        key_rule(key, &value, errors);
        bytes += decoded_len(value.str());
    }
    if bytes > DATA_BYTES_MAX {
        errors.too_long(data.path(), DATA_BYTES_MAX);
    }
    let require = |keys: &[&str], errors: &mut FieldErrors| {
        for key in keys {
            if !data.key(key).is_set() {
                data.key(key).required(errors, "");
            }
        }
    };
    match root.str_at(&["type"]) {
        "kubernetes.io/service-account-token" => {
            let metadata = root.get("metadata");
            let annotations = metadata.get("annotations");
            let name = annotations.key("kubernetes.io/service-account.name");
            if name.is_empty() {
                name.required(errors, "");
            }
        }
        "kubernetes.io/dockercfg" => docker_config(&data.key(".dockercfg"), errors),
        "kubernetes.io/dockerconfigjson" => docker_config(&data.key(".dockerconfigjson"), errors),
        // One of the two is enough.
        "kubernetes.io/basic-auth"
            if !data.key("username").is_set() && !data.key("password").is_set() =>
        {
            require(&["username", "password"], errors);
        }
        "kubernetes.io/ssh-auth" => drop(data.key("ssh-privatekey").require(errors)),
        "kubernetes.io/tls" => require(&["tls.crt", "tls.key"], errors),
        _ => {}
    }
}

pub(crate) fn validate_update(new: &Value, old: &Value, errors: &mut FieldErrors) {
    let (root, old_root) = (Field::root(new), Field::root(old));
    if root.str_at(&["type"]) != old_root.str_at(&["type"]) {
        let kind = root.get("type");
        kind.invalid_value(errors, kind.str(), crate::validation::cursor::IMMUTABLE);
    }
    frozen(new, old, &["data"], errors);
    validate(new, errors);
}

fn docker_config(config: &Field<'_>, errors: &mut FieldErrors) {
    if !config.is_set() {
        return config.required(errors, "");
    }
    let bytes = STANDARD.decode(config.str()).unwrap_or_default();
    if let Some(why) = json_object_error(&bytes) {
        config.invalid_value(errors, "<secret contents redacted>", &why);
    }
}

/// What Go says when it can't read an object.
fn json_object_error(bytes: &[u8]) -> Option<String> {
    match codec::json::decode_any(bytes, codec::json::DecodeOptions::default())
        .map(|decoded| decoded.value)
    {
        Ok(Value::Object(_) | Value::Null) => None,
        Ok(other) => {
            let what = match &other {
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Array(_) => "array",
                _ => "number",
            };
            Some(format!(
                "json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"
            ))
        }
        Err(why) => Some(why.to_string()),
    }
}
