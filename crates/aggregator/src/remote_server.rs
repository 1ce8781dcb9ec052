//! One remote APIService: how to reach its server, and who calls.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use client::{
    Call, CertificateMetrics, Client, Config, ConfigError, Dial, HostPort, Identity, Limits,
    ResponseBody, SendOptions, ServiceResolver, Tls, Trust, generic_message, go_text, url_error,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header::ACCEPT};
use meta::User;
use proxy::Redirects;
use tokio::time::Instant;

use crate::{
    api_service::{ApiService, ServiceReference},
    user_headers::user_headers,
};

/// What the servers of all APIServices have in common.
#[derive(Clone)]
pub struct RemoteSettings {
    /// By which aggregated servers know this one: `--proxy-client-cert-file`. Files are read again when
    /// they change.
    pub identity: Option<Identity>,
    pub resolver: Arc<dyn ServiceResolver>,
    pub dial: Arc<dyn Dial>,
    /// `--aggregator-reject-forwarding-redirect`
    pub redirects: Redirects,
}

/// A remote APIService.
pub struct RemoteServer {
    pub api_service: ApiService,
    pub(crate) service: ServiceReference,
    pub(crate) settings: RemoteSettings,
    /// Err: its settings cannot be used; each request says so.
    pub(crate) client: Result<Client, String>,
}

impl RemoteServer {
    /// None: the APIService is local.
    pub(crate) fn new(api_service: ApiService, settings: &RemoteSettings) -> Option<Self> {
        let service = api_service.service.clone()?;
        let client = new_client(&api_service, &service, settings);
        Some(Self { api_service, service, settings: settings.clone(), client })
    }

    /// The same server and its connections, as the APIService is now. None: it is reached in another way.
    pub(crate) fn updated(&self, api_service: &ApiService) -> Option<Self> {
        let (old, new) = (&self.api_service, api_service);
        let same = old.service == new.service
            && old.ca_bundle == new.ca_bundle
            && old.insecure_skip_tls_verify == new.insecure_skip_tls_verify;
        same.then(|| Self {
            api_service: api_service.clone(),
            service: self.service.clone(),
            settings: self.settings.clone(),
            client: self.client.clone(),
        })
    }

    /// Err: its condition says that it is away; the controllers do not ask it then.
    pub(crate) fn check_available(&self) -> Result<(), String> {
        if self.api_service.available { Ok(()) } else { Err("service unavailable".to_owned()) }
    }

    /// The name that the server's certificate must have.
    fn authority(&self) -> String {
        let ServiceReference { namespace, name, port } = &self.service;
        format!("{name}.{namespace}.svc:{port}")
    }

    pub(crate) fn url(&self, path_and_query: &str) -> Result<Uri, String> {
        Uri::builder()
            .scheme("https")
            .authority(self.authority())
            .path_and_query(path_and_query)
            .build()
            .map_err(|error| error.to_string())
    }

    pub(crate) async fn resolve(&self) -> Result<HostPort, String> {
        let ServiceReference { namespace, name, port } = &self.service;
        let resolved = self.settings.resolver.resolve(namespace, name, *port).await;
        resolved.map_err(|error| error.to_string())
    }

    /// A document of the server, whole. No answer is longer or takes longer than allowed.
    pub(crate) async fn fetch(&self, fetch: Fetch<'_>) -> Result<Response<Bytes>, String> {
        self.call(Method::GET, Bytes::new(), fetch).await
    }

    /// A request of this server itself, with the whole answer.
    pub(crate) async fn call(
        &self,
        method: Method,
        body: Bytes,
        fetch: Fetch<'_>,
    ) -> Result<Response<Bytes>, String> {
        let Fetch { path, mut headers, user, timeout, bytes_max } = fetch;
        let client = self.client.as_ref().map_err(Clone::clone)?;
        let address = self.resolve().await?;
        let shown = shown_url(&address, path);
        headers.extend(user_headers(user)?);
        let call = Call {
            method: method.clone(),
            url: self.url(path)?,
            headers,
            body,
            connect_to: Some(address),
            deadline: Instant::now() + timeout,
            response_bytes_max: bytes_max,
        };
        let called = client.call(call).await;
        called.map_err(|error| url_error(&method, &shown, &go_text(&error)))
    }

    /// The answer to a GET as it arrives, for watches. The caller ends it by dropping it.
    pub(crate) async fn stream(
        &self,
        path: &str,
        accept: &'static str,
        user: &User,
    ) -> Result<ResponseBody, String> {
        let client = self.client.as_ref().map_err(Clone::clone)?;
        let address = self.resolve().await?;
        let shown = shown_url(&address, path);
        let mut request = Request::new(client::empty_body());
        *request.uri_mut() = self.url(path)?;
        *request.headers_mut() = user_headers(user)?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
        let options = SendOptions {
            connect_to: Some(address),
            deadline: Some(Instant::now() + STREAM_START_TIMEOUT),
            ..SendOptions::default()
        };
        let failed = |error| url_error(&Method::GET, &shown, &go_text(&error));
        let response = client.send(request, options).await.map_err(failed)?;
        match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            code => Err(generic_message(code.as_u16(), "unknown")),
        }
    }
}

/// For the head of the answer to a watch.
const STREAM_START_TIMEOUT: Duration = Duration::from_mins(1);

/// As messages show it: where the connection went.
pub(crate) fn shown_url(HostPort { host, port }: &HostPort, path: &str) -> String {
    if host.contains(':') {
        format!("https://[{host}]:{port}{path}")
    } else {
        format!("https://{host}:{port}{path}")
    }
}

/// A GET by this server itself.
pub(crate) struct Fetch<'a> {
    pub(crate) path: &'a str,
    pub(crate) headers: HeaderMap,
    pub(crate) user: &'a User,
    pub(crate) timeout: Duration,
    pub(crate) bytes_max: usize,
}

fn new_client(
    api_service: &ApiService,
    service: &ServiceReference,
    settings: &RemoteSettings,
) -> Result<Client, String> {
    let trust = if api_service.insecure_skip_tls_verify {
        Trust::Insecure
    } else if api_service.ca_bundle.trim_ascii().is_empty() {
        Trust::System
    } else {
        Trust::Bundle(api_service.ca_bundle.clone())
    };
    let server_name = Some(format!("{}.{}.svc", service.name, service.namespace));
    let config = Config {
        tls: Tls {
            trust,
            server_name,
            identity: settings.identity.clone(),
            certificate_metrics: CertificateMetrics::KubeAggregator,
        },
        dial: settings.dial.clone(),
        limits: Limits::for_proxy(),
        ..Config::default()
    };
    Client::new(config).map_err(|error| match error {
        // Compat: upstream's words.
        ConfigError::NoCertificates { .. } | ConfigError::Roots { .. } => {
            "unable to load root certificates: unable to parse bytes as PEM block".to_owned()
        }
        other => go_text(&other.into()),
    })
}
