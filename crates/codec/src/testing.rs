//! A handful of types for the tests of this crate, cut down from the real ones. What protobuf always
//! writes is there in full, so that its bytes are those of the real types.

use schema::{Field, Kind, ListKind, Node, Presence, Schema, Type, TypeId};

pub(crate) struct Types {
    pub(crate) schema: Schema,
    pub(crate) config_map: TypeId,
    pub(crate) pod: TypeId,
    pub(crate) lease: TypeId,
    pub(crate) container: TypeId,
    pub(crate) volume: TypeId,
    pub(crate) props: TypeId,
}

/// A field that is printed as it was given.
fn given(name: &str, tag: u32, kind: Kind) -> Field {
    Field { name: name.into(), tag, node: Node::from(kind), pointer: true, ..Field::default() }
}

/// A field that is left out when it is empty.
fn omitted(name: &str, tag: u32, kind: Kind) -> Field {
    Field { presence: Presence::OmitEmpty, pointer: false, ..given(name, tag, kind) }
}

/// A field that is always printed.
fn always(name: &str, tag: u32, kind: Kind) -> Field {
    Field { presence: Presence::Always, pointer: false, ..given(name, tag, kind) }
}

fn ty(name: String, fields: Vec<Field>) -> Type {
    let mut ty = Type::default();
    (ty.name, ty.fields) = (name.into(), fields);
    ty
}

fn list(kind: Kind) -> Kind {
    Kind::List(Box::new(kind.into()), ListKind::Undeclared)
}

fn map(kind: Kind) -> Kind {
    Kind::Map(Box::new(kind.into()))
}

fn type_meta(kind: &str) -> (Vec<meta::GroupVersionKind>, [Field; 2]) {
    let kinds = vec![meta::GroupVersionKind::new("", "v1", kind)];
    (kinds, [omitted("kind", 0, Kind::String), omitted("apiVersion", 0, Kind::String)])
}

