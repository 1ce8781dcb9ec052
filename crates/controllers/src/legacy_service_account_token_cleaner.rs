//! kube-controller-manager's legacy-serviceaccount-token-cleaner-controller: auto-generated token
//! secrets (Kubernetes before 1.24) that were unused for a year are labelled invalid, and deleted
//! after another year.

use std::{collections::HashMap, sync::Arc, time::Duration};

use meta::{Value, time::Time, value};

use crate::{ApiClient, ResourceRef, tokens_controller};

pub struct LegacyServiceAccountTokenCleaner {
    pub api: Arc<dyn ApiClient>,
}

const SYNC_INTERVAL: Duration = Duration::from_hours(24);
const DAY_SECONDS: i64 = 24 * 3600;
const CLEAN_UP_SECONDS: i64 = 365 * DAY_SECONDS;
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";

impl LegacyServiceAccountTokenCleaner {
    /// Runs until the server stops.
    pub async fn run(self) {
        loop {
            self.clean(Time::now()).await;
            tokio::time::sleep(SYNC_INTERVAL).await;
        }
    }

    async fn clean(&self, now: Time) {
        if !self.has_tracked_long_enough(now).await {
            return;
        }
        let target = ResourceRef::cluster("", "v1", "secrets");
        let secrets = self.api.list(&target).await.unwrap_or_default();
        let mut mounted: HashMap<String, String> = HashMap::new();
        for secret in &secrets {
            if !is_unused(secret, now) || !self.is_auto_generated(secret).await {
                continue;
            }
            let namespace = secret.str_at(&["metadata", "namespace"]);
            if !mounted.contains_key(namespace) {
                let pods = ResourceRef::cluster("", "v1", "pods").in_namespace(namespace);
                let Ok(pods) = self.api.list(&pods).await else { continue };
                let pods: String = pods
                    .iter()
                    .filter_map(|pod| pod.get("spec"))
                    .map(meta::json::to_string)
                    .collect();
                mounted.insert(namespace.to_owned(), pods);
            }
            // The quoted name anywhere in a pod's spec counts as a mount: better kept than lost.
            let name = secret.str_at(&["metadata", "name"]);
            let quoted = meta::json::to_string(&name.into());
            if !mounted.get(namespace).is_some_and(|pods| pods.contains(&quoted)) {
                self.invalidate_or_delete(secret, now).await;
            }
        }
    }

    /// Whether the last-used labels have been tracked for the whole clean-up period.
    async fn has_tracked_long_enough(&self, now: Time) -> bool {
        let target = ResourceRef::cluster("", "v1", "configmaps").in_namespace("kube-system");
        let Ok(tracking) = self.api.get(&target.named(TRACKING)).await else { return false };
        let since = day(tracking.str_at(&["data", "since"]));
        since.is_some_and(|since| now.unix_seconds() >= since + DAY_SECONDS + CLEAN_UP_SECONDS)
    }

    /// Only auto-generated secrets are listed in their service account's `secrets`.
    async fn is_auto_generated(&self, secret: &Value) -> bool {
        let annotation = |key| secret.str_at(&["metadata", "annotations", key]);
        let (account, uid) =
            (annotation(tokens_controller::ACCOUNT), annotation(tokens_controller::ACCOUNT_UID));
        if account.is_empty() {
            return false;
        }
        let target = ResourceRef::cluster("", "v1", "serviceaccounts");
        let target = target.in_namespace(secret.str_at(&["metadata", "namespace"])).named(account);
        let Ok(account) = self.api.get(&target).await else { return false };
        let name = secret.str_at(&["metadata", "name"]);
        let mut listed = account.items_at(&["secrets"]).iter();
        (uid.is_empty() || uid == account.str_at(&["metadata", "uid"]))
            && listed.any(|listed| listed.str_at(&["name"]) == name)
    }

    async fn invalidate_or_delete(&self, secret: &Value, now: Time) {
        let at = |field| secret.str_at(&["metadata", field]);
        let target = ResourceRef::cluster("", "v1", "secrets");
        let target = target.in_namespace(at("namespace")).named(at("name"));
        let since = secret.str_at(&["metadata", "labels", INVALID_SINCE]);
        let done = match day(since) {
            None => {
                let mut marked = secret.clone();
                marked.set_at(&["metadata", "labels", INVALID_SINCE], today(now));
                tracing::info!(
                    namespace = at("namespace"),
                    name = at("name"),
                    "labelling an unused token secret as invalid"
                );
                self.api.update(&target, &marked).await.map(drop)
            }
            Some(since) if is_long_ago(since, now) => {
                let options =
                    value!({"preconditions": {"resourceVersion": (at("resourceVersion"))}});
                tracing::info!(
                    namespace = at("namespace"),
                    name = at("name"),
                    "deleting an unused token secret"
                );
                self.api.delete(&target, &options).await
            }
            Some(_) => Ok(()),
        };
        if let Err(error) = done {
            tracing::debug!(name = at("name"), "cannot clean up the token secret yet: {error}");
        }
    }
}

