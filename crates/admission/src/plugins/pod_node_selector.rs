//! The pods of a namespace run on the nodes that its annotation, or the configuration, names.

use std::collections::BTreeMap;

use codec::config_file::FieldType;
use meta::{
    ApiError, GroupResource, Value,
    field::quote,
    names::{is_label_value, is_qualified_name},
};

use crate::{
    Attributes, BoxFuture, Cluster, Freshness, Operation, Plugin,
    configuration::PluginConfiguration, resources,
};

pub struct PodNodeSelector {
    /// Of namespaces without an annotation.
    default: Labels,
    /// What pods of a namespace may select.
    allowed: BTreeMap<String, Labels>,
}

type Labels = BTreeMap<String, String>;

const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
const DEFAULT: &str = "clusterDefaultNodeSelector";
const FIELD: &str = "podNodeSelectorPluginConfig";

const FIELDS: FieldType = FieldType::Fields(&[(FIELD, FieldType::TextMap)]);

impl PodNodeSelector {
    pub(crate) fn new(configuration: Option<&PluginConfiguration>) -> Result<Self, String> {
        let mut plugin = Self { default: Labels::new(), allowed: BTreeMap::new() };
        let Some(given) = configuration else { return Ok(plugin) };
        let value = given.decode_unversioned(&FIELDS)?;
        let selectors = value.get(FIELD).and_then(Value::as_object);
        for (name, selector) in selectors.into_iter().flat_map(meta::Map::iter) {
            let labels = parse(selector.as_str().unwrap_or_default());
            let labels = labels.map_err(|why| given.wrong(&format!("{name}: {why}")))?;
            if name == DEFAULT {
                plugin.default = labels;
            } else {
                plugin.allowed.insert(name.to_string(), labels);
            }
        }
        Ok(plugin)
    }

    /// The labels that a namespace asks for.
    async fn of_namespace(&self, name: &str, cluster: &Cluster) -> Result<Labels, ApiError> {
        let get = |freshness| cluster.objects.get(&resources::NAMESPACES, "", name, freshness);
        let mut namespace = get(Freshness::Cached).await?;
        if namespace.is_none() {
            namespace = get(Freshness::Linearizable).await?;
        }
        let Some(namespace) = namespace else {
            return Err(ApiError::internal(format!("namespace {name} does not exist")));
        };
        match namespace.at(&["metadata", "annotations", ANNOTATION]).and_then(Value::as_str) {
            // Compat: a wrong annotation is a 500.
            Some(selector) => parse(selector).map_err(ApiError::Storage),
            None => Ok(self.default.clone()),
        }
    }

    fn check(&self, pod: &Value, namespace: &str, wanted: &Labels) -> Result<(), ApiError> {
        let selected = selector_of(pod);
        let refuse = |why: &str| {
            Err(ApiError::Forbidden {
                resource: GroupResource::new("", "pods"),
                name: pod.str_at(&["metadata", "name"]).to_owned(),
                why: why.to_owned(),
                causes: Vec::new(),
            })
        };
        let conflicts = |key: &str, value: &str| wanted.get(key).is_some_and(|own| own != value);
        if selected.iter().any(|(key, value)| conflicts(key, value)) {
            return refuse(
                "pod node label selector conflicts with its namespace node label selector",
            );
        }
        let allowed = self.allowed.get(namespace).filter(|allowed| !allowed.is_empty());
        let is_allowed = |key: &str, value: &str| {
            allowed.is_none_or(|allowed| allowed.get(key).is_some_and(|own| own == value))
        };
        if !selected.iter().all(|(key, value)| is_allowed(key, value)) {
            return refuse("pod node label selector labels conflict with its namespace whitelist");
        }
        Ok(())
    }
}

impl Plugin for PodNodeSelector {
    fn name(&self) -> &'static str {
        "PodNodeSelector"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is_pod()
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(pod) = object else { return Ok(()) };
            let wanted = self.of_namespace(attributes.namespace, cluster).await?;
            // A conflict is refused before anything is merged.
            let mut merged = pod.clone();
            for (key, value) in &wanted {
                if pod.at(&["spec", "nodeSelector", key]).is_none() {
                    merged.set_at(&["spec", "nodeSelector", key], value.as_str());
                }
            }
            self.check(&merged, attributes.namespace, &wanted)?;
            *pod = merged;
            Ok(())
        })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(pod) = object else { return Ok(()) };
            let wanted = self.of_namespace(attributes.namespace, cluster).await?;
            self.check(pod, attributes.namespace, &wanted)
        })
    }
}

