//! ConfigMap `kube-system/extension-apiserver-authentication`: which clients aggregated API servers may trust.

use controllers::{AuthenticationInfo, ClusterAuthenticationTrust, RequestHeaderInfo};
use serve::Pem;

use crate::{
    cache_informer::CacheInformer,
    options::PublishedHeaders,
    post_start_hooks::{HookContext, first_sync},
    serving::RELOAD_INTERVAL,
};

/// Creates the ConfigMap, and starts the controller that keeps it current. `front_proxy_ca` signs the
/// certificate that this server shows to aggregated servers unless flags name another one.
pub(super) async fn start(
    cx: HookContext,
    client_ca: Pem,
    front_proxy_ca: Pem,
) -> Result<(), String> {
    let front = cx.options.authentication.request_header.clone();
    let front = front.map(|front| (Pem::from(front.client_ca_file), front.published));
    let front = front.unwrap_or_else(|| (front_proxy_ca, PublishedHeaders::generated()));
    let read = Box::new(move || authentication_info(&client_ca, &front));
    let trust = ClusterAuthenticationTrust { api: cx.api.clone(), read };
    cx.after("start-system-namespaces-controller").await;
    first_sync(async || trust.sync().await).await;
    let events = CacheInformer::start(&cx.kinds_of("", &["ConfigMap"]), |event| {
        event.entry.namespace == "kube-system"
            && event.entry.name == ClusterAuthenticationTrust::NAME
    });
    cx.tasks.critical("cluster-authentication-trust", trust.run(events, RELOAD_INTERVAL));
    Ok(())
}

/// What aggregated API servers need to know, from the files of now.
fn authentication_info(
    client_ca: &Pem,
    (front_proxy_ca, headers): &(Pem, PublishedHeaders),
) -> Result<AuthenticationInfo, String> {
    let read = |pem: &Pem| pem.read_text().map_err(|error| format!("{pem}: {error}"));
    let headers = headers.clone();
    Ok(AuthenticationInfo {
        client_ca: read(client_ca)?,
        request_header: Some(RequestHeaderInfo {
            client_ca: read(front_proxy_ca)?,
            allowed_names: headers.allowed_names,
            username_headers: headers.username_headers,
            uid_headers: headers.uid_headers,
            group_headers: headers.group_headers,
            extra_headers_prefix: headers.extra_headers_prefix,
        }),
    })
}
