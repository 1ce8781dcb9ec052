//! FlowSchemas: which requests belong to which priority level, and to which flow in it.

use std::sync::Arc;

use meta::{RequestInfo, Str, User, Value};

use crate::metrics::SchemaMetrics;
use crate::priority_level::PriorityLevel;

/// A FlowSchema with the priority level that it names.
pub struct FlowSchema {
    pub name: Str,
    pub uid: Str,
    pub(crate) level_uid: Str,
    pub(crate) spec: FlowSchemaSpec,
    pub(crate) level: Arc<PriorityLevel>,
    pub(crate) metrics: Arc<SchemaMetrics>,
}

impl FlowSchema {
    pub fn level_name(&self) -> &Str {
        &self.level.name
    }

    pub fn level_uid(&self) -> &Str {
        &self.level_uid
    }
}

/// `spec`, compiled for matching.
#[derive(Debug)]
pub(crate) struct FlowSchemaSpec {
    pub(crate) level: Str,
    pub(crate) precedence: i64,
    pub(crate) distinguisher: Option<Distinguisher>,
    rules: Vec<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distinguisher {
    ByUser,
    ByNamespace,
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug)]
enum Subject {
    User(Names),
    Group(Names),
    /// None: all of the namespace.
    ServiceAccount {
        namespace: Str,
        name: Option<Str>,
    },
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Names,
    groups: Names,
    /// `pods`, `pods/status`.
    resources: Names,
    namespaces: Names,
    cluster_scope: bool,
}

#[derive(Debug)]
struct PathRule {
    verbs: Names,
    paths: Vec<PathPattern>,
}

#[derive(Debug)]
enum PathPattern {
    All,
    /// The path itself, and everything below the prefix.
    Under {
        path: Str,
        prefix: String,
    },
}

#[derive(Debug)]
enum Names {
    All,
    Listed(Vec<Str>),
}

const ALL: &str = "*";

impl Names {
    /// Compat: the wildcard is one if it stands alone.
    fn parse(value: &Value, field: &str) -> Self {
        Self::of(value.items_at(&[field]).iter().filter_map(Value::as_str).map(Str::new).collect())
    }

    fn of(names: Vec<Str>) -> Self {
        match names.as_slice() {
            [name] if name == ALL => Self::All,
            _ => Self::Listed(names),
        }
    }

    fn contain(&self, name: &str) -> bool {
        self.any(|listed| listed == name)
    }

    fn any(&self, matches: impl Fn(&str) -> bool) -> bool {
        match self {
            Self::All => true,
            Self::Listed(names) => names.iter().any(|name| matches(name)),
        }
    }
}

impl FlowSchemaSpec {
    pub(crate) fn parse(spec: &Value) -> Self {
        let distinguisher = match spec.str_at(&["distinguisherMethod", "type"]) {
            "ByUser" => Some(Distinguisher::ByUser),
            "ByNamespace" => Some(Distinguisher::ByNamespace),
            _ => None,
        };
        Self {
            level: Str::new(spec.str_at(&["priorityLevelConfiguration", "name"])),
            precedence: spec.i64_at(&["matchingPrecedence"]).unwrap_or_default(),
            distinguisher,
            rules: spec.items_at(&["rules"]).iter().map(Rule::parse).collect(),
        }
    }

