//! What all CONNECT subresources need.

use std::{
    num::NonZeroU64,
    sync::{Arc, OnceLock},
};

use client::Client;
use endpoints::{LoopbackClient, ResourceRef};
use http::Uri;
use meta::{ApiError, Value, authorization::Authorizer};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::{
    allowed_address::AllowedDial,
    kubelet::{ConnectionInfo, Kubelets},
    metrics::Metrics,
};

/// Feature gates of kube-apiserver.
#[derive(Clone, Copy, Debug)]
pub struct Gates {
    /// `AuthorizePodWebsocketUpgradeCreatePermission`
    pub authorize_create: bool,
    /// `TranslateStreamCloseWebsocketRequests`
    pub translate_websockets: bool,
    /// `PortForwardWebsockets`
    pub port_forward_websockets: bool,
    /// `ExtendWebSocketsToKubelet`
    pub websockets_to_kubelet: bool,
    /// `PodLogsQuerySplitStreams`
    pub split_log_streams: bool,
}

pub(crate) struct Shared {
    /// Set once the servers are put together.
    pub(crate) local: Arc<OnceLock<LoopbackClient>>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) kubelets: Kubelets,
    /// To pods, Services and other ports of nodes. Compat: certificates are not verified.
    pub(crate) pods: Client,
    pub(crate) dial: Arc<AllowedDial>,
    pub(crate) gates: Gates,
    pub(crate) bytes_per_second_max: Option<NonZeroU64>,
    pub(crate) metrics: Metrics,
}

impl Shared {
    /// An object of the core group, as its store has it now.
    pub(crate) async fn get(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Value, ApiError> {
        let local = self.local.get().ok_or_else(|| ApiError::internal("still starting"))?;
        let target =
            ResourceRef { version: "v1", resource, namespace, name, ..ResourceRef::default() };
        local.get(&target).await
    }

    pub(crate) async fn kubelet(&self, node: &str) -> Result<ConnectionInfo, ApiError> {
        self.kubelets.connection_info(&self.get("nodes", "", node).await?)
    }
}

/// A path of the kubelet, escaped, and its query.
pub(crate) fn kubelet_url(
    kubelet: &ConnectionInfo,
    parts: &[&str],
    query: &[(&'static str, String)],
) -> Result<Uri, ApiError> {
    let mut url = format!("https://{}:{}", host_in_url(&kubelet.host)?, kubelet.port);
    for part in parts {
        url.push('/');
        url.extend(percent_encode(part.as_bytes(), PATH_PART));
    }
    if !query.is_empty() {
        url.push('?');
        url.push_str(&encode_query(query));
    }
    url.parse().map_err(|_| ApiError::bad_request("address not allowed"))
}

/// A host as URLs have it. What is neither a name nor an address could reach other parts of the URL.
pub(crate) fn host_in_url(host: &str) -> Result<String, ApiError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    if host.is_empty() || !host.bytes().all(plain) {
        return Err(ApiError::bad_request("address not allowed"));
    }
    Ok(if host.contains(':') { format!("[{host}]") } else { host.to_owned() })
}

/// Compat: Go's `url.Values.Encode`, sorted by name.
fn encode_query(query: &[(&'static str, String)]) -> String {
    let mut sorted = query.to_vec();
    sorted.sort_by_key(|(name, _)| *name);
    let escaped =
        |text: &str| percent_encode(text.as_bytes(), QUERY_PART).to_string().replace("%20", "+");
    let pairs = sorted.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// What a part of a path has escaped; a slash above all.
const PATH_PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const QUERY_PART: &AsciiSet = PATH_PART;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c07_parts_of_a_kubelets_path_are_escaped() {
        let host = |host: &str| ConnectionInfo {
            host: host.to_owned(),
            port: 10250,
            speaks_websocket: false,
        };
        let query = [("output", "1"), ("command", "echo a&b"), ("command", "é")];
        let query = query.map(|(name, value)| (name, value.to_owned()));
        let url = kubelet_url(&host("2001:db8::1"), &["exec", "a", "../x", "c/d"], &query).unwrap();
        assert_eq!(
            url.to_string(),
            "https://[2001:db8::1]:10250/exec/a/..%2Fx/c%2Fd?command=echo+a%26b&command=%C3%A9&output=1"
        );
        for hostile in ["", "a b", "a/../b?", "user@a", "a#", "[::1]"] {
            assert!(kubelet_url(&host(hostile), &["x"], &[]).is_err(), "{hostile}");
        }
    }
}
