//! The plugin's configuration: resources that may be used only where a quota covers them.

use meta::{GroupResource, Value};

use super::Scope;
use crate::configuration::PluginConfiguration;
use codec::config_file::FieldType;

pub(super) struct LimitedResource {
    pub(super) resource: GroupResource,
    /// Names of resources that contain one of these need a quota.
    pub(super) match_contains: Vec<String>,
    /// Objects within one of these scopes need a quota with such a scope.
    pub(super) match_scopes: Vec<Scope>,
}

const VERSIONS: [(&str, &str); 4] = [
    ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"),
    ("resourcequota.admission.k8s.io/v1", "Configuration"),
    ("resourcequota.admission.k8s.io/v1beta1", "Configuration"),
    ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"),
];

const TEXTS: FieldType = FieldType::TEXTS;

const FIELDS: FieldType = FieldType::Fields(&[
    ("apiVersion", FieldType::Text),
    ("kind", FieldType::Text),
    (
        "limitedResources",
        FieldType::List(&FieldType::Fields(&[
            ("apiGroup", FieldType::Text),
            ("resource", FieldType::Text),
            ("matchContains", TEXTS),
            (
                "matchScopes",
                FieldType::List(&FieldType::Fields(&[
                    ("scopeName", FieldType::Text),
                    ("operator", FieldType::Text),
                    ("values", TEXTS),
                ])),
            ),
        ])),
    ),
]);

pub(super) fn read_configuration(
    given: &PluginConfiguration,
) -> Result<Vec<LimitedResource>, String> {
    let value = given.decode(&VERSIONS, &FIELDS)?;
    let limited = value.items_at(&["limitedResources"]).iter().enumerate().map(|(at, limited)| {
        let resource = limited.str_at(&["resource"]);
        if resource.is_empty() {
            return Err(given.wrong(&format!("limitedResources[{at}].resource: Required value")));
        }
        let contains = limited.items_at(&["matchContains"]).iter().filter_map(Value::as_str);
        Ok(LimitedResource {
            resource: GroupResource {
                group: limited.str_at(&["apiGroup"]).into(),
                resource: resource.into(),
            },
            match_contains: contains.map(str::to_owned).collect(),
            match_scopes: limited
                .items_at(&["matchScopes"])
                .iter()
                .map(Scope::of_requirement)
                .collect(),
        })
    });
    limited.collect()
}
