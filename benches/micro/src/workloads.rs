//! The workloads. Those named after a verb are whole requests to the registry; the others call one function.

use std::{hint::black_box, ops::Range};

use cel::{Bound, Env, PER_CALL_LIMIT, Val};
use codec::{
    json::{self, DecodeOptions},
    protobuf::{self, Tables},
};
use meta::{Value, Warnings, time::Time};
use patch::apply::{self, Filter, Manager, SingleVersion, TypeContext};
use registry::WriteContext;

use crate::server::{JSON, NAMESPACE, PROTOBUF, Request, Server, pod_name};

pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// So many that what varies by chance, mostly while pods are created before the first round, is a small part.
    pub(crate) rounds: usize,
    pub(crate) prepare: fn() -> Round,
}

/// Does the work once; it is given the number of the round, from 0.
type Round = Box<dyn FnMut(usize)>;

pub(crate) const WORKLOADS: &[Workload] = &[
    Workload { name: "json-decode", rounds: 100, prepare: json_decode },
    Workload { name: "json-encode", rounds: 100, prepare: json_encode },
    Workload { name: "protobuf-decode", rounds: 100, prepare: protobuf_decode },
    Workload { name: "protobuf-encode", rounds: 100, prepare: protobuf_encode },
    Workload { name: "protobuf-encode-json", rounds: 100, prepare: protobuf_encode_json },
    Workload { name: "default-and-validate", rounds: 50, prepare: default_and_validate },
    Workload { name: "managed-fields", rounds: 50, prepare: managed_fields },
    Workload { name: "merge-patch", rounds: 200, prepare: merge_patch },
    Workload { name: "strategic-merge-patch", rounds: 100, prepare: strategic_merge_patch },
    Workload { name: "server-side-apply", rounds: 50, prepare: server_side_apply },
    Workload { name: "cel-compile", rounds: 50, prepare: cel_compile },
    Workload { name: "cel-evaluate", rounds: 200, prepare: cel_evaluate },
    Workload { name: "create", rounds: 20, prepare: create },
    Workload { name: "get", rounds: 1000, prepare: get },
    Workload { name: "get-protobuf", rounds: 1000, prepare: get_protobuf },
    Workload { name: "list-page", rounds: 1000, prepare: list_page },
    Workload { name: "list-page-protobuf", rounds: 1000, prepare: list_page_protobuf },
    Workload { name: "list-by-label", rounds: 2000, prepare: list_by_label },
    Workload { name: "list-table", rounds: 500, prepare: list_table },
    Workload { name: "patch-merge", rounds: 20, prepare: patch_merge },
    Workload { name: "patch-status-strategic", rounds: 20, prepare: patch_status_strategic },
    Workload { name: "patch-apply", rounds: 20, prepare: patch_apply },
    Workload { name: "watch-initial-events", rounds: 100, prepare: watch_initial_events },
    Workload {
        name: "watch-initial-events-protobuf",
        rounds: 100,
        prepare: watch_initial_protobuf,
    },
    Workload { name: "watch-event", rounds: 20, prepare: watch_event },
];

/// How many pods there are for lists and watches.
const PODS: usize = 50;
const PAGE: usize = 25;
const STRICT: DecodeOptions = DecodeOptions { strict: true };

fn json_decode() -> Round {
    let server = Server::start();
    Box::new(move |_| {
        let (schema, ty) = (&server.pods.schema, server.pods.ty());
        let decoded = json::decode_body(black_box(&server.pod), schema, ty, STRICT);
        black_box(decoded.expect("a pod"));
    })
}

fn json_encode() -> Round {
    let server = Server::start();
    let tree = server.tree();
    Box::new(move |_| {
        let mut json = Vec::new();
        json::encode(black_box(&tree), &server.pods.schema, server.pods.ty(), &mut json);
        assert_eq!(json.len(), server.pod.len());
    })
}