pub(crate) fn types() -> Types {
    let mut schema = Schema::default();
    let mut add = |name: &str, fields: Vec<Field>| schema.add(ty(name.to_owned(), fields));
    let core = |name: &str| format!("io.k8s.api.core.v1.{name}");
    let owner = add(
        "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
        vec![
            always("apiVersion", 5, Kind::String),
            always("kind", 1, Kind::String),
            always("name", 3, Kind::String),
            always("uid", 4, Kind::String),
            given("controller", 6, Kind::Bool),
        ],
    );
    let managed = add(
        "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry",
        vec![
            omitted("manager", 1, Kind::String),
            omitted("operation", 2, Kind::String),
            omitted("apiVersion", 3, Kind::String),
            given("time", 4, Kind::Time),
            omitted("fieldsType", 6, Kind::String),
            given("fieldsV1", 7, Kind::Any),
            omitted("subresource", 8, Kind::String),
        ],
    );
    let object_meta = add(
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        vec![
            omitted("name", 1, Kind::String),
            omitted("generateName", 2, Kind::String),
            omitted("namespace", 3, Kind::String),
            omitted("selfLink", 4, Kind::String),
            omitted("uid", 5, Kind::String),
            omitted("resourceVersion", 6, Kind::String),
            omitted("generation", 7, Kind::Int64),
            omitted("creationTimestamp", 8, Kind::Time),
            omitted("labels", 11, map(Kind::String)),
            omitted("ownerReferences", 13, list(Kind::Object(owner))),
            omitted("finalizers", 14, list(Kind::String)),
            omitted("managedFields", 17, list(Kind::Object(managed))),
        ],
    );
    let config_map_fields = vec![
        always("metadata", 1, Kind::Object(object_meta)),
        given("immutable", 4, Kind::Bool),
        omitted("data", 2, map(Kind::String)),
        omitted("binaryData", 3, map(Kind::Bytes)),
    ];
    let resources =
        add(&core("ResourceRequirements"), vec![omitted("limits", 1, map(Kind::Quantity))]);
    let http_get = add(
        &core("HTTPGetAction"),
        vec![
            omitted("path", 1, Kind::String),
            always("port", 2, Kind::IntOrString),
            omitted("host", 3, Kind::String),
            omitted("scheme", 4, Kind::String),
        ],
    );
    let probe = add(
        &core("Probe"),
        vec![
            Field { within: vec![1], ..given("httpGet", 2, Kind::Object(http_get)) },
            omitted("initialDelaySeconds", 2, Kind::Int32),
            omitted("timeoutSeconds", 3, Kind::Int32),
            omitted("periodSeconds", 4, Kind::Int32),
            omitted("successThreshold", 5, Kind::Int32),
            omitted("failureThreshold", 6, Kind::Int32),
        ],
    );
    let port = add(
        &core("ContainerPort"),
        vec![
            omitted("name", 1, Kind::String),
            omitted("hostPort", 2, Kind::Int32),
            always("containerPort", 3, Kind::Int32),
            omitted("protocol", 4, Kind::String),
            omitted("hostIP", 5, Kind::String),
        ],
    );
    let container = add(
        &core("Container"),
        vec![
            always("name", 1, Kind::String),
            omitted("image", 2, Kind::String),
            omitted("workingDir", 5, Kind::String),
            omitted("ports", 6, list(Kind::Object(port))),
            always("resources", 8, Kind::Object(resources)),
            given("livenessProbe", 10, Kind::Object(probe)),
            omitted("terminationMessagePath", 13, Kind::String),
            omitted("terminationMessagePolicy", 20, Kind::String),
            omitted("imagePullPolicy", 14, Kind::String),
            omitted("stdin", 16, Kind::Bool),
            omitted("stdinOnce", 17, Kind::Bool),
            omitted("tty", 18, Kind::Bool),
        ],
    );
    let host_path = add(&core("HostPathVolumeSource"), vec![always("path", 1, Kind::String)]);
    let volume = add(
        &core("Volume"),
        vec![
            always("name", 1, Kind::String),
            Field { within: vec![2], ..given("hostPath", 1, Kind::Object(host_path)) },
        ],
    );
    let pod_spec = add(
        &core("PodSpec"),
        vec![
            omitted("volumes", 1, list(Kind::Object(volume))),
            always("containers", 2, list(Kind::Object(container))),
            given("terminationGracePeriodSeconds", 4, Kind::Int64),
            omitted("nodeSelector", 7, map(Kind::String)),
            omitted("hostNetwork", 11, Kind::Bool),
        ],
    );
    let pod_status = add(&core("PodStatus"), vec![omitted("phase", 1, Kind::String)]);
    let pod_fields = vec![
        always("metadata", 1, Kind::Object(object_meta)),
        always("spec", 2, Kind::Object(pod_spec)),
        always("status", 3, Kind::Object(pod_status)),
    ];
    let lease_spec = add(
        "io.k8s.api.coordination.v1.LeaseSpec",
        vec![given("renewTime", 4, Kind::MicroTime), given("weight", 9, Kind::Double)],
    );
    let lease_fields = vec![
        always("metadata", 1, Kind::Object(object_meta)),
        always("spec", 2, Kind::Object(lease_spec)),
    ];
    let mut top = |name: &str, fields: Vec<Field>| {
        let (kinds, head) = type_meta(name);
        let fields = head.into_iter().chain(fields).collect();
        let mut ty = ty(core(name), fields);
        ty.kinds = kinds;
        schema.add(ty)
    };
    let config_map = top("ConfigMap", config_map_fields);
    let pod = top("Pod", pod_fields);
    let lease = top("Lease", lease_fields);
    let props = schema.add(Type::default());
    let props_fields = vec![
        omitted("id", 1, Kind::String),
        omitted("$schema", 2, Kind::String),
        omitted("description", 4, Kind::String),
        omitted("type", 5, Kind::String),
        omitted("format", 6, Kind::String),
        omitted("title", 7, Kind::String),
        given("default", 8, Kind::Any),
        given("maximum", 9, Kind::Double),
        omitted("exclusiveMaximum", 10, Kind::Bool),
        omitted("exclusiveMinimum", 12, Kind::Bool),
        omitted("pattern", 15, Kind::String),
        omitted("uniqueItems", 18, Kind::Bool),
        given("items", 24, Kind::SchemaOrArray(props)),
        omitted("properties", 29, map(Kind::Object(props))),
        given("additionalProperties", 30, Kind::SchemaOrBool(props)),
        omitted("nullable", 37, Kind::Bool),
        omitted("x-kubernetes-embedded-resource", 39, Kind::Bool),
        omitted("x-kubernetes-int-or-string", 40, Kind::Bool),
    ];
    let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    schema.set(props, ty(name.to_owned(), props_fields));
    Types { schema, config_map, pod, lease, container, volume, props }
}
