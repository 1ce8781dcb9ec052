//! The pods of a namespace get its default tolerations, and have no others than those that it allows.

use codec::config_file::FieldType;
use meta::{ApiError, GroupResource, Value, value};

use super::{pod_resources::list_of, tolerations};
use crate::{
    Attributes, BoxFuture, Cluster, Freshness, Operation, Plugin,
    configuration::PluginConfiguration, resources,
};

#[derive(Default)]
pub struct PodTolerationRestriction {
    default: Vec<Value>,
    allowed: Vec<Value>,
}

const DEFAULT: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

const TOLERATIONS: FieldType = FieldType::List(&FieldType::Fields(&[
    ("key", FieldType::Text),
    ("operator", FieldType::Text),
    ("value", FieldType::Text),
    ("effect", FieldType::Text),
    ("tolerationSeconds", FieldType::Int),
]));

const FIELDS: FieldType = FieldType::Fields(&[
    ("apiVersion", FieldType::Text),
    ("kind", FieldType::Text),
    ("default", TOLERATIONS),
    ("whitelist", TOLERATIONS),
]);

const VERSIONS: [(&str, &str); 1] =
    [("podtolerationrestriction.admission.k8s.io/v1alpha1", "Configuration")];

impl PodTolerationRestriction {
    pub(crate) fn new(configuration: Option<&PluginConfiguration>) -> Result<Self, String> {
        let Some(given) = configuration else { return Ok(Self::default()) };
        let value = given.decode(&VERSIONS, &FIELDS)?;
        let read = |field: &str| {
            let tolerations = value.items_at(&[field]).to_vec();
            match tolerations.iter().find_map(|toleration| check(toleration).err()) {
                None => Ok(tolerations),
                Some(why) => {
                    let at = format!("podtolerationrestriction.{field}");
                    Err(given.wrong(&format!("invalid config: {at}: {why}")))
                }
            }
        };
        Ok(Self { default: read("default")?, allowed: read("whitelist")? })
    }

    async fn check_allowed(
        &self,
        pod: &Value,
        attributes: &Attributes<'_>,
        cluster: &Cluster,
    ) -> Result<(), ApiError> {
        let tolerations = pod.items_at(&["spec", "tolerations"]);
        if tolerations.is_empty() {
            return Ok(());
        }
        let of_namespace = of_namespace(attributes.namespace, ALLOWED, cluster).await?;
        let (allowed, scope) = match &of_namespace {
            Some(allowed) => (allowed, "namespace"),
            None => (&self.allowed, "cluster"),
        };
        if tolerations::are_allowed(tolerations, allowed) {
            return Ok(());
        }
        // Compat: a plain error of upstream, which is a 500.
        Err(ApiError::Storage(format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its \
             {scope} whitelist"
        )))
    }
}

impl Plugin for PodTolerationRestriction {
    fn name(&self) -> &'static str {
        "PodTolerationRestriction"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
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
            let mut extra = Vec::new();
            if attributes.operation == Operation::Create {
                let of_namespace = of_namespace(attributes.namespace, DEFAULT, cluster).await?;
                extra = of_namespace.unwrap_or_else(|| self.default.clone());
            }
            if !is_best_effort(pod) {
                extra.push(value!({
                    "key": "node.kubernetes.io/memory-pressure",
                    "operator": "Exists",
                    "effect": "NoSchedule",
                }));
            }
            if !extra.is_empty() {
                let merged = tolerations::merge(pod.items_at(&["spec", "tolerations"]), &extra);
                pod.set_at(&["spec", "tolerations"], merged);
            }
            self.check_allowed(pod, attributes, cluster).await
        })
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            match object {
                Some(pod) => self.check_allowed(pod, attributes, cluster).await,
                None => Ok(()),
            }
        })
    }
}

