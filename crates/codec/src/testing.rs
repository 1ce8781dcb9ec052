//! A handful of types for the tests of this crate, cut down from the real ones. What protobuf always
//! writes is there in full, so that its bytes are those of the real types.

use schema::{Field, ListType, Node, NodeType, Presence, Schema, Type, TypeId};

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
fn given(name: &str, tag: u32, kind: NodeType) -> Field {
    Field { name: name.into(), tag, node: Node::from(kind), pointer: true, ..Field::default() }
}

/// A field that is left out when it is empty.
fn omitted(name: &str, tag: u32, kind: NodeType) -> Field {
    Field { presence: Presence::OmitEmpty, pointer: false, ..given(name, tag, kind) }
}

/// A field that is always printed.
fn always(name: &str, tag: u32, kind: NodeType) -> Field {
    Field { presence: Presence::Always, pointer: false, ..given(name, tag, kind) }
}

fn ty(name: String, fields: Vec<Field>) -> Type {
    let mut ty = Type::default();
    (ty.name, ty.fields) = (name.into(), fields);
    ty
}

fn list(kind: NodeType) -> NodeType {
    NodeType::List(Box::new(kind.into()), ListType::Undeclared)
}

fn map(kind: NodeType) -> NodeType {
    NodeType::Map(Box::new(kind.into()))
}

fn type_meta(kind: &str) -> (Vec<meta::GroupVersionKind>, [Field; 2]) {
    let kinds = vec![meta::GroupVersionKind::new("", "v1", kind)];
    (kinds, [omitted("kind", 0, NodeType::String), omitted("apiVersion", 0, NodeType::String)])
}

