//! `/flagz` and `/statusz`: with which flags the server runs, and for how long. Plain text for people;
//! JSON, YAML and CBOR for programs that ask for a version of the kind.

use std::time::SystemTime;

use bytes::Bytes;
use codec::yaml;
use http::{HeaderValue, Response, header::CONTENT_TYPE};
use meta::{ApiError, Value, time::Time, value};

use crate::Body;

/// What the pages show.
pub struct Zpages {
    /// Name and value of every flag; None with gate `ComponentFlagz` off.
    pub flags: Option<Vec<(&'static str, String)>>,
    /// None with gate `ComponentStatusz` off.
    pub status: Option<StatuszInfo>,
}

pub struct StatuszInfo {
    pub started: SystemTime,
    pub go_version: String,
    /// `1.36.4`
    pub binary_version: String,
    /// `1.36`
    pub emulation_version: String,
}

/// Compat: the component's name in kube-apiserver.
const COMPONENT: &str = "apiserver";
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting \
    compatibility guarantees and is for debugging purposes only.";
/// Compat: folders of the index that are no help with debugging.
const HIDDEN_FOLDERS: [&str; 5] = ["/apis", "/api", "/openid", "/openapi", "/.well-known"];

impl Zpages {
    /// None: the page is off.
    pub fn answer(
        &self,
        path: &str,
        accept: Option<&str>,
        index: impl Fn() -> Vec<String>,
    ) -> Option<Result<Response<Body>, ApiError>> {
        match path {
            "/flagz" => self.flags.as_ref().map(|flags| flagz(flags, accept)),
            "/statusz" => self.status.as_ref().map(|status| statusz(status, accept, &index())),
            _ => None,
        }
    }
}

fn flagz(
    flags: &[(&'static str, String)],
    accept: Option<&str>,
) -> Result<Response<Body>, ApiError> {
    let format = Format::negotiate(accept, "Flagz")?;
    let mut sorted: Vec<_> = flags.iter().collect();
    sorted.sort();
    if let Format::Text = format {
        let mut page = format!("\n{COMPONENT} flagz\n{WARNING}\n");
        for (name, value) in sorted {
            page.push_str(&format!("{name}={value}\n"));
        }
        return Ok(respond("text/plain; charset=utf-8", page, false, "flagz"));
    }
    let mut object = format.object("Flagz");
    for (name, value) in sorted {
        object.set_at(&["flags", name], value.as_str());
    }
    Ok(format.respond(&object, "flagz"))
}

fn statusz(
    status: &StatuszInfo,
    accept: Option<&str>,
    index: &[String],
) -> Result<Response<Body>, ApiError> {
    let format = Format::negotiate(accept, "Statusz")?;
    let started = Time::from(status.started);
    let up = status.started.elapsed().unwrap_or_default().as_secs();
    let folders = folders(index);
    if let Format::Text = format {
        let page = format!(
            "\n{COMPONENT} statusz\n{WARNING}\n\nStarted: {}\nUp: {} hr {:02} min {:02} sec\n\
             Go version: {}\nBinary version: {}\nEmulation version: {}\nPaths: {}\n",
            started.to_rfc3339(),
            up / 3600,
            up / 60 % 60,
            up % 60,
            status.go_version,
            status.binary_version,
            status.emulation_version,
            folders.join(" ")
        );
        return Ok(respond("text/plain; charset=utf-8", page, false, "statusz"));
    }
    let mut object = format.object("Statusz");
    object.set_at(&["startTime"], started.to_rfc3339());
    object.set_at(&["uptimeSeconds"], i64::try_from(up).unwrap_or(i64::MAX));
    object.set_at(&["goVersion"], status.go_version.as_str());
    object.set_at(&["binaryVersion"], status.binary_version.as_str());
    object.set_at(&["emulationVersion"], status.emulation_version.as_str());
    let folders: Vec<Value> = folders.into_iter().map(|path| Value::from(path.as_str())).collect();
    object.set_at(&["paths"], folders);
    Ok(format.respond(&object, "statusz"))
}

fn folders(index: &[String]) -> Vec<String> {
    let first = |path: &String| path.split('/').nth(1).map(|folder| format!("/{folder}"));
    let mut folders: Vec<String> = index.iter().filter_map(first).collect();
    folders.retain(|folder| folder != "/" && !HIDDEN_FOLDERS.contains(&folder.as_str()));
    folders.sort();
    folders.dedup();
    folders
}

/// What a client wants to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Text,
    Json(PageVersion),
    Yaml(PageVersion),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageVersion {
    V1Alpha1,
    V1Beta1,
}

impl Format {
    /// Structured formats have to name group, version and kind: they are no stable API, and no client should
    /// get one by accident.
    fn negotiate(accept: Option<&str>, kind: &str) -> Result<Self, ApiError> {
        let accept = accept.map(str::trim).filter(|accept| !accept.is_empty());
        let Some(accept) = accept else { return Ok(Self::Text) };
        let mut clauses: Vec<(&str, f32)> = accept.split(',').map(with_quality).collect();
        // Stable: equal clauses stay in their order.
        clauses.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let found = clauses.into_iter().find_map(|(clause, _)| Self::of(clause, kind));
        found.ok_or_else(|| {
            let types = "application/json, application/yaml, text/plain";
            ApiError::NotAcceptable(format!("only the following media types are accepted: {types}"))
        })
    }

    fn of(clause: &str, kind: &str) -> Option<Self> {
        let mut parts = clause.split(';').map(str::trim);
        let media_type = parts.next()?;
        let (mut group, mut version, mut wanted) = (None, None, None);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name {
                "g" => group = Some(value),
                "v" => version = Some(value),
                "as" => wanted = Some(value),
                _ => {}
            }
        }
        if (group, version, wanted) == (None, None, None) {
            return matches!(media_type, "text/plain" | "text/*" | "*/*").then_some(Self::Text);
        }
        if group != Some("config.k8s.io") || wanted != Some(kind) {
            return None;
        }
        let version = match version? {
            "v1alpha1" => PageVersion::V1Alpha1,
            "v1beta1" => PageVersion::V1Beta1,
            _ => return None,
        };
        match media_type {
            "application/json" | "application/*" | "*/*" => Some(Self::Json(version)),
            "application/yaml" => Some(Self::Yaml(version)),
            _ => None,
        }
    }

    fn version(self) -> PageVersion {
        match self {
            Self::Text => PageVersion::V1Beta1,
            Self::Json(version) | Self::Yaml(version) => version,
        }
    }

    fn object(self, kind: &str) -> Value {
        let version = match self.version() {
            PageVersion::V1Alpha1 => "config.k8s.io/v1alpha1",
            PageVersion::V1Beta1 => "config.k8s.io/v1beta1",
        };
        value!({"kind": (kind), "apiVersion": (version), "metadata": {"name": (COMPONENT)}})
    }

    fn respond(self, object: &Value, page: &str) -> Response<Body> {
        let (content_type, body) = match self {
            Self::Yaml(_) => ("application/yaml", yaml::emit(object)),
            Self::Json(_) | Self::Text => {
                ("application/json", meta::json::to_string(object) + "\n")
            }
        };
        respond(content_type, body, self.version() == PageVersion::V1Alpha1, page)
    }
}

fn with_quality(clause: &str) -> (&str, f32) {
    let quality = clause.split(';').find_map(|part| part.trim().strip_prefix("q="));
    (clause.trim(), quality.and_then(|quality| quality.parse().ok()).unwrap_or(1.0))
}

fn respond(
    content_type: &'static str,
    body: impl Into<Bytes>,
    deprecated: bool,
    page: &str,
) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    let warning = format!(
        "299 - \"This version of the {page} endpoint is deprecated. Please use a newer version.\""
    );
    if let (true, Ok(warning)) = (deprecated, HeaderValue::from_str(&warning)) {
        response.headers_mut().insert("warning", warning);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structured_formats_are_asked_for_by_kind() {
        use PageVersion::{V1Alpha1, V1Beta1};
        let cases = [
            (None, Some(Format::Text)),
            (Some(" "), Some(Format::Text)),
            (Some("*/*"), Some(Format::Text)),
            (Some("text/html, text/plain;q=0.5"), Some(Format::Text)),
            (Some("application/json"), None),
            (Some("application/json;g=config.k8s.io;v=v1;as=Flagz"), None),
            (Some("application/json;g=config.k8s.io;v=v1beta1;as=Statusz"), None),
            (
                Some("application/json;g=config.k8s.io;v=v1beta1;as=Flagz"),
                Some(Format::Json(V1Beta1)),
            ),
            (
                Some("application/yaml;v=v1alpha1;g=config.k8s.io;as=Flagz"),
                Some(Format::Yaml(V1Alpha1)),
            ),
            (
                Some("text/plain;q=0.1,application/json;g=config.k8s.io;v=v1beta1;as=Flagz"),
                Some(Format::Json(V1Beta1)),
            ),
        ];
        for (accept, expected) in cases {
            assert_eq!(Format::negotiate(accept, "Flagz").ok(), expected, "{accept:?}");
        }
    }

    #[test]
    fn pages_show_flags_and_folders() {
        let zpages = Zpages {
            flags: Some(vec![("v", "2".to_owned()), ("bind-address", "127.0.0.1".to_owned())]),
            status: Some(StatuszInfo {
                started: SystemTime::now(),
                go_version: "rust1.90".to_owned(),
                binary_version: "1.36.4".to_owned(),
                emulation_version: "1.36".to_owned(),
            }),
        };
        let index = || ["/", "/apis/apps", "/livez/ping", "/livez", "/metrics"].map(str::to_owned);
        let page = |path: &str, accept: Option<&str>| {
            let answer = zpages.answer(path, accept, || index().to_vec()).expect("the page is on");
            String::from_utf8(answer.unwrap().body().as_bytes().unwrap().to_vec()).unwrap()
        };
        assert!(page("/flagz", None).ends_with("only.\nbind-address=127.0.0.1\nv=2\n"));
        let structured = Some("application/json;g=config.k8s.io;v=v1beta1;as=Flagz");
        assert_eq!(
            page("/flagz", structured).trim_end(),
            r#"{"apiVersion":"config.k8s.io/v1beta1","flags":{"bind-address":"127.0.0.1","v":"2"},"kind":"Flagz","metadata":{"name":"apiserver"}}"#
        );
        assert!(page("/statusz", None).contains("Paths: /livez /metrics\n"));
        let off = Zpages { flags: None, status: None };
        assert!(off.answer("/flagz", None, Vec::new).is_none());
    }
}
