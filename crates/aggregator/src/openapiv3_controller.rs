//! `apiservice-openapiv3-controller`: where the OpenAPI v3 documents of remote group-versions are. The
//! documents themselves are not kept: requests for them are proxied. For a server without v3 there is one
//! that is converted from its v2.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use codec::json::{self, DecodeOptions};
use controllers::{BoxFuture, Informer};
use http::{HeaderMap, StatusCode};

use crate::{
    Registration, RemoteApis,
    openapi_controller::own_document,
    remote_server::{Fetch, RemoteServer},
    remote_spec_controller::{
        OPENAPI_RETRY_MIN, OPENAPI_TIMEOUT, OpenApiV2, OpenApiV2Reader, RemoteSpec,
        RemoteSpecController, openapi_user,
    },
};

pub struct OpenApiV3Controller {
    registration: Arc<Registration>,
    urls: Urls,
}

struct Urls {
    apis: Arc<RemoteApis>,
    /// Those that are converted.
    documents: OpenApiV2Reader,
}

impl OpenApiV3Controller {
    pub fn new(registration: Arc<Registration>, apis: Arc<RemoteApis>) -> Self {
        Self { registration, urls: Urls { apis, documents: OpenApiV2Reader::default() } }
    }

    /// Runs until the server stops.
    pub async fn run(self, events: impl Informer) {
        RemoteSpecController::run(self.registration, self.urls, events).await;
    }
}

impl RemoteSpec for Urls {
    const QUEUE: &'static str = "open_api_v3_aggregation_controller";
    const NAME: &'static str = "OpenAPI v3";
    const RETRY_MIN: Duration = OPENAPI_RETRY_MIN;

    fn sync<'a>(&'a self, server: &'a RemoteServer) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let (url, converted) = match fetch(server).await? {
                Index::Url(url) => (url, None),
                Index::Missing => (None, self.converted_v2(server).await?),
            };
            self.apis.update(server, |api| {
                let changed = api.openapi_v3 != url || api.converted_v2 != converted;
                api.openapi_v3.clone_from(&url);
                api.converted_v2.clone_from(&converted);
                changed
            });
            Ok(())
        })
    }

    fn forget(&self, name: &str) {
        self.documents.forget(name);
    }
}

impl Urls {
    /// The group-version's part of v2.
    async fn converted_v2(&self, server: &RemoteServer) -> Result<Option<Bytes>, String> {
        let known = self.apis.get(&server.api_service.name).converted_v2.clone();
        Ok(match self.documents.read(server, known.is_some(), own_document).await? {
            OpenApiV2::Unchanged => known,
            OpenApiV2::Missing => None,
            OpenApiV2::Part(part) => Some(part),
        })
    }
}

/// What a server says about its v3 documents.
enum Index {
    /// Where that of the group-version is; None: there is none.
    Url(Option<String>),
    /// The server does not know v3.
    Missing,
}

async fn fetch(server: &RemoteServer) -> Result<Index, String> {
    server.check_available()?;
    let response = server
        .fetch(Fetch {
            path: "/openapi/v3",
            headers: HeaderMap::new(),
            user: &openapi_user(),
            timeout: OPENAPI_TIMEOUT,
            bytes_max: INDEX_BYTES_MAX,
        })
        .await?;
    match response.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Ok(Index::Missing),
        code => return Err(format!("/openapi/v3 answered {}", code.as_u16())),
    }
    let index = json::decode_any_body(response.body(), DecodeOptions { strict: false });
    let index = index.map_err(|error| error.to_string())?.value;
    // The server's other documents (`version`, other groups) are not its own to tell here.
    let own = server.api_service.discovery_path();
    let own = own.trim_start_matches('/');
    let url = index.str_at(&["paths", own, "serverRelativeURL"]);
    let expected = format!("/openapi/v3/{own}");
    let is_own = url == expected || url.starts_with(&format!("{expected}?"));
    Ok(Index::Url(is_own.then(|| url.to_owned())))
}

/// A line for each group-version.
const INDEX_BYTES_MAX: usize = 1 << 20;
