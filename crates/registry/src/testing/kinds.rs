//! The kinds of the harness: their schema, strategies and the engine around them.

use std::{sync::Arc, time::Duration};

use admission::{Attributes, BoxFuture, Cluster, Operation, Plugin};
use meta::{ApiError, FieldErrors, GroupVersion, GroupVersionKind, Str, Value, field::path, value};
use schema::{
    Field, ListType, PatchStrategy, ResourceFacts, Schema, SelectableField, StorageEncoding,
    StorageFacts, SubresourceFacts, Type, TypeId,
};
use store::Backend;

use super::FaultyBackend;
use crate::{
    Action, ActionContext, ActionOutcome, AsJson, Behaviour, Cell, Column, ComputeContext,
    ComputedResource, Conversion, DeleteOptions, Engine, Kind, RegistryOptions, Storage,
    StorageOptions, Strategy,
};

pub(super) const GROUP: &str = "example.com";

pub(super) fn all(
    backend: &Arc<FaultyBackend>,
    change: impl FnOnce(Kind) -> Kind,
) -> Vec<Arc<Kind>> {
    let schema = Arc::new(schema());
    let stored = |kind: &str, plural: &str, namespaced, fields: &[&'static str]| {
        let backend: Arc<dyn Backend> = backend.clone();
        Storage::start(
            backend,
            StorageOptions {
                prefix: Str::new(format!("/registry/{GROUP}/{plural}/")),
                namespaced,
                gvk: GroupVersionKind::new(GROUP, "v1", kind),
                ty: type_of(&schema, "v1", kind),
                schema: schema.clone(),
                ttl: None,
                fields: fields.iter().copied().map(Str::new_static).collect(),
                index: fields.first().copied().map(Str::new_static),
                custom: false,
                from_store: false,
                codec: Arc::new(AsJson),
            },
        )
    };
    let widgets = stored("Widget", "widgets", true, &["spec.color"]);
    let behaviour = Behaviour { generation: &["spec"], ..Behaviour::default() };
    let widget = |version| {
        let color = if version == "v1" { "spec.color" } else { "spec.colour" };
        let mut facts = facts(&schema, version, "Widget", "widgets", true);
        facts.subresources = vec![
            subresource("launch", "Launch", &["create"]),
            subresource("scale", "Scale", &["get", "patch", "update"]),
            subresource("status", "Widget", &["get", "patch", "update"]),
        ];
        facts.selectable.push(SelectableField { label: color.into(), paths: vec![color.into()] });
        let conversion: Option<Arc<dyn Conversion>> =
            if version == "v1" { None } else { Some(Arc::new(Colour)) };
        let (schema, storage) = (schema.clone(), Some(widgets.clone()));
        Kind::new(facts, schema, behaviour, Arc::new(WidgetStrategy), storage, conversion, None)
            .with_actions(vec![("launch", Arc::new(Launch))])
    };
    let gadgets = Kind::new(
        facts(&schema, "v1", "Gadget", "gadgets", false),
        schema.clone(),
        Behaviour {
            create_on_update: true,
            unconditional_update: false,
            returns_deleted_object: true,
            ..Behaviour::default()
        },
        Arc::new(GadgetStrategy),
        Some(stored("Gadget", "gadgets", false, &[])),
        None,
        None,
    );
    let mut sums = facts(&schema, "v1", "Sum", "sums", false);
    sums.verbs = ["create", "get", "list"].map(Str::new_static).to_vec();
    sums.storage = None;
    let (behaviour, strategy) = (Behaviour::default(), Arc::new(SumStrategy));
    let sums = Kind::new(sums, schema.clone(), behaviour, strategy, None, None, None)
        .with_computed(Some(Arc::new(Sums)));
    [change(widget("v1")), widget("v2"), gadgets, sums].map(Arc::new).into()
}

pub(super) fn options() -> RegistryOptions {
    RegistryOptions {
        min_request_timeout: Duration::from_mins(30),
        offered: codec::negotiate::OFFERED_WITH_CBOR,
        delete_collection_workers: 2,
        garbage_collection: true,
        unsafe_deletion: true,
    }
}

pub(super) fn engine(schema: &Arc<Schema>, options: RegistryOptions) -> Arc<Engine> {
    let plugins: Vec<Box<dyn Plugin>> = vec![Box::new(NotingPlugin)];
    let chain = admission::Chain::new(plugins, admission::testing::empty_cluster());
    let authorizer = admission::testing::empty_cluster().authorizer;
    let words = Box::new(|fields: &[(&str, &str)]| vec![String::new(); fields.len()]);
    Engine::new(chain, authorizer, options, schema.clone(), words)
}

