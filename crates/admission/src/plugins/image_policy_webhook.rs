//! Asks a webhook whether the images of a pod may be used.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use client::{Call, Client, Kubeconfig, go_text, successful_body, url_error};
use codec::config_file::FieldType;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use meta::{ApiError, Cause, Details, Map, Status, Str, Value, field::quote, value};

use crate::{
    Attributes, BoxFuture, Cluster, Operation, Phases, Plugin, configuration::PluginConfiguration,
    ordered_json, webhook,
};

pub struct ImagePolicyWebhook {
    client: Client,
    url: Uri,
    allow_ttl: Duration,
    deny_ttl: Duration,
    retry_backoff: Duration,
    default_allow: bool,
    answers: Mutex<HashMap<String, Answer>>,
}

#[derive(Clone, Debug)]
struct Answer {
    status: ImageReviewStatus,
    expires: Instant,
}

#[derive(Clone, Debug, Default)]
struct ImageReviewStatus {
    allowed: bool,
    reason: String,
    annotations: Vec<(String, String)>,
}

const API_VERSION: &str = "imagepolicy.k8s.io/v1alpha1";

const AUDIT_PREFIX: &str = "imagepolicywebhook.image-policy.k8s.io/";
/// Compat: so many answers are kept. Questions that are longer are asked each time, so that what is kept
/// has a bound.
const ANSWERS_MAX: usize = 1024;
const QUESTION_BYTES_MAX: usize = 4096;
/// Compat: a question is asked so many times, each time after a longer wait.
const ATTEMPTS_MAX: u32 = 5;
const BACKOFF_FACTOR: f64 = 1.5;
/// Compat: the webhook is told in the URL how long it has.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
const RESPONSE_BYTES_MAX: usize = 1 << 20;

const FIELDS: FieldType = FieldType::Fields(&[(
    "imagePolicy",
    FieldType::Fields(&[
        ("kubeConfigFile", FieldType::Text),
        ("allowTTL", FieldType::Int),
        ("denyTTL", FieldType::Int),
        ("retryBackoff", FieldType::Int),
        ("defaultAllow", FieldType::Bool),
    ]),
)]);

impl ImagePolicyWebhook {
    pub(crate) fn new(configuration: Option<&PluginConfiguration>) -> Result<Self, String> {
        let Some(given) = configuration else {
            return Err(
                "couldn't init admission plugin \"ImagePolicyWebhook\": no config specified; \
                        give it one with --admission-control-config-file"
                    .to_owned(),
            );
        };
        let value = given.decode_unversioned(&FIELDS)?;
        let number = |field| value.i64_at(&["imagePolicy", field]).unwrap_or_default();
        let second = Duration::from_secs(1);
        let ttl_max = Duration::from_mins(30);
        let allow_ttl = duration(number("allowTTL"), second, ttl_max, Duration::from_mins(5));
        let deny_ttl = duration(number("denyTTL"), second, ttl_max, Duration::from_secs(30));
        let millisecond = Duration::from_millis(1);
        let (backoff_max, backoff) = (Duration::from_mins(5), Duration::from_millis(500));
        let retry_backoff = duration(number("retryBackoff"), millisecond, backoff_max, backoff);
        let file = value.str_at(&["imagePolicy", "kubeConfigFile"]);
        let kubeconfig =
            Kubeconfig::load(Path::new(file)).map_err(|error| given.wrong(&error.to_string()))?;
        let client =
            Client::new(kubeconfig.config()).map_err(|error| given.wrong(&error.to_string()))?;
        let wrong = |why: String| given.wrong(&why);
        Ok(Self {
            client,
            url: with_timeout(&kubeconfig.server).map_err(wrong)?,
            allow_ttl: allow_ttl.map_err(wrong)?,
            deny_ttl: deny_ttl.map_err(wrong)?,
            retry_backoff: retry_backoff.map_err(wrong)?,
            default_allow: value.bool_at(&["imagePolicy", "defaultAllow"]),
            answers: Mutex::default(),
        })
    }

    async fn review(&self, spec: Spec) -> Result<Answer, Failure> {
        let question = spec.to_json();
        let now = Instant::now();
        if let Some(known) = self.known(&question, now) {
            return Ok(known);
        }
        let body = format!(
            r#"{{"kind":"ImageReview","apiVersion":"{API_VERSION}","metadata":{{}},"spec":{question},"status":{{"allowed":false}}}}"#
        );
        let status = decode(&self.ask(body.into()).await?).map_err(Failure::Other)?;
        let kept = if status.allowed { self.allow_ttl } else { self.deny_ttl };
        let answer = Answer { status, expires: now + kept };
        self.keep(question, answer.clone(), now);
        Ok(answer)
    }

