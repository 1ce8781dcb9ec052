//! `kube-apiserver-autoregistration`: every group-version that this server serves has an APIService, which
//! is put right when it was changed; those of custom resources that are no longer served are deleted.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use aggregator::{api_services, local_api_service};
use controllers::{ApiClient as _, Informer as _, ResourceRef};
use futures_util::future::try_join_all;
use meta::{ApiError, Value};

use crate::{
    cache_informer::CacheInformer, discovery_publisher::DiscoveryPublisher,
    in_process::ControllerClient, post_start_hooks::HookContext, servers::REGISTRATION_GROUP,
};

/// `onstart` on the APIServices of built-in groups, `true` on those of custom resources. An APIService
/// without it is its owner's, whatever it says.
const AUTOMANAGED: [&str; 3] = ["metadata", "labels", "kube-aggregator.kubernetes.io/automanaged"];

#[derive(Clone)]
pub(crate) struct Autoregistration {
    api: Arc<ControllerClient>,
    publisher: Arc<DiscoveryPublisher>,
}

impl Autoregistration {
    pub(crate) fn new(api: Arc<ControllerClient>, publisher: Arc<DiscoveryPublisher>) -> Self {
        Self { api, publisher }
    }

    /// Deletes APIServices of built-in groups that this server does not have as well: later they could be
    /// those of another server, of another version.
    pub(crate) async fn sync_at_start(&self) -> Result<(), ApiError> {
        self.sync(&["true", "onstart"]).await
    }

    /// Follows changes of APIServices and of the group-versions that are served.
    pub(crate) fn start(self, cx: &HookContext) {
        let kinds = cx.kinds_of(REGISTRATION_GROUP, &["APIService"]);
        cx.tasks.restarting("autoregister", move || {
            self.clone().run(CacheInformer::start(&kinds, |_| true))
        });
    }

    /// The APIServices were right when the hook ended, so this begins with waiting for a burst as well.
    async fn run(self, mut events: CacheInformer) {
        loop {
            // A burst leads to one round.
            let end = tokio::time::Instant::now() + BURST_WINDOW;
            while let Ok(event) = tokio::time::timeout_at(end, events.next()).await {
                if event.is_none() {
                    return;
                }
            }
            if let Err(error) = self.sync(&["true"]).await {
                tracing::warn!("cannot update the APIServices: {error}");
                tokio::time::sleep(RETRY_DELAY).await;
                continue;
            }
            tokio::select! {
                event = events.next() => if event.is_none() {
                    return;
                },
                () = self.publisher.published() => {}
            }
        }
    }

    /// `deleted` are the labels of APIServices that are deleted if this server does not serve them.
    async fn sync(&self, deleted: &[&str]) -> Result<(), ApiError> {
        let served = self.publisher.local();
        let wanted =
            served.iter().filter(|served| served.group_version.group != REGISTRATION_GROUP);
        let wanted: Vec<Value> = wanted.map(local_api_service).collect();
        let known = self.api.list(&api_services()).await?;
        let by_name: HashMap<&str, &Value> =
            known.iter().map(|object| (name(object), object)).collect();
        try_join_all(
            wanted.iter().map(|object| self.register(by_name.get(name(object)).copied(), object)),
        )
        .await?;
        let wanted: HashSet<&str> = wanted.iter().map(name).collect();
        let gone = known.iter().filter(|object| deleted.contains(&object.str_at(&AUTOMANAGED)));
        for object in gone.filter(|object| !wanted.contains(name(object))) {
            match self.api.delete(&named(object), &Value::object()).await {
                Ok(()) | Err(ApiError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn register(&self, known: Option<&Value>, wanted: &Value) -> Result<(), ApiError> {
        let written = match known {
            None => self.api.create_only(&api_services(), wanted).await,
            Some(known) if known.str_at(&AUTOMANAGED).is_empty() => return Ok(()),
            Some(known) if has_spec_of(known, wanted) => return Ok(()),
            Some(known) => {
                let mut right = known.clone();
                right.set_at(&["spec"], wanted.get("spec").cloned().unwrap_or_else(Value::object));
                self.api.update(&named(known), &right).await.map(drop)
            }
        };
        match written {
            // The next event says what it has become.
            Err(
                ApiError::AlreadyExists { .. }
                | ApiError::Conflict { .. }
                | ApiError::NotFound { .. },
            ) => Ok(()),
            other => other,
        }
    }
}

const RETRY_DELAY: Duration = Duration::from_secs(1);
const BURST_WINDOW: Duration = Duration::from_millis(20);

fn name(object: &Value) -> &str {
    object.str_at(&["metadata", "name"])
}

fn named(object: &Value) -> ResourceRef {
    api_services().named(name(object))
}

/// Whether it says what the server would say, and nothing more: no Service, no way to trust one.
fn has_spec_of(known: &Value, wanted: &Value) -> bool {
    let told = known.get("spec").and_then(Value::as_object);
    let wanted = wanted.get("spec").and_then(Value::as_object);
    let (Some(told), Some(wanted)) = (told, wanted) else { return false };
    let is_unset = |value: &Value| {
        value.is_null() || value.as_str() == Some("") || value.as_bool() == Some(false)
    };
    wanted.iter().all(|(field, value)| told.get(field) == Some(value))
        && told.iter().all(|(field, value)| wanted.contains_key(field) || is_unset(value))
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn an_api_service_that_says_more_than_the_server_is_put_right() {
        let wanted = value!({"spec": {"group": "g", "version": "v1", "versionPriority": 1}});
        let cases = [
            (value!({"group": "g", "version": "v1", "versionPriority": 1}), true),
            (value!({"group": "g", "version": "v1", "versionPriority": 2}), false),
            (value!({"group": "g", "version": "v1"}), false),
            (
                value!({"group": "g", "version": "v1", "versionPriority": 1, "insecureSkipTLSVerify": false}),
                true,
            ),
            (
                value!({"group": "g", "version": "v1", "versionPriority": 1, "service": {"name": "s"}}),
                false,
            ),
            (
                value!({"group": "g", "version": "v1", "versionPriority": 1, "insecureSkipTLSVerify": true}),
                false,
            ),
        ];
        for (spec, expected) in cases {
            let known = value!({"spec": (spec.clone())});
            assert_eq!(has_spec_of(&known, &wanted), expected, "{spec:?}");
        }
    }
}