struct GadgetStrategy;

impl Strategy for GadgetStrategy {
    fn internal_annotations(&self) -> &'static [&'static str] {
        &["example.com/internal"]
    }
}

/// Notes in what it has seen, for objects with an annotation `note`, and names those with `rename`.
struct NotingPlugin;

impl Plugin for NotingPlugin {
    fn name(&self) -> &'static str {
        "Noting"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let Some(object) = object else { return Box::pin(std::future::ready(Ok(()))) };
        let name = object.str_at(&["metadata", "annotations", "rename"]).to_owned();
        if !name.is_empty() {
            object.set_at(&["metadata", "name"], name);
        }
        let at = ["metadata", "annotations", "note"];
        if object.at(&at).is_some() {
            let has = |field: &str| object.at(&["metadata", field]).is_some();
            let noted = format!(
                "{} named {:?}: uid {}, creationTimestamp {}, name {}",
                object.str_at(&at),
                attributes.name,
                has("uid"),
                has("creationTimestamp"),
                has("name"),
            );
            object.set_at(&at, noted);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let complete = object.is_none_or(|object| {
            let has = |field: &str| !object.str_at(&["metadata", field]).is_empty();
            object.at(&["metadata", "annotations", "note"]).is_none()
                || has("uid")
                    && has("creationTimestamp")
                    && has("name")
                    && !attributes.name.is_empty()
        });
        let incomplete = || ApiError::internal("validating admission saw an incomplete object");
        Box::pin(std::future::ready(if complete { Ok(()) } else { Err(incomplete()) }))
    }
}

struct WidgetStrategy;

impl Strategy for WidgetStrategy {
    fn validate(&self, widget: &Value, errors: &mut FieldErrors) {
        let replicas = widget.i64_at(&["spec", "replicas"]).unwrap_or_default();
        if replicas > 100 {
            errors.invalid(path("spec").child("replicas"), replicas, "must be at most 100");
        }
        if widget.str_at(&["status", "phase"]) == "Broken" {
            errors.invalid(path("status").child("phase"), "Broken", "must not be broken");
        }
        // A field of its own, though its name begins as that of another.
        if widget.get("specials").is_some() {
            errors.forbidden(path("specials"), "must not be set");
        }
    }

    fn validate_update(&self, widget: &Value, old: &Value, errors: &mut FieldErrors) {
        self.validate(widget, errors);
        let (new, old) = (widget.get("frozen"), old.get("frozen"));
        if old.is_some() && new != old {
            errors.forbidden(path("frozen"), "field is immutable");
        }
    }

    fn warnings(&self, _: &str, widget: &Value, _: Option<&Value>) -> Vec<String> {
        let old = widget.str_at(&["spec", "color"]) == "beige";
        old.then(|| "spec.color: beige is deprecated".to_owned()).into_iter().collect()
    }

    fn graceful_deletion(&self, widget: &Value, asked: Option<i64>) -> Option<i64> {
        let own = widget.i64_at(&["spec", "graceSeconds"])?;
        Some(asked.unwrap_or(own))
    }

    fn refuses_deletion(&self, name: &str) -> Option<&'static str> {
        (name == "eternal").then_some("this widget may not be deleted")
    }

    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Color", |widget, _| Cell::text(widget.str_at(&["spec", "color"]))),
        ]
    }
}

/// `v1` says `color`, `v2` says `colour`.
struct Colour;

impl Conversion for Colour {
    fn to_stored(&self, widget: Value) -> Value {
        rename(widget, "colour", "color")
    }

    fn to_served(&self, widget: Value) -> Value {
        rename(widget, "color", "colour")
    }

    fn stored_path<'a>(&self, path: &'a str) -> std::borrow::Cow<'a, str> {
        if path == "spec.colour" { "spec.color".into() } else { path.into() }
    }
}

fn rename(mut widget: Value, from: &str, to: &str) -> Value {
    if let Some(color) = widget.remove_at(&["spec", from]) {
        widget.set_at(&["spec", to], color);
    }
    widget
}

/// Answers what colour was launched; `fuel: all` uses the widget up.
struct Launch;

