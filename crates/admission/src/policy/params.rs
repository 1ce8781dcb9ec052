//! The parameters of a policy: the objects that a binding refers to.

use meta::{GroupVersion, GroupVersionKind, Str, Value, selector::LabelSelector};

use super::plain;
use crate::{Cluster, Freshness};

/// `paramKind` of a policy: any kind that is served.
#[derive(Debug)]
pub(super) struct ParamKind(Option<GroupVersionKind>, String);

impl ParamKind {
    pub(super) fn read(kind: &Value) -> Self {
        let (api_version, kind) = (kind.str_at(&["apiVersion"]), kind.str_at(&["kind"]));
        let group_version = GroupVersion::parse(api_version);
        let shown = format!("{api_version}, Kind={kind}");
        Self(group_version.map(|group_version| group_version.with_kind(kind)), shown)
    }
}

/// `paramRef` of a binding.
#[derive(Debug)]
pub(super) struct ParamRef {
    name: Str,
    namespace: Str,
    selector: Option<Result<LabelSelector, String>>,
    /// `parameterNotFoundAction: Deny`.
    denies_if_missing: bool,
}

impl ParamRef {
    pub(super) fn read(param_ref: &Value) -> Self {
        let selector = param_ref.get("selector").filter(|selector| !selector.is_null());
        Self {
            name: Str::new(param_ref.str_at(&["name"])),
            namespace: Str::new(param_ref.str_at(&["namespace"])),
            selector: selector.map(|selector| LabelSelector::from_object(Some(selector))),
            denies_if_missing: param_ref.str_at(&["parameterNotFoundAction"]) == "Deny",
        }
    }
}

/// Why there are no parameters.
#[derive(Debug, PartialEq)]
pub(super) enum ParamsError {
    /// The policy is wrong.
    Policy(String),
    /// The binding is wrong, or its parameters are missing.
    Binding(String),
}

/// The parameters with which a policy is evaluated, once for each; None is one without.
pub(super) async fn collect(
    kind: Option<&ParamKind>,
    param_ref: Option<&ParamRef>,
    namespace: &str,
    cluster: &Cluster,
) -> Result<Vec<Option<Value>>, ParamsError> {
    let Some(ParamKind(kind, shown)) = kind else { return Ok(vec![None]) };
    let served = kind.as_ref().and_then(|kind| cluster.objects.resource_of(kind));
    let Some((resource, namespaced)) = served else {
        return Err(ParamsError::Policy(format!(
            "failed to find resource referenced by paramKind: '{shown}'"
        )));
    };
    let Some(param_ref) = param_ref else { return Ok(vec![None]) };
    let failed = |why: &str| ParamsError::Binding(why.to_owned());
    let namespace = match (namespaced, param_ref.namespace.as_str()) {
        (false, "") => "",
        (false, _) => {
            return Err(failed(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`",
            ));
        }
        (true, "") if namespace.is_empty() => {
            return Err(failed(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped \
                 resources",
            ));
        }
        (true, "") => namespace,
        (true, other) => other,
    };
    let found: Vec<Value> = match (&param_ref.selector, param_ref.name.as_str()) {
        (Some(_), name) if !name.is_empty() => {
            return Err(failed("paramRef.name and paramRef.selector are mutually exclusive"));
        }
        (None, "") => return Err(failed("one of name or selector must be provided")),
        (Some(Err(why)), _) => return Err(failed(why)),
        (Some(Ok(selector)), _) => {
            let found = cluster.objects.list(&resource, namespace, selector).await;
            found.map_err(|error| failed(&plain(&error)))?
        }
        (None, name) => {
            let get = |freshness| cluster.objects.get(&resource, namespace, name, freshness);
            let failed = |error| failed(&plain(&error));
            let mut found = get(Freshness::Cached).await.map_err(failed)?;
            if found.is_none() {
                // The cache may be behind a create of a moment ago.
                found = get(Freshness::Linearizable).await.map_err(failed)?;
            }
            found.into_iter().collect()
        }
    };
    if found.is_empty() && param_ref.denies_if_missing {
        return Err(failed(
            "no params found for policy binding with `Deny` parameterNotFoundAction",
        ));
    }
    Ok(found.into_iter().map(Some).collect())
}
