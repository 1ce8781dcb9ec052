//! The options of CONNECT subresources and logs: from the query to the object that admission sees, in
//! the way and the words of kube-apiserver's conversion.

use meta::{ApiError, Map, Query, RequestInfo, Str, Value, field::quote, time::Time};

/// An object of this kind with what the query says.
pub(crate) struct Builder(Map);

impl Builder {
    pub(crate) fn new(kind: &'static str) -> Self {
        let mut map = Map::default();
        map.insert("apiVersion", Value::from("v1"));
        map.insert("kind", Value::from(kind));
        Self(map)
    }

    /// False is left out, as in JSON.
    pub(crate) fn flag(mut self, name: &'static str, query: &Query) -> Self {
        if query.flag(name) {
            self.0.insert(name, Value::from(true));
        }
        self
    }

    pub(crate) fn text(mut self, name: &'static str, query: &Query) -> Self {
        if !query.text(name).is_empty() {
            self.0.insert(name, Value::from(query.text(name)));
        }
        self
    }

    /// Given, even if it is empty.
    pub(crate) fn optional_text(mut self, name: &'static str, query: &Query) -> Self {
        if let Some(text) = query.get(name) {
            self.0.insert(name, Value::from(text));
        }
        self
    }

    pub(crate) fn texts(mut self, name: &'static str, query: &Query) -> Self {
        let values: Vec<Value> = query.all(name).map(Value::from).collect();
        if !values.is_empty() {
            self.0.insert(name, Value::Array(values));
        }
        self
    }

    pub(crate) fn integer(mut self, name: &'static str, query: &Query) -> Result<Self, ApiError> {
        if let Some(number) = query.integer(name)? {
            self.0.insert(name, Value::from(number));
        }
        Ok(self)
    }

    /// Compat: an empty time and `null` are the zero time, which counts as given.
    pub(crate) fn time(mut self, name: &'static str, query: &Query) -> Result<Self, ApiError> {
        match query.get(name) {
            None => {}
            Some("" | "null") => {
                self.0.insert(name, Value::from(ZERO_TIME));
            }
            Some(text) => {
                let time =
                    Time::parse(text).map_err(|error| ApiError::BadRequest(error.to_string()))?;
                self.0.insert(name, Value::from(time.to_rfc3339().as_str()));
            }
        }
        Ok(self)
    }

    /// Compat: a parameter may be repeated, and have several separated by commas.
    pub(crate) fn ports(mut self, name: &'static str, query: &Query) -> Result<Self, ApiError> {
        let mut ports = Vec::new();
        for text in query.all(name).flat_map(|value| value.split(',')) {
            let port: u16 = text.parse().map_err(|_| {
                let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                let why = if digits { "value out of range" } else { "invalid syntax" };
                ApiError::BadRequest(format!(
                    "cannot convert to []int32: strconv.ParseUint: parsing {}: {why}",
                    quote(text)
                ))
            })?;
            ports.push(Value::from(i64::from(port)));
        }
        if !ports.is_empty() {
            self.0.insert(name, Value::Array(ports));
        }
        Ok(self)
    }

    /// What follows the subresource in the path, with its slashes.
    pub(crate) fn path(mut self, info: &RequestInfo) -> Self {
        let path = subpath(info);
        if !path.is_empty() {
            self.0.insert("path", Value::from(path.as_str()));
        }
        self
    }

    pub(crate) fn build(self) -> Value {
        Value::Object(self.0)
    }
}

const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

fn subpath(info: &RequestInfo) -> String {
    let parts: Vec<&str> = info.parts.iter().skip(3).map(Str::as_str).collect();
    let mut path = parts.join("/");
    if !path.is_empty() && !path.starts_with('/') {
        path.insert(0, '/');
    }
    if info.path.ends_with('/') && !path.ends_with('/') {
        path.push('/');
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(build: impl Fn(Builder, &Query) -> Result<Builder, ApiError>, query: &str) -> String {
        let query = Query::parse(query).unwrap();
        match build(Builder::new("Options"), &query) {
            Ok(options) => {
                let mut json = Vec::new();
                codec::json::encode_any(&options.build(), &mut json);
                String::from_utf8(json).unwrap()
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_query_becomes_an_object() {
        let cases = [
            (
                "stdin=1&tty=false&stdout=",
                r#"{"apiVersion":"v1","kind":"Options","stdin":true,"stdout":true}"#,
            ),
            (
                "container=a&command=ls&command=-l",
                r#"{"apiVersion":"v1","command":["ls","-l"],"container":"a","kind":"Options"}"#,
            ),
        ];
        for (query, expected) in cases {
            let build = |options: Builder, query: &Query| {
                let options = options.flag("stdin", query).flag("stdout", query).flag("tty", query);
                Ok(options.text("container", query).texts("command", query))
            };
            assert_eq!(shown(build, query), expected);
        }
        let ports = |options: Builder, query: &Query| options.ports("ports", query);
        let expected = r#"{"apiVersion":"v1","kind":"Options","ports":[1,2,3]}"#;
        assert_eq!(shown(ports, "ports=1,2&ports=3"), expected);
        let cases = [
            (
                "ports=70000",
                r#"cannot convert to []int32: strconv.ParseUint: parsing "70000": value out of range"#,
            ),
            (
                "ports=",
                r#"cannot convert to []int32: strconv.ParseUint: parsing "": invalid syntax"#,
            ),
        ];
        for (query, expected) in cases {
            assert_eq!(shown(ports, query), expected);
        }
    }

    #[test]
    fn the_path_behind_a_proxy_keeps_its_slashes() {
        let cases = [
            ("/api/v1/namespaces/a/pods/p/proxy", ""),
            ("/api/v1/namespaces/a/pods/p/proxy/", "/"),
            ("/api/v1/namespaces/a/pods/p/proxy/x", "/x"),
            ("/api/v1/namespaces/a/pods/p/proxy/x/y/", "/x/y/"),
        ];
        for (path, expected) in cases {
            let parts = path.trim_matches('/').split('/').skip(4).map(Str::new).collect();
            let info = RequestInfo { path: path.to_owned(), parts, ..RequestInfo::default() };
            assert_eq!(subpath(&info), expected, "{path}");
        }
    }
}