impl Action for Launch {
    fn accepts(&self) -> Vec<GroupVersionKind> {
        vec![GroupVersionKind::new(GROUP, "v1", "Launch")]
    }

    fn default(&self, launch: &mut Value) {
        if launch.str_at(&["fuel"]).is_empty() {
            launch.set_at(&["fuel"], "some");
        }
    }

    fn act<'a>(
        &'a self,
        mut launch: Value,
        cx: &'a ActionContext<'a>,
    ) -> BoxFuture<'a, Result<ActionOutcome, ApiError>> {
        Box::pin(async move {
            let widget = cx.object().await?;
            if launch.str_at(&["fuel"]) == "all" {
                if !cx.dry_run {
                    cx.delete(&DeleteOptions::default()).await?;
                }
                return Ok(ActionOutcome::Done);
            }
            launch.set_at(&["launched"], widget.str_at(&["spec", "color"]));
            Ok(ActionOutcome::Object(launch))
        })
    }
}

struct SumStrategy;

impl Strategy for SumStrategy {
    fn validate(&self, sum: &Value, errors: &mut FieldErrors) {
        if sum.at(&["spec", "a"]).is_none() {
            errors.required(path("spec").child("a"), "");
        }
    }
}

struct Sums;

impl ComputedResource for Sums {
    fn create<'a>(
        &'a self,
        mut sum: Value,
        _: &'a ComputeContext<'a>,
    ) -> BoxFuture<'a, Result<ActionOutcome, ApiError>> {
        let number = |field| sum.i64_at(&["spec", field]).unwrap_or_default();
        let total = number("a") + number("b");
        sum.set_at(&["status", "total"], total);
        Box::pin(std::future::ready(Ok(ActionOutcome::Object(sum))))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Value>, ApiError>> {
        let sum = |name: &str, total: i64| value!({"metadata": {"name": (name)}, "status": {"total": (total)}});
        Box::pin(std::future::ready(Ok(vec![sum("one", 1), sum("two", 2)])))
    }
}

fn facts(
    schema: &Schema,
    version: &str,
    kind: &str,
    plural: &str,
    namespaced: bool,
) -> ResourceFacts {
    let verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
    let mut labels = vec!["metadata.name"];
    if namespaced {
        labels.push("metadata.namespace");
    }
    ResourceFacts {
        kind: GroupVersionKind::new(GROUP, version, kind),
        plural: plural.into(),
        singular: kind.to_lowercase().into(),
        namespaced,
        verbs: verbs.map(Str::new_static).to_vec(),
        type_id: type_of(schema, version, kind),
        list_kind: format!("{kind}List").into(),
        storage: Some(StorageFacts {
            prefix: plural.into(),
            encoding: StorageEncoding::Json,
            version: GroupVersion::parse("example.com/v1").expect("a group and a version"),
            version_hash: Str::default(),
        }),
        selectable: labels
            .into_iter()
            .map(|label| SelectableField { label: label.into(), paths: Vec::new() })
            .collect(),
        on_by_default: true,
        ..ResourceFacts::default()
    }
}