pub(crate) fn types() -> Types {
    let mut schema = Schema::default();
    let mut add = |name: &str, fields: Vec<Field>| schema.add(ty(name.to_owned(), fields));
    let core = |name: &str| format!("io.k8s.api.core.v1.{name}");
    let owner = add(
        "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
        vec![
            always("apiVersion", 5, NodeType::String),
            always("kind", 1, NodeType::String),
            always("name", 3, NodeType::String),
            always("uid", 4, NodeType::String),
            given("controller", 6, NodeType::Bool),
        ],
    );
    let managed = add(
        "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry",
        vec![
            omitted("manager", 1, NodeType::String),
            omitted("operation", 2, NodeType::String),
            omitted("apiVersion", 3, NodeType::String),
            given("time", 4, NodeType::Time),
            omitted("fieldsType", 6, NodeType::String),
            given("fieldsV1", 7, NodeType::Any),
            omitted("subresource", 8, NodeType::String),
        ],
    );
    let object_meta = add(
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        vec![
            omitted("name", 1, NodeType::String),
            omitted("generateName", 2, NodeType::String),
            omitted("namespace", 3, NodeType::String),
            omitted("selfLink", 4, NodeType::String),
            omitted("uid", 5, NodeType::String),
            omitted("resourceVersion", 6, NodeType::String),
            omitted("generation", 7, NodeType::Int64),
            omitted("creationTimestamp", 8, NodeType::Time),
            omitted("labels", 11, map(NodeType::String)),
            omitted("ownerReferences", 13, list(NodeType::Object(owner))),
            omitted("finalizers", 14, list(NodeType::String)),
            omitted("managedFields", 17, list(NodeType::Object(managed))),
        ],
    );
    let config_map_fields = vec![
        always("metadata", 1, NodeType::Object(object_meta)),
        given("immutable", 4, NodeType::Bool),
        omitted("data", 2, map(NodeType::String)),
        omitted("binaryData", 3, map(NodeType::Bytes)),
    ];
    let resources =
        add(&core("ResourceRequirements"), vec![omitted("limits", 1, map(NodeType::Quantity))]);
    let http_get = add(
        &core("HTTPGetAction"),
        vec![
            omitted("path", 1, NodeType::String),
            always("port", 2, NodeType::IntOrString),
            omitted("host", 3, NodeType::String),
            omitted("scheme", 4, NodeType::String),
        ],
    );
    let probe = add(
        &core("Probe"),
        vec![
            Field { within: vec![1], ..given("httpGet", 2, NodeType::Object(http_get)) },
            omitted("initialDelaySeconds", 2, NodeType::Int32),
            omitted("timeoutSeconds", 3, NodeType::Int32),
            omitted("periodSeconds", 4, NodeType::Int32),
            omitted("successThreshold", 5, NodeType::Int32),
            omitted("failureThreshold", 6, NodeType::Int32),
        ],
    );
    let port = add(
        &core("ContainerPort"),
        vec![
            omitted("name", 1, NodeType::String),
            omitted("hostPort", 2, NodeType::Int32),
            always("containerPort", 3, NodeType::Int32),
            omitted("protocol", 4, NodeType::String),
            omitted("hostIP", 5, NodeType::String),
        ],
    );
    let container = add(
        &core("Container"),
        vec![
            always("name", 1, NodeType::String),
            omitted("image", 2, NodeType::String),
            omitted("workingDir", 5, NodeType::String),
            omitted("ports", 6, list(NodeType::Object(port))),
            always("resources", 8, NodeType::Object(resources)),
            given("livenessProbe", 10, NodeType::Object(probe)),
            omitted("terminationMessagePath", 13, NodeType::String),
            omitted("terminationMessagePolicy", 20, NodeType::String),
            omitted("imagePullPolicy", 14, NodeType::String),
            omitted("stdin", 16, NodeType::Bool),
            omitted("stdinOnce", 17, NodeType::Bool),
            omitted("tty", 18, NodeType::Bool),
        ],
    );
    let host_path = add(&core("HostPathVolumeSource"), vec![always("path", 1, NodeType::String)]);
    let volume = add(
        &core("Volume"),
        vec![
            always("name", 1, NodeType::String),
            Field { within: vec![2], ..given("hostPath", 1, NodeType::Object(host_path)) },
        ],
    );
    let pod_spec = add(
        &core("PodSpec"),
        vec![
            omitted("volumes", 1, list(NodeType::Object(volume))),
            always("containers", 2, list(NodeType::Object(container))),
            given("terminationGracePeriodSeconds", 4, NodeType::Int64),
            omitted("nodeSelector", 7, map(NodeType::String)),
            omitted("hostNetwork", 11, NodeType::Bool),
        ],
    );
    let pod_status = add(&core("PodStatus"), vec![omitted("phase", 1, NodeType::String)]);
    let pod_fields = vec![
        always("metadata", 1, NodeType::Object(object_meta)),
        always("spec", 2, NodeType::Object(pod_spec)),
        always("status", 3, NodeType::Object(pod_status)),
    ];
    let lease_spec = add(
        "io.k8s.api.coordination.v1.LeaseSpec",
        vec![given("renewTime", 4, NodeType::MicroTime), given("weight", 9, NodeType::Double)],
    );
    let lease_fields = vec![
        always("metadata", 1, NodeType::Object(object_meta)),
        always("spec", 2, NodeType::Object(lease_spec)),
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
        omitted("id", 1, NodeType::String),
        omitted("$schema", 2, NodeType::String),
        omitted("description", 4, NodeType::String),
        omitted("type", 5, NodeType::String),
        omitted("format", 6, NodeType::String),
        omitted("title", 7, NodeType::String),
        given("default", 8, NodeType::Any),
        given("maximum", 9, NodeType::Double),
        omitted("exclusiveMaximum", 10, NodeType::Bool),
        omitted("exclusiveMinimum", 12, NodeType::Bool),
        omitted("pattern", 15, NodeType::String),
        omitted("uniqueItems", 18, NodeType::Bool),
        given("items", 24, NodeType::SchemaOrArray(props)),
        omitted("properties", 29, map(NodeType::Object(props))),
        given("additionalProperties", 30, NodeType::SchemaOrBool(props)),
        omitted("nullable", 37, NodeType::Bool),
        omitted("x-kubernetes-embedded-resource", 39, NodeType::Bool),
        omitted("x-kubernetes-int-or-string", 40, NodeType::Bool),
    ];
    let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    schema.set(props, ty(name.to_owned(), props_fields));
    Types { schema, config_map, pod, lease, container, volume, props }
}