fn protobuf_decode() -> Round {
    let server = Server::start();
    let tables = Tables::new(&server.pods.schema);
    let (tree, ty) = (server.tree(), server.pods.ty());
    let sealed = protobuf::encode_object(&tree, &tables, &server.pods.schema, ty).expect("a pod");
    Box::new(move |_| {
        let schema = &server.pods.schema;
        let decoded = protobuf::decode_object(black_box(&sealed), &tables, schema, ty);
        black_box(decoded.expect("a pod"));
    })
}

fn protobuf_encode() -> Round {
    let server = Server::start();
    let tables = Tables::new(&server.pods.schema);
    let (tree, ty) = (server.tree(), server.pods.ty());
    Box::new(move |_| {
        let schema = &server.pods.schema;
        let sealed = protobuf::encode_object(black_box(&tree), &tables, schema, ty);
        black_box(sealed.expect("a pod"));
    })
}

/// What a read in protobuf costs: the watch cache has JSON.
fn protobuf_encode_json() -> Round {
    let server = Server::start();
    let tables = Tables::new(&server.pods.schema);
    Box::new(move |_| {
        let (schema, ty) = (&server.pods.schema, server.pods.ty());
        let message = protobuf::encode_json(black_box(&server.pod), &tables, schema, ty);
        black_box(message.expect("a pod"));
    })
}

/// All of a create between mutating and validating admission, and a copy of the pod.
fn default_and_validate() -> Round {
    let server = Server::start();
    let mut tree = server.tree();
    tree.set_at(&["metadata", "namespace"], NAMESPACE);
    let warnings = Warnings::default();
    let now = Time::now();
    Box::new(move |_| {
        let cx = WriteContext {
            kind: &server.pods,
            user: &server.user,
            now,
            warnings: &warnings,
            has_sent_labels: true,
            sent_generation: None,
        };
        let mut pod = black_box(&tree).clone();
        registry::prepare_create(&server.pods, &mut pod, &cx).expect("a valid pod");
        black_box(pod);
    })
}

/// The managedFields of a create, and a copy of the pod.
fn managed_fields() -> Round {
    let server = Server::start();
    let tree = server.tree();
    Box::new(move |_| {
        let mut pod = black_box(&tree).clone();
        apply::update(None, &mut pod, &types(&server), &manager("kubectl-create"));
        black_box(pod);
    })
}

fn types(server: &Server) -> TypeContext<'_> {
    TypeContext {
        schema: &server.pods.schema,
        ty: server.pods.ty(),
        fields: &Filter::All,
        versions: &SingleVersion,
    }
}

fn manager(name: &str) -> Manager<'_> {
    Manager { name, api_version: "v1", subresource: "", now: "2001-02-03T04:05:06Z" }
}

/// Sets an annotation, removes another and replaces a list.
const MERGE_PATCH: &str = r#"{"metadata":{"annotations":{"bench-revision":"1","prometheus.io/path":null}},
    "spec":{"tolerations":[{"key":"dedicated","operator":"Exists"}]}}"#;

fn merge_patch() -> Round {
    let server = Server::start();
    let (tree, patch) = (server.tree(), any(MERGE_PATCH));
    Box::new(move |_| {
        black_box(patch::merge::apply(black_box(&tree), &patch).expect("a patch"));
    })
}

/// Changes items of lists that are merged by key, two levels deep.
const STRATEGIC_PATCH: &str = r#"{"metadata":{"annotations":{"bench-revision":"1"}},"spec":{"containers":[
    {"name":"app","image":"registry.example.com/shop/checkout:2.14.4","env":[{"name":"REQUEST_TIMEOUT","value":"3s"}]},
    {"name":"proxy","env":[{"name":"MESH_ID","$patch":"delete"}]}]}}"#;

fn strategic_merge_patch() -> Round {
    let server = Server::start();
    let (tree, patch) = (server.tree(), any(STRATEGIC_PATCH));
    Box::new(move |_| {
        let (schema, ty) = (&server.pods.schema, server.pods.ty());
        let patched = patch::strategic::apply(black_box(&tree), &patch, schema, ty);
        black_box(patched.expect("a patch"));
    })
}