fn subresource(name: &str, kind: &str, verbs: &[&'static str]) -> SubresourceFacts {
    SubresourceFacts {
        name: name.into(),
        kind: GroupVersionKind::new(GROUP, "v1", kind),
        verbs: verbs.iter().copied().map(Str::new_static).collect(),
    }
}

fn type_of(schema: &Schema, version: &str, kind: &str) -> TypeId {
    schema.by_name(&format!("com.example.{version}.{kind}")).expect("a type of the harness")
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

fn schema() -> Schema {
    use schema::NodeType::{Any, Bool, Int32, Int64, List, Map, Object, String as Text, Time};
    let mut schema = Schema::default();
    let mut add = |name: &str, fields: Vec<(&str, schema::NodeType)>| {
        let mut ty = Type::default();
        ty.name = name.into();
        // kind and apiVersion of an object are in its protobuf envelope, not in its message.
        let in_envelope = |field: &str| !name.is_empty() && matches!(field, "kind" | "apiVersion");
        let tags = fields.iter().scan(0, |tag, (field, _)| {
            *tag += u32::from(!in_envelope(field));
            Some(if in_envelope(field) { 0 } else { *tag })
        });
        let tags: Vec<u32> = tags.collect();
        let fields = fields.into_iter().zip(tags);
        ty.fields = fields.map(|((name, kind), tag)| field(name, kind, tag)).collect();
        if let Some((version, kind)) =
            name.strip_prefix("com.example.").and_then(|n| n.split_once('.'))
        {
            ty.kinds = vec![GroupVersionKind::new(GROUP, version, kind)];
        }
        schema.add(ty)
    };
    let texts = || List(Box::new(Text.into()), ListType::Set);
    let owner = add("", vec![("apiVersion", Text), ("kind", Text), ("name", Text), ("uid", Text)]);
    let managed = add(
        "",
        vec![
            ("manager", Text),
            ("operation", Text),
            ("apiVersion", Text),
            ("time", Time),
            ("fieldsType", Text),
            ("fieldsV1", Any),
            ("subresource", Text),
        ],
    );
    let metadata = add(
        &format!("{META}.ObjectMeta"),
        vec![
            ("name", Text),
            ("generateName", Text),
            ("namespace", Text),
            ("uid", Text),
            ("resourceVersion", Text),
            ("generation", Int64),
            ("creationTimestamp", Time),
            ("deletionTimestamp", Time),
            ("deletionGracePeriodSeconds", Int64),
            ("labels", Map(Box::new(Text.into()))),
            ("annotations", Map(Box::new(Text.into()))),
            (
                "ownerReferences",
                List(Box::new(Object(owner).into()), ListType::Map(vec!["uid".into()])),
            ),
            ("finalizers", texts()),
            ("managedFields", List(Box::new(Object(managed).into()), ListType::Atomic)),
        ],
    );
    let part = add("", vec![("name", Text), ("value", Text)]);
    for (version, color) in [("v1", "color"), ("v2", "colour")] {
        let parts = List(Box::new(Object(part).into()), ListType::Map(vec!["name".into()]));
        let spec = add(
            &format!("com.example.{version}.WidgetSpec"),
            vec![
                (color, Text),
                ("replicas", Int32),
                ("graceSeconds", Int64),
                ("parts", parts),
                ("tags", texts()),
                ("mode", Text),
            ],
        );
        let status = add("", vec![("replicas", Int32), ("phase", Text)]);
        add(
            &format!("com.example.{version}.Widget"),
            vec![
                ("kind", Text),
                ("apiVersion", Text),
                ("metadata", Object(metadata)),
                ("spec", Object(spec)),
                ("status", Object(status)),
                ("frozen", Text),
                ("specials", Text),
            ],
        );
    }
    let type_meta = || vec![("kind", Text), ("apiVersion", Text), ("metadata", Object(metadata))];
    let with = |more: Vec<(&'static str, schema::NodeType)>| [type_meta(), more].concat();
    add("com.example.v1.Gadget", with(vec![("data", Map(Box::new(Text.into())))]));
    add("com.example.v1.Launch", with(vec![("fuel", Text), ("launched", Text)]));
    let numbers = add("", vec![("a", Int64), ("b", Int64)]);
    let total = add("", vec![("total", Int64)]);
    add("com.example.v1.Sum", with(vec![("spec", Object(numbers)), ("status", Object(total))]));
    let replicas = add("", vec![("replicas", Int32)]);
    let counted = add("", vec![("replicas", Int32), ("selector", Text)]);
    add(
        "io.k8s.api.autoscaling.v1.Scale",
        with(vec![("spec", Object(replicas)), ("status", Object(counted))]),
    );
    let preconditions = add("", vec![("uid", Text), ("resourceVersion", Text)]);
    add(
        &format!("{META}.DeleteOptions"),
        vec![
            ("kind", Text),
            ("apiVersion", Text),
            ("gracePeriodSeconds", Int64),
            ("preconditions", Object(preconditions)),
            ("orphanDependents", Bool),
            ("propagationPolicy", Text),
            ("dryRun", texts()),
        ],
    );
    for name in ["Table", "PartialObjectMetadata", "PartialObjectMetadataList"] {
        add(&format!("{META}.{name}"), type_meta());
    }
    schema
}

fn field(name: &str, kind: schema::NodeType, tag: u32) -> Field {
    let mut field = Field { name: name.into(), node: kind.into(), tag, ..Field::default() };
    match name {
        "mode" => field.node.default = Some(Value::from("auto")),
        "parts" => {
            field.patch = PatchStrategy {
                merge: true,
                merge_key: Some("name".into()),
                ..PatchStrategy::default()
            };
        }
        _ => {}
    }
    field
}