    fn known(&self, question: &str, now: Instant) -> Option<Answer> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(question).filter(|answer| answer.expires > now).cloned()
    }

    fn keep(&self, question: String, answer: Answer, now: Instant) {
        if question.len() > QUESTION_BYTES_MAX {
            return;
        }
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= ANSWERS_MAX {
            answers.retain(|_, known| known.expires > now);
        }
        if answers.len() >= ANSWERS_MAX {
            answers.clear();
        }
        answers.insert(question, answer);
    }

    async fn ask(&self, body: Bytes) -> Result<Bytes, Failure> {
        let url = self.url.to_string();
        let mut wait = self.retry_backoff;
        let mut attempt = 1;
        loop {
            let call = Call {
                method: Method::POST,
                url: self.url.clone(),
                headers: headers(),
                body: body.clone(),
                connect_to: None,
                deadline: tokio::time::Instant::now() + ATTEMPT_TIMEOUT,
                response_bytes_max: RESPONSE_BYTES_MAX,
            };
            let (failure, may_repeat) = match self.client.call(call).await {
                // A connection that was lost is tried again; one that cannot be made is not.
                Err(error) => {
                    let why = url_error(&Method::POST, &url, &go_text(&error));
                    (Failure::Other(why), matches!(error, client::Error::Http(_)))
                }
                Ok(response) if response.status() == StatusCode::FORBIDDEN => {
                    (Failure::Forbidden(Box::new(forbidden(response))), false)
                }
                Ok(response) => {
                    let asks_to_wait = response.headers().contains_key(header::RETRY_AFTER);
                    match successful_body(response) {
                        Ok(body) => return Ok(body),
                        Err(error) => {
                            let passes = asks_to_wait || matches!(error.code, 429 | 500 | 504);
                            (Failure::Other(error.to_string()), passes)
                        }
                    }
                }
            };
            if !may_repeat || attempt >= ATTEMPTS_MAX {
                return Err(failure);
            }
            tokio::time::sleep(wait).await;
            wait = wait.mul_f64(BACKOFF_FACTOR);
            attempt += 1;
        }
    }
}

/// Why the webhook did not decide.
#[derive(Debug)]
enum Failure {
    /// Compat: one that forbids the question forbids the pod, in its own words.
    Forbidden(Box<Status>),
    Other(String),
}

fn forbidden(response: Response<Bytes>) -> Status {
    let body = response.body().clone();
    let options = codec::json::DecodeOptions { strict: false };
    let said = codec::json::decode_any(&body, options).map(|decoded| decoded.value).ok();
    let said = said.filter(|said| said.str_at(&["kind"]) == "Status");
    let message = successful_body(response).err().map(|error| error.message).unwrap_or_default();
    let cause = Cause {
        reason: "UnexpectedServerResponse".to_owned(),
        message: message.clone(),
        field: String::new(),
    };
    let details = match &said {
        Some(said) => {
            said.get("details").filter(|details| !details.is_null()).map(webhook::details)
        }
        None => Some(Details { causes: vec![cause], ..Details::default() }),
    };
    Status { code: 403, reason: "Forbidden".to_owned(), message, details, ..Status::default() }
}

/// The status of an answer. Err: it is no ImageReview. Compat: upstream's words.
fn decode(body: &[u8]) -> Result<ImageReviewStatus, String> {
    let answer = webhook::decode_answer(body)?;
    match (or(&answer, "apiVersion", API_VERSION), or(&answer, "kind", "ImageReview")) {
        (API_VERSION, "ImageReview") => {}
        ("v1", kind) => {
            return Err(format!(
                "converting (v1.{kind}) to (v1alpha1.ImageReview): unknown conversion"
            ));
        }
        (version, kind) => {
            return Err(format!(
                "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
                quote(kind),
                quote(version)
            ));
        }
    }
    let mistyped = |value: &Value, field: &str, ty: &str| {
        let found = value.type_name();
        format!("json: cannot unmarshal {found} into Go struct field {field} of type {ty}")
    };
    let status = match answer.get("status").filter(|status| !status.is_null()) {
        None => return Ok(ImageReviewStatus::default()),
        Some(Value::Object(status)) => status,
        Some(other) => {
            return Err(mistyped(other, "ImageReview.status", "v1alpha1.ImageReviewStatus"));
        }
    };
    let text = |field: &str, value: &Value| match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.to_string()),
        other => Err(mistyped(other, &format!("ImageReviewStatus.status.{field}"), "string")),
    };
    let given = |field: &str| status.get(field).filter(|value| !value.is_null());
    // Only `true` lets a pod through.
    let allowed = match given("allowed") {
        None => false,
        Some(Value::Bool(allowed)) => *allowed,
        Some(other) => return Err(mistyped(other, "ImageReviewStatus.status.allowed", "bool")),
    };
    let annotations = match given("auditAnnotations") {
        None => Vec::new(),
        Some(Value::Object(annotations)) => annotations
            .iter()
            .map(|(key, value)| Ok((key.to_string(), text("auditAnnotations", value)?)))
            .collect::<Result<_, String>>()?,
        Some(other) => {
            let field = "ImageReviewStatus.status.auditAnnotations";
            return Err(mistyped(other, field, "map[string]string"));
        }
    };
    let reason = given("reason").map(|reason| text("reason", reason)).transpose()?;
    Ok(ImageReviewStatus { allowed, reason: reason.unwrap_or_default(), annotations })
}

