//! Asks a webhook whether the images of a pod may be used.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use client::{Call, Client, Kubeconfig, go_text, successful_body, url_error};
use codec::config_file::FieldType;
use http::{HeaderMap, HeaderValue, Method, Uri, header};
use meta::{ApiError, Value, value};

use crate::{
    Attributes, Cluster, Operation, Phases, Pinned, Plugin, configuration::PluginConfiguration,
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
    allowed: bool,
    reason: String,
    annotations: Vec<(String, String)>,
    expires: Instant,
}

const AUDIT_PREFIX: &str = "imagepolicywebhook.image-policy.k8s.io/";
/// Compat: so many answers are kept. Questions that are longer are asked each time, so that what is kept
/// has a bound.
const ANSWERS_MAX: usize = 1024;
const QUESTION_BYTES_MAX: usize = 4096;
/// Compat: a question is asked so many times, each time after a longer wait.
const ATTEMPTS_MAX: u32 = 5;
const BACKOFF_FACTOR: f64 = 1.5;
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
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
            url: kubeconfig.server,
            allow_ttl: allow_ttl.map_err(wrong)?,
            deny_ttl: deny_ttl.map_err(wrong)?,
            retry_backoff: retry_backoff.map_err(wrong)?,
            default_allow: value.bool_at(&["imagePolicy", "defaultAllow"]),
            answers: Mutex::default(),
        })
    }

    async fn review(&self, spec: Value) -> Result<Answer, String> {
        let question = meta::json::to_string(&spec);
        let now = Instant::now();
        if let Some(known) = self.known(&question, now) {
            return Ok(known);
        }
        let review = value!({
            "kind": "ImageReview",
            "apiVersion": "imagepolicy.k8s.io/v1alpha1",
            "metadata": {},
            "spec": (spec),
            "status": {"allowed": false},
        });
        let answer = self.ask(&review).await?;
        let status = answer.get("status").unwrap_or(&Value::Null);
        let allowed = status.bool_at(&["allowed"]);
        let annotations = status.get("auditAnnotations").and_then(Value::as_object);
        let annotations = annotations.into_iter().flat_map(meta::Map::iter);
        let answer = Answer {
            allowed,
            reason: status.str_at(&["reason"]).to_owned(),
            annotations: annotations
                .map(|(key, value)| {
                    (key.to_string(), value.as_str().unwrap_or_default().to_owned())
                })
                .collect(),
            expires: now + if allowed { self.allow_ttl } else { self.deny_ttl },
        };
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

    async fn ask(&self, review: &Value) -> Result<Value, String> {
        let body = bytes::Bytes::from(meta::json::to_string(review));
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
            let response = self.client.call(call).await;
            let response =
                response.map_err(|error| url_error(&Method::POST, &url, &go_text(&error)))?;
            match successful_body(response) {
                Ok(body) => {
                    let options = codec::json::DecodeOptions { strict: false };
                    let decoded = codec::json::decode_any(&body, options);
                    return decoded.map(|decoded| decoded.value).map_err(|error| error.to_string());
                }
                Err(error) if matches!(error.code, 429 | 500 | 504) && attempt < ATTEMPTS_MAX => {
                    tokio::time::sleep(wait).await;
                    wait = wait.mul_f64(BACKOFF_FACTOR);
                    attempt += 1;
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
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
    ) -> Pinned<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(pod) = object else { return Ok(()) };
            let answer = match self.review(question(pod, attributes)).await {
                Ok(answer) => answer,
                Err(_) if self.default_allow => {
                    attributes.annotate(format!("{AUDIT_PREFIX}failed-open"), "true");
                    return Ok(());
                }
                Err(why) => return Err(attributes.forbidden(object, why)),
            };
            for (key, value) in &answer.annotations {
                attributes.annotate(format!("{AUDIT_PREFIX}{key}"), value.as_str());
            }
            let why = match answer.reason.as_str() {
                _ if answer.allowed => return Ok(()),
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
fn question(pod: &Value, attributes: &Attributes<'_>) -> Value {
    let lists: &[&str] = match attributes.subresource {
        "" => &["containers", "initContainers"],
        _ => &["ephemeralContainers"],
    };
    let containers = lists.iter().flat_map(|list| pod.items_at(&["spec", list]));
    let containers: Vec<Value> =
        containers.map(|container| value!({"image": (container.str_at(&["image"]))})).collect();
    let annotations = pod.at(&["metadata", "annotations"]).and_then(Value::as_object);
    let mut annotations = annotations.cloned().unwrap_or_default();
    annotations.retain(|key, _| key.contains(".image-policy.k8s.io/"));
    let mut spec = value!({"containers": (containers), "namespace": (attributes.namespace)});
    if !annotations.is_empty() {
        spec.set_at(&["annotations"], annotations);
    }
    spec
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
                    ("403 Forbidden", "{}")
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
