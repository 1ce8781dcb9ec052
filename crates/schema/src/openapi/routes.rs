//! Which requests are answered: paths, operations and what goes in and out of them.

mod resource;

use meta::{GroupVersion, GroupVersionKind, Str};

use super::{CustomResource, Param, TypesByKind, meta_v1};
use crate::{ResourceFacts, Schema};
use resource::PathBuilder;
pub use resource::{CUSTOM_PATCHES, PATCHES};

/// A path and what can be done there.
#[derive(Debug, Default)]
pub struct Path {
    pub path: String,
    /// Those that all operations have in common.
    pub params: Vec<Param>,
    pub operations: Vec<Operation>,
}

#[derive(Debug, Default)]
pub struct Operation {
    /// In lower case.
    pub method: &'static str,
    pub id: String,
    pub tag: String,
    pub description: String,
    pub action: Option<Action>,
    pub params: Vec<Param>,
    /// The definition of the body, and whether it may be left out.
    pub body: Option<(Str, bool)>,
    pub consumes: &'static [&'static str],
    pub produces: Vec<&'static str>,
    pub responses: Vec<Response>,
}

/// What Kubernetes calls it, and the kind that it is done with.
#[derive(Debug)]
pub struct Action {
    pub name: &'static str,
    pub kind: GroupVersionKind,
}

#[derive(Debug)]
pub struct Response {
    pub code: u16,
    pub content: Content,
}

#[derive(Clone, Debug)]
pub enum Content {
    Text,
    Definition(Str),
}

/// Makes routes of resources.
pub struct Routes<'a> {
    pub schema: &'a Schema,
    pub kinds: &'a TypesByKind<'a>,
}

impl Routes<'_> {
    /// Every path of a group version, discovery included.
    pub fn of_group_version(
        &self,
        group_version: &GroupVersion,
        resources: impl IntoIterator<Item = impl AsRef<ResourceFacts>>,
    ) -> Vec<Path> {
        let names = Names::of(group_version);
        let mut paths = vec![names.discovery()];
        for resource in resources {
            let resource = resource.as_ref();
            let builder = PathBuilder { routes: self, names: &names, resource, custom: None };
            builder.resource(&mut paths);
            for subresource in &resource.subresources {
                builder.subresource(subresource, &mut paths);
            }
        }
        paths.retain(|path| !path.operations.is_empty());
        paths.iter_mut().for_each(Path::share_params);
        paths
    }

    /// The paths of custom resources of a group version.
    pub fn of_custom<'c>(
        &self,
        group_version: &GroupVersion,
        resources: impl IntoIterator<Item = &'c CustomResource>,
    ) -> Vec<Path> {
        let names = Names::of(group_version);
        let mut paths = Vec::new();
        for custom in resources {
            let builder = PathBuilder {
                routes: self,
                names: &names,
                resource: &custom.facts,
                custom: Some(custom),
            };
            builder.resource(&mut paths);
            for subresource in &custom.facts.subresources {
                builder.subresource(subresource, &mut paths);
            }
        }
        paths.iter_mut().for_each(Path::share_params);
        paths
    }

    /// `/apis/<group>/`
    pub fn of_group(group: &str) -> Vec<Path> {
        let name = group_name(group);
        vec![discovery(
            &format!("/apis/{group}/"),
            format!("get{name}APIGroup"),
            lower_first(&name),
            "get information of a group",
            "APIGroup",
        )]
    }

    /// `/api/`
    pub fn of_core() -> Vec<Path> {
        let tag = "core".to_owned();
        vec![discovery("/api/", "getCoreAPIVersions".into(), tag, VERSIONS, "APIVersions")]
    }

    /// `/apis/`
    pub fn of_groups() -> Vec<Path> {
        let tag = "apis".to_owned();
        vec![discovery("/apis/", "getAPIVersions".into(), tag, VERSIONS, "APIGroupList")]
    }

    /// `/version/`
    pub fn of_version() -> Vec<Path> {
        let info = Str::new_static("io.k8s.apimachinery.pkg.version.Info");
        vec![alone(
            "/version/",
            Operation {
                id: "getCodeVersion".into(),
                tag: "version".into(),
                description: "get the version information for this server".into(),
                consumes: &["application/json"],
                produces: vec!["application/json"],
                responses: vec![ok(Content::Definition(info))],
                ..Operation::default()
            },
        )]
    }

    /// `/.well-known/openid-configuration/`
    pub fn of_issuer() -> Vec<Path> {
        vec![alone(
            "/.well-known/openid-configuration/",
            Operation {
                id: "getServiceAccountIssuerOpenIDConfiguration".into(),
                tag: "WellKnown".into(),
                description: "get the OpenID configuration of the issuer of service account tokens"
                    .into(),
                produces: vec!["application/json"],
                responses: vec![ok(Content::Text)],
                ..Operation::default()
            },
        )]
    }

    /// `/openid/v1/jwks/`
    pub fn of_keys() -> Vec<Path> {
        vec![alone(
            "/openid/v1/jwks/",
            Operation {
                id: "getServiceAccountIssuerOpenIDKeyset".into(),
                tag: "openid".into(),
                description: "get the keys that service account tokens are verified with".into(),
                produces: vec!["application/jwk-set+json"],
                responses: vec![ok(Content::Text)],
                ..Operation::default()
            },
        )]
    }
}

