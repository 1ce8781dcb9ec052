//! What a client gets for its mistakes: the code, the reason and the message that kube-apiserver has
//! for them, never a 500 and never a closed connection.

use bytes::Bytes;
use http::{Method, Request};
use integration::{Answer, Http, Protocol, shared};
use serde_json::{Value, json};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// A namespace with one ConfigMap, `cm`.
struct Fixture {
    http: Http,
    /// The path of its ConfigMaps.
    path: String,
    namespace: String,
    _server: integration::Shared,
}

impl Fixture {
    fn new(purpose: &str) -> Self {
        let server = shared();
        let namespace = server.namespace(purpose);
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let http = server.http();
        let object = json!({"metadata": {"name": "cm"}, "data": {"a": "b"}});
        http.post(&path, &object).expect(201);
        Self { http, path, namespace, _server: server }
    }

    fn create(&self, content_type: &str, body: impl Into<Bytes>) -> Answer {
        self.http.send(Method::POST, &self.path, Some(content_type), body)
    }

    fn get(&self, rest: &str) -> Answer {
        self.http.get(&format!("{}{rest}", self.path))
    }

    fn update(&self, name: &str, object: &Value) -> Answer {
        self.http.put(&format!("{}/{name}", self.path), object)
    }

    fn patch(&self, rest: &str, content_type: &str, patch: &str) -> Answer {
        let path = format!("{}/{rest}", self.path);
        self.http.send(Method::PATCH, &path, Some(content_type), patch.to_owned())
    }

    fn delete(&self, rest: &str, options: &str) -> Answer {
        let path = format!("{}/{rest}", self.path);
        self.http.send(Method::DELETE, &path, Some(JSON), options.to_owned())
    }
}

/// The whole of a failure: code, reason and message, and that the rest is a Status.
#[track_caller]
fn check(answer: &Answer, code: u16, reason: &str, message: &str) {
    let status = answer.expect(code);
    let seen = (status["reason"].as_str(), status["message"].as_str());
    assert_eq!(seen, (Some(reason), Some(message)));
    assert_eq!(answer.header("content-type"), Some(JSON));
    for (field, value) in [("kind", "Status"), ("apiVersion", "v1"), ("status", "Failure")] {
        assert_eq!(status[field], value, "{status}");
    }
    assert_eq!(status["code"], code, "{status}");
    // Some answers to an unacceptable Accept are written before an encoder is chosen.
    assert!(code == 406 || answer.body.ends_with(b"\n"), "a JSON answer ends its line");
}

