//! Calls to review webhooks: a TokenReview or SubjectAccessReview is posted, and comes back with its
//! status. What the webhook cannot do is make a call last long, or be large, or go elsewhere.

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use client::{Call, Client, Dial, Kubeconfig, successful_body};
use codec::json::{DecodeOptions, decode_any};
use http::{
    HeaderMap, HeaderValue, Method, Response, Uri,
    header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER},
};
use meta::{Value, value};
use tokio::time::Instant;

/// A webhook, from its kubeconfig.
pub(crate) struct ReviewClient {
    client: Client,
    url: Uri,
    /// `authentication.k8s.io/v1`
    api_version: String,
    kind: &'static str,
    /// Of one call.
    timeout: Duration,
    backoff: Backoff,
}

/// The pauses between calls that are repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    calls_max: u32,
}

/// Compat: kube-apiserver's; each pause is half as long again as the one before, plus up to a fifth.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), calls_max: 5 };
const BACKOFF_FACTOR: f64 = 1.5;
const BACKOFF_JITTER: f64 = 0.2;
/// Compat: of one call, where the configuration names none.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Of all calls of a review together: no request waits for longer, whatever the webhook answers.
const REVIEW_TIMEOUT: Duration = Duration::from_mins(1);
/// A larger answer fails the call. Users with thousands of groups fit.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Why a review came to nothing.
#[derive(Debug)]
pub(crate) struct ReviewError {
    pub(crate) message: String,
    pub(crate) outcome: Outcome,
    may_repeat: bool,
}

/// How metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Timeout,
    Error,
}

impl Outcome {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Error => "error",
        }
    }
}

impl ReviewClient {
    pub(crate) fn load(
        kubeconfig: &Path,
        api_version: String,
        kind: &'static str,
        timeout: Duration,
        dial: Option<Arc<dyn Dial>>,
    ) -> Result<Self, String> {
        let config = Kubeconfig::load(kubeconfig).map_err(|error| error.to_string())?;
        let mut transport = config.config();
        if let Some(dial) = dial {
            transport.dial = dial;
        }
        let client = Client::new(transport).map_err(|error| error.to_string())?;
        let url = with_timeout(&config.server, timeout)?;
        Ok(Self { client, url, api_version, kind, timeout, backoff: BACKOFF })
    }

    #[cfg(test)]
    pub(crate) fn without_pauses(self) -> Self {
        Self { backoff: Backoff { first: Duration::ZERO, ..self.backoff }, ..self }
    }

    /// The status of a review. `each` hears of every call: how long it took, and how it ended.
    pub(crate) async fn status(
        &self,
        spec: &Value,
        mut each: impl FnMut(Duration, Option<Outcome>) + Send,
    ) -> Result<Value, ReviewError> {
        let deadline = Instant::now() + REVIEW_TIMEOUT;
        let review = value!({
            "kind": (self.kind),
            "apiVersion": (self.api_version.as_str()),
            "metadata": {},
            "spec": (spec.clone()),
            "status": (self.empty_status()),
        });
        let body = Bytes::from(meta::json::to_string(&review));
        let mut pause = self.backoff.first;
        for call in 1.. {
            let began = Instant::now();
            let answer = self.call(body.clone(), deadline).await;
            each(began.elapsed(), answer.as_ref().err().map(|error| error.outcome));
            match answer {
                Err(error) if error.may_repeat && call < self.backoff.calls_max => {
                    let jitter = f64::from(getrandom::u32().unwrap_or(0)) / f64::from(u32::MAX);
                    let until = Instant::now() + pause.mul_f64(1.0 + BACKOFF_JITTER * jitter);
                    if until >= deadline {
                        return Err(error);
                    }
                    tokio::time::sleep_until(until).await;
                    pause = pause.mul_f64(BACKOFF_FACTOR);
                }
                answer => return answer,
            }
        }
        unreachable!("the last call is not repeated")
    }

    /// Compat: what kube-apiserver sends for a status that is not there yet.
    fn empty_status(&self) -> Value {
        match self.kind {
            "TokenReview" => value!({"user": {}}),
            _ => value!({"allowed": false}),
        }
    }

    async fn call(&self, body: Bytes, deadline: Instant) -> Result<Value, ReviewError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(ACCEPT, ACCEPTED);
        let call = Call {
            method: Method::POST,
            url: self.url.clone(),
            headers,
            body,
            connect_to: None,
            deadline: deadline.min(Instant::now() + self.timeout),
            response_bytes_max: ANSWER_BYTES_MAX,
        };
        let answer = self.client.call(call).await.map_err(|error| self.failed(&error))?;
        self.status_of(answer)
    }

    fn failed(&self, error: &client::Error) -> ReviewError {
        let outcome = match error {
            client::Error::DeadlineExceeded(_) => Outcome::Timeout,
            _ => Outcome::Error,
        };
        // Compat: a connection that was lost is tried again; one that cannot be made is not.
        let may_repeat = matches!(error, client::Error::Http(_));
        let url = self.url.to_string();
        let message = client::url_error(&Method::POST, &url, &client::go_text(error));
        ReviewError { message, outcome, may_repeat }
    }

    fn status_of(&self, answer: Response<Bytes>) -> Result<Value, ReviewError> {
        let code = answer.status().as_u16();
        let may_repeat = matches!(code, 429 | 500 | 504)
            || (code >= 300 && answer.headers().contains_key(RETRY_AFTER));
        let outcome = if code == 504 { Outcome::Timeout } else { Outcome::Error };
        // What the webhook says is not repeated: the message goes to the log.
        let body = successful_body(answer).map_err(|error| ReviewError {
            message: match error.code {
                200..300 => error.message,
                code => format!("the webhook answered with the status code {code}"),
            },
            outcome,
            may_repeat,
        })?;
        let wrong = |message: String| ReviewError { message, outcome, may_repeat: false };
        let review = decode_any(&body, DecodeOptions { strict: false })
            .map_err(|_| wrong("the answer of the webhook is not JSON".to_owned()))?
            .value;
        // An answer of another kind is none, whatever it says in its status.
        let (kind, version) = (review.str_at(&["kind"]), review.str_at(&["apiVersion"]));
        if kind != self.kind || version != self.api_version {
            return Err(wrong(format!(
                "the webhook answered with kind {} of {}, expected {} of {}",
                meta::field::quote(kind),
                meta::field::quote(version),
                self.kind,
                self.api_version
            )));
        }
        let status = review.get("status").cloned().unwrap_or_else(Value::object);
        if status.as_object().is_none() {
            return Err(wrong("the status of the review is not an object".to_owned()));
        }
        Ok(status)
    }
}

/// Compat: client-go tells the server how long it waits.
fn with_timeout(url: &Uri, timeout: Duration) -> Result<Uri, String> {
    let text = match timeout.as_millis() {
        whole if whole % 1000 == 0 => format!("{}s", whole / 1000),
        millis => format!("{millis}ms"),
    };
    let separator = if url.query().is_some() { '&' } else { '?' };
    let url = format!("{url}{separator}timeout={text}");
    url.parse().map_err(|_| format!("{url} is not a URL"))
}

/// A field that must be true or false, if it is there at all.
pub(crate) fn flag(status: &Value, name: &str) -> Result<bool, String> {
    match status.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(_) => Err(format!("status.{name} of the review is not a boolean")),
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const ACCEPTED: HeaderValue = HeaderValue::from_static("application/json, */*");
