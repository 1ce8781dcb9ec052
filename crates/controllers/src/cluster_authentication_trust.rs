//! kube-apiserver's cluster authentication trust controller: ConfigMap
//! `extension-apiserver-authentication`, by which aggregated API servers know how to recognize clients
//! and front proxies. What other API servers of the cluster have put there stays.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use codec::json::{DecodeOptions, decode_any};
use meta::{ApiError, Value, json};
use x509_parser::{pem::Pem, prelude::*};

use crate::{ApiClient, Informer, ResourceRef, config_map, get_or_create};

pub struct ClusterAuthenticationTrust {
    pub api: Arc<dyn ApiClient>,
    /// Reads the current information, from files that change.
    pub read: Box<dyn Fn() -> Result<AuthenticationInfo, String> + Send + Sync>,
}

/// What this server knows clients by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationInfo {
    /// PEM.
    pub client_ca: String,
    pub request_header: Option<RequestHeaderInfo>,
}

/// The `--requestheader-*` flags, with the content of the CA file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeaderInfo {
    pub client_ca: String,
    pub allowed_names: Vec<String>,
    pub username_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_headers_prefix: Vec<String>,
}

/// Delay before a failed reconciliation is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Attempts before the reconciliation fails: other servers write the object as well.
const CONFLICTS_MAX: usize = 5;

impl ClusterAuthenticationTrust {
    pub const NAME: &str = "extension-apiserver-authentication";

    pub async fn sync(&self) -> Result<(), ApiError> {
        let info = (self.read)().map_err(ApiError::internal)?;
        let target = ResourceRef::cluster("", "v1", "configmaps").in_namespace("kube-system");
        for _ in 0..CONFLICTS_MAX {
            let empty = config_map(Self::NAME, &[]);
            let first = config_map_of(&combined(&empty, &info));
            let mut found = get_or_create(&*self.api, &target, &first).await?;
            let wanted = config_map_of(&combined(&found, &info));
            if found.get("data") == wanted.get("data") {
                return Ok(());
            }
            found.set_at(&["data"], wanted.get("data").cloned().unwrap_or_default());
            match self.api.update(&target.clone().named(Self::NAME), &found).await {
                Ok(_) => return Ok(()),
                Err(ApiError::Conflict { .. } | ApiError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(ApiError::internal("the object keeps changing"))
    }

    /// Runs until the server stops. `events` are those of the ConfigMap; the files are read at least
    /// once per `interval`.
    pub async fn run(self, mut events: impl Informer, interval: Duration) {
        loop {
            if let Ok(None) = tokio::time::timeout(interval, events.next()).await {
                return;
            }
            if let Err(error) = self.sync().await {
                tracing::warn!("cannot write {} yet: {error}", Self::NAME);
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

type Data = Vec<(&'static str, String)>;

fn config_map_of(data: &Data) -> Value {
    config_map(ClusterAuthenticationTrust::NAME, data)
}

/// What there is, and what this server adds. What cannot be parsed is replaced: no other server could
/// use it either.
fn combined(existing: &Value, info: &AuthenticationInfo) -> Data {
    let now = |key: &str| existing.str_at(&["data", key]);
    let mut data =
        vec![("client-ca-file", certificates(&[now("client-ca-file"), &info.client_ca]))];
    let none = RequestHeaderInfo::default();
    let front = info.request_header.as_ref().unwrap_or(&none);
    let proxies = certificates(&[now("requestheader-client-ca-file"), &front.client_ca]);
    if !proxies.is_empty() {
        let lists = [
            ("requestheader-username-headers", &front.username_headers),
            ("requestheader-uid-headers", &front.uid_headers),
            ("requestheader-group-headers", &front.group_headers),
            ("requestheader-extra-headers-prefix", &front.extra_headers_prefix),
            ("requestheader-allowed-names", &front.allowed_names),
        ];
        for (key, own) in lists {
            let all = union(&texts(now(key)), own);
            // Compat: older readers do not know this key.
            if key == "requestheader-uid-headers" && all.is_empty() {
                continue;
            }
            data.push((key, json::to_string(&Value::from(all))));
        }
        data.push(("requestheader-client-ca-file", proxies));
    }
    data.retain(|(_, text)| !text.is_empty());
    data
}

/// The strings of a JSON list.
fn texts(json: &str) -> Vec<String> {
    let list = decode_any(json.as_bytes(), DecodeOptions { strict: false });
    let list = list.map_or(Value::Null, |decoded| decoded.value);
    list.items_at(&[]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn union(first: &[String], second: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for text in first.iter().chain(second) {
        if !all.contains(text) {
            all.push(text.clone());
        }
    }
    all
}

/// The certificates of several bundles, each once, without those that have expired.
fn certificates(bundles: &[&str]) -> String {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for bundle in bundles {
        for pem in Pem::iter_from_buffer(bundle.as_bytes()).map_while(Result::ok) {
            let valid = pem.label == "CERTIFICATE"
                && pem
                    .parse_x509()
                    .is_ok_and(|certificate| certificate.validity().not_after >= ASN1Time::now());
            if valid && !all.contains(&pem.contents) {
                all.push(pem.contents);
            }
        }
    }
    all.iter().map(|der| encode(der)).collect()
}

fn encode(der: &[u8]) -> String {
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let encoded = BASE64.encode(der);
    for line in encoded.as_bytes().chunks(64) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ca(name: &str, not_after_year: i32) -> String {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.not_after = rcgen::date_time_ymd(not_after_year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        // As Go writes it.
        params.self_signed(&key).unwrap().pem().replace("\r\n", "\n")
    }

    fn data(pairs: &Data) -> Value {
        config_map_of(pairs)
    }

    #[test]
    fn several_servers_add_to_one_map_and_expired_certificates_leave_it() {
        let (old, ours, theirs) = (ca("old", 2001), ca("ours", 2100), ca("theirs", 2100));
        let proxy = ca("proxy", 2100);
        let existing = data(&vec![
            ("client-ca-file", format!("{old}{theirs}")),
            ("requestheader-client-ca-file", proxy.clone()),
            ("requestheader-allowed-names", r#"["a","b"]"#.to_owned()),
            ("requestheader-username-headers", "not json".to_owned()),
            ("unknown", "goes".to_owned()),
        ]);
        let front = RequestHeaderInfo {
            client_ca: proxy.clone(),
            allowed_names: vec!["b".to_owned(), "c".to_owned()],
            username_headers: vec!["X-Remote-User".to_owned()],
            group_headers: vec!["X-Remote-Group".to_owned()],
            ..RequestHeaderInfo::default()
        };
        let info = AuthenticationInfo { client_ca: ours.clone(), request_header: Some(front) };
        let expected = vec![
            ("client-ca-file", format!("{theirs}{ours}")),
            ("requestheader-username-headers", r#"["X-Remote-User"]"#.to_owned()),
            ("requestheader-group-headers", r#"["X-Remote-Group"]"#.to_owned()),
            ("requestheader-extra-headers-prefix", "[]".to_owned()),
            ("requestheader-allowed-names", r#"["a","b","c"]"#.to_owned()),
            ("requestheader-client-ca-file", proxy),
        ];
        assert_eq!(combined(&existing, &info), expected);
        assert_eq!(combined(&data(&expected), &info), expected, "the second time changes nothing");
    }

    #[test]
    fn without_a_front_proxy_there_is_only_the_client_ca() {
        let ours = ca("ours", 2100);
        let info = AuthenticationInfo { client_ca: ours.clone(), request_header: None };
        assert_eq!(combined(&Value::object(), &info), [("client-ca-file", ours)]);
    }
}
