//! The priority of a pod is that of its PriorityClass, and only one class is the default.

use meta::{ApiError, Value, selector::LabelSelector};

use crate::{Attributes, BoxFuture, Cluster, Freshness, Operation, Plugin, resources};

pub struct Priority;

const CLASSES: (&str, &str) = ("scheduling.k8s.io", "priorityclasses");

impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is_pod() || attributes.is(CLASSES.0, CLASSES.1, "")
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            match (object, attributes.old) {
                (Some(pod), None) if attributes.is_pod() => {
                    set_priority(pod, attributes, cluster).await
                }
                (Some(pod), Some(old)) if attributes.is_pod() => {
                    keep_priority(pod, old);
                    Ok(())
                }
                _ => Ok(()),
            }
        })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let class =
                object.filter(|class| !attributes.is_pod() && class.bool_at(&["globalDefault"]));
            let Some(class) = class else { return Ok(()) };
            let Some(default) = default_class(cluster).await? else { return Ok(()) };
            let name = default.str_at(&["metadata", "name"]);
            if attributes.operation == Operation::Update
                && name == class.str_at(&["metadata", "name"])
            {
                return Ok(());
            }
            let why = format!(
                "PriorityClass {name} is already marked as default. Only one default can exist"
            );
            Err(attributes.forbidden(object, why))
        })
    }
}

/// A client that leaves out what this plugin filled in at create does not remove it.
fn keep_priority(pod: &mut Value, old: &Value) {
    for field in ["priority", "preemptionPolicy"] {
        let path = ["spec", field];
        let given = pod.at(&path).is_some_and(|value| !value.is_null());
        if let (false, Some(old)) = (given, old.at(&path)) {
            pod.set_at(&path, old.clone());
        }
    }
}

async fn set_priority(
    pod: &mut Value,
    attributes: &Attributes<'_>,
    cluster: &Cluster,
) -> Result<(), ApiError> {
    let name = pod.str_at(&["spec", "priorityClassName"]);
    let class = if name.is_empty() {
        default_class(cluster).await?
    } else {
        Some(find(pod, name, attributes, cluster).await?)
    };
    let (priority, policy) = match &class {
        Some(class) => {
            (class.i64_at(&["value"]).unwrap_or_default(), class.str_at(&["preemptionPolicy"]))
        }
        None => (0, "PreemptLowerPriority"),
    };
    if let Some(class) = &class {
        pod.set_at(&["spec", "priorityClassName"], class.str_at(&["metadata", "name"]));
    }
    if let Some(given) = pod.i64_at(&["spec", "priority"]).filter(|given| *given != priority) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority \
             admission controller computed {priority} from the given PriorityClass name"
        );
        return Err(attributes.forbidden(Some(pod), why));
    }
    pod.set_at(&["spec", "priority"], priority);
    // A class from before there were policies has none.
    if policy.is_empty() {
        return Ok(());
    }
    // Compat: an empty text is a policy, too, and not that of the class.
    let given = pod.at(&["spec", "preemptionPolicy"]).and_then(Value::as_str);
    if let Some(given) = given.filter(|given| *given != policy) {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; \
             priority admission controller computed {policy} from the given PriorityClass name"
        );
        return Err(attributes.forbidden(Some(pod), why));
    }
    pod.set_at(&["spec", "preemptionPolicy"], policy);
    Ok(())
}

async fn find(
    pod: &Value,
    name: &str,
    attributes: &Attributes<'_>,
    cluster: &Cluster,
) -> Result<Value, ApiError> {
    // The cache may be behind a create of a moment ago.
    for freshness in [Freshness::Cached, Freshness::Linearizable] {
        let found = cluster.objects.get(&resources::PRIORITY_CLASSES, "", name, freshness).await?;
        if let Some(found) = found {
            return Ok(found);
        }
    }
    let why = format!("no PriorityClass with name {name} was found");
    Err(attributes.forbidden(Some(pod), why))
}

