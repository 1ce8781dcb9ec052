//! For tests of plugins: a request, a cluster with some objects, and what a plugin does about them.

use std::{collections::BTreeMap, sync::Arc};

use meta::{
    ApiError, AuditAnnotations, GroupVersionKind, GroupVersionResource, User, Value, Warnings,
    authorization::{Attributes as Asked, Authorize, Authorizer, Rules, Verdict},
    selector::LabelSelector,
};

use crate::{
    Attributes, Cluster, Freshness, Operation, Pinned, Plugin, Reinvocation, RequestOptions,
    ServedObjects,
};

/// A value from YAML.
#[track_caller]
pub(crate) fn yaml(text: &str) -> Value {
    codec::yaml::load(text.as_bytes()).expect("YAML").value
}

/// A cluster with objects, where `rights` are allowed: `verb resource name`.
pub(crate) fn cluster(
    objects: &[(&'static GroupVersionResource, &str)],
    rights: &'static [&'static str],
) -> Cluster {
    let objects = objects.iter().map(|(resource, text)| (*resource, yaml(text))).collect();
    Cluster {
        objects: Box::new(Objects(objects)),
        authorizer: Arc::new(Rights(rights)),
        dynamic_admission: Arc::default(),
    }
}

struct Objects(Vec<(&'static GroupVersionResource, Value)>);

impl ServedObjects for Objects {
    fn get<'a>(
        &'a self,
        resource: &'a GroupVersionResource,
        namespace: &'a str,
        name: &'a str,
        _freshness: Freshness,
    ) -> Pinned<'a, Result<Option<Value>, ApiError>> {
        let found = self.0.iter().find(|(known, object)| {
            *known == resource
                && object.str_at(&["metadata", "namespace"]) == namespace
                && object.str_at(&["metadata", "name"]) == name
        });
        Box::pin(std::future::ready(Ok(found.map(|(_, object)| object.clone()))))
    }

    fn list<'a>(
        &'a self,
        resource: &'a GroupVersionResource,
        namespace: &'a str,
        selector: &'a LabelSelector,
    ) -> Pinned<'a, Result<Vec<Value>, ApiError>> {
        let found = self.0.iter().filter(|(known, object)| {
            *known == resource
                && (namespace.is_empty() || object.str_at(&["metadata", "namespace"]) == namespace)
                && selector.matches_object(object)
        });
        let found = found.map(|(_, object)| object.clone()).collect();
        Box::pin(std::future::ready(Ok(found)))
    }

    fn resource_of(&self, kind: &GroupVersionKind) -> Option<(GroupVersionResource, bool)> {
        match kind.kind.as_str() {
            "Node" => Some((crate::resources::NODES.clone(), false)),
            "Pod" => Some((crate::resources::PODS.clone(), true)),
            _ => None,
        }
    }

    fn create_namespace<'a>(&'a self, name: &'a str) -> Pinned<'a, Result<(), ApiError>> {
        let resource = crate::resources::NAMESPACES.group_resource();
        let exists = ApiError::AlreadyExists { resource, name: name.to_owned(), deleting: false };
        let result = if name == "raced" { Err(exists) } else { Err(ApiError::internal(name)) };
        Box::pin(std::future::ready(result))
    }

    fn equivalents(
        &self,
        _resource: &GroupVersionResource,
    ) -> Vec<(GroupVersionResource, GroupVersionKind)> {
        Vec::new()
    }

    fn convert<'a>(
        &'a self,
        object: Value,
        _from: &'a GroupVersionResource,
        _to: &'a GroupVersionResource,
    ) -> Pinned<'a, Result<Value, ApiError>> {
        Box::pin(std::future::ready(Ok(object)))
    }

    fn encode(
        &self,
        _resource: &GroupVersionResource,
        _kind: &GroupVersionKind,
        object: &Value,
    ) -> Vec<u8> {
        meta::json::to_string(object).into_bytes()
    }

    fn decode_changed(
        &self,
        _resource: &GroupVersionResource,
        _kind: &GroupVersionKind,
        json: &[u8],
        _strict: bool,
    ) -> Result<Value, ApiError> {
        crate::versioned::decode(json)
    }

    fn merge_applied(
        &self,
        _resource: &GroupVersionResource,
        kind: &GroupVersionKind,
        _live: &Value,
        _configuration: &Value,
    ) -> Result<Value, String> {
        Err(format!("{} is not served", kind.kind))
    }
}

struct Rights(&'static [&'static str]);

