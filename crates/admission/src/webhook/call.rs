//! Calls a webhook: where it is, what it may cost, and how a failure is told.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use bytes::Bytes;
use client::{
    Call, CertificateMetrics, Client, ClusterIp, Config, ConfigError, Dial, Error, HostPort,
    LookupError, ServiceLookup, ServiceResolver as _, Tls, Trust, WebhookDials, clean_path,
    generic_message, go_text, successful_body, url_error,
};
use http::{HeaderMap, HeaderValue, Method, Response, Uri, header};
use meta::{Str, Value, selector::LabelSelector};
use tokio::time::Instant;

use super::{
    credentials::{AuthInfo, AuthInfos},
    validating::Answered,
};
use crate::{Freshness, ServedObjects, resources};

/// A longer answer is not read to its end. Upstream has no bound; an object and a patch of it are far
/// below this one.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The clients of all webhooks. Those that trust the same certificates and say the same about who
/// calls share connections, also across changes of their configurations.
#[derive(Default)]
pub(crate) struct Clients {
    by_key: Mutex<HashMap<ClientKey, Weak<SharedClient>>>,
    auth_infos: AuthInfos,
    dials: WebhookDials,
}

/// Err: the bundle or the credentials cannot be used; each call says so.
type SharedClient = Result<Client, String>;

#[derive(Clone, PartialEq, Eq, Hash)]
struct ClientKey {
    ca_bundle: Str,
    /// The user of the kubeconfig file whose credentials are sent.
    auth_info: Option<Str>,
    is_service: bool,
}

impl Clients {
    pub(crate) fn new(auth_infos: AuthInfos, dials: WebhookDials) -> Self {
        Self { by_key: Mutex::default(), auth_infos, dials }
    }

    fn get(&self, ca_bundle: &str, authority: &str, is_service: bool) -> Arc<SharedClient> {
        let auth_info = self.auth_infos.find(authority);
        let key = ClientKey {
            ca_bundle: Str::new(ca_bundle),
            auth_info: auth_info.map(|(name, _)| name.clone()),
            is_service,
        };
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = by_key.get(&key).and_then(Weak::upgrade) {
            return client;
        }
        by_key.retain(|_, client| client.strong_count() > 0);
        let dial = self.dials.of(is_service);
        let client = Arc::new(new_client(ca_bundle, auth_info.map(|(_, info)| info), dial));
        by_key.insert(key, Arc::downgrade(&client));
        client
    }
}

fn new_client(
    ca_bundle: &str,
    auth_info: Option<&AuthInfo>,
    dial: Option<Arc<dyn Dial>>,
) -> SharedClient {
    let pem = codec::base64::decode(ca_bundle).map_err(|error| error.to_string())?;
    let trust = if pem.trim_ascii().is_empty() { Trust::System } else { Trust::Bundle(pem) };
    let certificate_metrics = CertificateMetrics::Webhooks;
    let tls = Tls { trust, certificate_metrics, ..Tls::default() };
    let mut config = Config { tls, ..Config::default() };
    if let Some(dial) = dial {
        config.dial = dial;
    }
    if let Some(auth_info) = auth_info {
        config.tls.identity.clone_from(&auth_info.identity);
        config.credentials = auth_info.credentials.clone();
    }
    Client::new(config).map_err(|error| match error {
        // Compat: upstream's words.
        ConfigError::NoCertificates { .. } | ConfigError::Roots { .. } => {
            "unable to load root certificates: unable to parse bytes as PEM block".to_owned()
        }
        other => go_text(&other.into()),
    })
}

/// Where a webhook is.
pub(super) struct Endpoint {
    client: Arc<SharedClient>,
    /// Err: the configuration has no usable address; each call says so.
    address: Result<Address, String>,
}

struct Address {
    /// The host, and the port where it was given.
    authority: String,
    path: String,
    /// None: the host itself.
    service: Option<ServiceReference>,
}

struct ServiceReference {
    namespace: String,
    name: String,
    port: u16,
}

impl Endpoint {
    pub(super) fn read(config: &Value, clients: &Clients) -> Self {
        let address = Address::read(config);
        let authority = address.as_ref().map_or("", |address| address.authority.as_str());
        let is_service = address.as_ref().is_ok_and(|address| address.service.is_some());
        let client = clients.get(config.str_at(&["caBundle"]), authority, is_service);
        Self { client, address }
    }