/// The default class; of several, which a race may leave, the one with the lowest value.
async fn default_class(cluster: &Cluster) -> Result<Option<Value>, ApiError> {
    let everything = LabelSelector::everything();
    let classes = cluster.objects.list(&resources::PRIORITY_CLASSES, "", &everything).await?;
    let defaults = classes.into_iter().filter(|class| class.bool_at(&["globalDefault"]));
    Ok(defaults.min_by_key(|class| class.i64_at(&["value"])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{cluster, create, update, yaml};

    const HIGH: &str = "{metadata: {name: high}, value: 1000, preemptionPolicy: Never}";
    const OLD: &str = "{metadata: {name: old}, value: 5}";
    const DEFAULT: &str = "{metadata: {name: d}, value: 9, globalDefault: true, preemptionPolicy: PreemptLowerPriority}";
    const LOW_DEFAULT: &str =
        "{metadata: {name: l}, value: -9, globalDefault: true, preemptionPolicy: Never}";

    #[test]
    fn pods_get_the_priority_of_their_class() {
        let forbidden = |why: &str| format!("pods \"p\" is forbidden: {why}");
        let cases = [
            ("{}", "", "{priority: 0, preemptionPolicy: PreemptLowerPriority}", String::new()),
            (
                "{priority: 0}",
                "",
                "{priority: 0, preemptionPolicy: PreemptLowerPriority}",
                String::new(),
            ),
            (
                "{priorityClassName: high}",
                "",
                "{priorityClassName: high, priority: 1000, preemptionPolicy: Never}",
                String::new(),
            ),
            (
                "{priorityClassName: old}",
                "",
                "{priorityClassName: old, priority: 5}",
                String::new(),
            ),
            (
                "{}",
                "d",
                "{priorityClassName: d, priority: 9, preemptionPolicy: PreemptLowerPriority}",
                String::new(),
            ),
            (
                "{}",
                "dl",
                "{priorityClassName: l, priority: -9, preemptionPolicy: Never}",
                String::new(),
            ),
            (
                "{priorityClassName: none}",
                "",
                "",
                forbidden("no PriorityClass with name none was found"),
            ),
            (
                "{priorityClassName: high, priority: 7}",
                "",
                "",
                forbidden(
                    "the integer value of priority (7) must not be provided in pod spec; priority \
                     admission controller computed 1000 from the given PriorityClass name",
                ),
            ),
            (
                "{preemptionPolicy: Never}",
                "",
                "",
                forbidden(
                    "the string value of PreemptionPolicy (Never) must not be provided in pod spec; \
                     priority admission controller computed PreemptLowerPriority from the given \
                     PriorityClass name",
                ),
            ),
            (
                "{preemptionPolicy: ''}",
                "",
                "",
                forbidden(
                    "the string value of PreemptionPolicy () must not be provided in pod spec; \
                     priority admission controller computed PreemptLowerPriority from the given \
                     PriorityClass name",
                ),
            ),
        ];
        for (spec, defaults, expected, message) in cases {
            let mut objects =
                vec![(&resources::PRIORITY_CLASSES, HIGH), (&resources::PRIORITY_CLASSES, OLD)];
            objects.extend(defaults.chars().map(|name| {
                (&resources::PRIORITY_CLASSES, if name == 'd' { DEFAULT } else { LOW_DEFAULT })
            }));
            let pod = |spec: &str| yaml(&format!("{{metadata: {{name: p}}, spec: {spec}}}"));
            let mut object = pod(spec);
            let outcome =
                create(&resources::PODS).admit(&Priority, &mut object, &cluster(&objects, &[]));
            assert_eq!(outcome.message(), message, "{spec}");
            if message.is_empty() {
                assert_eq!(object, pod(expected), "{spec}");
            }
        }
    }

    #[test]
    fn an_update_keeps_what_was_filled_in() {
        let old = yaml("{spec: {priority: 3, preemptionPolicy: Never}}");
        let mut new = yaml("{spec: {nodeName: n}}");
        let outcome = update(&resources::PODS, old).admit(&Priority, &mut new, &cluster(&[], &[]));
        assert_eq!(outcome.message(), "");
        assert_eq!(new, yaml("{spec: {nodeName: n, priority: 3, preemptionPolicy: Never}}"));
    }

    #[test]
    fn there_is_one_default_class() {
        let refused = |name: &str| {
            format!(
                "priorityclasses.scheduling.k8s.io \"{name}\" is forbidden: PriorityClass d is already \
                 marked as default. Only one default can exist"
            )
        };
        let with = cluster(&[(&resources::PRIORITY_CLASSES, DEFAULT)], &[]);
        let without = cluster(&[(&resources::PRIORITY_CLASSES, HIGH)], &[]);
        let class = |name: &str, default: bool| {
            yaml(&format!("{{metadata: {{name: {name}}}, value: 1, globalDefault: {default}}}"))
        };
        let created = || create(&resources::PRIORITY_CLASSES);
        let updated = |name| update(&resources::PRIORITY_CLASSES, class(name, false));
        let cases = [
            (created(), &without, class("x", true), String::new()),
            (created(), &with, class("x", false), String::new()),
            (created(), &with, class("x", true), refused("x")),
            (updated("x"), &with, class("x", true), refused("x")),
            (updated("d"), &with, class("d", true), String::new()),
        ];
        for (request, cluster, class, expected) in cases {
            assert_eq!(request.validate(&Priority, &class, cluster).message(), expected);
        }
    }
}