impl Authorizer for Rights {
    fn authorize<'a>(&'a self, asked: &'a Asked<'a>) -> Authorize<'a> {
        let resource = match asked.subresource {
            "" => asked.resource.to_owned(),
            sub => format!("{}/{sub}", asked.resource),
        };
        let right = format!("{} {resource} {}", asked.verb, asked.name);
        let verdict = if self.0.contains(&right.as_str()) {
            Verdict::allow("")
        } else {
            Verdict::no_opinion("no right")
        };
        Authorize::Ready(verdict)
    }

    fn rules(&self, _user: &User, _namespace: &str) -> Rules {
        Rules::default()
    }
}

struct Options {
    dry_run: bool,
}

impl RequestOptions for Options {
    fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    fn to_object(&self, _operation: Operation) -> Value {
        Value::object()
    }
}

/// A request of a test.
pub(crate) struct Request {
    operation: Operation,
    resource: GroupVersionResource,
    subresource: &'static str,
    old: Option<Value>,
    user: User,
    dry_run: bool,
}

pub(crate) fn create(resource: &GroupVersionResource) -> Request {
    let user = User { name: "someone".into(), ..User::anonymous() };
    Request {
        operation: Operation::Create,
        resource: resource.clone(),
        subresource: "",
        old: None,
        user,
        dry_run: false,
    }
}

pub(crate) fn update(resource: &GroupVersionResource, old: Value) -> Request {
    Request { operation: Operation::Update, old: Some(old), ..create(resource) }
}

pub(crate) fn delete(resource: &GroupVersionResource, old: Value) -> Request {
    Request { operation: Operation::Delete, ..update(resource, old) }
}

impl Request {
    pub(crate) fn subresource(self, subresource: &'static str) -> Self {
        Self { subresource, ..self }
    }

    pub(crate) fn by(self, user: User) -> Self {
        Self { user, ..self }
    }

    pub(crate) fn dry_run(self) -> Self {
        Self { dry_run: true, ..self }
    }

    pub(crate) fn admit(
        &self,
        plugin: &dyn Plugin,
        object: &mut Value,
        cluster: &Cluster,
    ) -> Outcome {
        let named = object.clone();
        self.run(&named, |attributes| {
            let runs = plugin.handles(self.operation)
                && plugin.concerns(attributes)
                && plugin.phases().mutates();
            if !runs {
                return Ok(());
            }
            let object = (self.operation != Operation::Delete).then_some(object);
            block_on(plugin.admit(attributes, object, cluster))
        })
    }

    pub(crate) fn validate(
        &self,
        plugin: &dyn Plugin,
        object: &Value,
        cluster: &Cluster,
    ) -> Outcome {
        self.run(object, |attributes| {
            let runs = plugin.handles(self.operation)
                && plugin.concerns(attributes)
                && plugin.phases().validates();
            if !runs {
                return Ok(());
            }
            let object = (self.operation != Operation::Delete).then_some(object);
            block_on(plugin.validate(attributes, object, cluster))
        })
    }

    fn run(
        &self,
        object: &Value,
        run: impl FnOnce(&Attributes<'_>) -> Result<(), ApiError>,
    ) -> Outcome {
        let gvk = GroupVersionKind::new("", "", object.str_at(&["kind"]));
        let (warnings, audit) = (Warnings::default(), AuditAnnotations::recorded());
        let options = Options { dry_run: self.dry_run };
        let named = self.old.as_ref().unwrap_or(object);
        let attributes = Attributes {
            operation: self.operation,
            gvk: &gvk,
            gvr: &self.resource,
            subresource: self.subresource,
            namespace: named.str_at(&["metadata", "namespace"]),
            name: named.str_at(&["metadata", "name"]),
            user: &self.user,
            authenticated_user: &self.user,
            options: &options,
            old: self.old.as_ref(),
            warnings: &warnings,
            audit: &audit,
            reinvocation: Reinvocation::default(),
            charges: crate::quota::WriteCharges::default(),
        };
        let error = run(&attributes).err();
        Outcome { error, warnings: warnings.take(), audit: audit.take() }
    }
}

/// What a plugin answered.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) error: Option<ApiError>,
    pub(crate) warnings: Vec<String>,
    pub(crate) audit: BTreeMap<String, String>,
}

impl Outcome {
    /// The error, or nothing if the request was admitted.
    pub(crate) fn message(&self) -> String {
        self.error.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime").block_on(future)
}
