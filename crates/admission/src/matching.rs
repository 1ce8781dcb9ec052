//! Which requests a webhook or a policy is for: rules, `matchPolicy` and selectors. Both kinds of
//! configuration share these words.

use std::collections::HashMap;

use meta::{
    ApiError, GroupVersionKind, GroupVersionResource, Map, Str, Value, selector::LabelSelector,
};

use crate::{Attributes, Cluster, Freshness, Operation, is_namespace, resources};

/// The operations, group-versions and resources of one rule.
#[derive(Debug)]
pub(crate) struct Rule {
    operations: Names,
    groups: Names,
    versions: Names,
    /// Resource and subresource; "" is the resource itself.
    resources: Vec<(Name, Name)>,
    scope: Scope,
    /// The objects by name; none: all. Only the rules of policies have these.
    object_names: Vec<Str>,
}

/// A `*`, or some names.
#[derive(Debug)]
enum Names {
    Any,
    Of(Vec<Str>),
}

#[derive(Debug)]
enum Name {
    Any,
    Is(Str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
    /// Validation lets no other one in; it matches nothing, as upstream.
    Unknown,
}

impl Names {
    fn of(rule: &Value, field: &str) -> Self {
        let names: Vec<Str> = texts(rule, field);
        if names.iter().any(|name| name == "*") { Self::Any } else { Self::Of(names) }
    }

    fn contains(&self, wanted: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Of(names) => names.iter().any(|name| name == wanted),
        }
    }
}

impl Name {
    fn of(text: &str) -> Self {
        if text == "*" { Self::Any } else { Self::Is(Str::new(text)) }
    }

    fn is(&self, wanted: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Is(name) => name == wanted,
        }
    }
}

pub(crate) fn texts(object: &Value, field: &str) -> Vec<Str> {
    let items = object.items_at(&[field]).iter();
    items.filter_map(Value::as_str).map(Str::new).collect()
}

impl Rule {
    pub(crate) fn read(rule: &Value) -> Self {
        let resources = rule.items_at(&["resources"]).iter().filter_map(Value::as_str);
        let resources = resources.map(|text| match text.split_once('/') {
            Some((resource, subresource)) => (Name::of(resource), Name::of(subresource)),
            None => (Name::of(text), Name::of("")),
        });
        Self {
            operations: Names::of(rule, "operations"),
            groups: Names::of(rule, "apiGroups"),
            versions: Names::of(rule, "apiVersions"),
            resources: resources.collect(),
            scope: match rule.str_at(&["scope"]) {
                "" | "*" => Scope::All,
                "Cluster" => Scope::Cluster,
                "Namespaced" => Scope::Namespaced,
                _ => Scope::Unknown,
            },
            object_names: texts(rule, "resourceNames"),
        }
    }

    fn matches(&self, attributes: &Attributes<'_>, gvr: &GroupVersionResource) -> bool {
        self.matches_group_version(gvr) && self.matches_in_any_version(attributes, gvr)
    }

    fn matches_group_version(&self, gvr: &GroupVersionResource) -> bool {
        self.groups.contains(&gvr.group) && self.versions.contains(&gvr.version)
    }

    /// All that does not depend on the group and version: what is not met here is met by no equivalent
    /// resource either, whose names are the same.
    fn matches_in_any_version(
        &self,
        attributes: &Attributes<'_>,
        gvr: &GroupVersionResource,
    ) -> bool {
        let mut resources = self.resources.iter();
        resources.any(|(name, below)| name.is(&gvr.resource) && below.is(attributes.subresource))
            && self.operations.contains(attributes.operation.as_str())
            && self.matches_scope(attributes, gvr)
            && (self.object_names.is_empty()
                || self.object_names.iter().any(|name| name == attributes.name))
    }

    /// Compat: a namespace counts as cluster-scoped, although its requests name a namespace.
    fn matches_scope(&self, attributes: &Attributes<'_>, gvr: &GroupVersionResource) -> bool {
        let in_namespace = || *gvr != resources::NAMESPACES && !attributes.namespace.is_empty();
        match self.scope {
            Scope::All => true,
            Scope::Cluster => !in_namespace(),
            Scope::Namespaced => in_namespace(),
            Scope::Unknown => false,
        }
    }
}

