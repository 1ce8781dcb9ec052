//! Where a webhook is found: a URL, or a service with a path.

use super::{is_dns1123_subdomain, is_port_number};
use crate::{FieldErrors, FieldPath, Value};

/// Only `https://host[/path]` will do.
pub fn validate_webhook_url(url: &str, at: &FieldPath, errors: &mut FieldErrors) {
    let form = "; desired format: https://host[/path]";
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if rest.starts_with(':') {
        let shown = crate::field::quote(url);
        let why = format!("url must be a valid URL: parse {shown}: missing protocol scheme{form}");
        return errors.required(at, &why);
    }
    let (scheme, rest) =
        rest.split_once(':').filter(|(name, _)| is_scheme(name)).unwrap_or(("", rest));
    let authority = rest.strip_prefix("//").and_then(|rest| rest.split('/').next());
    let authority = authority.unwrap_or_default();
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    if scheme != "https" {
        errors.invalid(at, scheme, &format!("'https' is the only allowed URL scheme{form}"));
    }
    if host.is_empty() {
        errors.invalid(at, host, &format!("host must be specified{form}"));
    }
    if let Some(user) = user {
        errors.invalid(at, user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        errors.invalid(at, fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        errors.invalid(at, query, "query parameters are not permitted in the URL");
    }
}

fn is_scheme(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    name.starts_with(|first: char| first.is_ascii_alphabetic()) && name.chars().all(inner)
}

/// A service reference: `namespace`, `name`, `path`, `port`.
pub fn validate_webhook_service(service: &Value, at: &FieldPath, errors: &mut FieldErrors) {
    // Compat: upstream takes one of the two for the other.
    if service.str_at(&["namespace"]).is_empty() {
        errors.required(at.child("name"), "");
    }
    if service.str_at(&["name"]).is_empty() {
        errors.required(at.child("namespace"), "");
    }
    // Left out, it is 443.
    if let Some(port) = service.i64_at(&["port"]) {
        let wrong = is_port_number(port);
        if !wrong.is_empty() {
            let why = format!("port is not valid: {}", wrong.join(", "));
            errors.invalid(at.child("port"), port, &why);
        }
    }
    validate_url_path(service.str_at(&["path"]), &at.child("path"), errors);
}

fn validate_url_path(path: &str, at: &FieldPath, errors: &mut FieldErrors) {
    if matches!(path, "" | "/") {
        return;
    }
    if path == "//" {
        return errors.invalid(at, path, "segment[0] may not be empty");
    }
    if !path.starts_with('/') {
        errors.invalid(at, path, "must start with a '/'");
    }
    // Compat: the first byte is assumed to be the slash without a check.
    let rest = String::from_utf8_lossy(&path.as_bytes()[1..]);
    let rest = rest.strip_suffix('/').unwrap_or(&rest);
    for (index, step) in rest.split('/').enumerate() {
        if step.is_empty() {
            errors.invalid(at, path, &format!("segment[{index}] may not be empty"));
            continue;
        }
        for why in is_dns1123_subdomain(step) {
            errors.invalid(at, path, &format!("segment[{index}]: {why}"));
        }
    }
}