    /// Posts a review and returns the answer. `ends` is when the request is over, and with it the call. Err: why there
    /// is no answer, and the code for metrics.
    pub(super) async fn post(
        &self,
        body: Bytes,
        timeout: Duration,
        ends: Option<Instant>,
        objects: &dyn ServedObjects,
    ) -> Result<Bytes, CallError> {
        let address = self.address.as_ref().map_err(|why| CallError::internal(why))?;
        let now = Instant::now();
        let deadline = now + timeout;
        let left = ends.map_or(timeout, |ends| ends.saturating_duration_since(now));
        let url = address.url(timeout.min(left));
        let unreachable =
            |why: &str| CallError::of_call(503, url_error(&Method::POST, &url, why), Answered::No);
        let client = self.client.as_ref().as_ref().map_err(|why| CallError::internal(why))?;
        let connect_to = match &address.service {
            None => None,
            Some(service) => {
                let resolver = ClusterIp(ObjectLookup(objects));
                let found = resolver.resolve(&service.namespace, &service.name, service.port);
                let found = tokio::time::timeout_at(deadline, found).await;
                let found = found.map_err(|_| unreachable("context deadline exceeded"))?;
                Some(found.map_err(|why| unreachable(&why.to_string()))?)
            }
        };
        let call = Call {
            method: Method::POST,
            url: url.parse::<Uri>().map_err(|why| unreachable(&why.to_string()))?,
            headers: headers(),
            body,
            connect_to,
            deadline,
            response_bytes_max: ANSWER_BYTES_MAX,
        };
        let mut retries = 0;
        loop {
            let wait = match client.call(call.clone()).await {
                Ok(response) => match retry_after(&response) {
                    Some(wait) if retries < RETRIES_MAX => wait,
                    _ => {
                        return successful_body(response).map_err(|error| {
                            CallError::of_call(error.code, error.message, Answered::Yes)
                        });
                    }
                },
                Err(Error::Redirect { status, .. }) => {
                    let code = status.as_u16();
                    let message = generic_message(code, "");
                    return Err(CallError::of_call(code, message, Answered::Yes));
                }
                Err(error) => return Err(unreachable(&go_text(&error))),
            };
            retries += 1;
            let waited = tokio::time::timeout_at(deadline, tokio::time::sleep(wait)).await;
            waited.map_err(|_| unreachable("context deadline exceeded"))?;
        }
    }
}

/// Compat: client-go's. All calls together have the time of one.
const RETRIES_MAX: usize = 10;

/// How long a webhook asks to wait before it is called again. Compat: only 429 and errors of a server are heard, and
/// only seconds.
fn retry_after(response: &Response<Bytes>) -> Option<Duration> {
    let code = response.status().as_u16();
    if code != 429 && code < 500 {
        return None;
    }
    let seconds = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    let seconds = seconds.parse::<i64>().ok()?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}

/// Why a webhook gave no answer.
#[derive(Debug)]
pub(super) struct CallError {
    pub(super) code: u16,
    pub(super) message: String,
    pub(super) answered: Answered,
}

impl CallError {
    fn internal(why: &str) -> Self {
        let message = format!("could not get REST client: {why}");
        Self { code: 500, message, answered: Answered::No }
    }

    fn of_call(code: u16, message: String, answered: Answered) -> Self {
        Self { code, message: format!("failed to call webhook: {message}"), answered }
    }
}

fn headers() -> HeaderMap {
    HeaderMap::from_iter([
        (header::USER_AGENT, HeaderValue::from_static("kube-apiserver-admission")),
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::ACCEPT, HeaderValue::from_static("application/json, */*")),
    ])
}

impl Address {
    fn read(config: &Value) -> Result<Self, String> {
        if let Some(service) = config.get("service").filter(|service| !service.is_null()) {
            let text = |field: &str| service.str_at(&[field]).to_owned();
            let port = service.i64_at(&["port"]).unwrap_or(443);
            let port = u16::try_from(port).map_err(|error| error.to_string())?;
            let (namespace, name) = (text("namespace"), text("name"));
            // Its certificate must be for this name, whatever its address is.
            let authority = format!("{name}.{namespace}.svc:{port}");
            let service = Some(ServiceReference { namespace, name, port });
            return Ok(Self { authority, path: clean_path(&text("path")), service });
        }
        let url = config.str_at(&["url"]);
        if url.is_empty() {
            return Err("webhook configuration must have either service or URL".to_owned());
        }
        let uri: Uri = url.parse().map_err(|error| format!("Unparsable URL: {error}"))?;
        // Validation lets no other one in: a review in plain text could be answered by anyone.
        if uri.scheme_str() != Some("https") {
            return Err(format!("{url}: the scheme must be https"));
        }
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        Ok(Self { authority, path: clean_path(uri.path()), service: None })
    }