    /// The FlowSchemas that exist even if their objects do not: all requests of `groups`.
    fn everything_of(level: &'static str, precedence: i64, groups: &[&'static str]) -> Self {
        let subjects = groups
            .iter()
            .map(|group| Subject::Group(Names::Listed(vec![Str::new_static(group)])))
            .collect();
        let all = ResourceRule {
            verbs: Names::All,
            groups: Names::All,
            resources: Names::All,
            namespaces: Names::All,
            cluster_scope: true,
        };
        let paths = vec![PathRule { verbs: Names::All, paths: vec![PathPattern::All] }];
        Self {
            level: Str::new_static(level),
            precedence,
            distinguisher: (level == CATCH_ALL).then_some(Distinguisher::ByUser),
            rules: vec![Rule { subjects, resources: vec![all], paths }],
        }
    }

    pub(crate) fn exempt() -> Self {
        Self::everything_of(EXEMPT, 1, &[User::MASTERS])
    }

    pub(crate) fn catch_all() -> Self {
        let everyone = [User::UNAUTHENTICATED, User::AUTHENTICATED];
        Self::everything_of(CATCH_ALL, 10_000, &everyone)
    }

    pub(crate) fn matches(&self, info: &RequestInfo, user: &User) -> bool {
        self.rules.iter().any(|rule| rule.matches(info, user))
    }

    /// The flow of a request among those of the FlowSchema.
    pub(crate) fn flow(&self, info: &RequestInfo, user: &User) -> Str {
        match self.distinguisher {
            Some(Distinguisher::ByUser) => user.name.clone(),
            Some(Distinguisher::ByNamespace) => info.namespace.clone(),
            None => Str::default(),
        }
    }
}

/// Names of the mandatory objects, of both kinds.
pub(crate) const EXEMPT: &str = "exempt";
pub(crate) const CATCH_ALL: &str = "catch-all";

impl Rule {
    fn parse(rule: &Value) -> Self {
        let subjects = rule.items_at(&["subjects"]).iter().filter_map(Subject::parse);
        Self {
            subjects: subjects.collect(),
            resources: rule.items_at(&["resourceRules"]).iter().map(ResourceRule::parse).collect(),
            paths: rule.items_at(&["nonResourceRules"]).iter().map(PathRule::parse).collect(),
        }
    }

    fn matches(&self, info: &RequestInfo, user: &User) -> bool {
        if !self.subjects.iter().any(|subject| subject.matches(user)) {
            return false;
        }
        if info.is_resource {
            self.resources.iter().any(|rule| rule.matches(info))
        } else {
            self.paths.iter().any(|rule| rule.matches(info))
        }
    }
}

impl Subject {
    fn parse(subject: &Value) -> Option<Self> {
        let name = |field: &str| subject.str_at(&[field, "name"]).to_owned();
        Some(match subject.str_at(&["kind"]) {
            "User" => Self::User(Names::of(vec![name("user").into()])),
            "Group" => Self::Group(Names::of(vec![name("group").into()])),
            "ServiceAccount" => {
                let name = Str::from(name("serviceAccount"));
                Self::ServiceAccount {
                    namespace: Str::new(subject.str_at(&["serviceAccount", "namespace"])),
                    name: (name != ALL).then_some(name),
                }
            }
            _ => return None,
        })
    }

    fn matches(&self, user: &User) -> bool {
        match self {
            Self::User(names) => names.contain(&user.name),
            Self::Group(names) => {
                matches!(names, Names::All) || user.groups.iter().any(|group| names.contain(group))
            }
            Self::ServiceAccount { namespace, name } => {
                let account = user
                    .name
                    .strip_prefix("system:serviceaccount:")
                    .and_then(|rest| rest.strip_prefix(namespace.as_str()))
                    .and_then(|rest| rest.strip_prefix(':'));
                account.is_some_and(|account| name.as_ref().is_none_or(|name| name == account))
            }
        }
    }
}

impl ResourceRule {
    fn parse(rule: &Value) -> Self {
        Self {
            verbs: Names::parse(rule, "verbs"),
            groups: Names::parse(rule, "apiGroups"),
            resources: Names::parse(rule, "resources"),
            namespaces: Names::parse(rule, "namespaces"),
            cluster_scope: rule.bool_at(&["clusterScope"]),
        }
    }

    fn matches(&self, info: &RequestInfo) -> bool {
        self.verbs.contain(&info.verb)
            && self.resources.any(|listed| is_resource(listed, info))
            && self.groups.contain(&info.group)
            && if info.namespace.is_empty() {
                self.cluster_scope
            } else {
                self.namespaces.contain(&info.namespace)
            }
    }
}

