//! The default FlowSchemas and PriorityLevelConfigurations (post-start hook
//! `priority-and-fairness-config-producer`), and the condition `Dangling` of FlowSchemas.

use std::{sync::Arc, time::Duration};

use futures_util::future::try_join_all;
use meta::{ApiError, Value, value};

use crate::{
    ApiClient, Informer, ResourceRef,
    bootstrap::get_or_create,
    informer::{BURST_WINDOW, RETRY_DELAY, drain_burst},
};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const VERSION: &str = "v1";
const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";

/// With `false` the apiserver leaves the spec of a default object as it is.
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// Mandatory objects: their spec is reset whatever the annotation says.
const MANDATORY: [&str; 2] = ["exempt", "catch-all"];

/// Compat: field managers of the default objects and of the status.
const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";

pub fn priority_levels() -> ResourceRef {
    let target = ResourceRef::cluster(GROUP, VERSION, "prioritylevelconfigurations");
    ResourceRef { manager: PRODUCER, ..target }
}

pub fn flow_schemas() -> ResourceRef {
    ResourceRef { manager: PRODUCER, ..ResourceRef::cluster(GROUP, VERSION, "flowschemas") }
}

/// Creates the default objects, resets those with auto-update, and deletes stale ones.
pub async fn ensure_flow_control_defaults(api: &dyn ApiClient) -> Result<(), ApiError> {
    let (levels, schemas) = (default_levels(), default_schemas());
    let (levels_at, schemas_at) = (priority_levels(), flow_schemas());
    let all = levels.iter().map(|level| (&levels_at, level));
    let all = all.chain(schemas.iter().map(|schema| (&schemas_at, schema)));
    try_join_all(all.map(|(target, object)| ensure_configuration(api, target, object))).await?;
    remove_stale(api, &schemas_at, &schemas).await?;
    remove_stale(api, &levels_at, &levels).await
}