fn is_unused(secret: &Value, now: Time) -> bool {
    let created = Time::parse(secret.str_at(&["metadata", "creationTimestamp"]));
    let used = secret.str_at(&["metadata", "labels", LAST_USED]);
    secret.str_at(&["type"]) == tokens_controller::TYPE
        && secret.str_at(&["metadata", "deletionTimestamp"]).is_empty()
        && created
            .is_ok_and(|created| created.unix_seconds() < now.unix_seconds() - CLEAN_UP_SECONDS)
        && (used.is_empty() || day(used).is_some_and(|used| is_long_ago(used, now)))
}

/// Compared by date, without the time of day.
fn is_long_ago(day: i64, now: Time) -> bool {
    day < (now.unix_seconds() - CLEAN_UP_SECONDS).div_euclid(DAY_SECONDS) * DAY_SECONDS
}

/// The Unix time at which a day such as `2026-01-31` begins.
fn day(text: &str) -> Option<i64> {
    let time = Time::parse(&format!("{text}T00:00:00Z")).ok()?;
    Some(time.unix_seconds())
}

fn today(now: Time) -> String {
    now.to_rfc3339().split('T').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeClient;

    fn secret(name: &str, used: &str, invalid: &str) -> Value {
        let mut secret = value!({
            "type": (tokens_controller::TYPE),
            "metadata": {"name": (name), "namespace": "n", "resourceVersion": "1",
                "creationTimestamp": "2024-01-01T00:00:00Z"},
        });
        secret.set_at(&["metadata", "annotations", tokens_controller::ACCOUNT], "robot");
        for (label, value) in [(LAST_USED, used), (INVALID_SINCE, invalid)] {
            if !value.is_empty() {
                secret.set_at(&["metadata", "labels", label], value);
            }
        }
        secret
    }

    #[tokio::test]
    async fn an_unused_token_is_labelled_invalid_and_deleted_a_year_later() {
        // Name, last used, invalid since; marked, deleted.
        let cases = [
            ("never", "", "", true, false),
            ("lately", "2026-01-01", "", false, false),
            ("long-ago", "2025-05-31", "", true, false),
            ("a-year-ago", "2025-06-01", "", false, false),
            ("marked-lately", "", "2026-01-01", false, false),
            ("marked-long-ago", "", "2025-05-31", false, true),
            ("mounted", "", "", false, false),
            ("unlisted", "", "", false, false),
        ];
        let listed = cases.iter().filter(|case| case.0 != "unlisted");
        let listed: Vec<Value> = listed.map(|case| value!({"name": (case.0)})).collect();
        let mut objects = vec![
            (
                "configmaps",
                value!({"metadata": {"name": (TRACKING), "namespace": "kube-system"},
                "data": {"since": "2025-05-01"}}),
            ),
            (
                "serviceaccounts",
                value!({"metadata": {"name": "robot", "namespace": "n"},
                "secrets": (listed)}),
            ),
            (
                "pods",
                value!({"metadata": {"name": "p", "namespace": "n"},
                "spec": {"volumes": [{"secret": {"secretName": "mounted"}}]}}),
            ),
        ];
        objects.extend(cases.iter().map(|case| ("secrets", secret(case.0, case.1, case.2))));
        let fake = FakeClient::new(objects);
        let cleaner = LegacyServiceAccountTokenCleaner { api: fake.clone() };
        // Tracked for less than a year: nothing is cleaned up.
        cleaner.clean(Time::parse("2026-05-01T12:00:00Z").unwrap()).await;
        assert_eq!(fake.deleted(), []);
        cleaner.clean(Time::parse("2026-06-01T12:00:00Z").unwrap()).await;
        for (name, _, invalid, marked, deleted) in cases {
            let is_gone = fake.deleted().iter().any(|(gone, _)| gone == name);
            assert_eq!(is_gone, deleted, "{name}");
            let left = fake.object("secrets", "n", name);
            let label = left.str_at(&["metadata", "labels", INVALID_SINCE]);
            assert_eq!(label, if marked { "2026-06-01" } else { invalid }, "{name}");
        }
    }
}