fn or<'a>(answer: &'a Value, field: &str, default: &'a str) -> &'a str {
    Some(answer.str_at(&[field])).filter(|given| !given.is_empty()).unwrap_or(default)
}

fn headers() -> HeaderMap {
    let json = HeaderValue::from_static("application/json");
    HeaderMap::from_iter([(header::CONTENT_TYPE, json.clone()), (header::ACCEPT, json)])
}

/// A duration of the configuration: 0 is the default, -1 is none.
fn duration(
    number: i64,
    unit: Duration,
    max: Duration,
    default: Duration,
) -> Result<Duration, String> {
    match number {
        -1 => Ok(Duration::ZERO),
        0 => Ok(default),
        _ => {
            let given = u32::try_from(number).ok().and_then(|number| unit.checked_mul(number));
            given.filter(|given| *given <= max).ok_or_else(|| {
                format!("valid value is between {unit:?} and {max:?}, got {number} * {unit:?}")
            })
        }
    }
}

impl Plugin for ImagePolicyWebhook {
    fn name(&self) -> &'static str {
        "ImagePolicyWebhook"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is_pod() || attributes.is("", "pods", "ephemeralcontainers")
    }

    fn phases(&self) -> Phases {
        Phases::Validating
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(pod) = object else { return Ok(()) };
            let status = match self.review(Spec::new(pod, attributes)).await {
                Ok(answer) => answer.status,
                Err(_) if self.default_allow => {
                    attributes.annotate(format!("{AUDIT_PREFIX}failed-open"), "true");
                    return Ok(());
                }
                Err(Failure::Forbidden(status)) => return Err(ApiError::Status(status)),
                Err(Failure::Other(why)) => return Err(attributes.forbidden(object, why)),
            };
            for (key, value) in &status.annotations {
                attributes.annotate(format!("{AUDIT_PREFIX}{key}"), value.as_str());
            }
            let why = match status.reason.as_str() {
                _ if status.allowed => return Ok(()),
                "" => "one or more images rejected by webhook backend".to_owned(),
                reason => {
                    format!("image policy webhook backend denied one or more images: {reason}")
                }
            };
            Err(attributes.forbidden(object, why))
        })
    }
}

/// The spec of an `ImageReview`.
struct Spec {
    containers: Vec<Value>,
    annotations: Map,
    namespace: Str,
}

impl Spec {
    fn new(pod: &Value, attributes: &Attributes<'_>) -> Self {
        let lists: &[&str] = match attributes.subresource {
            "" => &["containers", "initContainers"],
            _ => &["ephemeralContainers"],
        };
        let containers = lists.iter().flat_map(|list| pod.items_at(&["spec", list]));
        let image = |container: &Value| value!({"image": (container.str_at(&["image"]))});
        let annotations = pod.at(&["metadata", "annotations"]).and_then(Value::as_object);
        let mut annotations = annotations.cloned().unwrap_or_default();
        annotations.retain(|key, _| key.contains(".image-policy.k8s.io/"));
        Self {
            containers: containers.map(image).collect(),
            annotations,
            namespace: Str::new(attributes.namespace),
        }
    }

    /// Compat: in the order in which kube-apiserver writes the fields.
    fn to_json(&self) -> String {
        let containers = ("containers", Value::Array(self.containers.clone()));
        let annotations = ("annotations", Value::Object(self.annotations.clone()));
        let namespace = ("namespace", Value::String(self.namespace.clone()));
        if self.annotations.is_empty() {
            return ordered_json(&[containers, namespace]);
        }
        ordered_json(&[containers, annotations, namespace])
    }
}

