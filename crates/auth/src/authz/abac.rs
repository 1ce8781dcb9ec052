//! Mode `ABAC`: a file of policies, one JSON object a line, read at start.

use codec::json::{DecodeOptions, decode_any};
use meta::{
    Str, User, Value,
    authorization::{NonResourceRule, ResourceRule},
    field::quote,
};

use super::{Attributes, Authorize, Authorizer, Rules, Verdict};

#[derive(Debug, Default)]
pub struct Abac(Vec<Policy>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Policy {
    user: String,
    group: String,
    readonly: bool,
    api_group: String,
    resource: String,
    namespace: String,
    non_resource_path: String,
}

const VERSION: &str = "abac.authorization.kubernetes.io/v1beta1";
const SPEC: [&str; 7] =
    ["user", "group", "readonly", "apiGroup", "resource", "namespace", "nonResourcePath"];
/// Compat: what a line without version and kind may have.
const UNVERSIONED: [&str; 5] = ["user", "group", "readonly", "resource", "namespace"];

impl Abac {
    /// Reads the text of a policy file. What cannot be understood is an error with its line: a policy
    /// that is not what its author meant may allow more.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut policies = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let policy = Policy::parse(line);
            policies.push(
                policy.map_err(|why| format!("error reading policy on line {}: {why}", at + 1))?,
            );
        }
        Ok(Self(policies))
    }
}

impl Authorizer for Abac {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Authorize<'a> {
        if self.0.iter().any(|policy| policy.allows(attributes)) {
            return Verdict::allow("").into();
        }
        Verdict::no_opinion("No policy matched.").into()
    }

    fn rules(&self, user: &User, namespace: &str) -> Rules {
        let mut rules = Rules::default();
        for policy in self.0.iter().filter(|policy| policy.is_about(user)) {
            if policy.namespace != "*" && policy.namespace != namespace {
                continue;
            }
            let verbs: &[&str] = if policy.readonly { &["get", "list", "watch"] } else { &["*"] };
            let verbs: Vec<Str> = verbs.iter().copied().map(Str::new).collect();
            if !policy.resource.is_empty() {
                rules.resource.push(ResourceRule {
                    verbs: verbs.clone(),
                    api_groups: vec![Str::new(&policy.api_group)],
                    resources: vec![Str::new(&policy.resource)],
                    resource_names: Vec::new(),
                });
            }
            if !policy.non_resource_path.is_empty() {
                let urls = vec![Str::new(&policy.non_resource_path)];
                rules.non_resource.push(NonResourceRule { verbs, urls });
            }
        }
        rules
    }
}

impl Policy {
    fn parse(line: &str) -> Result<Self, String> {
        let decoded = decode_any(line.as_bytes(), DecodeOptions { strict: true })
            .map_err(|error| error.to_string())?;
        if let Some(duplicate) = decoded.strict.first() {
            return Err(duplicate.to_string());
        }
        let value = decoded.value;
        let object = value.as_object().ok_or("not an object")?;
        let is_versioned = value.get("apiVersion").is_some() || value.get("kind").is_some();
        if !is_versioned {
            return Self::read(&value, &UNVERSIONED).map(Self::of_version_0);
        }
        let (version, kind) = (value.str_at(&["apiVersion"]), value.str_at(&["kind"]));
        if (version, kind) != (VERSION, "Policy") {
            return Err(format!(
                "expected kind Policy of {VERSION}, found {kind:?} of {version:?}"
            ));
        }
        if let Some((unknown, _)) =
            object.iter().find(|(name, _)| !["apiVersion", "kind", "spec"].contains(&name.as_str()))
        {
            return Err(format!("unknown field {}", quote(unknown)));
        }
        let spec = value.get("spec").unwrap_or(&Value::Null);
        let mut policy = Self::read(spec, &SPEC)?;
        policy.only_authenticated();
        Ok(policy)
    }

    fn read(spec: &Value, known: &[&str]) -> Result<Self, String> {
        for (name, value) in spec.as_object().ok_or("spec is not an object")?.iter() {
            let is_right = match name.as_str() {
                "readonly" => matches!(value, Value::Bool(_)),
                _ => matches!(value, Value::String(_)),
            };
            if !known.contains(&name.as_str()) {
                return Err(format!("unknown field {}", quote(name)));
            }
            if !is_right {
                return Err(format!("field {} has the wrong type", quote(name)));
            }
        }
        let text = |name: &str| spec.str_at(&[name]).to_owned();
        Ok(Self {
            user: text("user"),
            group: text("group"),
            readonly: spec.get("readonly").and_then(Value::as_bool).unwrap_or_default(),
            api_group: text("apiGroup"),
            resource: text("resource"),
            namespace: text("namespace"),
            non_resource_path: text("nonResourcePath"),
        })
    }

    /// Compat: `*` is every authenticated user, never an anonymous one.
    fn only_authenticated(&mut self) {
        if self.user == "*" || self.group == "*" {
            User::AUTHENTICATED.clone_into(&mut self.group);
            self.user.clear();
        }
    }

    /// Compat: what is empty in a line without a version means all.
    fn of_version_0(mut self) -> Self {
        if self.user.is_empty() && self.group.is_empty() {
            User::AUTHENTICATED.clone_into(&mut self.group);
        }
        self.only_authenticated();
        if self.namespace.is_empty() && self.resource.is_empty() {
            "*".clone_into(&mut self.non_resource_path);
        }
        for field in [&mut self.namespace, &mut self.resource, &mut self.api_group] {
            if field.is_empty() {
                field.push('*');
            }
        }
        self
    }

