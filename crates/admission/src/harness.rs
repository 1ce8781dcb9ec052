//! For tests of plugins: a request, a cluster with some objects, and what a plugin does about them.

use std::{collections::BTreeMap, sync::Arc};

use meta::{
    ApiError, AuditAnnotations, GroupVersionKind, GroupVersionResource, User, Value, Warnings,
    authorization::{Attributes as Asked, Authorize, Authorizer, Rules, Verdict},
};

use crate::{
    Attributes, Cluster, Operation, Plugin, Reinvocation, RequestOptions, resources,
    testing::FakeObjects,
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
    let objects = objects.iter().map(|(resource, text)| ((*resource).clone(), yaml(text)));
    let kinds = [("Node", &resources::NODES, false), ("Pod", &resources::PODS, true)];
    let kinds = kinds.map(|(kind, resource, namespaced)| {
        (resource.clone(), GroupVersionKind::new("", "v1", kind), namespaced)
    });
    Cluster {
        objects: Box::new(FakeObjects { objects: objects.collect(), kinds: kinds.into() }),
        authorizer: Arc::new(Rights(rights)),
        dynamic_admission: Arc::default(),
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
            deadline: None,
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