/// What a second manager applies to a pod that another one has created.
const APPLIED: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pod-000000",
    "labels":{"team":"checkout"},"annotations":{"bench-revision":"ROUND"}},"spec":{"containers":[
    {"name":"app","image":"registry.example.com/shop/checkout:ROUND"}]}}"#;

fn server_side_apply() -> Round {
    let server = Server::start();
    let mut live = server.tree();
    apply::update(None, &mut live, &types(&server), &manager("kubectl-create"));
    let configuration = server.decode(APPLIED.as_bytes());
    Box::new(move |_| {
        let (types, manager) = (types(&server), manager("micro"));
        let applied = apply::apply(Some(black_box(&live)), &configuration, &types, &manager, true);
        black_box(applied.expect("a configuration"));
    })
}

fn any(text: &str) -> Value {
    json::decode_any(text.as_bytes(), STRICT).expect("JSON").value
}

/// A rule of an admission policy that looks at every container.
const RULE: &str = "object.spec.containers.all(c, c.image.startsWith('registry.example.com/') && \
    has(c.resources.limits) && 'memory' in c.resources.limits && \
    (!has(c.securityContext) || c.securityContext.allowPrivilegeEscalation == false)) && \
    object.metadata.labels.exists(key, key == 'app.kubernetes.io/name') && \
    object.spec.volumes.filter(v, has(v.hostPath)).size() == 0";

fn cel_compile() -> Round {
    let server = Server::start();
    let decl = schema::cel_decl::declare(&server.pods.schema, server.pods.ty());
    let env = Env::new().data("object", &decl);
    Box::new(move |_| {
        black_box(env.compile(black_box(RULE)).expect("a rule"));
    })
}

fn cel_evaluate() -> Round {
    let server = Server::start();
    let decl = schema::cel_decl::declare(&server.pods.schema, server.pods.ty());
    let program = Env::new().data("object", &decl).compile(RULE).expect("a rule");
    let tree = server.tree();
    Box::new(move |_| {
        let variables = [Bound::Data(black_box(&tree), &decl)];
        let outcome = program.evaluate(&variables, PER_CALL_LIMIT);
        assert!(matches!(outcome.result, Ok(Val::Bool(true))), "{:?}", outcome.result);
    })
}

/// A create, until the watch cache has the pod.
fn create() -> Round {
    let server = Server::start();
    Box::new(move |round| {
        black_box(server.send(&server.create(round)));
        server.wait_for_cache();
    })
}

/// The size of the pod as it is served: with its defaults and managedFields.
const POD_JSON: Range<usize> = 10_000..13_000;
const POD_PROTOBUF: Range<usize> = 7_500..10_000;

fn of_page(pod: Range<usize>) -> Range<usize> {
    PAGE * pod.start..PAGE * pod.end
}

fn get() -> Round {
    read(1, Request::new("get", &pod_name(0)), POD_JSON)
}

fn get_protobuf() -> Round {
    read(1, Request::new("get", &pod_name(0)).accept(PROTOBUF), POD_PROTOBUF)
}

fn list_page() -> Round {
    let page = Request::new("list", "").query(&format!("limit={PAGE}"));
    read(PODS, page, of_page(POD_JSON))
}

fn list_page_protobuf() -> Round {
    let page = Request::new("list", "").query(&format!("limit={PAGE}")).accept(PROTOBUF);
    read(PODS, page, of_page(POD_PROTOBUF))
}

/// All pods are looked at, none is sent.
fn list_by_label() -> Round {
    let none = "labelSelector=app.kubernetes.io/name%3Dcheckout,bench-group%3Dgroup-0001";
    read(PODS, Request::new("list", "").query(none), 50..500)
}

/// As `kubectl get pods` sends it.
fn list_table() -> Round {
    let table = Request::new("list", "").accept("application/json;as=Table;v=v1;g=meta.k8s.io");
    read(PODS, table, PODS * 5_000..PODS * 8_000)
}