/// The tolerations in an annotation of a namespace; None: there is no such annotation.
async fn of_namespace(
    name: &str,
    annotation: &str,
    cluster: &Cluster,
) -> Result<Option<Vec<Value>>, ApiError> {
    let get = |freshness| cluster.objects.get(&resources::NAMESPACES, "", name, freshness);
    let mut namespace = get(Freshness::Cached).await?;
    if namespace.is_none() {
        namespace = get(Freshness::Linearizable).await?;
    }
    let missing = || ApiError::not_found(GroupResource::new("", "namespaces"), name);
    let namespace = namespace.ok_or_else(missing)?;
    let text = namespace.at(&["metadata", "annotations", annotation]).and_then(Value::as_str);
    match text {
        None => Ok(None),
        Some("") => Ok(Some(Vec::new())),
        Some(text) => {
            let options = codec::json::DecodeOptions { strict: false };
            let decoded = codec::json::decode_any(text.as_bytes(), options);
            let decoded = decoded.map_err(|error| ApiError::Storage(error.to_string()))?.value;
            match decoded.as_array() {
                Some(tolerations) => Ok(Some(tolerations.to_vec())),
                None => Err(ApiError::Storage(format!(
                    "json: cannot unmarshal {} into Go value of type []v1.Toleration",
                    decoded.type_name()
                ))),
            }
        }
    }
}

/// Whether no container asks for CPU or memory.
fn is_best_effort(pod: &Value) -> bool {
    let class = pod.str_at(&["status", "qosClass"]);
    if !class.is_empty() {
        return class == "BestEffort";
    }
    let asks = |holder: &Value| {
        ["requests", "limits"].iter().any(|field| {
            let list = list_of(holder.get("resources"), field);
            let mut list =
                list.iter().filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory"));
            list.any(|(_, amount)| amount.sign().is_gt())
        })
    };
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    if spec.get("resources").is_some_and(|resources| !resources.is_null()) {
        return !asks(spec);
    }
    let containers = ["containers", "initContainers"].into_iter();
    let mut containers = containers.flat_map(|list| spec.items_at(&[list]));
    !containers.any(asks)
}