    /// The webhook is told how long it has, in whole seconds, rounded up.
    fn url(&self, timeout: Duration) -> String {
        let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
        format!("https://{}{}?timeout={seconds}s", self.authority, self.path)
    }
}

/// Services and their endpoints from the watch caches.
struct ObjectLookup<'a>(&'a dyn ServedObjects);

impl ServiceLookup for ObjectLookup<'_> {
    fn service<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
    ) -> client::BoxFuture<'a, Result<Option<Value>, LookupError>> {
        Box::pin(async move {
            let found = self.0.get(&resources::SERVICES, namespace, name, Freshness::Cached);
            found.await.map_err(|error| LookupError(error.into()))
        })
    }

    fn endpoint_slices<'a>(
        &'a self,
        namespace: &'a str,
        service: &'a str,
    ) -> client::BoxFuture<'a, Result<Vec<Value>, LookupError>> {
        Box::pin(async move {
            let selector = LabelSelector::parse(&format!("kubernetes.io/service-name={service}"))
                .map_err(|error| LookupError(error.into()))?;
            let found = self.0.list(&resources::ENDPOINT_SLICES, namespace, &selector);
            found.await.map_err(|error| LookupError(error.into()))
        })
    }
}

/// The host of an authority, and its port.
pub(super) fn host_port(authority: &str) -> HostPort {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().unwrap_or(443)),
        _ => (authority, 443),
    };
    HostPort { host: host.to_owned(), port }
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn a_webhook_is_told_its_timeout_in_the_url() {
        let cases = [
            (value!({"url": "https://a.b/x"}), "https://a.b/x?timeout=5s"),
            (value!({"url": "https://127.0.0.1:8443"}), "https://127.0.0.1:8443/?timeout=5s"),
            (value!({"url": "https://a.b//x/"}), "https://a.b/x?timeout=5s"),
            (
                value!({"service": {"namespace": "n", "name": "s"}}),
                "https://s.n.svc:443/?timeout=5s",
            ),
            (
                value!({"service": {"namespace": "n", "name": "s", "port": 8443i64, "path": "/p"}}),
                "https://s.n.svc:8443/p?timeout=5s",
            ),
        ];
        for (config, expected) in cases {
            let address = Address::read(&config).expect("an address");
            assert_eq!(address.url(Duration::from_secs(5)), expected);
        }
        let address = Address::read(&value!({"url": "https://a.b/x"})).expect("an address");
        for (millis, expected) in [(1, 1), (999, 1), (1000, 1), (1001, 2), (29_500, 30)] {
            let url = address.url(Duration::from_millis(millis));
            assert_eq!(url, format!("https://a.b/x?timeout={expected}s"));
        }
        let refused = [
            (value!({}), "webhook configuration must have either service or URL"),
            (value!({"url": "http://a"}), "http://a: the scheme must be https"),
        ];
        for (config, expected) in refused {
            assert_eq!(Address::read(&config).err().as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_webhook_may_ask_to_be_called_again() {
        let cases = [
            (429, Some("2"), Some(2)),
            (503, Some("0"), Some(0)),
            (500, Some("+1"), Some(1)),
            (599, Some("-1"), Some(0)),
            (429, None, None),
            (503, Some("soon"), None),
            (503, Some("1.5"), None),
            (503, Some("Wed, 21 Oct 2026 07:28:00 GMT"), None),
            (200, Some("1"), None),
            (404, Some("1"), None),
        ];
        for (code, header, expected) in cases {
            let mut response = Response::builder().status(code);
            if let Some(header) = header {
                response = response.header("retry-after", header);
            }
            let response = response.body(Bytes::new()).expect("a response");
            let expected = expected.map(Duration::from_secs);
            assert_eq!(retry_after(&response), expected, "{code} {header:?}");
        }
    }

    #[test]
    fn webhooks_that_trust_the_same_certificates_share_a_client() {
        let clients = Clients::default();
        let client = |bundle: &str| clients.get(bundle, "a:443", false);
        let (first, second) = (client(""), client(""));
        assert!(Arc::ptr_eq(&first, &second));
        let other = client("%");
        assert!(other.is_err() && !Arc::ptr_eq(&first, &other));
        drop((first, second, other));
        drop(client(""));
        assert_eq!(clients.by_key.lock().expect("no panic").len(), 1);
    }
}