/// Compat: client-go tells the server how long it waits.
fn with_timeout(url: &Uri) -> Result<Uri, String> {
    let separator = if url.query().is_some() { '&' } else { '?' };
    let url = format!("{url}{separator}timeout={}s", ATTEMPT_TIMEOUT.as_secs());
    url.parse().map_err(|_| format!("{url} is not a URL"))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Read as _, Write as _},
        net::TcpListener,
        path::PathBuf,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use super::*;
    use crate::{
        Configurations,
        harness::{cluster, create, yaml},
        resources,
    };

    /// A webhook on a port of its own that refuses images named `bad` and fails for `error`.
    fn webhook() -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut line, mut length) = (String::new(), 0);
                while reader.read_line(&mut line).unwrap() > 2 {
                    if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = text.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                counter.fetch_add(1, Ordering::Relaxed);
                let body = String::from_utf8(body).unwrap();
                let (code, answer) = if body.contains("\"error\"") {
                    ("400 Bad Request", "{}")
                } else if body.contains("\"bad\"") {
                    ("200 OK", r#"{"status": {"allowed": false, "reason": "no"}}"#)
                } else if body.contains("\"silent\"") {
                    ("200 OK", r#"{"status": {"allowed": false}}"#)
                } else {
                    ("200 OK", r#"{"status": {"allowed": true, "auditAnnotations": {"a": "b"}}}"#)
                };
                let length = answer.len();
                let head = format!(
                    "HTTP/1.1 {code}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
                );
                stream.write_all(format!("{head}{answer}").as_bytes()).unwrap();
            }
        });
        (format!("http://{address}"), asked)
    }

    struct File(PathBuf);

    impl Drop for File {
        fn drop(&mut self) {
            drop(std::fs::remove_file(&self.0));
        }
    }

    fn plugin(url: &str, fields: &str, file: &File) -> Result<ImagePolicyWebhook, String> {
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: w}}}}]\n\
             clusters: [{{name: w, cluster: {{server: '{url}'}}}}]\n"
        );
        std::fs::write(&file.0, kubeconfig).unwrap();
        let path = file.0.display();
        let value = yaml(&format!("{{imagePolicy: {{kubeConfigFile: '{path}', {fields}}}}}"));
        let configurations = Configurations::for_test("ImagePolicyWebhook", value);
        ImagePolicyWebhook::new(configurations.of("ImagePolicyWebhook"))
    }

    #[test]
    fn a_webhook_decides_about_images() {
        let name = format!("pintle-image-policy-{}", std::process::id());
        let file = File(std::env::temp_dir().join(name));
        let (url, asked) = webhook();
        let pod = |image: &str| {
            yaml(&format!(
                "{{metadata: {{name: p, namespace: ns}}, spec: {{containers: [{{image: {image}}}]}}}}"
            ))
        };
        let denied = |why: &str| format!("pods \"p\" is forbidden: {why}");
        let cases = [
            ("good", "", String::new(), "a=b"),
            ("bad", "", denied("image policy webhook backend denied one or more images: no"), ""),
            ("silent", "", denied("one or more images rejected by webhook backend"), ""),
            ("error", "defaultAllow: true", String::new(), "failed-open=true"),
        ];
        for (image, fields, expected, audit) in cases {
            let plugin = plugin(&url, fields, &file).unwrap();
            let before = asked.load(Ordering::Relaxed);
            for _ in 0..2 {
                let request = create(&resources::PODS);
                let outcome = request.validate(&plugin, &pod(image), &cluster(&[], &[]));
                assert_eq!(outcome.message(), expected, "{image}");
                let annotations: Vec<String> = outcome
                    .audit
                    .iter()
                    .map(|(key, value)| {
                        format!("{}={value}", key.strip_prefix(AUDIT_PREFIX).unwrap())
                    })
                    .collect();
                assert_eq!(annotations.join(" "), audit);
            }
            let calls = asked.load(Ordering::Relaxed) - before;
            assert_eq!(calls, if image == "error" { 2 } else { 1 }, "answers are kept: {image}");
        }
        let closed = plugin(&url, "defaultAllow: false", &file).unwrap();
        let request = create(&resources::PODS);
        let outcome = request.validate(&closed, &pod("error"), &cluster(&[], &[]));
        assert!(outcome.message().starts_with("pods \"p\" is forbidden: "), "{outcome:?}");
        let error = plugin(&url, "allowTTL: 100000", &file).err().unwrap_or_default();
        assert!(error.contains("valid value is between 1s and 1800s"), "{error}");
        assert!(ImagePolicyWebhook::new(None).is_err());
    }
}