const VERSIONS: &str = "get available API versions";

fn alone(path: &str, operation: Operation) -> Path {
    let operation = Operation { method: "get", ..operation };
    Path { path: path.to_owned(), params: Vec::new(), operations: vec![operation] }
}

fn discovery(path: &str, id: String, tag: String, description: &str, kind: &str) -> Path {
    alone(
        path,
        Operation {
            id,
            tag,
            description: description.to_owned(),
            consumes: &OBJECT,
            produces: OBJECT.to_vec(),
            responses: vec![ok(Content::Definition(meta_v1(kind)))],
            ..Operation::default()
        },
    )
}

/// The names of a group version in operation ids, tags and paths.
struct Names {
    /// `/apis/apps/v1`
    root: String,
    /// `AppsV1`
    id: String,
    /// `apps_v1`
    tag: String,
}

impl Names {
    fn of(group_version: &GroupVersion) -> Self {
        let group = group_name(&group_version.group);
        let root = if group_version.group.is_empty() { "/api" } else { "/apis" };
        Self {
            root: format!("{root}/{group_version}"),
            id: format!("{group}{}", upper_first(&group_version.version)),
            tag: format!("{}_{}", lower_first(&group), group_version.version),
        }
    }

    fn discovery(&self) -> Path {
        discovery(
            &format!("{}/", self.root),
            format!("get{}APIResources", self.id),
            self.tag.clone(),
            "get available resources",
            "APIResourceList",
        )
    }
}

/// `rbac.authorization.k8s.io` is `RbacAuthorization`.
fn group_name(group: &str) -> String {
    match group {
        "" => "Core".to_owned(),
        group => group
            .strip_suffix(".k8s.io")
            .unwrap_or(group)
            .split(['.', '-'])
            .map(upper_first)
            .collect(),
    }
}

impl Path {
    /// Moves the parameters that all operations have to the path, and sorts all of them.
    fn share_params(&mut self) {
        let Some((first, others)) = self.operations.split_first() else { return };
        let shared =
            |param: &Param| others.iter().all(|operation| operation.params.contains(param));
        self.params = first.params.iter().filter(|param| shared(param)).cloned().collect();
        for operation in &mut self.operations {
            operation.params.retain(|param| !self.params.contains(param));
            sort(&mut operation.params);
        }
        sort(&mut self.params);
    }
}

fn sort(params: &mut [Param]) {
    params.sort_by(|a, b| a.name.cmp(&b.name).then(a.location.cmp(&b.location)));
}

fn ok(content: Content) -> Response {
    Response { code: 200, content }
}

const OBJECT: [&str; 3] =
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

fn upper_first(text: &str) -> String {
    change_first(text, |first| first.to_ascii_uppercase())
}

fn lower_first(text: &str) -> String {
    change_first(text, |first| first.to_ascii_lowercase())
}

fn change_first(text: &str, change: impl Fn(char) -> char) -> String {
    let mut chars = text.chars();
    chars.next().map(change).into_iter().chain(chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_versions_are_named_in_operation_ids_paths_and_tags() {
        let cases = [
            ("", "v1", "/api/v1 CoreV1 core_v1"),
            ("apps", "v1", "/apis/apps/v1 AppsV1 apps_v1"),
            (
                "rbac.authorization.k8s.io",
                "v1",
                "/apis/rbac.authorization.k8s.io/v1 RbacAuthorizationV1 rbacAuthorization_v1",
            ),
            (
                "stable.example.com",
                "v1beta1",
                "/apis/stable.example.com/v1beta1 StableExampleComV1beta1 stableExampleCom_v1beta1",
            ),
        ];
        for (group, version, expected) in cases {
            let Names { root, id, tag } = Names::of(&GroupVersion::new(group, version));
            assert_eq!(format!("{root} {id} {tag}"), expected);
        }
    }

    #[test]
    fn parameters_that_all_operations_have_belong_to_the_path() {
        let with = |names: &[&str]| Operation {
            params: names.iter().map(|name| Param::query(name)).collect(),
            ..Operation::default()
        };
        let operations = vec![with(&["watch", "pretty", "limit"]), with(&["pretty", "dryRun"])];
        let mut path = Path { operations, ..Path::default() };
        path.share_params();
        let names = |params: &[Param]| {
            params.iter().map(|param| param.name.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&path.params), "pretty");
        assert_eq!(names(&path.operations[0].params), "limit watch");
        assert_eq!(names(&path.operations[1].params), "dryRun");
    }
}