#[test]
fn a_body_that_is_no_object_is_refused() {
    let fixture = Fixture::new("malformed");
    let nested =
        |open: &str, close: &str| format!("{}{}", open.repeat(20_000), close.repeat(20_000));
    let arrays = format!(r#"{{"metadata":{{"name":"deep"}},"x":{}}}"#, nested("[", "]"));
    let objects = format!(r#"{{"metadata":{{"name":"deep"}},"x":{}}}"#, nested(r#"{"a":"#, "}"));
    let deep_yaml = format!("x: {}", nested("[", "]"));
    let header = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let cases: &[(&str, &[u8], &str)] = &[
        (
            JSON,
            b"{bad",
            "couldn't get version/kind; json parse error: invalid character 'b' looking for beginning of object key string ({bad)",
        ),
        (
            JSON,
            b"",
            "couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
        ),
        (
            JSON,
            b"[]",
            &format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type {header} (5b5d)"
            ),
        ),
        (
            JSON,
            br#"{"metadata":{"name":"x"}} trailing"#,
            r#"couldn't get version/kind; json parse error: invalid character 't' after top-level value ({"metadata":{"name":"x"}} trai ...)"#,
        ),
        (
            JSON,
            b"\xff\xfe",
            "couldn't get version/kind; json parse error: invalid character 'ÿ' looking for beginning of value (fffe)",
        ),
        (
            JSON,
            arrays.as_bytes(),
            r#"couldn't get version/kind; json parse error: invalid character '[' exceeded max depth ({"metadata":{"name":"deep"},"x ...)"#,
        ),
        (
            JSON,
            objects.as_bytes(),
            r#"couldn't get version/kind; json parse error: invalid character '{' exceeded max depth ({"metadata":{"name":"deep"},"x ...)"#,
        ),
        (YAML, b"a: [b", "yaml: line 1: did not find expected ',' or ']' (613a205b62)"),
        (
            YAML,
            b"a: b\n\tc: d",
            "yaml: line 2: found a tab character that violates indentation (613a20620a09633a2064)",
        ),
        (
            YAML,
            deep_yaml.as_bytes(),
            "yaml: exceeded max depth of 10000 (783a205b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b ...)",
        ),
        (
            YAML,
            BILLION_LAUGHS.as_bytes(),
            "yaml: document contains excessive aliasing (613a202661205b782c782c782c782c782c782c782c782c785d0a623a2026 ...)",
        ),
        (
            PROTOBUF,
            b"x",
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (78)",
        ),
        (PROTOBUF, b"k8s\0x", "unexpected EOF (6b38730078)"),
    ];
    for (content_type, body, message) in cases {
        let answer = fixture.create(content_type, body.to_vec());
        let message =
            format!("the object provided is unrecognized (must be of type ConfigMap): {message}");
        check(&answer, 400, "BadRequest", &message);
    }
}

const BILLION_LAUGHS: &str = "a: &a [x,x,x,x,x,x,x,x,x]
b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]
c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]
d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]
e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]
f: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]
g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]
h: &h [*g,*g,*g,*g,*g,*g,*g,*g,*g]
";

#[test]
fn a_value_of_the_wrong_type_is_named() {
    let fixture = Fixture::new("types");
    let cases = [
        (
            JSON,
            r#"{"metadata":{"name":"x"},"data":{"a":1}}"#,
            "number into Go struct field ConfigMap.data of type string",
        ),
        (
            JSON,
            r#"{"metadata":{"name":7}}"#,
            "number into Go struct field ObjectMeta.metadata.name of type string",
        ),
        (
            JSON,
            r#"{"metadata":[]}"#,
            "array into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
        ),
        (
            YAML,
            "metadata: {name: x}\ndata: {a: 1}\n",
            "number into Go struct field ConfigMap.data of type string",
        ),
    ];
    for (content_type, body, message) in cases {
        let message = format!(
            r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal {message}"#
        );
        check(&fixture.create(content_type, body), 400, "BadRequest", &message);
    }

    let deployments = format!("/apis/apps/v1/namespaces/{}/deployments", fixture.namespace);
    let cases = [
        (json!("x"), "string into Go struct field DeploymentSpec.spec.replicas of type int32"),
        (json!(1.5), "number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32"),
        (
            json!(99_999_999_999_u64),
            "number 99999999999 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
    ];
    for (replicas, message) in cases {
        let answer = fixture.http.post(
            &deployments,
            &json!({"metadata": {"name": "x"}, "spec": {"replicas": replicas}}),
        );
        let message = format!(
            r#"Deployment in version "v1" cannot be handled as a Deployment: json: cannot unmarshal {message}"#
        );
        check(&answer, 400, "BadRequest", &message);
    }
}

#[test]
fn an_object_of_another_kind_is_refused() {
    let fixture = Fixture::new("kinds");
    let cases = [
        (
            "v1",
            "Secret",
            r#"Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion"#,
        ),
        (
            "apps/v1",
            "Deployment",
            r#"Deployment in version "v1" cannot be handled as a ConfigMap: converting (v1.Deployment) to (core.ConfigMap): unknown conversion"#,
        ),
        (
            "v2",
            "ConfigMap",
            r#"ConfigMap in version "v2" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version "v2" in scheme "pkg/runtime/scheme.go:111""#,
        ),
        (
            "v1",
            "Nope",
            r#"Nope in version "v1" cannot be handled as a ConfigMap: no kind "Nope" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111""#,
        ),
    ];
    for (version, kind, message) in cases {
        let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}});
        check(&fixture.http.post(&fixture.path, &object), 400, "BadRequest", message);
    }
}

