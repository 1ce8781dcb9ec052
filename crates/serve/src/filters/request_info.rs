//! Takes path and method apart: verb, group, version, namespace, resource, name, subresource.

use http::{Method, Uri};
use meta::{ApiError, Query, RequestInfo, Str, names, selector::FieldSelector};

/// Reads what a request is about. It follows kube-apiserver's parser step by step, because
/// authorization depends on it.
pub(crate) fn request_info(method: &Method, uri: &Uri) -> Result<RequestInfo, ApiError> {
    let path = decode_path(uri.path())?;
    let mut info = RequestInfo {
        verb: Str::new(method.as_str().to_ascii_lowercase()),
        path,
        ..RequestInfo::default()
    };
    let trimmed = info.path.trim_matches('/').to_owned();
    let mut parts: &[&str] = &trimmed.split('/').collect::<Vec<_>>();
    if parts.len() < 3 || !matches!(parts[0], "api" | "apis") {
        return Ok(info);
    }
    if parts[0] == "apis" && parts.len() < 4 {
        return Ok(info);
    }
    info.prefix = Str::new(parts[0]);
    parts = &parts[1..];
    if info.prefix == "apis" {
        info.group = Str::new(parts[0]);
        parts = &parts[1..];
    }
    info.is_resource = true;
    info.version = Str::new(parts[0]);
    parts = &parts[1..];

    let by_path = matches!(parts[0], "watch" | "proxy");
    if by_path {
        if parts.len() < 2 {
            let why = format!("unable to determine kind and namespace from url, {uri}");
            return Err(ApiError::Internal(why));
        }
        info.verb = Str::new(parts[0]);
        parts = &parts[1..];
    } else {
        info.verb = verb(method);
    }
    if parts[0] == "namespaces" && parts.len() > 1 {
        info.namespace = Str::new(parts[1]);
        // `/namespaces/x/status` is about the namespace, `/namespaces/x/pods` about its pods.
        if parts.len() > 2 && !matches!(parts[2], "status" | "finalize") {
            parts = &parts[2..];
        }
    }
    info.parts = parts.iter().map(Str::new).collect();
    info.resource = Str::new(parts[0]);
    info.name = parts.get(1).map(Str::new).unwrap_or_default();
    if info.verb != "proxy" {
        info.subresource = parts.get(2).map(Str::new).unwrap_or_default();
    }
    read_query(&mut info, uri, by_path);
    Ok(info)
}

/// What the query adds: a get without a name is a list or a watch, a delete is of a collection.
fn read_query(info: &mut RequestInfo, uri: &Uri, by_path: bool) {
    let query = Query::parse(uri.query().unwrap_or_default()).unwrap_or_default();
    if info.name.is_empty() && info.verb == "get" {
        info.verb = Str::new_static(if query.flag("watch") { "watch" } else { "list" });
        let selector = FieldSelector::parse(query.text("fieldSelector")).unwrap_or_default();
        if let Some(name) = selector.exact_name()
            && names::name_is_path_segment(name, false).is_empty()
        {
            info.name = Str::new(name);
        }
    }
    if info.name.is_empty() && info.verb == "delete" {
        info.verb = Str::new_static("deletecollection");
    }
    if !by_path && matches!(info.verb.as_str(), "list" | "watch" | "deletecollection") {
        query.text("fieldSelector").clone_into(&mut info.field_selector);
        query.text("labelSelector").clone_into(&mut info.label_selector);
    }
}

fn verb(method: &Method) -> Str {
    Str::new_static(match *method {
        Method::POST => "create",
        Method::GET | Method::HEAD => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    })
}

/// Paths are compared and split after decoding, as Go's `URL.Path`.
fn decode_path(path: &str) -> Result<String, ApiError> {
    if !path.contains('%') {
        return Ok(path.to_owned());
    }
    let bad = || ApiError::bad_request("invalid URL escape in path");
    let mut escapes = path.split('%').skip(1);
    if !escapes.all(|rest| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2) {
        return Err(bad());
    }
    let decoded = percent_encoding::percent_decode_str(path).decode_utf8();
    Ok(decoded.map_err(|_| bad())?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_apart_as_kube_apiserver_does() {
        // verb, group, version, namespace, resource, name, subresource
        let cases = [
            ("GET", "/api/v1/namespaces", "list||v1||namespaces||"),
            ("GET", "/api/v1/namespaces/a", "get||v1|a|namespaces|a|"),
            ("PUT", "/api/v1/namespaces/a/finalize", "update||v1|a|namespaces|a|finalize"),
            ("GET", "/api/v1/namespaces/a/pods", "list||v1|a|pods||"),
            ("GET", "/api/v1/namespaces/a/pods?watch=1", "watch||v1|a|pods||"),
            ("GET", "/api/v1/watch/namespaces/a/pods/p", "watch||v1|a|pods|p|"),
            (
                "GET",
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                "get|apps|v1|a|deployments|d|scale",
            ),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/a/deployments",
                "deletecollection|apps|v1|a|deployments||",
            ),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp", "list||v1||pods|p|"),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Da/b", "list||v1||pods||"),
            ("POST", "/api/v1/namespaces/a/pods/p/binding", "create||v1|a|pods|p|binding"),
            ("GET", "/api/v1/namespaces/a/pods/p%2Fq", "get||v1|a|pods|p|q"),
        ];
        for (method, uri, expected) in cases {
            let method: Method = method.parse().unwrap();
            let info = request_info(&method, &uri.parse().unwrap()).unwrap();
            let got = [
                &info.verb,
                &info.group,
                &info.version,
                &info.namespace,
                &info.resource,
                &info.name,
                &info.subresource,
            ];
            assert_eq!(got.map(Str::as_str).join("|"), expected, "{uri}");
            assert!(info.is_resource, "{uri}");
        }
    }

    #[test]
    fn what_is_not_a_resource_keeps_its_method_as_verb() {
        for path in ["/", "/healthz", "/api", "/api/v1", "/apis/apps/v1", "/apis", "/x/y/z/w"] {
            let info = request_info(&Method::POST, &path.parse().unwrap()).unwrap();
            assert_eq!(
                (info.is_resource, info.verb.as_str(), info.path.as_str()),
                (false, "post", path)
            );
        }
    }
}