    fn allows(&self, attributes: &Attributes<'_>) -> bool {
        self.is_about(attributes.user)
            && (attributes.is_read_only() || !self.readonly)
            && if attributes.is_resource {
                self.covers_resource(attributes)
            } else {
                self.covers_path(attributes.path)
            }
    }

    /// With both a user and a group, both have to match.
    fn is_about(&self, user: &User) -> bool {
        let by_user = self.user.is_empty() || user.name == self.user;
        let by_group = self.group.is_empty() || user.is_in(&self.group);
        (!self.user.is_empty() || !self.group.is_empty()) && by_user && by_group
    }

    fn covers_resource(&self, attributes: &Attributes<'_>) -> bool {
        let is = |pattern: &str, value: &str| pattern == "*" || pattern == value;
        is(&self.namespace, attributes.namespace)
            && is(&self.resource, attributes.resource)
            && is(&self.api_group, attributes.group)
    }

    fn covers_path(&self, path: &str) -> bool {
        let pattern = self.non_resource_path.as_str();
        pattern == path
            || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, groups: &[&str]) -> User {
        let groups = groups.iter().copied().map(Str::new).collect();
        User { name: Str::new(name), groups, ..User::default() }
    }

    fn versioned(spec: &str) -> String {
        format!(r#"{{"apiVersion":"{VERSION}","kind":"Policy","spec":{{{spec}}}}}"#)
    }

    #[test]
    fn policies_allow_what_they_say() {
        let file = [
            "# a comment".to_owned(),
            String::new(),
            versioned(r#""user":"alice","namespace":"*","resource":"*","apiGroup":"*""#),
            versioned(r#""user":"bob","namespace":"ns","resource":"pods","readonly":true"#),
            versioned(r#""group":"ops","user":"carol","resource":"nodes""#),
            versioned(r#""group":"*","nonResourcePath":"/api*","readonly":true"#),
        ];
        let abac = Abac::parse(&file.join("\n")).unwrap();
        let authenticated = "system:authenticated";
        let resource = |name: &str, groups: &[&str], verb, resource, namespace| {
            let user = user(name, groups);
            let attributes =
                Attributes { namespace, ..Attributes::of_resource(&user, verb, "", resource) };
            let Authorize::Ready(verdict) = abac.authorize(&attributes) else { panic!("it waits") };
            verdict.is_allowed()
        };
        let cases = [
            (resource("alice", &[], "delete", "nodes", ""), true),
            (resource("bob", &[], "list", "pods", "ns"), true),
            (resource("bob", &[], "create", "pods", "ns"), false),
            (resource("bob", &[], "get", "pods", "other"), false),
            (resource("bob", &[], "get", "secrets", "ns"), false),
            (resource("carol", &["ops"], "get", "nodes", ""), true),
            (resource("carol", &[], "get", "nodes", ""), false),
            (resource("dave", &["ops"], "get", "nodes", ""), false),
        ];
        for (at, (allowed, expected)) in cases.into_iter().enumerate() {
            assert_eq!(allowed, expected, "case {at}");
        }
        for (groups, verb, path, expected) in [
            (vec![authenticated], "get", "/api", true),
            (vec![authenticated], "get", "/apis/apps", true),
            (vec![authenticated], "get", "/metrics", false),
            (vec![authenticated], "post", "/api", false),
            (vec!["system:unauthenticated"], "get", "/api", false),
        ] {
            let user = user("x", &groups);
            let attributes = Attributes::of_path(&user, verb, path);
            let Authorize::Ready(verdict) = abac.authorize(&attributes) else { panic!("it waits") };
            assert_eq!(verdict.is_allowed(), expected, "{groups:?} {verb} {path}");
        }
        assert_eq!(abac.rules(&user("bob", &[]), "ns").resource.len(), 1);
        assert_eq!(abac.rules(&user("bob", &[]), "other").resource.len(), 0);
    }

    #[test]
    fn lines_without_a_version_mean_all_where_they_are_empty() {
        let abac = Abac::parse("{\"user\":\"*\"}\n{\"user\":\"bob\",\"readonly\":true}").unwrap();
        let all = Policy {
            group: "system:authenticated".to_owned(),
            api_group: "*".to_owned(),
            resource: "*".to_owned(),
            namespace: "*".to_owned(),
            non_resource_path: "*".to_owned(),
            ..Policy::default()
        };
        assert_eq!(abac.0[0], all);
        assert_eq!((abac.0[1].user.as_str(), abac.0[1].readonly), ("bob", true));
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_line() {
        let cases = [
            ("{}\n{", "line 2"),
            ("[]", "line 1: not an object"),
            ("{\"usr\":\"x\"}", "unknown field \"usr\""),
            ("{\"readonly\":\"true\"}", "wrong type"),
            ("{\"user\":\"a\",\"user\":\"b\"}", "line 1"),
            ("{\"kind\":\"Policy\",\"apiVersion\":\"v1\"}", "expected kind Policy"),
        ];
        for (text, expected) in cases {
            let why = Abac::parse(text).unwrap_err();
            assert!(why.contains(expected), "{why} instead of {expected}");
        }
    }
}