/// All that decides whether a request concerns a webhook, a policy or a binding, but for match
/// conditions.
#[derive(Debug)]
pub(crate) struct Criteria {
    /// None: every request.
    rules: Option<Vec<Rule>>,
    excluded: Vec<Rule>,
    equivalent: bool,
    namespaces: Result<LabelSelector, String>,
    objects: Result<LabelSelector, String>,
}

impl Criteria {
    /// Of a webhook: an object without a rule is for no request.
    pub(crate) fn of_webhook(webhook: &Value) -> Self {
        Self { rules: Some(rules(webhook, "rules")), ..Self::read(webhook) }
    }

    /// `matchConstraints` of a policy or `matchResources` of a binding: without a rule they are for
    /// every request.
    pub(crate) fn of_policy(resources: &Value) -> Self {
        let rules = rules(resources, "resourceRules");
        Self { rules: (!rules.is_empty()).then_some(rules), ..Self::read(resources) }
    }

    fn read(from: &Value) -> Self {
        let selector = |field: &str| match from.get(field) {
            // Defaulting fills these in; what was stored without is as if it had been.
            None | Some(Value::Null) => Ok(LabelSelector::everything()),
            Some(selector) => LabelSelector::from_object(Some(selector)),
        };
        Self {
            rules: None,
            excluded: rules(from, "excludeResourceRules"),
            equivalent: from.str_at(&["matchPolicy"]) == "Equivalent",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// The names of the resources that the rules can be for; None: of any.
    fn resource_names(&self) -> Option<Vec<&Str>> {
        let resources = self.rules.as_ref()?.iter().flat_map(|rule| &rule.resources);
        let name = |(resource, _): &'_ (Name, Name)| match resource {
            Name::Any => None,
            Name::Is(_) => Some(()),
        };
        let all = resources.clone().map(name).collect::<Option<Vec<()>>>();
        all?;
        let names = resources.filter_map(|(resource, _)| match resource {
            Name::Is(name) => Some(name),
            Name::Any => None,
        });
        Some(names.collect())
    }

    /// Whether a request matches, and as what: its own version, or an equivalent one.
    pub(crate) async fn matches(
        &self,
        cx: &mut MatchContext<'_>,
        object: Option<&Value>,
    ) -> Result<Option<MatchedResource>, ApiError> {
        if cx.match_rules(&self.excluded, self.equivalent)?.is_some() {
            return Ok(None);
        }
        let matched = match &self.rules {
            None => Some(MatchedResource::Requested),
            Some(rules) => cx.match_rules(rules, self.equivalent)?,
        };
        let Some(matched) = matched else { return Ok(None) };
        // An object that is not selected is decided without its namespace, whatever that is.
        if !cx.match_object(&self.objects, object)? {
            return Ok(None);
        }
        Ok(cx.match_namespace(&self.namespaces, object).await?.then_some(matched))
    }
}

fn rules(from: &Value, field: &str) -> Vec<Rule> {
    from.items_at(&[field]).iter().map(Rule::read).collect()
}

/// As what a request matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MatchedResource {
    Requested,
    /// Another version of the resource: the index in [`MatchContext`]'s list.
    Equivalent(usize),
}

/// One request, and what matching has looked up for it so far.
pub(crate) struct MatchContext<'a> {
    pub(crate) attributes: &'a Attributes<'a>,
    pub(crate) cluster: &'a Cluster,
    equivalents: Option<Vec<(GroupVersionResource, GroupVersionKind)>>,
    namespace: Option<Result<Value, ApiError>>,
    namespace_labels: Option<Result<Labels, ApiError>>,
}

/// Sorted by key.
type Labels = Vec<(Str, Str)>;

impl<'a> MatchContext<'a> {
    pub(crate) fn new(attributes: &'a Attributes<'a>, cluster: &'a Cluster) -> Self {
        Self { attributes, cluster, equivalents: None, namespace: None, namespace_labels: None }
    }

    fn match_rules(
        &mut self,
        rules: &[Rule],
        equivalent: bool,
    ) -> Result<Option<MatchedResource>, ApiError> {
        let attributes = self.attributes;
        if rules.iter().any(|rule| rule.matches(attributes, attributes.gvr)) {
            return Ok(Some(MatchedResource::Requested));
        }
        let differs_in_version = |rule: &Rule| {
            rule.matches_in_any_version(attributes, attributes.gvr)
                && !rule.matches_group_version(attributes.gvr)
        };
        if !equivalent || !rules.iter().any(differs_in_version) {
            return Ok(None);
        }
        let equivalents = self.equivalents();
        for rule in rules {
            let found = equivalents.iter().position(|(gvr, _)| rule.matches(attributes, gvr));
            if let Some(at) = found {
                return Ok(Some(MatchedResource::Equivalent(at)));
            }
        }
        Ok(None)
    }

