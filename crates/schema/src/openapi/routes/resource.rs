//! The operations of one resource.

use meta::{GroupVersionKind, Str};

use super::{Action, Content, Names, OBJECT, Operation, Path, Response, Routes, ok, upper_first};
use crate::openapi::params::{CREATE, DELETE, LIST, PATCH, select};
use crate::openapi::{CustomResource, Param, meta_v1};
use crate::{ResourceFacts, SubresourceFacts, TypeId};

/// Builds the OpenAPI paths of one resource.
pub(super) struct PathBuilder<'a> {
    pub(super) routes: &'a Routes<'a>,
    pub(super) names: &'a Names,
    pub(super) resource: &'a ResourceFacts,
    /// Where the definitions of a custom resource are.
    pub(super) custom: Option<&'a CustomResource>,
}

impl PathBuilder<'_> {
    pub(super) fn resource(&self, paths: &mut Vec<Path>) {
        let ResourceFacts { kind, plural, namespaced, .. } = self.resource;
        let verb = |name: &str| self.resource.verbs.iter().any(|verb| verb == name);
        let object = self.object();
        let list = match self.custom {
            Some(custom) => Some(custom.list_definition()),
            None => self.resource.list_type_id.map(|id| self.definition(id)),
        };
        let (collection, item) = (self.path("", ""), self.path("", "/{name}"));

        let mut on_collection = Vec::new();
        if let (true, Some(list)) = (verb("list"), &list) {
            on_collection.push(self.list(&self.scoped(""), list));
        }
        if verb("create") {
            on_collection.push(self.create("", kind, &object));
        }
        if verb("deletecollection") {
            on_collection.push(self.delete_collection());
        }
        self.add(paths, collection, "", on_collection);

        let mut on_item = Vec::new();
        if verb("get") {
            on_item.push(self.read("", kind, Content::Definition(object.clone())));
        }
        if verb("update") {
            on_item.push(self.replace("", kind, &object));
        }
        if verb("delete") {
            on_item.push(self.delete(&object));
        }
        if verb("patch") {
            on_item.push(self.patch("", kind, &object));
        }
        self.add(paths, item, "", on_item);

        if let (true, true, Some(list)) = (*namespaced, verb("list"), &list) {
            let everywhere = format!("{}ForAllNamespaces", kind.kind);
            let path = format!("{}/{plural}", self.names.root);
            self.add(paths, path, "", vec![self.list(&everywhere, list)]);
        }
        // Custom resources are only watched by a parameter of the list.
        if verb("watch") && self.custom.is_none() {
            let lists = format!("{}List", self.scoped(""));
            self.add(paths, self.path("/watch", ""), "", vec![self.watch("watchlist", &lists)]);
            let one = self.watch("watch", &self.scoped(""));
            self.add(paths, self.path("/watch", "/{name}"), "", vec![one]);
            if *namespaced {
                let everywhere = format!("{}ListForAllNamespaces", kind.kind);
                let path = format!("{}/watch/{plural}", self.names.root);
                self.add(paths, path, "", vec![self.watch("watchlist", &everywhere)]);
            }
        }
    }

    pub(super) fn subresource(&self, subresource: &SubresourceFacts, paths: &mut Vec<Path>) {
        let SubresourceFacts { name, kind, verbs } = subresource;
        let path = self.path("", &format!("/{{name}}/{name}"));
        let object = match (self.custom, self.routes.kinds.type_of(kind)) {
            (_, Some(type_id)) if CONNECTED.contains(&name.as_str()) => {
                self.connect(subresource, type_id, &path, paths);
                return;
            }
            (_, Some(type_id)) => self.definition(type_id),
            (Some(custom), None) => custom.definition(),
            (None, None) => return,
        };
        // Compat: operations on the scale of a custom resource are documented as operations on the
        // resource.
        let kind = if self.custom.is_some() { &self.resource.kind } else { kind };
        let verb = |name: &str| verbs.iter().any(|verb| verb == name);
        let mut operations = Vec::new();
        if verb("get") {
            operations.push(if name == "log" {
                self.log(kind)
            } else {
                self.read(name, kind, Content::Definition(object.clone()))
            });
        }
        if verb("update") {
            operations.push(self.replace(name, kind, &object));
        }
        if verb("patch") {
            operations.push(self.patch(name, kind, &object));
        }
        if verb("create") {
            operations.push(self.create(name, kind, &object));
        }
        self.add(paths, path, name, operations);
    }

    /// The proxy and streaming requests of nodes, pods and services.
    fn connect(
        &self,
        subresource: &SubresourceFacts,
        options: TypeId,
        path: &str,
        paths: &mut Vec<Path>,
    ) {
        let SubresourceFacts { name, kind, verbs } = subresource;
        // A proxy passes on everything; what is a stream begins with a GET or a POST.
        let proxied = verbs.iter().any(|verb| verb == "delete");
        let methods: &[&str] = if proxied {
            &["get", "put", "post", "delete", "options", "head", "patch"]
        } else {
            &["get", "post"]
        };
        for with_path in if proxied { &[false, true][..] } else { &[false] } {
            let suffix = if *with_path { "WithPath" } else { "" };
            let operations = methods.iter().map(|method| {
                let verb = format!("connect{}{}", self.names.id, upper_first(method));
                let on = self.scoped(name);
                let method_name = method.to_uppercase();
                let mut params = self.option_params(options);
                if *with_path {
                    params.push(Param::path("path", "path to the resource"));
                }
                Operation {
                    method,
                    id: format!("{verb}{on}{suffix}"),
                    description: format!(
                        "connect {method_name} requests to {name} of {}",
                        self.kind()
                    ),
                    action: Some(Action { name: "connect", kind: kind.clone() }),
                    params,
                    consumes: &["*/*"],
                    produces: vec!["*/*"],
                    responses: vec![ok(Content::Text)],
                    ..Operation::default()
                }
            });
            let path = if *with_path { format!("{path}/{{path}}") } else { path.to_owned() };
            self.add(paths, path, name, operations.collect());
        }
    }

    fn list(&self, named: &str, list: &Str) -> Operation {
        Operation {
            method: "get",
            id: format!("list{}{named}", self.names.id),
            description: {
                let watches = self.resource.verbs.iter().any(|verb| verb == "watch");
                let verb = if watches { "list or watch" } else { "list" };
                format!("{verb} objects of kind {}", self.kind())
            },
            params: query("ListOptions", LIST),
            produces: STREAM.to_vec(),
            responses: vec![ok(Content::Definition(list.clone()))],
            ..operation("list", &self.resource.kind)
        }
    }

    fn watch(&self, action: &'static str, named: &str) -> Operation {
        Operation {
            method: "get",
            id: format!("watch{}{named}", self.names.id),
            description: if action == "watchlist" {
                format!(
                    "watch individual changes to a list of {}. deprecated: use the 'watch' parameter with a list \
                     operation instead.",
                    self.kind()
                )
            } else {
                format!(
                    "watch changes to an object of kind {}. deprecated: use the 'watch' parameter with a list \
                     operation instead, filtered to a single item with the 'fieldSelector' parameter.",
                    self.kind()
                )
            },
            params: query("ListOptions", LIST),
            produces: STREAM.to_vec(),
            responses: vec![ok(Content::Definition(meta_v1("WatchEvent")))],
            ..operation(action, &self.resource.kind)
        }
    }

    fn create(&self, subresource: &str, kind: &GroupVersionKind, object: &Str) -> Operation {
        Operation {
            method: "post",
            id: format!("create{}{}", self.names.id, self.scoped(subresource)),
            description: self.describe("create", subresource),
            params: query("CreateOptions", CREATE),
            body: Some((object.clone(), true)),
            responses: responses(&[200, 201, 202], object),
            ..operation("post", kind)
        }
    }

    fn read(&self, subresource: &str, kind: &GroupVersionKind, content: Content) -> Operation {
        Operation {
            method: "get",
            id: format!("read{}{}", self.names.id, self.scoped(subresource)),
            description: self.describe_existing("read", subresource),
            params: self
                .custom
                .map(|_| Param::option("GetOptions", "resourceVersion"))
                .into_iter()
                .collect(),
            responses: vec![ok(content)],
            ..operation("get", kind)
        }
    }

    fn log(&self, kind: &GroupVersionKind) -> Operation {
        let options = self.resource.kind.group_version().with_kind("PodLogOptions");
        let options = self.routes.kinds.type_of(&options);
        let mut read = self.read("log", kind, Content::Text);
        read.params.extend(options.into_iter().flat_map(|id| self.option_params(id)));
        read.produces.insert(0, "text/plain");
        read
    }

    fn replace(&self, subresource: &str, kind: &GroupVersionKind, object: &Str) -> Operation {
        Operation {
            method: "put",
            id: format!("replace{}{}", self.names.id, self.scoped(subresource)),
            description: self.describe_existing("replace", subresource),
            params: query("UpdateOptions", CREATE),
            body: Some((object.clone(), true)),
            responses: responses(&[200, 201], object),
            ..operation("put", kind)
        }
    }

    fn patch(&self, subresource: &str, kind: &GroupVersionKind, object: &Str) -> Operation {
        Operation {
            method: "patch",
            id: format!("patch{}{}", self.names.id, self.scoped(subresource)),
            description: self.describe_existing("partially update", subresource),
            params: query("PatchOptions", PATCH),
            body: Some((meta_v1("Patch"), true)),
            consumes: &PATCHES,
            // Compat: an apply may also create a custom resource, but the 201 is not documented.
            responses: responses(if self.custom.is_some() { &[200] } else { &[200, 201] }, object),
            ..operation("patch", kind)
        }
    }

    fn delete(&self, object: &Str) -> Operation {
        let answered =
            if self.resource.delete_returns_object { object.clone() } else { meta_v1("Status") };
        Operation {
            method: "delete",
            id: format!("delete{}{}", self.names.id, self.scoped("")),
            description: self.describe("delete", ""),
            params: query("DeleteOptions", DELETE),
            body: Some((meta_v1("DeleteOptions"), false)),
            responses: responses(&[200, 202], &answered),
            ..operation("delete", &self.resource.kind)
        }
    }

    fn delete_collection(&self) -> Operation {
        // Compat: custom resources document the options of a list instead of those of a deletion.
        let (params, body) = match self.custom {
            Some(_) => (query("ListOptions", LIST), None),
            None => {
                let mut params = query("DeleteOptions", DELETE);
                params.extend(query("ListOptions", select()));
                (params, Some((meta_v1("DeleteOptions"), false)))
            }
        };
        Operation {
            method: "delete",
            id: format!("delete{}Collection{}", self.names.id, self.scoped("")),
            description: format!("delete collection of {}", self.kind()),
            params,
            body,
            responses: responses(&[200], &meta_v1("Status")),
            ..operation("deletecollection", &self.resource.kind)
        }
    }

    /// Adds a path with the parameters that follow from it.
    fn add(
        &self,
        paths: &mut Vec<Path>,
        path: String,
        subresource: &str,
        mut operations: Vec<Operation>,
    ) {
        for operation in &mut operations {
            operation.tag.clone_from(&self.names.tag);
            if self.custom.is_some() {
                let patch = operation.method == "patch";
                operation.consumes = if patch { &CUSTOM_PATCHES } else { &CUSTOM };
                operation.produces = CUSTOM.to_vec();
            }
            if path.contains("{name}") {
                // Compat: of the kind that the operation is about, which is not that of the object for `scale`.
                let kind =
                    operation.action.as_ref().map_or(self.kind(), |action| &action.kind.kind);
                operation.params.push(Param::path("name", format!("name of the {kind}")));
            }
            if path.contains("{namespace}") {
                operation.params.push(Param::path("namespace", "the namespace"));
            }
            if !CONNECTED.contains(&subresource) {
                operation.params.push(Param::query("pretty"));
            }
        }
        paths.push(Path { path, params: Vec::new(), operations });
    }

    fn path(&self, before: &str, after: &str) -> String {
        let ResourceFacts { plural, namespaced, .. } = self.resource;
        let scope = if *namespaced { "/namespaces/{namespace}" } else { "" };
        format!("{}{before}{scope}/{plural}{after}", self.names.root)
    }

    /// `NamespacedPodStatus`: how operation ids name it.
    fn scoped(&self, subresource: &str) -> String {
        let scope = if self.resource.namespaced { "Namespaced" } else { "" };
        format!("{scope}{}{}", self.kind(), upper_first(subresource))
    }

    fn describe(&self, what: &str, subresource: &str) -> String {
        let kind = self.kind();
        // Compat: by the spelling of the kind, so that Endpoints has none.
        let article = if kind.ends_with('s') && !kind.ends_with("ss") {
            ""
        } else if kind.starts_with(['A', 'E', 'I', 'O', 'U']) {
            "an "
        } else {
            "a "
        };
        match subresource {
            "" => format!("{what} {article}{kind}"),
            subresource => format!("{what} {subresource} of {article}{kind}"),
        }
    }

    fn describe_existing(&self, what: &str, subresource: &str) -> String {
        match subresource {
            "" => format!("{what} the specified {}", self.kind()),
            subresource => format!("{what} {subresource} of the specified {}", self.kind()),
        }
    }

    fn kind(&self) -> &Str {
        &self.resource.kind.kind
    }

    fn object(&self) -> Str {
        match self.custom {
            Some(custom) => custom.definition(),
            None => self.definition(self.resource.type_id),
        }
    }

    fn definition(&self, id: TypeId) -> Str {
        self.routes.schema.get(id).name.clone()
    }

    /// The fields of an options type, as parameters.
    fn option_params(&self, options: TypeId) -> Vec<Param> {
        let options = self.routes.schema.get(options);
        let fields = options.fields.iter();
        let given = fields.filter(|field| !["kind", "apiVersion"].contains(&field.name.as_str()));
        given.filter_map(|field| Param::of_field(&options.name, &field.name, &field.node)).collect()
    }
}

/// The common part of all operations on objects.
fn operation(action: &'static str, kind: &GroupVersionKind) -> Operation {
    Operation {
        action: Some(Action { name: action, kind: kind.clone() }),
        consumes: &["*/*"],
        produces: OBJECT.to_vec(),
        ..Operation::default()
    }
}

/// Fields of a type of options, as parameters.
fn query(options: &str, names: impl IntoIterator<Item = &'static str>) -> Vec<Param> {
    names.into_iter().map(|name| Param::option(options, name)).collect()
}

fn responses(codes: &[u16], definition: &Str) -> Vec<Response> {
    let content = || Content::Definition(definition.clone());
    codes.iter().map(|&code| Response { code, content: content() }).collect()
}

const STREAM: [&str; 5] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

/// The media types of patches that built-in kinds take.
pub const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// The media types of custom resources.
const CUSTOM: [&str; 2] = ["application/json", "application/yaml"];

/// The media types of patches that custom resources take.
pub const CUSTOM_PATCHES: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

const CONNECTED: [&str; 4] = ["attach", "exec", "portforward", "proxy"];