#[test]
fn names_and_namespaces_must_agree_with_the_path() {
    let fixture = Fixture::new("names");
    let namespaces_differ =
        "the namespace of the provided object does not match the namespace sent on the request";
    let elsewhere = json!({"metadata": {"name": "cm", "namespace": "other"}});
    check(&fixture.http.post(&fixture.path, &elsewhere), 400, "BadRequest", namespaces_differ);
    check(&fixture.update("cm", &elsewhere), 400, "BadRequest", namespaces_differ);

    let cases = [
        (
            json!({"metadata": {"name": "other"}}),
            "the name of the object (other) does not match the name on the URL (cm)",
        ),
        (
            json!({"metadata": {}}),
            "the name of the object (cm based on URL) was undeterminable: name must be provided",
        ),
    ];
    for (object, message) in cases {
        check(&fixture.update("cm", &object), 400, "BadRequest", message);
    }
    let renamed = fixture.patch("cm", MERGE_PATCH, r#"{"metadata":{"name":"other"}}"#);
    check(
        &renamed,
        400,
        "BadRequest",
        "the name of the object (other) does not match the name on the URL (cm)",
    );
}

#[test]
fn invalid_names_are_refused() {
    let fixture = Fixture::new("invalid-names");
    let required = r#"ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required"#;
    for object in [json!({}), json!({"metadata": {}}), Value::Null] {
        check(&fixture.http.post(&fixture.path, &object), 422, "Invalid", required);
    }
    let answer = fixture.http.post(&fixture.path, &json!({"metadata": {"name": "Bad_Name"}}));
    let message = r#"ConfigMap "Bad_Name" is invalid: metadata.name: Invalid value: "Bad_Name": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#;
    check(&answer, 422, "Invalid", message);
    let details = &answer.json()["details"];
    assert_eq!((&details["name"], &details["kind"]), (&json!("Bad_Name"), &json!("ConfigMap")));
    assert_eq!(details["causes"][0]["reason"], "FieldValueInvalid");
    assert_eq!(details["causes"][0]["field"], "metadata.name");
}

#[test]
fn every_invalid_field_is_named_at_once() {
    let fixture = Fixture::new("fields");
    let pods = format!("/api/v1/namespaces/{}/pods", fixture.namespace);
    let deployments = format!("/apis/apps/v1/namespaces/{}/deployments", fixture.namespace);
    let cases = [
        (
            &pods,
            json!({"containers": []}),
            r#"Pod "x" is invalid: spec.containers: Required value"#,
        ),
        (
            &pods,
            json!({"containers": [{"name": "c"}], "restartPolicy": "Nope"}),
            r#"Pod "x" is invalid: [spec.containers[0].image: Required value, spec.restartPolicy: Unsupported value: "Nope": supported values: "Always", "OnFailure", "Never"]"#,
        ),
        (
            &deployments,
            json!({
                "replicas": -1,
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "c"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            }),
            r#"Deployment.apps "x" is invalid: [spec.replicas: Invalid value: -1: must be greater than or equal to 0, spec.template.metadata.labels: Invalid value: {"a":"c"}: `selector` does not match template `labels`]"#,
        ),
    ];
    for (path, spec, message) in cases {
        let answer = fixture.http.post(path, &json!({"metadata": {"name": "x"}, "spec": spec}));
        check(&answer, 422, "Invalid", message);
    }
}

#[test]
fn what_is_not_there_is_not_found() {
    let fixture = Fixture::new("missing");
    let missing = json!({"metadata": {"name": "missing"}});
    let answers = [
        fixture.get("/missing"),
        fixture.update("missing", &missing),
        fixture.patch("missing", MERGE_PATCH, "{}"),
        fixture.delete("missing", ""),
    ];
    for answer in &answers {
        check(answer, 404, "NotFound", r#"configmaps "missing" not found"#);
        assert_eq!(answer.json()["details"], json!({"name": "missing", "kind": "configmaps"}));
    }
    let nowhere = fixture.http.post("/api/v1/namespaces/nowhere/configmaps", &missing);
    check(&nowhere, 404, "NotFound", r#"namespaces "nowhere" not found"#);
    let list = fixture.http.get("/api/v1/namespaces/nowhere/configmaps").expect(200);
    assert_eq!(list["items"], json!([]));
}

#[test]
fn unknown_paths_are_not_found() {
    let server = shared();
    let http = server.http();
    let unknown_resources = [
        "/api/v1/nopes",
        "/api/v2/pods",
        "/apis/apps/v1/nopes",
        "/apis/apps/v9/deployments",
        "/api/v1/namespaces/default/pods/x/nope",
    ];
    for path in unknown_resources {
        check(&http.get(path), 404, "NotFound", "the server could not find the requested resource");
    }
    for path in ["/nope", "/apis/nope.example/v1/things"] {
        let answer = http.get(path);
        assert_eq!((answer.code, answer.text().as_str()), (404, "404 page not found\n"), "{path}");
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    }
}

#[test]
fn a_method_that_a_path_lacks_is_not_allowed() {
    let fixture = Fixture::new("methods");
    let one = format!("{}/cm", fixture.path);
    let cases = [
        (Method::POST, &one),
        (Method::PUT, &fixture.path),
        (Method::PATCH, &fixture.path),
        (Method::from_bytes(b"BREW").expect("a token"), &fixture.path),
    ];
    for (method, path) in cases {
        let content_type = if method == Method::PATCH { MERGE_PATCH } else { JSON };
        let answer = fixture.http.send(method, path, Some(content_type), "{}");
        let message = "the server does not allow this method on the requested resource";
        check(&answer, 405, "MethodNotAllowed", message);
    }
}

#[test]
fn existing_names_and_stale_versions_conflict() {
    let fixture = Fixture::new("conflicts");
    let again = fixture.http.post(&fixture.path, &json!({"metadata": {"name": "cm"}}));
    check(&again, 409, "AlreadyExists", r#"configmaps "cm" already exists"#);
    assert_eq!(again.json()["details"], json!({"name": "cm", "kind": "configmaps"}));

    let modified = r#"Operation cannot be fulfilled on configmaps "cm": the object has been modified; please apply your changes to the latest version and try again"#;
    let stale = json!({"metadata": {"name": "cm", "resourceVersion": "1"}});
    check(&fixture.update("cm", &stale), 409, "Conflict", modified);
    let patched = fixture.patch("cm", MERGE_PATCH, r#"{"metadata":{"resourceVersion":"1"}}"#);
    check(&patched, 409, "Conflict", modified);

    let uid =
        fixture.get("/cm").json()["metadata"]["uid"].as_str().expect("objects have one").to_owned();
    let answer = fixture.delete("cm", r#"{"preconditions":{"uid":"other"}}"#);
    let message = format!(
        r#"Operation cannot be fulfilled on ConfigMap "cm": the UID in the precondition (other) does not match the UID in record ({uid}). The object might have been deleted and then recreated"#
    );
    check(&answer, 409, "Conflict", &message);
}

#[test]
fn bodies_have_a_limit() {
    let fixture = Fixture::new("large");
    let object = |bytes: usize| {
        format!(r#"{{"metadata":{{"name":"large"}},"data":{{"a":"{}"}}}}"#, "x".repeat(bytes))
    };
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let http = fixture.http.clone().over(protocol);
        let answer = http.send(Method::POST, &fixture.path, Some(JSON), object(3_200_000));
        check(&answer, 413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728");
    }
    let message =
        r#"ConfigMap "large" is invalid: []: Too long: may not be more than 1048576 bytes"#;
    check(&fixture.create(JSON, object(1_100_000)), 422, "Invalid", message);
    assert_eq!(fixture.get("/large").code, 404);
}

#[test]
fn invalid_utf_8_in_a_string_is_replaced() {
    let fixture = Fixture::new("utf8");
    let body = b"{\"metadata\":{\"name\":\"x\"},\"data\":{\"a\":\"<\xff>\"}}";
    assert_eq!(fixture.create(JSON, body.to_vec()).expect(201)["data"]["a"], "<\u{fffd}>");
}

#[test]
fn bad_selectors_are_explained() {
    let fixture = Fixture::new("selectors");
    let key = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let long = "x".repeat(64);
    let too_long =
        format!(r#"values[0][a]: Invalid value: "{long}": must be no more than 63 bytes"#);
    let labels = [
        ("a%3D%3D%3Db", "found '=', expected: identifier"),
        ("%21%21a", "found '!', expected: identifier"),
        ("a%20in%20b", "found 'b' expected: '('"),
        ("a%20in%20(b", "found '', expected: ',' or ')'"),
        ("-a", &format!(r#"<nil>: Invalid value: "-a": {key}"#)),
        (&format!("a%3D{long}"), &too_long),
    ];
    for (selector, message) in labels {
        let answer = fixture.get(&format!("?labelSelector={selector}"));
        check(&answer, 400, "BadRequest", &format!("unable to parse requirement: {message}"));
    }
    let fields = [
        ("configmaps", "a", "invalid selector: 'a'; can't understand 'a'"),
        (
            "configmaps",
            "spec.foo%3Da",
            r#""spec.foo" is not a known field selector: only "metadata.name", "metadata.namespace""#,
        ),
        ("pods", "spec.foo%3Da", "field label not supported: spec.foo"),
    ];
    for (resource, selector, message) in fields {
        let answer = fixture.http.get(&format!("/api/v1/{resource}?fieldSelector={selector}"));
        check(&answer, 400, "BadRequest", message);
    }
}

#[test]
fn bad_list_options_are_explained() {
    let fixture = Fixture::new("list-options");
    let number = r#"strconv.ParseInt: parsing "x": invalid syntax"#;
    let version = |text: &str| {
        format!(
            r#"invalid resource version: resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax"#
        )
    };
    let bad_requests = [
        ("limit=x", number),
        ("timeoutSeconds=x", number),
        (
            "continue=garbage",
            r"invalid continue token: continue key is not valid: invalid character '\u0081' looking for beginning of value",
        ),
        (
            "continue=e30",
            "invalid continue token: continue key is not valid: server does not recognize this encoded version ",
        ),
        // {"v":"meta.k8s.io/v1","rv":-1,"start":"../../"}: out of its own resource.
        (
            "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLi4vLi4vIn0",
            "invalid continue token: continue key is not valid: ../../",
        ),
        ("resourceVersion=abc", &version("abc")),
        ("resourceVersion=-1", &version("-1")),
        (
            "timeout=abc",
            r#"invalid timeout specified in the request URL - time: invalid duration "abc""#,
        ),
    ];
    for (query, message) in bad_requests {
        check(&fixture.get(&format!("?{query}")), 400, "BadRequest", message);
    }
    let invalid = [
        (
            "resourceVersion=1&resourceVersionMatch=Nope",
            r#"resourceVersionMatch: Unsupported value: "Nope": supported values: "Exact", "NotOlderThan", """#,
        ),
        (
            "resourceVersionMatch=Exact",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersion=0&resourceVersionMatch=Exact",
            r#"resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
        ),
        (
            "sendInitialEvents=true",
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        ),
        (
            "watch=true&sendInitialEvents=true",
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
    ];
    for (query, message) in invalid {
        let answer = fixture.get(&format!("?{query}"));
        check(
            &answer,
            422,
            "Invalid",
            &format!(r#"ListOptions.meta.k8s.io "" is invalid: {message}"#),
        );
        assert_eq!(answer.json()["details"]["group"], "meta.k8s.io");
    }
}

#[test]
fn bad_write_options_are_explained() {
    let fixture = Fixture::new("write-options");
    let object = json!({"metadata": {"name": "x"}});
    let long = "x".repeat(129);
    let creates = [
        ("dryRun=Maybe", r#"dryRun: Unsupported value: ["Maybe"]: supported values: "All""#),
        (
            "fieldValidation=Maybe",
            r#"fieldValidation: Unsupported value: "Maybe": supported values: "", "Ignore", "Strict", "Warn""#,
        ),
        (&format!("fieldManager={long}"), "fieldManager: Too long: may not be more than 128 bytes"),
    ];
    for (query, message) in creates {
        let answer = fixture.http.post(&format!("{}?{query}", fixture.path), &object);
        check(
            &answer,
            422,
            "Invalid",
            &format!(r#"CreateOptions.meta.k8s.io "" is invalid: {message}"#),
        );
    }
    let deletes = [
        (
            "cm?propagationPolicy=Nope",
            "",
            422,
            "Invalid",
            r#"DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Nope": supported values: "Foreground", "Background", "Orphan", "nil""#,
        ),
        (
            "cm?gracePeriodSeconds=x",
            "",
            400,
            "BadRequest",
            r#"strconv.ParseInt: parsing "x": invalid syntax"#,
        ),
        (
            "cm",
            "{bad",
            400,
            "BadRequest",
            "couldn't get version/kind; json parse error: invalid character 'b' looking for beginning of object key string",
        ),
    ];
    for (rest, options, code, reason, message) in deletes {
        check(&fixture.delete(rest, options), code, reason, message);
    }
    assert_eq!(fixture.get("/cm").code, 200, "nothing was deleted by mistake");
}

#[test]
fn strict_validation_names_unknown_and_duplicate_fields() {
    let fixture = Fixture::new("strict");
    let path = format!("{}?fieldValidation=Strict", fixture.path);
    let cases = [
        (
            r#"{"metadata":{"name":"x","foo":1},"bar":2}"#,
            r#"unknown field "metadata.foo", unknown field "bar""#,
        ),
        (r#"{"metadata":{"name":"x"},"data":{"a":"1","a":"2"}}"#, r#"duplicate field "data.a""#),
    ];
    for (body, message) in cases {
        let answer = fixture.http.send(Method::POST, &path, Some(JSON), body);
        let message = format!(
            r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: {message}"#
        );
        check(&answer, 400, "BadRequest", &message);
    }
    // By default the same is a warning, and what is unknown is dropped.
    let answer = fixture.create(JSON, cases[0].0);
    let created = answer.expect(201);
    assert_eq!((&created["bar"], &created["metadata"]["foo"]), (&Value::Null, &Value::Null));
    let warnings: Vec<_> = answer.headers.get_all("warning").iter().collect();
    assert_eq!(
        warnings,
        [r#"299 - "unknown field \"metadata.foo\"""#, r#"299 - "unknown field \"bar\"""#]
    );
}

#[test]
fn unsupported_media_types_are_refused() {
    let fixture = Fixture::new("media");
    let accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let unknown = format!(
        "the body of the request was in an unknown format - accepted media types include: {accepted}"
    );
    for content_type in ["text/plain", "application/x-www-form-urlencoded"] {
        let answer = fixture.create(content_type, r#"{"metadata":{"name":"x"}}"#);
        check(&answer, 415, "UnsupportedMediaType", &unknown);
    }
    let patch = fixture.patch("cm", JSON, "{}");
    check(&patch, 415, "UnsupportedMediaType", "415: Unsupported Media Type");

    let accepts = [
        ("text/html", format!("406: Not Acceptable\n\nAvailable representations: {accepted}")),
        (
            "application/json;as=Nope;v=v1;g=meta.k8s.io",
            format!("only the following media types are accepted: {accepted}"),
        ),
    ];
    for (accept, message) in accepts {
        let request = Request::get(format!("{}/cm", fixture.path)).header("accept", accept);
        let answer = fixture.http.request(request.body(Bytes::new()).expect("a valid request"));
        check(&answer, 406, "NotAcceptable", &message);
    }
}

#[test]
fn a_patch_that_does_not_parse_or_apply_is_refused() {
    let fixture = Fixture::new("patches");
    let rejected = "the server rejected our request due to an error in our request";
    let cases = [
        (
            MERGE_PATCH,
            "{bad",
            400,
            "BadRequest",
            "error decoding patch: invalid character 'b' looking for beginning of object key string",
        ),
        (
            MERGE_PATCH,
            "[]",
            400,
            "BadRequest",
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            STRATEGIC_PATCH,
            "{bad",
            400,
            "BadRequest",
            "invalid character 'b' looking for beginning of object key string",
        ),
        (
            STRATEGIC_PATCH,
            r#"{"data":{"a":1}}"#,
            422,
            "Invalid",
            r#" "" is invalid: patch: Invalid value: "map[data:map[a:1]]": cannot convert int64 to string"#,
        ),
        (
            JSON_PATCH,
            "{bad",
            400,
            "BadRequest",
            "error decoding patch: invalid character 'b' looking for beginning of object key string",
        ),
        (
            JSON_PATCH,
            "{}",
            400,
            "BadRequest",
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (JSON_PATCH, r#"[{"op":"nope","path":"/a"}]"#, 422, "Invalid", rejected),
        (JSON_PATCH, r#"[{"op":"test","path":"/data/a","value":"z"}]"#, 422, "Invalid", rejected),
        (JSON_PATCH, r#"[{"op":"remove","path":"/nope/a"}]"#, 422, "Invalid", rejected),
        (
            APPLY,
            "{}",
            422,
            "Invalid",
            r#"PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch"#,
        ),
    ];
    for (content_type, patch, code, reason, message) in cases {
        check(&fixture.patch("cm", content_type, patch), code, reason, message);
    }
    let cases = [
        ("cm?fieldManager=m", APPLY, "{}", 400, "BadRequest", "invalid object type: /, Kind="),
        (
            "cm?fieldManager=m",
            APPLY,
            "a: [",
            400,
            "BadRequest",
            "error decoding YAML: error converting YAML to JSON: yaml: line 1: did not find expected node content",
        ),
        (
            "cm?force=true",
            MERGE_PATCH,
            "{}",
            422,
            "Invalid",
            r#"PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch"#,
        ),
    ];
    for (rest, content_type, patch, code, reason, message) in cases {
        check(&fixture.patch(rest, content_type, patch), code, reason, message);
    }
    let untouched = fixture.get("/cm").expect(200);
    assert_eq!(untouched["data"], json!({"a": "b"}));
}

#[test]
fn unknown_clients_are_refused() {
    let fixture = Fixture::new("strangers");
    let wrong = fixture.http.clone().with_token("wrong").get(&fixture.path);
    check(&wrong, 401, "Unauthorized", "Unauthorized");
    let anonymous = fixture.http.clone().anonymous().get(&fixture.path);
    let message = format!(
        r#"configmaps is forbidden: User "system:anonymous" cannot list resource "configmaps" in API group "" in the namespace "{}""#,
        fixture.namespace
    );
    check(&anonymous, 403, "Forbidden", &message);
    assert_eq!(anonymous.header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn system_namespaces_stay() {
    for name in ["default", "kube-system", "kube-public"] {
        let answer = shared().http().delete(&format!("/api/v1/namespaces/{name}"));
        let message =
            format!(r#"namespaces "{name}" is forbidden: this namespace may not be deleted"#);
        check(&answer, 403, "Forbidden", &message);
    }
}