    fn equivalents(&mut self) -> &[(GroupVersionResource, GroupVersionKind)] {
        let (cluster, gvr) = (self.cluster, self.attributes.gvr);
        self.equivalents.get_or_insert_with(|| cluster.objects.equivalents(gvr))
    }

    /// The resource and the kind of a match.
    pub(crate) fn resource(
        &self,
        matched: MatchedResource,
    ) -> (&GroupVersionResource, &GroupVersionKind) {
        let attributes = self.attributes;
        let found = match (matched, &self.equivalents) {
            (MatchedResource::Equivalent(at), Some(equivalents)) => equivalents.get(at),
            _ => None,
        };
        match found {
            // The kind of some subresources (Scale, Eviction) is the same in every version.
            Some((gvr, _)) if !self.is_own_kind() => (gvr, attributes.gvk),
            Some((gvr, gvk)) => (gvr, gvk),
            None => (attributes.gvr, attributes.gvk),
        }
    }

    /// Whether the request's object is of the resource's own kind.
    pub(crate) fn is_own_kind(&self) -> bool {
        let served = self.cluster.objects.resource_of(self.attributes.gvk);
        served.is_some_and(|(gvr, _)| gvr.resource == self.attributes.gvr.resource)
    }

    fn match_object(
        &self,
        selector: &Result<LabelSelector, String>,
        object: Option<&Value>,
    ) -> Result<bool, ApiError> {
        let selector = selector.as_ref().map_err(ApiError::internal)?;
        let matches = |object: Option<&Value>| {
            // What has no metadata (PodExecOptions) is never selected.
            object.is_some_and(|object| {
                object.get("metadata").is_some() && selector.matches_object(object)
            })
        };
        Ok(selector.is_everything() || matches(object) || matches(self.attributes.old))
    }

    async fn match_namespace(
        &mut self,
        selector: &Result<LabelSelector, String>,
        object: Option<&Value>,
    ) -> Result<bool, ApiError> {
        let attributes = self.attributes;
        if attributes.namespace.is_empty() && attributes.gvr.resource != "namespaces" {
            return Ok(true);
        }
        let selector = selector.as_ref().map_err(ApiError::internal)?;
        if selector.is_everything() {
            return Ok(true);
        }
        // The labels that a namespace is given count at once.
        if attributes.gvr.resource == "namespaces"
            && attributes.subresource.is_empty()
            && matches!(attributes.operation, Operation::Create | Operation::Update)
            && let Some(object) = object
        {
            return Ok(selector.matches_object(object));
        }
        Ok(selector.matches(self.namespace_labels().await?))
    }

    /// The labels of the request's namespace. They are kept beside the objects of the cache, so that a
    /// selector costs no decoding.
    pub(crate) async fn namespace_labels(&mut self) -> Result<&Labels, ApiError> {
        if self.namespace_labels.is_none() {
            let cached = self.cluster.objects.namespace_labels(self.namespace_name());
            let labels = match cached {
                Some(labels) => Ok(labels),
                None => self.namespace().await.map(labels_of),
            };
            self.namespace_labels = Some(labels);
        }
        match &self.namespace_labels {
            Some(Ok(labels)) => Ok(labels),
            Some(Err(error)) => Err(error.clone()),
            None => Err(ApiError::internal("the namespace was not looked up")),
        }
    }