/// A request that changes nothing, to a server with so many pods, and the size of its response.
fn read(pods: usize, request: Request, size: Range<usize>) -> Round {
    let server = Server::with_pods(pods);
    Box::new(move |_| {
        let sent = server.send(black_box(&request));
        assert!(size.contains(&sent), "{sent} bytes");
    })
}

const ANNOTATION: &str = r#"{"metadata":{"annotations":{"bench-revision":"ROUND"}}}"#;

fn patch_merge() -> Round {
    change(|| Request::new("patch", &pod_name(0)), "application/merge-patch+json", ANNOTATION)
}

/// What a kubelet sends.
const STATUS: &str = r#"{"metadata":{"uid":null},"status":{"phase":"Running","hostIP":"10.0.0.1","podIP":"10.1.0.1",
    "podIPs":[{"ip":"10.1.0.1"}],"startTime":"2001-02-03T04:05:06Z","conditions":[
    {"type":"PodScheduled","status":"True","lastTransitionTime":"2001-02-03T04:05:06Z"},
    {"type":"Ready","status":"True","lastTransitionTime":"2001-02-03T04:05:06Z","message":"ROUND"}],
    "containerStatuses":[{"name":"app","ready":true,"started":true,"restartCount":0,
    "image":"registry.example.com/shop/checkout:2.14.3","imageID":"ROUND",
    "state":{"running":{"startedAt":"2001-02-03T04:05:06Z"}}}]}}"#;

fn patch_status_strategic() -> Round {
    let status = || Request::new("patch", &pod_name(0)).subresource("status");
    change(status, "application/strategic-merge-patch+json", STATUS)
}

fn patch_apply() -> Round {
    let applied = || Request::new("patch", &pod_name(0)).query("fieldManager=micro&force=true");
    change(applied, "application/apply-patch+yaml", APPLIED)
}

/// A request that changes the only pod, until the watch cache has the change.
fn change(request: fn() -> Request, media_type: &'static str, body: &'static str) -> Round {
    let server = Server::with_pods(1);
    Box::new(move |round| {
        black_box(server.send(&request().with_body(media_type, body_of(round, body))));
        server.wait_for_cache();
    })
}

/// Not the same as in the round before, and of the same length.
fn body_of(round: usize, body: &str) -> String {
    body.replace("ROUND", &format!("{round:08}"))
}

fn watch_initial_events() -> Round {
    watch_from_start(JSON)
}

fn watch_initial_protobuf() -> Round {
    watch_from_start("application/vnd.kubernetes.protobuf;stream=watch")
}

/// A watch that begins with all pods, until they have been sent.
fn watch_from_start(media_type: &'static str) -> Round {
    let server = Server::with_pods(PODS);
    let watch = Request::new("watch", "").query("watch=1&resourceVersion=0").accept(media_type);
    // Pods are sent in the order of their names.
    let last = pod_name(PODS - 1);
    let mut frames = server.watch(&watch);
    let mut size = 0;
    loop {
        let bytes = server.next(&mut frames);
        size += bytes.len();
        if bytes.windows(last.len()).any(|window| window == last.as_bytes()) {
            break;
        }
    }
    Box::new(move |_| {
        let mut frames = server.watch(&watch);
        let mut sent = 0;
        while sent < size {
            sent += server.next(&mut frames).len();
        }
        assert_eq!(sent, size);
    })
}

/// The same change as in `patch-merge`, until a watch has its event.
fn watch_event() -> Round {
    let server = Server::with_pods(1);
    let watch = Request::new("watch", "")
        .query("watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
    let mut frames = server.watch(&watch);
    Box::new(move |round| {
        let patch = Request::new("patch", &pod_name(0));
        let patch = patch.with_body("application/merge-patch+json", body_of(round, ANNOTATION));
        black_box(server.send(&patch));
        assert!(server.next(&mut frames).starts_with(br#"{"type":"MODIFIED""#));
    })
}
