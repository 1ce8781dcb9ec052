//! ConfigMap `kube-system/extension-apiserver-authentication`: whom aggregated API servers may trust.

use std::path::{Path, PathBuf};

use controllers::{AuthenticationInfo, ClusterAuthenticationTrust, RequestHeaderInfo};

use crate::{
    cache_informer::CacheInformer,
    options::RequestHeaderOptions,
    post_start_hooks::{HookContext, retry_until_deadline},
    serving::RELOAD_INTERVAL,
};

/// Creates the ConfigMap, and starts the controller that keeps it current.
pub(super) async fn start(cx: HookContext, client_ca: PathBuf) -> Result<(), String> {
    let front = cx.options.authentication.request_header.clone();
    let read = Box::new(move || authentication_info(&client_ca, front.as_ref()));
    let trust = ClusterAuthenticationTrust { api: cx.api.clone(), read };
    cx.after("start-system-namespaces-controller").await;
    retry_until_deadline(async || trust.sync().await).await?;
    let events = CacheInformer::start(&cx.kinds_of("", &["ConfigMap"]), |event| {
        event.entry.namespace == "kube-system"
            && event.entry.name == ClusterAuthenticationTrust::NAME
    });
    cx.tasks.critical("cluster-authentication-trust", trust.run(events, RELOAD_INTERVAL));
    Ok(())
}

/// What aggregated API servers need to know, from the files of now.
fn authentication_info(
    client_ca: &Path,
    front: Option<&RequestHeaderOptions>,
) -> Result<AuthenticationInfo, String> {
    let read = |file: &Path| {
        std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
    };
    let request_header = front.map(|front| {
        let headers = front.published.clone();
        Ok::<_, String>(RequestHeaderInfo {
            client_ca: read(&front.client_ca_file)?,
            allowed_names: headers.allowed_names,
            username_headers: headers.username_headers,
            uid_headers: headers.uid_headers,
            group_headers: headers.group_headers,
            extra_headers_prefix: headers.extra_headers_prefix,
        })
    });
    Ok(AuthenticationInfo {
        client_ca: read(client_ca)?,
        request_header: request_header.transpose()?,
    })
}