    fn namespace_name(&self) -> &'a str {
        match self.attributes.namespace {
            "" if is_namespace(self.attributes.gvr) => self.attributes.name,
            name => name,
        }
    }

    /// The namespace of the request, from the cache or, if it is not there yet, from the store.
    pub(crate) async fn namespace(&mut self) -> Result<&Value, ApiError> {
        if self.namespace.is_none() {
            self.namespace = Some(self.find_namespace().await);
        }
        match &self.namespace {
            Some(Ok(namespace)) => Ok(namespace),
            Some(Err(error)) => Err(error.clone()),
            None => Err(ApiError::internal("the namespace was not looked up")),
        }
    }

    /// The namespace, if it was looked up before.
    pub(crate) fn known_namespace(&self) -> Option<&Value> {
        self.namespace.as_ref().and_then(|namespace| namespace.as_ref().ok())
    }

    async fn find_namespace(&self) -> Result<Value, ApiError> {
        let name = self.namespace_name();
        for freshness in [Freshness::Cached, Freshness::Linearizable] {
            let objects = &self.cluster.objects;
            let found = objects.get(&resources::NAMESPACES, "", name, freshness).await?;
            if let Some(found) = found {
                return Ok(found);
            }
        }
        Err(ApiError::not_found(resources::NAMESPACES.group_resource(), name))
    }
}

/// A map of an object is sorted by key.
fn labels_of(object: &Value) -> Labels {
    let labels = object.at(&["metadata", "labels"]).and_then(Value::as_object);
    let labels = labels.into_iter().flat_map(Map::iter);
    labels.filter_map(|(key, value)| Some((key.clone(), Str::new(value.as_str()?)))).collect()
}

/// Finds the configurations that can concern a resource without a look at the others.
#[derive(Debug, Default)]
pub(crate) struct ResourceIndex {
    by_resource: HashMap<Str, Vec<usize>>,
    /// Those for resources that none names.
    others: Vec<usize>,
    /// How many are from files; they come first.
    from_files: usize,
}

impl ResourceIndex {
    /// `criteria` in the order in which configurations are asked; the first `from_files` are from files.
    pub(crate) fn new<'c>(criteria: impl Iterator<Item = &'c Criteria>, from_files: usize) -> Self {
        let named: Vec<Option<Vec<&Str>>> = criteria.map(Criteria::resource_names).collect();
        let mut by_resource: HashMap<Str, Vec<usize>> = HashMap::new();
        for name in named.iter().flatten().flatten() {
            by_resource.entry((*name).clone()).or_default();
        }
        let concerns = |at: usize, resource: &Str| match &named[at] {
            None => true,
            Some(names) => names.contains(&resource),
        };
        for (resource, places) in &mut by_resource {
            places.extend((0..named.len()).filter(|at| concerns(*at, resource)));
        }
        let others = (0..named.len()).filter(|at| named[*at].is_none()).collect();
        Self { by_resource, others, from_files }
    }

    /// The places of those that can concern a resource, in their order.
    pub(crate) fn candidates(&self, resource: &str, visibility: Visibility) -> &[usize] {
        let all = self.by_resource.get(resource).unwrap_or(&self.others).as_slice();
        match visibility {
            Visibility::All => all,
            Visibility::Static => &all[..all.partition_point(|at| *at < self.from_files)],
            Visibility::Nothing => &[],
        }
    }
}

/// Which configurations see a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visibility {
    All,
    /// Those from files only: one that is an object of the API could lock the objects of its own kind.
    Static,
    Nothing,
}

impl Visibility {
    /// Compat: no webhook of the API sees a webhook configuration, a policy or a binding.
    pub(crate) fn to_webhooks(kind: &GroupVersionKind) -> Self {
        const EXEMPT: [&str; 6] = [
            "ValidatingWebhookConfiguration",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
        ];
        let is_exempt = kind.group == ADMISSION_GROUP && EXEMPT.contains(&kind.kind.as_str());
        if is_exempt { Self::Static } else { Self::All }
    }

    /// Compat: policies see webhook configurations, and no reviews: a policy that refuses those would
    /// break authentication and authorization of other servers.
    pub(crate) fn to_policies(resource: &GroupVersionResource) -> Self {
        match (resource.group.as_str(), resource.resource.as_str()) {
            (
                ADMISSION_GROUP,
                "validatingadmissionpolicies"
                | "validatingadmissionpolicybindings"
                | "mutatingadmissionpolicies"
                | "mutatingadmissionpolicybindings",
            ) => Self::Static,
            ("authentication.k8s.io", "selfsubjectreviews" | "tokenreviews")
            | (
                "authorization.k8s.io",
                "localsubjectaccessreviews"
                | "selfsubjectaccessreviews"
                | "selfsubjectrulesreviews"
                | "subjectaccessreviews",
            ) => Self::Nothing,
            _ => Self::All,
        }
    }
}

const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";

#[cfg(test)]
mod tests;