fn selector_of(pod: &Value) -> Vec<(&str, &str)> {
    let selector = pod.at(&["spec", "nodeSelector"]).and_then(Value::as_object);
    let selector = selector.into_iter().flat_map(meta::Map::iter);
    selector.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect()
}

/// `key=value,key=value`
fn parse(text: &str) -> Result<Labels, String> {
    let mut labels = Labels::new();
    if text.is_empty() {
        return Ok(labels);
    }
    for label in text.split(',') {
        let parts: Vec<&str> = label.split('=').collect();
        let [key, value] = parts[..] else {
            return Err(format!("invalid selector: [{}]", parts.join(" ")));
        };
        let (key, value) = (key.trim(), value.trim());
        for (part, errors) in [(key, is_qualified_name(key)), (value, is_label_value(value))] {
            if !errors.is_empty() {
                let why = errors.join("; ");
                return Err(format!("<nil>: Invalid value: {}: {why}", quote(part)));
            }
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Configurations,
        harness::{cluster, create, yaml},
    };

    fn plugin(configuration: &str) -> Result<PodNodeSelector, String> {
        let value = yaml(&format!("{{{FIELD}: {configuration}}}"));
        let configurations = Configurations::for_test("PodNodeSelector", value);
        PodNodeSelector::new(configurations.of("PodNodeSelector"))
    }

    #[test]
    fn pods_select_what_their_namespace_says() {
        let namespaces = [
            (&resources::NAMESPACES, "{metadata: {name: plain}}"),
            (
                &resources::NAMESPACES,
                "{metadata: {name: bound, annotations: {scheduler.alpha.kubernetes.io/node-selector: 'a=b, c=d'}}}",
            ),
            (
                &resources::NAMESPACES,
                "{metadata: {name: wrong, annotations: {scheduler.alpha.kubernetes.io/node-selector: 'a'}}}",
            ),
        ];
        let conflict = "pods \"p\" is forbidden: pod node label selector conflicts with its namespace node label selector";
        let whitelist = "pods \"p\" is forbidden: pod node label selector labels conflict with its namespace whitelist";
        let cases = [
            ("{}", "plain", "{x: y}", "{x: y}", ""),
            ("{}", "bound", "{x: y}", "{a: b, c: d, x: y}", ""),
            ("{}", "bound", "{a: b}", "{a: b, c: d}", ""),
            ("{}", "bound", "{a: z}", "", conflict),
            ("{clusterDefaultNodeSelector: 'e=f'}", "plain", "{x: y}", "{e: f, x: y}", ""),
            ("{clusterDefaultNodeSelector: 'e=f'}", "bound", "{}", "{a: b, c: d}", ""),
            ("{bound: 'a=b'}", "bound", "{}", "", whitelist),
            ("{bound: 'a=b,c=d'}", "bound", "{}", "{a: b, c: d}", ""),
            ("{bound: 'a=b,c=d'}", "bound", "{x: y}", "", whitelist),
            ("{}", "wrong", "{}", "", "invalid selector: [a]"),
            ("{}", "gone", "{}", "", "Internal error occurred: namespace gone does not exist"),
        ];
        for (configuration, namespace, selector, expected, message) in cases {
            let plugin = plugin(configuration).unwrap();
            let pod = |selector: &str| {
                yaml(&format!(
                    "{{metadata: {{name: p, namespace: {namespace}}}, spec: {{nodeSelector: {selector}}}}}"
                ))
            };
            let mut object = pod(selector);
            let cluster = cluster(&namespaces, &[]);
            let outcome = create(&resources::PODS).admit(&plugin, &mut object, &cluster);
            assert_eq!(outcome.message(), message, "{configuration} {namespace} {selector}");
            if message.is_empty() {
                assert_eq!(object, pod(expected));
                let outcome = create(&resources::PODS).validate(&plugin, &object, &cluster);
                assert_eq!(outcome.message(), "");
            }
        }
    }

    #[test]
    fn configurations_are_checked() {
        let prefix = "couldn't init admission plugin \"PodNodeSelector\": test.yaml: ";
        let cases = [
            ("{ns: 'a=b=c'}", "ns: invalid selector: [a b c]"),
            (
                "{ns: 1}",
                "json: cannot unmarshal number into field podNodeSelectorPluginConfig[ns] of type string",
            ),
        ];
        for (configuration, expected) in cases {
            let error = plugin(configuration).err().unwrap_or_default();
            assert_eq!(error, format!("{prefix}{expected}"));
        }
    }
}