/// Whether `pods` or `pods/status` is what the request is about.
fn is_resource(listed: &str, info: &RequestInfo) -> bool {
    if info.subresource.is_empty() {
        return listed == info.resource;
    }
    let subresource = listed.strip_prefix(info.resource.as_str());
    subresource.and_then(|rest| rest.strip_prefix('/')) == Some(info.subresource.as_str())
}

impl PathRule {
    fn parse(rule: &Value) -> Self {
        let paths = rule.items_at(&["nonResourceURLs"]).iter().filter_map(Value::as_str);
        Self { verbs: Names::parse(rule, "verbs"), paths: paths.map(PathPattern::parse).collect() }
    }

    fn matches(&self, info: &RequestInfo) -> bool {
        self.verbs.contain(&info.verb)
            && self.paths.iter().any(|pattern| match pattern {
                PathPattern::All => true,
                PathPattern::Under { path, prefix } => {
                    *path == info.path || info.path.starts_with(prefix)
                }
            })
    }
}

impl PathPattern {
    /// Compat: a path without a wildcard matches what is below it too.
    fn parse(path: &str) -> Self {
        if path == ALL {
            return Self::All;
        }
        let mut prefix = path.strip_suffix('*').unwrap_or(path).to_owned();
        if !prefix.ends_with('/') {
            prefix.push('/');
        }
        Self::Under { path: Str::new(path), prefix }
    }
}

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    fn resource(text: &str) -> RequestInfo {
        // verb group resource/subresource namespace
        let parts: Vec<&str> = text.split(' ').collect();
        let (resource, subresource) = parts[2].split_once('/').unwrap_or((parts[2], ""));
        RequestInfo {
            verb: parts[0].into(),
            is_resource: true,
            group: parts[1].trim_matches('-').into(),
            resource: resource.into(),
            subresource: subresource.into(),
            namespace: parts.get(3).copied().unwrap_or_default().into(),
            ..RequestInfo::default()
        }
    }

    fn path(verb: &str, path: &str) -> RequestInfo {
        RequestInfo { verb: verb.into(), path: path.into(), ..RequestInfo::default() }
    }

    fn user(name: &str, groups: &[&str]) -> User {
        let groups = groups.iter().map(|&group| group.into()).collect();
        User { name: name.into(), groups, ..User::default() }
    }

    fn everything() -> Value {
        value!({
            "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
            "clusterScope": true, "namespaces": ["*"],
        })
    }

    #[test]
    fn subjects_are_matched() {
        let get = resource("get - pods default");
        let anna = user("anna", &["dev", "system:authenticated"]);
        let account = user("system:serviceaccount:kube-system:dns", &["system:serviceaccounts"]);
        let cases = [
            (value!({"kind": "User", "user": {"name": "anna"}}), &anna, true),
            (value!({"kind": "User", "user": {"name": "ann"}}), &anna, false),
            (value!({"kind": "User", "user": {"name": "*"}}), &anna, true),
            (value!({"kind": "Group", "group": {"name": "dev"}}), &anna, true),
            (value!({"kind": "Group", "group": {"name": "ops"}}), &anna, false),
            (value!({"kind": "Group", "group": {"name": "*"}}), &user("x", &[]), true),
            (service_account("kube-system", "dns"), &account, true),
            (service_account("kube-system", "*"), &account, true),
            (service_account("kube", "*"), &account, false),
            (service_account("kube-system", "dn"), &account, false),
            (service_account("kube-system", "*"), &anna, false),
            (value!({"kind": "Other"}), &anna, false),
            (value!({"kind": "User"}), &anna, false),
        ];
        for (subject, user, expected) in cases {
            let text = format!("{subject:?}");
            let spec = value!({"rules": [
                {"subjects": [(subject)], "resourceRules": [(everything())]},
            ]});
            assert_eq!(FlowSchemaSpec::parse(&spec).matches(&get, user), expected, "{text}");
        }
    }

    fn service_account(namespace: &str, name: &str) -> Value {
        value!({"kind": "ServiceAccount", "serviceAccount": {
            "namespace": (namespace), "name": (name),
        }})
    }

    #[test]
    fn resources_and_paths_are_matched() {
        let rule = |verbs: &str, groups: &str, resources: &str, namespaces: &str, cluster: bool| {
            let list = |text: &str| {
                let words = text.split(',').filter(|word| !word.is_empty());
                Value::from(words.map(|word| word.trim_matches('-')).collect::<Vec<_>>())
            };
            value!({"resourceRules": [{
                "verbs": (list(verbs)), "apiGroups": (list(groups)),
                "resources": (list(resources)), "namespaces": (list(namespaces)),
                "clusterScope": (cluster),
            }]})
        };
        let urls = |verbs: &str, url: &str| value!({"nonResourceRules": [{"verbs": [(verbs)], "nonResourceURLs": [(url)]}]});
        let cases = [
            (rule("*", "*", "*", "*", true), resource("get - pods a"), true),
            (rule("*", "*", "*", "*", true), resource("get - nodes"), true),
            (rule("*", "*", "*", "*", false), resource("get - nodes"), false),
            (rule("*", "*", "*", "", true), resource("get - pods a"), false),
            (rule("*", "*", "*", "b,a", true), resource("get - pods a"), true),
            (rule("get,list", "-", "pods", "*", false), resource("list - pods a"), true),
            (rule("get,list", "-", "pods", "*", false), resource("create - pods a"), false),
            (rule("get,*", "-", "pods", "*", false), resource("create - pods a"), false),
            (rule("*", "apps", "pods", "*", false), resource("get - pods a"), false),
            (rule("*", "-", "pods", "*", false), resource("get - pods/status a"), false),
            (rule("*", "-", "pods/status", "*", false), resource("get - pods/status a"), true),
            (rule("*", "-", "pods/status", "*", false), resource("get - pods a"), false),
            (rule("*", "-", "*", "*", false), resource("get - pods/status a"), true),
            (rule("*", "*", "*", "*", true), path("get", "/healthz"), false),
            (urls("*", "*"), path("get", "/anything"), true),
            (urls("get", "/healthz"), path("get", "/healthz"), true),
            (urls("get", "/healthz"), path("post", "/healthz"), false),
            (urls("get", "/healthz"), path("get", "/healthz/etcd"), true),
            (urls("get", "/healthz"), path("get", "/healthzz"), false),
            (urls("get", "/healthz/*"), path("get", "/healthz/etcd"), true),
            (urls("get", "/healthz/*"), path("get", "/healthz"), false),
            (urls("*", "*"), resource("get - pods a"), false),
        ];
        for (mut rule, info, expected) in cases {
            let text = format!("{rule:?} {info:?}");
            rule.set_at(&["subjects"], vec![value!({"kind": "User", "user": {"name": "*"}})]);
            let spec = FlowSchemaSpec::parse(&value!({"rules": [(rule)]}));
            assert_eq!(spec.matches(&info, &user("anna", &[])), expected, "{text}");
        }
    }

    #[test]
    fn flows_are_distinguished_by_user_or_namespace() {
        let info = resource("get - pods a");
        let anna = user("anna", &[]);
        for (method, expected) in [("ByUser", "anna"), ("ByNamespace", "a"), ("", "")] {
            let spec = value!({"distinguisherMethod": {"type": (method)}});
            assert_eq!(FlowSchemaSpec::parse(&spec).flow(&info, &anna), expected);
        }
    }

    #[test]
    fn mandatory_schemas_match_their_groups() {
        let cases = [
            ("system:masters", true, false),
            ("system:authenticated", false, true),
            ("system:unauthenticated", false, true),
            ("others", false, false),
        ];
        for (group, exempt, catch_all) in cases {
            let user = user("x", &[group]);
            for info in [resource("get - nodes"), resource("get - pods a"), path("get", "/")] {
                assert_eq!(FlowSchemaSpec::exempt().matches(&info, &user), exempt, "{group}");
                assert_eq!(FlowSchemaSpec::catch_all().matches(&info, &user), catch_all, "{group}");
            }
        }
    }
}
