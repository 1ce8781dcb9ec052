//! `apiservice-openapiv3-controller`: where the OpenAPI v3 documents of remote group-versions are. The
//! documents themselves are not kept: requests for them are proxied.

use std::{sync::Arc, time::Duration};

use codec::json::{self, DecodeOptions};
use controllers::{Informer, Key, ObjectEvent, Pinned, ReconcileResult, Reconciler};
use http::{HeaderMap, StatusCode};
use meta::{ApiError, User};

use crate::{
    Registration, RemoteApis,
    backoff::Backoff,
    remote_server::{Fetch, RemoteServer},
};

pub struct OpenApiV3Controller {
    registration: Arc<Registration>,
    apis: Arc<RemoteApis>,
    failures: Backoff,
}

impl OpenApiV3Controller {
    pub fn new(registration: Arc<Registration>, apis: Arc<RemoteApis>) -> Self {
        Self { registration, apis, failures: Backoff::new(RETRY_MIN, REFRESH_INTERVAL) }
    }

    /// Runs until the server stops.
    pub async fn run(self, events: impl Informer) {
        controllers::run_workqueue(self, events).await;
    }

    async fn sync(&self, server: &RemoteServer) -> Result<(), String> {
        let found = fetch(server).await?;
        self.apis.update(server, |api| {
            let changed = api.openapi_v3 != found;
            api.openapi_v3.clone_from(&found);
            changed
        });
        Ok(())
    }
}

/// Where the document of the group-version is; None: the server has none.
async fn fetch(server: &RemoteServer) -> Result<Option<String>, String> {
    if !server.api_service.available {
        return Err("service unavailable".to_owned());
    }
    let response = server
        .fetch(Fetch {
            path: "/openapi/v3",
            headers: HeaderMap::new(),
            user: &openapi_user(),
            timeout: TIMEOUT,
            bytes_max: INDEX_BYTES_MAX,
        })
        .await?;
    match response.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Ok(None),
        code => return Err(format!("/openapi/v3 answered {}", code.as_u16())),
    }
    let index = json::decode_any(response.body(), DecodeOptions { strict: false });
    let index = index.map_err(|error| error.to_string())?.value;
    // The server's other documents (`version`, other groups) are not its own to tell here.
    let own = server.api_service.discovery_path();
    let own = own.trim_start_matches('/');
    let url = index.str_at(&["paths", own, "serverRelativeURL"]);
    let expected = format!("/openapi/v3/{own}");
    let is_own = url == expected || url.starts_with(&format!("{expected}?"));
    Ok(is_own.then(|| url.to_owned()))
}

/// Compat: the user of kube-aggregator's OpenAPI controllers, which discovery roles allow.
pub(crate) fn openapi_user() -> User {
    User {
        name: "system:aggregator".into(),
        groups: vec![User::AUTHENTICATED.into()],
        ..User::default()
    }
}

const TIMEOUT: Duration = Duration::from_mins(1);
/// A line for each group-version.
const INDEX_BYTES_MAX: usize = 1 << 20;
pub(crate) const RETRY_MIN: Duration = Duration::from_secs(1);
pub(crate) const REFRESH_INTERVAL: Duration = Duration::from_mins(1);

impl Reconciler for OpenApiV3Controller {
    const QUEUE: &str = "open_api_v3_aggregation_controller";

    fn keys_for(&self, event: &ObjectEvent) -> Vec<Key> {
        vec![("".into(), event.name.clone())]
    }

    fn reconcile<'a>(&'a self, key: &'a Key) -> Pinned<'a, Result<ReconcileResult, ApiError>> {
        Box::pin(async move {
            let name = key.1.as_str();
            let Some(server) = self.registration.find_by_name(name) else {
                self.failures.reset(name);
                return Ok(ReconcileResult::Done);
            };
            let after = match self.sync(&server).await {
                Ok(()) => {
                    self.failures.reset(name);
                    REFRESH_INTERVAL
                }
                Err(error) => {
                    tracing::debug!(name, error, "OpenAPI v3 of an APIService failed");
                    self.failures.next(name)
                }
            };
            Ok(ReconcileResult::RequeueAfter(after))
        })
    }
}