/// As for the tolerations of a pod.
fn check(toleration: &Value) -> Result<(), String> {
    let text = |field| toleration.str_at(&[field]);
    if text("key").is_empty() && text("operator") != "Exists" {
        return Err("operator must be Exists when `key` is empty, which means \"match all values \
                    and all keys\""
            .to_owned());
    }
    if !text("key").is_empty() {
        let errors = meta::names::is_qualified_name(text("key"));
        if !errors.is_empty() {
            return Err(errors.join("; "));
        }
    }
    match text("operator") {
        "Exists" if !text("value").is_empty() => {
            return Err("value must be empty when `operator` is 'Exists'".to_owned());
        }
        "Exists" | "Equal" | "" => {}
        other => return Err(format!("unknown operator {}", meta::field::quote(other))),
    }
    match text("effect") {
        "NoExecute" => Ok(()),
        "" | "NoSchedule" | "PreferNoSchedule"
            if toleration.i64_at(&["tolerationSeconds"]).is_none() =>
        {
            Ok(())
        }
        "" | "NoSchedule" | "PreferNoSchedule" => {
            Err("effect must be 'NoExecute' when `tolerationSeconds` is set".to_owned())
        }
        other => Err(format!("unknown effect {}", meta::field::quote(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Configurations,
        harness::{cluster, create, update, yaml},
    };

    fn plugin(fields: &str) -> Result<PodTolerationRestriction, String> {
        let value = yaml(&format!(
            "{{apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, {fields}}}"
        ));
        let configurations = Configurations::for_test("PodTolerationRestriction", value);
        PodTolerationRestriction::new(configurations.of("PodTolerationRestriction"))
    }

    #[test]
    fn tolerations_are_filled_in_and_limited() {
        let namespaces = [
            (&resources::NAMESPACES, "{metadata: {name: plain}}"),
            (
                &resources::NAMESPACES,
                "{metadata: {name: own, annotations: {scheduler.alpha.kubernetes.io/defaultTolerations: '[{\"key\":\"d\",\"operator\":\"Exists\"}]', scheduler.alpha.kubernetes.io/tolerationsWhitelist: '[{\"key\":\"d\",\"operator\":\"Exists\"}]'}}}",
            ),
            (
                &resources::NAMESPACES,
                "{metadata: {name: none, annotations: {scheduler.alpha.kubernetes.io/defaultTolerations: ''}}}",
            ),
            (
                &resources::NAMESPACES,
                "{metadata: {name: wrong, annotations: {scheduler.alpha.kubernetes.io/defaultTolerations: '{}'}}}",
            ),
        ];
        let conflict = |scope: &str| {
            format!(
                "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
            )
        };
        let cases = [
            ("", "plain", "", "", "", String::new()),
            (
                "default: [{key: a, operator: Exists}]",
                "plain",
                "",
                "",
                "{key: a, operator: Exists}",
                String::new(),
            ),
            ("default: [{key: a, operator: Exists}]", "none", "", "", "", String::new()),
            (
                "default: [{key: a, operator: Exists}]",
                "own",
                "",
                "",
                "{key: d, operator: Exists}",
                String::new(),
            ),
            ("", "own", "{key: x, operator: Exists}", "", "", conflict("namespace")),
            (
                "whitelist: [{key: a, operator: Exists}]",
                "plain",
                "{key: x, operator: Exists}",
                "",
                "",
                conflict("cluster"),
            ),
            (
                "",
                "plain",
                "",
                "resources: {requests: {cpu: 1}}",
                "{key: node.kubernetes.io/memory-pressure, operator: Exists, effect: NoSchedule}",
                String::new(),
            ),
            (
                "",
                "wrong",
                "",
                "",
                "",
                "json: cannot unmarshal object into Go value of type []v1.Toleration".to_owned(),
            ),
            ("", "gone", "", "", "", "namespaces \"gone\" not found".to_owned()),
        ];
        for (configuration, namespace, tolerations, container, expected, message) in cases {
            let plugin = plugin(configuration).unwrap();
            let pod = |tolerations: &str| {
                yaml(&format!(
                    "{{metadata: {{name: p, namespace: {namespace}}}, spec: {{containers: [{{{container}}}], \
                     tolerations: [{tolerations}]}}}}"
                ))
            };
            let mut object = pod(tolerations);
            let cluster = cluster(&namespaces, &[]);
            let outcome = create(&resources::PODS).admit(&plugin, &mut object, &cluster);
            assert_eq!(outcome.message(), message, "{configuration} {namespace} {tolerations}");
            if message.is_empty() {
                assert_eq!(object, pod(expected), "{configuration} {namespace}");
            }
        }
        let plugin = plugin("default: [{key: a, operator: Exists}]").unwrap();
        let mut pod = yaml("{metadata: {name: p, namespace: plain}, spec: {}}");
        let before = pod.clone();
        let request = update(&resources::PODS, pod.clone());
        request.admit(&plugin, &mut pod, &cluster(&namespaces, &[]));
        assert_eq!(pod, before, "defaults are for new pods");
    }

    #[test]
    fn configurations_are_checked() {
        let cases = [
            (
                "default: [{key: a, operator: Exists, value: x}]",
                "value must be empty when `operator` is 'Exists'",
            ),
            ("whitelist: [{operator: Equal}]", "operator must be Exists when `key` is empty"),
            (
                "whitelist: [{key: a, effect: NoSchedule, tolerationSeconds: 1}]",
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            ),
            ("whitelist: [{key: a, effect: Never}]", "unknown effect \"Never\""),
            ("whitelist: [{key: a, operator: Is}]", "unknown operator \"Is\""),
            ("white: []", "unknown field \"white\""),
        ];
        for (fields, expected) in cases {
            let error = plugin(fields).err().unwrap_or_default();
            assert!(error.contains(expected), "{fields}: {error}");
        }
    }
}
