//! The webhook of a topic, which answers what `<topic>.replies` says.
//!
//! ```text
//! ### /path ~ text
//! 200
//! content-type: application/json
//!
//! {"response": {"uid": "{uid}", "patch": "base64([])"}}
//! ```
//!
//! The first reply is sent whose path is that of the request and whose text, if it has one, is in the body. `{uid}`
//! is the uid of the question; `base64(…)` is encoded. A code `never` answers nothing.

use std::{
    fs,
    path::Path,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::Response;
use integration::{Reply, Webhook};
use regex::{Captures, Regex};

pub(super) struct Replies {
    webhook: Webhook,
    /// Path and body of each call.
    asked: Arc<Mutex<Vec<String>>>,
}

struct Scripted {
    path: String,
    text: String,
    /// None: no answer.
    code: Option<u16>,
    headers: Vec<(String, String)>,
    body: String,
}

impl Replies {
    /// None: the topic has no such file.
    pub(super) fn read(file: &Path) -> Option<Self> {
        let text = fs::read_to_string(file).ok()?;
        let scripted: Vec<Scripted> = super::sections(&text).map(Scripted::parse).collect();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let webhook = Webhook::with_body(move |path, body| {
            let body = String::from_utf8_lossy(body).into_owned();
            let line = format!("{path} {}", body.trim_end());
            // Controllers of the server write whenever they find something to do.
            if !body.contains(r#""userInfo":{"username":"system:apiserver""#) {
                seen.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
            let fits = |own: &&Scripted| own.path == path && body.contains(&own.text);
            match scripted.iter().find(fits) {
                Some(scripted) => scripted.reply(&body),
                None => {
                    Reply::Raw(Response::builder().status(404).body(Bytes::new()).expect("a reply"))
                }
            }
        });
        Some(Self { webhook, asked })
    }

    /// The calls since the last look, in the order of their paths: validating webhooks are called at the same time.
    pub(super) fn take_asked(&self) -> Vec<String> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut asked = std::mem::take(&mut *asked);
        asked.sort_by(|a, b| a.split(' ').next().cmp(&b.split(' ').next()));
        asked
    }

    /// What requests and files may name of the webhook.
    pub(super) fn variables(&self) -> [(&'static str, String); 3] {
        [
            ("webhook", self.webhook.url("")),
            ("ca", self.webhook.ca_bundle.clone()),
            ("port", self.webhook.port().to_string()),
        ]
    }

    /// A text without what is another one in each run.
    pub(super) fn mask(&self, text: &str) -> String {
        let port = format!(":{}", self.webhook.port());
        text.replace(&port, ":PORT").replace(&self.webhook.ca_bundle, "CA")
    }
}

impl Scripted {
    fn parse((title, text): (&str, &str)) -> Self {
        let (path, only) = title.split_once(" ~ ").unwrap_or((title, ""));
        let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
        let mut lines = head.lines();
        let code = lines.next().unwrap_or_default();
        let headers = lines.filter_map(|line| line.split_once(": "));
        Self {
            path: path.trim().to_owned(),
            text: only.to_owned(),
            code: (code != "never").then(|| code.parse().expect("a code")),
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            body: body.trim_end().to_owned(),
        }
    }

    fn reply(&self, asked: &str) -> Reply {
        static BASE64: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"base64\((.*?)\)").expect("a valid pattern"));
        let Some(code) = self.code else { return Reply::Never };
        let asked: serde_json::Value = serde_json::from_str(asked).unwrap_or_default();
        let uid = asked.pointer("/request/uid").and_then(serde_json::Value::as_str);
        let body = self.body.replace("{uid}", uid.unwrap_or_default());
        let body = BASE64.replace_all(&body, |found: &Captures<'_>| STANDARD.encode(&found[1]));
        let mut response = Response::builder().status(code);
        for (name, value) in &self.headers {
            response = response.header(name, value);
        }
        Reply::Raw(response.body(Bytes::from(body.into_owned())).expect("a valid reply"))
    }
}
