//! What the controllers of remote discovery and of remote OpenAPI have in common: each reads something of every
//! remote APIService again and again, sooner after a failure, and forgets it with its APIService.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use controllers::{BoxFuture, Informer, Key, ObjectEvent, ReconcileResult, Reconciler};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT, ETAG, IF_NONE_MATCH},
};
use meta::{ApiError, User};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::{
    Registration,
    backoff::Backoff,
    remote_server::{Fetch, RemoteServer},
};

/// What is read of remote APIServices.
pub(crate) trait RemoteSpec: Send + Sync + 'static {
    /// The name of its queue in metrics.
    const QUEUE: &'static str;
    /// As logs call it.
    const NAME: &'static str;
    /// The first time to wait after a failure.
    const RETRY_MIN: Duration;

    /// Reads it, and keeps it where clients find it.
    fn sync<'a>(&'a self, server: &'a RemoteServer) -> BoxFuture<'a, Result<(), String>>;

    /// An APIService is gone, or local.
    fn forget(&self, name: &str);
}

pub(crate) struct RemoteSpecController<S> {
    registration: Arc<Registration>,
    spec: S,
    failures: Backoff,
}

/// Compat: how often kube-aggregator looks for changes of a server.
const REFRESH_INTERVAL: Duration = Duration::from_mins(1);

impl<S: RemoteSpec> RemoteSpecController<S> {
    /// Runs until the server stops. `events` are those of remote APIServices.
    pub(crate) async fn run(registration: Arc<Registration>, spec: S, events: impl Informer) {
        let failures = Backoff::new(S::RETRY_MIN, REFRESH_INTERVAL);
        controllers::run_workqueue(Self { registration, spec, failures }, events).await;
    }
}

impl<S: RemoteSpec> Reconciler for RemoteSpecController<S> {
    const QUEUE: &'static str = S::QUEUE;

    fn keys_for(&self, event: &ObjectEvent) -> Vec<Key> {
        vec![("".into(), event.name.clone())]
    }

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<ReconcileResult, ApiError>> {
        Box::pin(async move {
            let name = key.1.as_str();
            let Some(server) = self.registration.find_by_name(name) else {
                self.failures.reset(name);
                self.spec.forget(name);
                return Ok(ReconcileResult::Done);
            };
            let after = match self.spec.sync(&server).await {
                Ok(()) => {
                    self.failures.reset(name);
                    REFRESH_INTERVAL
                }
                Err(error) => {
                    tracing::debug!(name, error, "{} of an APIService failed", S::NAME);
                    self.failures.next(name)
                }
            };
            Ok(ReconcileResult::RequeueAfter(after))
        })
    }
}

/// Reads `/openapi/v2` of remote servers, and no document twice.
#[derive(Default)]
pub(crate) struct OpenApiV2Reader {
    /// By the names of APIServices.
    etags: Mutex<HashMap<String, HeaderValue>>,
}

/// What a server says about OpenAPI v2.
pub(crate) enum OpenApiV2 {
    /// The same as before.
    Unchanged,
    /// The server has none.
    Missing,
    /// What `take_part` has made of the document.
    Part(Bytes),
}

impl OpenApiV2Reader {
    /// `is_known`: the part of the last document is still there.
    pub(crate) async fn read(
        &self,
        server: &RemoteServer,
        is_known: bool,
        take_part: fn(&[u8], &str) -> Result<Bytes, String>,
    ) -> Result<OpenApiV2, String> {
        server.check_available()?;
        let name = server.api_service.name.as_str();
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let etag = self.etags.lock().get(name).filter(|_| is_known).cloned();
        if let Some(etag) = etag {
            headers.insert(IF_NONE_MATCH, etag);
        }
        let fetch = Fetch {
            path: "/openapi/v2",
            headers,
            user: &openapi_user(),
            timeout: OPENAPI_TIMEOUT,
            bytes_max: DOCUMENT_BYTES_MAX,
        };
        let response = server.fetch(fetch).await?;
        let etag = response.headers().get(ETAG).cloned();
        let read = match response.status() {
            StatusCode::NOT_MODIFIED => return Ok(OpenApiV2::Unchanged),
            StatusCode::NOT_FOUND => OpenApiV2::Missing,
            StatusCode::OK => {
                let (body, prefix) = (response.into_body(), server.api_service.discovery_path());
                OpenApiV2::Part(decode_document(move || take_part(&body, &prefix)).await?)
            }
            code => return Err(format!("/openapi/v2 answered {}", code.as_u16())),
        };
        match etag {
            Some(etag) => drop(self.etags.lock().insert(name.to_owned(), etag)),
            None => drop(self.etags.lock().remove(name)),
        }
        Ok(read)
    }

    /// Whether a document was known.
    pub(crate) fn forget(&self, name: &str) -> bool {
        self.etags.lock().remove(name).is_some()
    }
}

/// Compat: the user of kube-aggregator's OpenAPI controllers, which discovery roles allow.
pub(crate) fn openapi_user() -> User {
    User {
        name: "system:aggregator".into(),
        groups: vec![User::AUTHENTICATED.into()],
        ..User::default()
    }
}

pub(crate) const OPENAPI_TIMEOUT: Duration = Duration::from_mins(1);
pub(crate) const OPENAPI_RETRY_MIN: Duration = Duration::from_secs(1);
/// kube-apiserver's own document, the largest that is known, has 4 MB.
const DOCUMENT_BYTES_MAX: usize = 8 << 20;

/// Runs one decoder of a document at a time, off the I/O threads: a large document takes a while, and its tree
/// up to [`meta::limits::TREE_BYTES_MAX`].
async fn decode_document(
    decode: impl FnOnce() -> Result<Bytes, String> + Send + 'static,
) -> Result<Bytes, String> {
    static DECODERS: Semaphore = Semaphore::const_new(1);
    let _permit = DECODERS.acquire().await.map_err(|error| error.to_string())?;
    tokio::task::spawn_blocking(decode).await.map_err(|error| error.to_string())?
}