async fn ensure_configuration(
    api: &dyn ApiClient,
    target: &ResourceRef,
    wanted: &Value,
) -> Result<(), ApiError> {
    let found = get_or_create(api, target, wanted).await?;
    let name = wanted.str_at(&["metadata", "name"]);
    let Some(found) = updated(found, wanted, MANDATORY.contains(&name)) else { return Ok(()) };
    match api.update(&target.clone().named(name), &found).await {
        // Conflict: the next interval retries.
        Ok(_) | Err(ApiError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The object to write; None if nothing differs. Without the annotation, auto-update applies as long
/// as the generation is 1, i.e. no client has changed the spec.
fn updated(mut found: Value, wanted: &Value, mandatory: bool) -> Option<Value> {
    let said = auto_update(&found);
    let untouched = found.i64_at(&["metadata", "generation"]) == Some(1);
    let updates = mandatory || said.unwrap_or(untouched);
    let differs = updates && found.at(&["spec"]) != wanted.at(&["spec"]);
    if !differs && said == Some(updates) {
        return None;
    }
    if differs {
        found.set_at(&["spec"], wanted.at(&["spec"]).cloned().unwrap_or_default());
    }
    if said != Some(updates) {
        found.set_at(&["metadata", "annotations", AUTO_UPDATE], updates.to_string());
    }
    Some(found)
}

/// Compat: the texts that Go's `strconv.ParseBool` accepts.
fn auto_update(object: &Value) -> Option<bool> {
    match object.str_at(&["metadata", "annotations", AUTO_UPDATE]) {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Deletes default objects of another Kubernetes version, unless auto-update was turned off.
async fn remove_stale(
    api: &dyn ApiClient,
    target: &ResourceRef,
    wanted: &[Value],
) -> Result<(), ApiError> {
    let name_of = |object: &Value| object.str_at(&["metadata", "name"]).to_owned();
    let wanted: Vec<String> = wanted.iter().map(name_of).collect();
    for object in api.list(target).await? {
        let name = name_of(&object);
        if wanted.contains(&name) || auto_update(&object) != Some(true) {
            continue;
        }
        match api.delete(&target.clone().named(&name), &Value::object()).await {
            Ok(()) | Err(ApiError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reconciles the default objects periodically.
pub struct FlowControlBootstrap {
    pub api: Arc<dyn ApiClient>,
}

/// Compat: a deleted default object is recreated after at most this time.
const RECONCILE_INTERVAL: Duration = Duration::from_mins(1);

impl FlowControlBootstrap {
    /// Works until the server stops.
    pub async fn run(self) {
        loop {
            tokio::time::sleep(RECONCILE_INTERVAL).await;
            if let Err(error) = ensure_flow_control_defaults(&*self.api).await {
                tracing::warn!("cannot reconcile the default flow schemas yet: {error}");
            }
        }
    }
}

/// Hands priority levels and flow schemas to flow control whenever they change, and sets the
/// condition `Dangling` of each FlowSchema: whether its priority level exists.
pub struct FlowControlConfigConsumer {
    pub api: Arc<dyn ApiClient>,
    /// Gets all PriorityLevelConfigurations and FlowSchemas.
    pub configure: Box<Configure>,
}

type Configure = dyn Fn(&[Value], &[Value]) + Send + Sync;

impl FlowControlConfigConsumer {
    /// Runs until the server stops. `events` are events of flow schemas and priority levels. What there is
    /// already is handed over at once, because the server is not ready before that; its status is written with
    /// the first events.
    pub async fn run(self, mut events: impl Informer) {
        if let Err(error) = self.configure_all().await {
            tracing::warn!("cannot list the flow schemas yet: {error}");
        }
        while events.next().await.is_some()
            && drain_burst(&mut events, BURST_WINDOW).await.is_some()
        {
            while let Err(error) = self.sync_all().await {
                tracing::warn!("cannot write the status of flow schemas yet: {error}");
                if drain_burst(&mut events, RETRY_DELAY).await.is_none() {
                    return;
                }
            }
        }
    }

    /// Returns the priority levels and flow schemas that were handed over.
    async fn configure_all(&self) -> Result<(Vec<Value>, Vec<Value>), ApiError> {
        let levels = self.api.list(&priority_levels()).await?;
        let schemas = self.api.list(&flow_schemas()).await?;
        (self.configure)(&levels, &schemas);
        Ok((levels, schemas))
    }

    async fn sync_all(&self) -> Result<(), ApiError> {
        let (levels, schemas) = self.configure_all().await?;
        for schema in schemas {
            let level = schema.str_at(&["spec", "priorityLevelConfiguration", "name"]).to_owned();
            let exists = levels.iter().any(|found| found.str_at(&["metadata", "name"]) == level);
            let Some(condition) = dangling_condition(&schema, &level, exists) else { continue };
            let name = schema.str_at(&["metadata", "name"]);
            let applied = value!({
                "apiVersion": (API_VERSION),
                "kind": "FlowSchema",
                "metadata": {"name": (name)},
                "status": {"conditions": [(condition)]},
            });
            let at = ResourceRef { subresource: "status", ..flow_schemas().named(name) };
            match self.api.apply(&at, &applied, CONSUMER).await {
                // The flow schema was deleted meanwhile.
                Ok(_) | Err(ApiError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The condition to write; None if the schema has it already.
fn dangling_condition(schema: &Value, level: &str, exists: bool) -> Option<Value> {
    let (status, reason, verdict) = if exists {
        ("False", "Found", "and it exists")
    } else {
        ("True", "NotFound", "but there is no such object")
    };
    let message = format!(
        "This FlowSchema references the PriorityLevelConfiguration object named \"{level}\" {verdict}"
    );
    let conditions = schema.items_at(&["status", "conditions"]);
    let old = conditions.iter().find(|condition| condition.str_at(&["type"]) == "Dangling");
    if old
        .is_some_and(|old| old.str_at(&["status"]) == status && old.str_at(&["message"]) == message)
    {
        return None;
    }
    let same_status = old.filter(|old| old.str_at(&["status"]) == status);
    let since = match same_status {
        Some(old) => old.str_at(&["lastTransitionTime"]).to_owned(),
        None => meta::time::now(),
    };
    Some(value!({
        "type": "Dangling",
        "status": (status),
        "lastTransitionTime": (since),
        "reason": (reason),
        "message": (message),
    }))
}

/// `limitResponse` of a priority level: what happens to requests above its limit.
enum LimitResponse {
    Exempt,
    Reject,
    /// `queues` and `handSize`.
    Queue(i64, i64),
}

fn default_levels() -> Vec<Value> {
    use LimitResponse::{Exempt, Queue, Reject};
    // Name, nominalConcurrencyShares, lendablePercent, limitResponse.
    [
        ("system", 30, 33, Queue(64, 6)),
        ("node-high", 40, 25, Queue(64, 6)),
        ("leader-election", 10, 0, Queue(16, 4)),
        ("workload-high", 40, 50, Queue(128, 6)),
        ("workload-low", 100, 90, Queue(128, 6)),
        ("global-default", 20, 50, Queue(128, 6)),
        ("exempt", 0, 0, Exempt),
        ("catch-all", 5, 0, Reject),
    ]
    .into_iter()
    .map(|(name, shares, lendable, response)| level(name, shares, lendable, &response))
    .collect()
}

fn level(name: &str, shares: i64, lendable: i64, response: &LimitResponse) -> Value {
    let limited = |response: Value| {
        value!({"type": "Limited", "limited": {
            "nominalConcurrencyShares": (shares),
            "lendablePercent": (lendable),
            "limitResponse": (response),
        }})
    };
    let spec = match response {
        LimitResponse::Exempt => value!({"type": "Exempt", "exempt": {
            "nominalConcurrencyShares": (shares),
            "lendablePercent": (lendable),
        }}),
        LimitResponse::Reject => limited(value!({"type": "Reject"})),
        LimitResponse::Queue(queues, hand_size) => limited(value!({"type": "Queue", "queuing": {
            "queues": (*queues),
            "handSize": (*hand_size),
            "queueLengthLimit": 50,
        }})),
    };
    object("PriorityLevelConfiguration", name, &spec)
}

fn default_schemas() -> Vec<Value> {
    let everyone = || vec![group("system:unauthenticated"), group("system:authenticated")];
    let system_accounts = || service_account("kube-system", "*");
    vec![
        schema("exempt", "exempt", 1, "", vec![group("system:masters")], everything()),
        schema("probes", "exempt", 2, "", everyone(), probes()),
        schema(
            "system-leader-election",
            "leader-election",
            100,
            "ByUser",
            vec![
                user("system:kube-controller-manager"),
                user("system:kube-scheduler"),
                system_accounts(),
            ],
            leader_election(),
        ),
        schema(
            "system-node-high",
            "node-high",
            400,
            "ByUser",
            vec![group("system:nodes")],
            heartbeats(),
        ),
        schema("system-nodes", "system", 500, "ByUser", vec![group("system:nodes")], everything()),
        schema(
            "kube-controller-manager",
            "workload-high",
            800,
            "ByNamespace",
            vec![user("system:kube-controller-manager")],
            everything(),
        ),
        schema(
            "kube-scheduler",
            "workload-high",
            800,
            "ByNamespace",
            vec![user("system:kube-scheduler")],
            everything(),
        ),
        schema(
            "kube-system-service-accounts",
            "workload-high",
            900,
            "ByNamespace",
            vec![system_accounts()],
            everything(),
        ),
        schema(
            "service-accounts",
            "workload-low",
            9000,
            "ByUser",
            vec![group("system:serviceaccounts")],
            everything(),
        ),
        schema("global-default", "global-default", 9900, "ByUser", everyone(), everything()),
        schema("catch-all", "catch-all", 10000, "ByUser", everyone(), everything()),
    ]
}

fn schema(
    name: &str,
    level: &str,
    precedence: i64,
    distinguished: &str,
    subjects: Vec<Value>,
    mut rules: Value,
) -> Value {
    rules.set_at(&["subjects"], Value::from(subjects));
    let mut spec = value!({
        "priorityLevelConfiguration": {"name": (level)},
        "matchingPrecedence": (precedence),
        "rules": [(rules)],
    });
    if !distinguished.is_empty() {
        spec.set_at(&["distinguisherMethod"], value!({"type": (distinguished)}));
    }
    object("FlowSchema", name, &spec)
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let mut object = value!({
        "kind": (kind),
        "apiVersion": (API_VERSION),
        "metadata": {"name": (name), "annotations": {}},
        "spec": (spec.clone()),
    });
    object.set_at(&["metadata", "annotations", AUTO_UPDATE], "true");
    object
}

fn group(name: &str) -> Value {
    value!({"kind": "Group", "group": {"name": (name)}})
}

fn user(name: &str) -> Value {
    value!({"kind": "User", "user": {"name": (name)}})
}

fn service_account(namespace: &str, name: &str) -> Value {
    value!({"kind": "ServiceAccount", "serviceAccount": {"namespace": (namespace), "name": (name)}})
}

fn everything() -> Value {
    value!({
        "resourceRules": [{
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
            "clusterScope": true, "namespaces": ["*"],
        }],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    })
}

fn probes() -> Value {
    value!({"nonResourceRules": [
        {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]},
    ]})
}

fn leader_election() -> Value {
    value!({"resourceRules": [{
        "verbs": ["get", "create", "update"], "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"], "namespaces": ["*"],
    }]})
}

fn heartbeats() -> Value {
    value!({"resourceRules": [
        {
            "verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"],
            "clusterScope": true, "namespaces": ["*"],
        },
        {
            "verbs": ["*"], "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"], "namespaces": ["*"],
        },
    ]})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BoxFuture, InformerEvent, testing::FakeClient};

    /// No event ever comes.
    struct Silence;

    impl Informer for Silence {
        fn next(&mut self) -> BoxFuture<'_, Option<InformerEvent>> {
            Box::pin(std::future::pending())
        }
    }

    /// The server is not ready before that: neither an event nor the time of a burst is waited for.
    #[tokio::test(start_paused = true)]
    async fn the_first_configuration_is_handed_over_at_once() {
        let level = value!({"metadata": {"name": "mine"}});
        let api = FakeClient::new([("prioritylevelconfigurations", level)]);
        let (sender, mut configured) = tokio::sync::mpsc::channel(1);
        let configure = Box::new(move |levels: &[Value], schemas: &[Value]| {
            sender.try_send((levels.len(), schemas.len())).expect("the test waits");
        });
        let began = tokio::time::Instant::now();
        let consumer = FlowControlConfigConsumer { api, configure };
        let running = tokio::spawn(consumer.run(Silence));
        assert_eq!(configured.recv().await, Some((1, 0)));
        assert_eq!(began.elapsed(), Duration::ZERO);
        running.abort();
    }

    #[test]
    fn a_condition_is_written_once_and_keeps_its_transition_time() {
        let bare = value!({"metadata": {"name": "mine"}});
        let applied = dangling_condition(&bare, "gone", false).expect("nothing was applied yet");
        assert_eq!(applied.str_at(&["status"]), "True");
        assert_eq!(
            applied.str_at(&["message"]),
            "This FlowSchema references the PriorityLevelConfiguration object named \"gone\" but there is no such object"
        );
        let since = value!("2020-01-01T00:00:00Z");
        let mut missing = value!({"status": {"conditions": [(applied.clone())]}});
        assert!(dangling_condition(&missing, "gone", false).is_none());
        let found = dangling_condition(&missing, "gone", true).expect("it came");
        assert_eq!(found.str_at(&["reason"]), "Found");
        let mut applied = applied;
        applied.set_at(&["lastTransitionTime"], since.clone());
        missing.set_at(&["status", "conditions"], vec![applied]);
        let other = dangling_condition(&missing, "other", false).expect("another level");
        assert_eq!(other.get("lastTransitionTime"), Some(&since));
    }

    #[test]
    fn objects_with_auto_update_are_reset() {
        let wanted = value!({"spec": {"a": 1}});
        // Found spec, annotation, generation, mandatory; spec and annotation after an update.
        let cases = [
            (1, "true", 1, false, None),
            (2, "true", 5, false, Some((1, "true"))),
            (2, "false", 5, false, None),
            (2, "", 1, false, Some((1, "true"))),
            (2, "no", 2, false, Some((2, "false"))),
            (2, "False", 2, true, Some((1, "true"))),
        ];
        for (spec, said, generation, mandatory, expected) in cases {
            let found = value!({
                "metadata": {
                    "generation": (i64::from(generation)),
                    "annotations": {"apf.kubernetes.io/autoupdate-spec": (said)},
                },
                "spec": {"a": (i64::from(spec))},
            });
            let now = updated(found, &wanted, mandatory);
            let now = now.as_ref().map(|now| {
                let said = now.str_at(&["metadata", "annotations", AUTO_UPDATE]);
                (now.i64_at(&["spec", "a"]).unwrap(), said)
            });
            assert_eq!(now, expected, "{said} {generation}");
        }
    }

    #[test]
    fn every_default_schema_names_a_default_level() {
        let levels = default_levels();
        for schema in default_schemas() {
            let level = schema.str_at(&["spec", "priorityLevelConfiguration", "name"]).to_owned();
            assert!(
                levels.iter().any(|found| found.str_at(&["metadata", "name"]) == level),
                "{level}"
            );
        }
    }
}
