//! The scenarios of Kubernetes' conformance tests for admission webhooks and policies
//! (`test/e2e/apimachinery/webhook.go`, `validatingadmissionpolicy.go`, `mutatingadmissionpolicy.go`) that the other files
//! lack. The webhook is a server of the test, called by URL instead of by Service.

use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use integration::{Answer, Http, Shared, Webhook, eventually, shared};
use serde_json::{Value, json};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MERGE: &str = "application/merge-patch+json";

/// A namespace, and configurations that concern nothing else; all of them have the label `e2e` with its name.
struct Place {
    server: Shared,
    http: Http,
    namespace: String,
}

impl Place {
    fn new(purpose: &str) -> Self {
        let server = shared();
        let (http, namespace) = (server.http(), server.namespace(purpose));
        Self { server, http, namespace }
    }

    fn selector(&self) -> Value {
        json!({"matchLabels": {"kubernetes.io/metadata.name": self.namespace}})
    }

    /// A webhook for creates, updates and deletes of a resource; `fields` replace what it has.
    fn webhook(&self, webhook: &Webhook, group: &str, resource: &str, fields: &Value) -> Value {
        let mut complete = json!({
            "name": "decide.example.com",
            "clientConfig": {"url": webhook.url("/"), "caBundle": webhook.ca_bundle},
            "rules": [{
                "operations": ["CREATE", "UPDATE", "DELETE"], "apiGroups": [group],
                "apiVersions": ["*"], "resources": [resource],
            }],
            "namespaceSelector": self.selector(),
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            // A machine under load may be slow.
            "timeoutSeconds": 30,
        });
        for (field, value) in fields.as_object().expect("fields") {
            complete[field] = value.clone();
        }
        complete
    }

    /// Returns the path of the configuration.
    fn configure(&self, plural: &str, webhook: &Value) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}", self.namespace, COUNT.fetch_add(1, Ordering::Relaxed));
        let configuration = json!({
            "metadata": {"name": name, "labels": {"e2e": self.namespace}},
            "webhooks": [webhook],
        });
        self.http.post(&format!("{GROUP}/{plural}"), &configuration).expect(201);
        format!("{GROUP}/{plural}/{name}")
    }

    fn path(&self, api: &str, resource: &str) -> String {
        format!("/{api}/namespaces/{}/{resource}", self.namespace)
    }

    /// Creates a config map.
    fn create(&self, data: &Value) -> Answer {
        let object = json!({"metadata": {"name": next_name("c")}, "data": data});
        self.http.post(&self.path("api/v1", "configmaps"), &object)
    }

    /// Creates until the answer is this: kube-apiserver takes a moment to see a configuration.
    fn create_until(&self, data: &Value, code: u16) -> Answer {
        self.until(code, || self.create(data))
    }

    fn until(&self, code: u16, request: impl Fn() -> Answer) -> Answer {
        if !self.server.flavour().is_peer() {
            let answer = request();
            assert_eq!(answer.code, code, "{}", answer.text());
            return answer;
        }
        eventually("the configuration counts", || Some(request()).filter(|own| own.code == code))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for plural in CONFIGURATIONS {
            self.http.delete(&format!("{GROUP}/{plural}?labelSelector=e2e%3D{}", self.namespace));
        }
    }
}

const CONFIGURATIONS: [&str; 6] = [
    "validatingwebhookconfigurations",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
];

fn next_name(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}{}", COUNT.fetch_add(1, Ordering::Relaxed))
}

fn answer(review: &Value, mut response: Value) -> Value {
    response["uid"] = review["request"]["uid"].clone();
    json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})
}

fn patch(operations: &Value) -> Value {
    let patch = STANDARD.encode(operations.to_string());
    json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
}

/// Denies objects whose data is marked, and the deletion of such objects.
fn deny_marked() -> Webhook {
    Webhook::start(|review| {
        let request = &review["request"];
        let is_marked = |object: &Value| object["data"]["webhook-e2e-test"] == "webhook-disallow";
        let object = if request["operation"] == "DELETE" { "oldObject" } else { "object" };
        let allowed = !is_marked(&request[object]);
        let status = json!({"reason": "the object contains unwanted data"});
        answer(&review, json!({"allowed": allowed, "status": status}))
    })
}

fn marked() -> Value {
    json!({"webhook-e2e-test": "webhook-disallow"})
}

/// Adds what the stage before it has left: two webhooks of this kind show their order.
fn mutate_data() -> Webhook {
    Webhook::start(|review| {
        let data = &review["request"]["object"]["data"];
        let next = match (&data["mutation-start"], &data["mutation-stage-1"]) {
            (Value::String(_), Value::Null) => "mutation-stage-1",
            (Value::String(_), Value::String(_)) => "mutation-stage-2",
            _ => return answer(&review, json!({"allowed": true})),
        };
        let add = json!([{"op": "add", "path": format!("/data/{next}"), "value": "yes"}]);
        answer(&review, patch(&add))
    })
}

#[test]
fn the_kinds_of_admission_are_in_the_discovery_documents() {
    let server = shared();
    let http = server.http();
    let named = |list: &Value, name: &str| {
        let list = list.as_array().into_iter().flatten().cloned();
        list.into_iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}"))
    };
    let groups = http.get("/apis").expect(200);
    let group = named(&groups["groups"], "admissionregistration.k8s.io");
    let versions = group["versions"].as_array().expect("versions").iter();
    let expected = json!({"groupVersion": "admissionregistration.k8s.io/v1", "version": "v1"});
    assert!(versions.clone().any(|version| *version == expected), "{group}");
    assert_eq!(http.get("/apis/admissionregistration.k8s.io").expect(200)["name"], group["name"]);
    let resources = http.get(GROUP).expect(200);
    for plural in CONFIGURATIONS {
        let resource = named(&resources["resources"], plural);
        assert_eq!(resource["namespaced"], false);
    }
    named(&resources["resources"], "validatingadmissionpolicies/status");
}

#[test]
fn a_webhook_denies_pods_and_config_maps_but_not_where_it_is_not_asked() {
    let place = Place::new("deny");
    let webhook = deny_marked();
    let own = place.webhook(&webhook, "", "configmaps", &json!({}));
    place.configure("validatingwebhookconfigurations", &own);
    let denied = place.create_until(&marked(), 400).json();
    let message = "admission webhook \"decide.example.com\" denied the request: the object contains \
                   unwanted data";
    assert_eq!(denied["message"], message);
    // Neither by an update nor by a patch.
    let name = next_name("c");
    let allowed = json!({"metadata": {"name": name}, "data": {"admit": "this"}});
    place.http.post(&place.path("api/v1", "configmaps"), &allowed).expect(201);
    let at = place.path("api/v1", &format!("configmaps/{name}"));
    let marked_object = json!({"metadata": {"name": name}, "data": marked()});
    assert_eq!(place.http.put(&at, &marked_object).expect(400)["message"], message);
    let patched = place.http.patch(&at, MERGE, &json!({"data": marked()}));
    assert_eq!(patched.expect(400)["message"], message);
    assert_eq!(place.http.get(&at).expect(200)["data"], json!({"admit": "this"}));
    // Another namespace is not its concern.
    let other = place.server.namespace("deny-not");
    let object = json!({"metadata": {"name": "c"}, "data": marked()});
    place.http.post(&format!("/api/v1/namespaces/{other}/configmaps"), &object).expect(201);
}

#[test]
fn a_webhook_denies_attaching_to_a_pod() {
    let place = Place::new("attach");
    let pods = place.path("api/v1", "pods");
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]},
    });
    // The service account is made by a controller.
    eventually("the pod is there", || (place.http.post(&pods, &pod).code == 201).then_some(()));
    let webhook = Webhook::start(|review| {
        let is_attach = review["request"]["operation"] == "CONNECT";
        let status = json!({"message": "attaching to pod 'p' is not allowed"});
        answer(&review, json!({"allowed": !is_attach, "status": status}))
    });
    let rules = json!({"rules": [{
        "operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"],
        "resources": ["pods/attach"],
    }]});
    let own = place.webhook(&webhook, "", "pods/attach", &rules);
    place.configure("validatingwebhookconfigurations", &own);
    let attach = || place.http.post(&format!("{pods}/p/attach?stdout=true"), &json!({}));
    let denied = eventually("the webhook is asked", || {
        Some(attach().text()).filter(|text| text.contains("denied the request"))
    });
    assert!(denied.contains("attaching to pod 'p' is not allowed"), "{denied}");
    assert!(webhook.calls() > 0);
}

/// A definition of a group of its own; it is deleted with it.
struct Definition<'a> {
    place: &'a Place,
    group: String,
}

impl<'a> Definition<'a> {
    fn new(place: &'a Place, storage: &str, data: &Value) -> Self {
        let group = format!("{}.example.com", place.namespace);
        let definition = Self { place, group };
        let object = definition.object(storage, data);
        place.http.post(DEFINITIONS, &object).expect(201);
        eventually("the custom resources are served", || {
            (place.http.get(&definition.path("v1")).code == 200).then_some(())
        });
        definition
    }

    /// Two versions, of which one is stored.
    fn object(&self, storage: &str, data: &Value) -> Value {
        let version = |name: &str| {
            json!({
                "name": name, "served": true, "storage": name == storage,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"data": data}}},
            })
        };
        json!({
            "metadata": {"name": format!("things.{}", self.group)},
            "spec": {
                "group": self.group, "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing"},
                "versions": [version("v1"), version("v2")],
            },
        })
    }

    fn path(&self, version: &str) -> String {
        self.place.path(&format!("apis/{}/{version}", self.group), "things")
    }

    fn thing(&self, name: &str, data: &Value) -> Value {
        let api_version = format!("{}/v1", self.group);
        json!({"apiVersion": api_version, "kind": "Thing", "metadata": {"name": name}, "data": data})
    }
}

impl Drop for Definition<'_> {
    fn drop(&mut self) {
        self.place.http.delete(&format!("{DEFINITIONS}/things.{}", self.group));
    }
}

fn any_data() -> Value {
    json!({"type": "object", "additionalProperties": {"type": "string"}})
}

#[test]
fn a_webhook_denies_creation_update_and_deletion_of_custom_resources() {
    let place = Place::new("deny-custom");
    let things = Definition::new(&place, "v1", &any_data());
    let webhook = deny_marked();
    let own = place.webhook(&webhook, &things.group, "things", &json!({}));
    let configuration = place.configure("validatingwebhookconfigurations", &own);
    let path = things.path("v1");
    place.until(400, || place.http.post(&path, &things.thing(&next_name("t"), &marked())));
    place.http.post(&path, &things.thing("t", &json!({"a": "b"}))).expect(201);
    let at = format!("{path}/t");
    place.http.patch(&at, MERGE, &json!({"data": marked()})).expect(400);
    // An object from before the webhook cannot be deleted until it is mended.
    place.http.delete(&configuration).expect(200);
    eventually("the webhook is gone", || {
        (place.http.patch(&at, MERGE, &json!({"data": marked()})).code == 200).then_some(())
    });
    place.configure("validatingwebhookconfigurations", &own);
    place.until(400, || place.http.delete(&at));
    place
        .http
        .patch(&at, MERGE, &json!({"data": {"webhook-e2e-test": "webhook-allow"}}))
        .expect(200);
    place.http.delete(&at).expect(200);
}

#[test]
fn webhooks_mutate_custom_resources_one_after_the_other_and_the_rest_is_pruned() {
    let declared = json!({"type": "object", "properties": {
        "mutation-start": {"type": "string"}, "mutation-stage-1": {"type": "string"},
    }});
    // Everything may stay, or what the schema does not declare goes.
    for (data, stage_2) in [(any_data(), json!("yes")), (declared, Value::Null)] {
        let place = Place::new("mutate-custom");
        let things = Definition::new(&place, "v1", &data);
        let webhook = mutate_data();
        for name in ["one.example.com", "two.example.com"] {
            let own = place.webhook(&webhook, &things.group, "things", &json!({"name": name}));
            place.configure("mutatingwebhookconfigurations", &own);
        }
        let start = json!({"mutation-start": "yes"});
        let created = eventually("both webhooks are called", || {
            let thing = things.thing(&next_name("t"), &start);
            let created = place.http.post(&things.path("v1"), &thing).expect(201);
            let is_done = created["data"]["mutation-stage-1"] == "yes";
            (is_done && webhook.calls() >= 2).then_some(created)
        });
        assert_eq!(created["data"]["mutation-stage-2"], stage_2, "{created}");
    }
}

#[test]
fn webhooks_mutate_custom_resources_whose_stored_version_has_changed() {
    let place = Place::new("stored");
    let things = Definition::new(&place, "v1", &any_data());
    let (webhook, start) = (mutate_data(), json!({"mutation-start": "yes"}));
    let own = place.webhook(&webhook, &things.group, "things", &json!({}));
    place.configure("mutatingwebhookconfigurations", &own);
    let created = eventually("the webhook is called", || {
        let thing = things.thing(&next_name("t"), &start);
        let created = place.http.post(&things.path("v1"), &thing).expect(201);
        (created["data"]["mutation-stage-1"] == "yes").then_some(created)
    });
    let at = format!("{DEFINITIONS}/things.{}", things.group);
    let versions = things.object("v2", &any_data())["spec"]["versions"].clone();
    place.http.patch(&at, MERGE, &json!({"spec": {"versions": versions}})).expect(200);
    // An object of the old stored version, by the new one and by the old.
    let name = created["metadata"]["name"].as_str().expect("a name");
    for (version, label) in [("v2", "a"), ("v1", "b")] {
        let labels = json!({"metadata": {"labels": {"l": label}}});
        let patched = eventually("the definition has changed", || {
            let at = format!("{}/{name}", things.path(version));
            Some(place.http.patch(&at, MERGE, &labels)).filter(|answer| answer.code == 200)
        });
        let patched = patched.json();
        assert_eq!(patched["apiVersion"], format!("{}/{version}", things.group));
        assert_eq!(patched["data"]["mutation-stage-1"], "yes");
        assert_eq!(patched["data"]["mutation-stage-2"], "yes");
    }
}

#[test]
fn a_webhook_denies_definitions() {
    let place = Place::new("deny-crd");
    let label = json!({"matchLabels": {"webhook-e2e-test": place.namespace}});
    let webhook = Webhook::start(|review| {
        answer(&review, json!({"allowed": false, "status": {"message": "not this one"}}))
    });
    let fields = json!({"namespaceSelector": null, "objectSelector": label});
    let own = place.webhook(&webhook, "apiextensions.k8s.io", "customresourcedefinitions", &fields);
    place.configure("validatingwebhookconfigurations", &own);
    let things = Definition { place: &place, group: format!("{}.example.com", place.namespace) };
    let mut object = things.object("v1", &any_data());
    object["metadata"]["labels"] = json!({"webhook-e2e-test": place.namespace});
    let denied = eventually("the webhook is called", || {
        let answer = place.http.post(DEFINITIONS, &object);
        if answer.code == 201 {
            place.http.delete(&format!("{DEFINITIONS}/things.{}", things.group));
        }
        (answer.code == 400).then_some(answer.text())
    });
    assert!(denied.contains("denied the request: not this one"), "{denied}");
    // Without the label it is none of its business.
    object["metadata"]["labels"] = json!({});
    eventually("the definition can be made", || {
        (place.http.post(DEFINITIONS, &object).code == 201).then_some(())
    });
}

#[test]
fn what_a_webhook_adds_to_a_pod_gets_its_defaults() {
    let place = Place::new("defaults");
    let webhook = Webhook::start(|review| {
        let init = json!([{"image": "webhook-added-image", "name": "webhook-added-init-container",
            "resources": {}}]);
        answer(
            &review,
            patch(&json!([{"op": "add", "path": "/spec/initContainers", "value": init}])),
        )
    });
    let fields = json!({"rules": [{
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
    }]});
    let own = place.webhook(&webhook, "", "pods", &fields);
    place.configure("mutatingwebhookconfigurations", &own);
    let created = eventually("the webhook is called", || {
        let pod = json!({
            "metadata": {"name": next_name("p")},
            "spec": {
                "automountServiceAccountToken": false,
                "containers": [{"name": "example", "image": "i"}],
            },
        });
        let answer = place.http.post(&place.path("api/v1", "pods"), &pod);
        let created = (answer.code == 201).then(|| answer.json());
        created.filter(|pod| pod["spec"]["initContainers"].is_array())
    });
    let init = &created["spec"]["initContainers"][0];
    assert_eq!(init["name"], "webhook-added-init-container");
    assert_eq!(init["terminationMessagePolicy"], "File");
    assert_eq!(init["imagePullPolicy"], "Always");
}

#[test]
fn updates_and_patches_of_webhook_configurations_count() {
    let place = Place::new("changed");
    let denying = deny_marked();
    let own = place.webhook(&denying, "", "configmaps", &json!({}));
    let at = place.configure("validatingwebhookconfigurations", &own);
    place.create_until(&marked(), 400);
    // An update: creates are not its concern any more.
    let mut configuration = place.http.get(&at).expect(200);
    configuration["webhooks"][0]["rules"][0]["operations"] = json!(["UPDATE"]);
    place.http.put(&at, &configuration).expect(200);
    place.create_until(&marked(), 201);
    // A patch: they are again.
    let rules = json!([{
        "op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["CREATE"],
    }]);
    place.http.patch(&at, "application/json-patch+json", &rules).expect(200);
    place.create_until(&marked(), 400);
    place.http.delete(&at).expect(200);

    let (mutating, start) = (mutate_data(), json!({"mutation-start": "yes"}));
    let own = place.webhook(&mutating, "", "configmaps", &json!({}));
    let at = place.configure("mutatingwebhookconfigurations", &own);
    let wait = |expected: Value| {
        eventually("the configuration counts", || {
            let created = place.create(&start).expect(201);
            (created["data"]["mutation-stage-1"] == expected).then_some(())
        });
    };
    wait(json!("yes"));
    let mut configuration = place.http.get(&at).expect(200);
    configuration["webhooks"][0]["rules"][0]["operations"] = json!(["UPDATE"]);
    place.http.put(&at, &configuration).expect(200);
    wait(Value::Null);
    place.http.patch(&at, "application/json-patch+json", &rules).expect(200);
    wait(json!("yes"));
}

#[test]
fn webhook_configurations_are_listed_and_deleted_by_label() {
    let place = Place::new("listed");
    let denying = deny_marked();
    for plural in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
        for at in 0..10 {
            let name = format!("decide-{at}.example.com");
            let own = place.webhook(&denying, "", "configmaps", &json!({"name": name}));
            place.configure(plural, &own);
        }
        place.create_until(&marked(), 400);
        let selected = format!("{GROUP}/{plural}?labelSelector=e2e%3D{}", place.namespace);
        let items =
            || place.http.get(&selected).expect(200)["items"].as_array().map_or(0, Vec::len);
        assert_eq!(items(), 10);
        place.http.delete(&selected).expect(200);
        assert_eq!(items(), 0);
        place.create_until(&marked(), 201);
    }
}

#[test]
fn match_conditions_are_compiled_when_they_are_written() {
    let place = Place::new("conditions");
    let webhook = deny_marked();
    for plural in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
        let conditions = |conditions: Value| {
            let fields = json!({"matchConditions": conditions});
            let own = place.webhook(&webhook, "", "configmaps", &fields);
            json!({
                "metadata": {"name": next_name(&place.namespace), "labels": {"e2e": place.namespace}},
                "webhooks": [own],
            })
        };
        let one = json!({"name": "expression-1", "expression": "object.metadata.namespace == 'x'"});
        let two =
            json!({"name": "expression-2", "expression": "object.metadata.name != 'skip-me'"});
        let created = place.http.post(&format!("{GROUP}/{plural}"), &conditions(json!([one])));
        let mut created = created.expect(201);
        assert_eq!(created["webhooks"][0]["matchConditions"], json!([one]));
        created["webhooks"][0]["matchConditions"] = json!([one, two]);
        let name = created["metadata"]["name"].as_str().expect("a name").to_owned();
        let updated = place.http.put(&format!("{GROUP}/{plural}/{name}"), &created).expect(200);
        assert_eq!(updated["webhooks"][0]["matchConditions"], json!([one, two]));
        let broken =
            json!([{"name": "invalid-expression-1", "expression": "... [] bad expression"}]);
        let refused =
            place.http.post(&format!("{GROUP}/{plural}"), &conditions(broken)).expect(422);
        let message = refused["message"].as_str().expect("a message");
        assert!(message.contains("compilation failed"), "{message}");
    }
}

#[test]
fn everything_but_what_a_condition_names_is_mutated() {
    let place = Place::new("skip");
    let (webhook, start) = (mutate_data(), json!({"mutation-start": "yes"}));
    let fields = json!({"matchConditions": [
        {"name": "skip-me", "expression": "object.metadata.name != 'skip-me'"},
    ]});
    let own = place.webhook(&webhook, "", "configmaps", &fields);
    place.configure("mutatingwebhookconfigurations", &own);
    eventually("the configuration counts", || {
        let created = place.create(&start).expect(201);
        (created["data"]["mutation-stage-1"] == "yes").then_some(())
    });
    let object = json!({"metadata": {"name": "skip-me"}, "data": start});
    let created = place.http.post(&place.path("api/v1", "configmaps"), &object).expect(201);
    assert_eq!(created["data"], start);
}

fn deployment(replicas: u32, labels: &Value) -> Value {
    json!({
        "metadata": {"name": next_name("d"), "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "sample"}},
            "template": {
                "metadata": {"labels": {"app": "sample"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    })
}

fn deployments(place: &Place) -> Value {
    json!({
        "namespaceSelector": place.selector(),
        "resourceRules": [{
            "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["deployments"],
        }],
    })
}

/// A policy of the place and its binding.
fn bind(place: &Place, kind: &str, spec: &Value, binding: &Value) {
    let metadata = json!({"name": place.namespace, "labels": {"e2e": place.namespace}});
    let policy = json!({"metadata": metadata, "spec": spec});
    place.http.post(&format!("{GROUP}/{kind}policies"), &policy).expect(201);
    let mut spec = json!({"policyName": place.namespace});
    for (field, value) in binding.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    let binding = json!({"metadata": metadata, "spec": spec});
    place.http.post(&format!("{GROUP}/{kind}policybindings"), &binding).expect(201);
}

#[test]
fn expressions_of_a_policy_refer_to_variables() {
    let place = Place::new("variables");
    let spec = json!({
        "matchConstraints": deployments(&place),
        "variables": [
            {"name": "replicas", "expression": "object.spec.replicas"},
            {"name": "oddReplicas", "expression": "variables.replicas % 2 == 1"},
        ],
        "validations": [
            {"expression": "variables.replicas > 1"},
            {"expression": "variables.oddReplicas"},
        ],
    });
    bind(&place, "validatingadmission", &spec, &json!({"validationActions": ["Deny"]}));
    let path = place.path("apis/apps/v1", "deployments");
    let create = |replicas| place.http.post(&path, &deployment(replicas, &json!({})));
    for (replicas, failed) in [(1, "variables.replicas > 1"), (6, "variables.oddReplicas")] {
        let refused = place.until(422, || create(replicas)).json();
        let message = refused["message"].as_str().expect("a message");
        let why = format!("denied request: failed expression: {failed}");
        assert!(message.contains(&why), "{message}");
    }
    create(7).expect(201);
}

#[test]
fn a_mutating_policy_sets_annotations_and_replicas_of_a_deployment() {
    let cases = [
        (
            "ApplyConfiguration",
            "applyConfiguration",
            "Object{metadata: Object.metadata{annotations: {'my-foo-annotation': 'myAnnotationValue'}}}",
        ),
        (
            "JSONPatch",
            "jsonPatch",
            "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'my-foo-annotation': \
             'myAnnotationValue'}}]",
        ),
    ];
    for (patch_type, field, expression) in cases {
        let place = Place::new("mutate");
        let replicas = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
                "Object{spec: Object.spec{replicas: object.spec.replicas + 1}}"}});
        let annotate = json!({"patchType": patch_type, field: {"expression": expression}});
        let spec = json!({
            "matchConstraints": deployments(&place), "reinvocationPolicy": "Never",
            "mutations": [annotate, replicas],
        });
        bind(&place, "mutatingadmission", &spec, &json!({}));
        let path = place.path("apis/apps/v1", "deployments");
        let created = eventually("the policy counts", || {
            let created = place.http.post(&path, &deployment(1, &json!({}))).expect(201);
            created["metadata"]["annotations"].is_object().then_some(created)
        });
        let annotations = &created["metadata"]["annotations"];
        assert_eq!(annotations["my-foo-annotation"], "myAnnotationValue");
        assert_eq!(created["spec"]["replicas"], 2);
    }
}

/// Create, get, list, watch, patch, update, status, delete and deletecollection.
#[test]
fn policies_and_bindings_have_all_operations_of_the_api() {
    let place = Place::new("operations");
    let (mut constraints, binding) = (deployments(&place), json!({"policyName": "none"}));
    constraints["resourceRules"][0]["resources"] = json!(["controllerrevisions"]);
    let validating = json!({
        "matchConstraints": constraints, "validations": [{"expression": "object != null"}],
    });
    let mutating = json!({
        "matchConstraints": constraints, "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {
            "expression": "Object{metadata: Object.metadata{labels: {'a': 'b'}}}",
        }}],
    });
    let mut denying = binding.clone();
    denying["validationActions"] = json!(["Deny"]);
    for (plural, spec) in [
        ("validatingadmissionpolicies", validating),
        ("validatingadmissionpolicybindings", denying),
        ("mutatingadmissionpolicies", mutating),
        ("mutatingadmissionpolicybindings", binding),
    ] {
        operate(&place, plural, &spec);
    }
}

fn operate(place: &Place, plural: &str, spec: &Value) {
    let all = format!("{GROUP}/{plural}");
    let selected = format!("{all}?labelSelector=e2e%3D{}", place.namespace);
    let object = || {
        json!({
            "metadata": {"name": next_name(&place.namespace), "labels": {"e2e": place.namespace}},
            "spec": spec,
        })
    };
    let listed = place.http.get(&selected).expect(200);
    let version = listed["metadata"]["resourceVersion"].as_str().expect("a version");
    let mut events = place.http.stream(&format!("{selected}&watch=true&resourceVersion={version}"));
    let created: Vec<Value> =
        (0..3).map(|_| place.http.post(&all, &object()).expect(201)).collect();
    let name = |object: &Value| object["metadata"]["name"].as_str().expect("a name").to_owned();
    for object in &created {
        // The controller of types may have written the status of an earlier one meanwhile.
        let added = eventually("the creation is seen", || {
            let event = events.next_event().expect("the watch goes on");
            (event["type"] == "ADDED").then_some(event)
        });
        assert_eq!(name(&added["object"]), name(object));
    }
    let at = format!("{all}/{}", name(&created[0]));
    assert_eq!(place.http.get(&at).expect(200)["spec"], created[0]["spec"]);
    let items = || place.http.get(&selected).expect(200)["items"].as_array().map_or(0, Vec::len);
    assert_eq!(items(), 3);
    let annotated = json!({"metadata": {"annotations": {"patched": "true"}}});
    let mut patched = place.http.patch(&at, MERGE, &annotated).expect(200);
    assert_eq!(patched["metadata"]["annotations"]["patched"], "true");
    patched["metadata"]["annotations"]["updated"] = json!("true");
    let updated = place.http.put(&at, &patched);
    // The controller of types may have written the status meanwhile.
    assert!([200, 409].contains(&updated.code), "{}", updated.text());
    if plural == "validatingadmissionpolicies" {
        let condition = json!({
            "type": "StatusPatched", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2024-01-01T00:00:00Z",
        });
        let status = json!({"status": {"conditions": [condition]}});
        let patched = place.http.patch(&format!("{at}/status"), MERGE, &status).expect(200);
        assert_eq!(patched["status"]["conditions"][0]["type"], "StatusPatched");
        place.http.get(&format!("{at}/status")).expect(200);
    }
    place.http.delete(&at).expect(200);
    place.http.get(&at).expect(404);
    assert_eq!(items(), 2);
    place.http.delete(&selected).expect(200);
    assert_eq!(items(), 0);
    let deleted = eventually("the deletion is seen", || {
        let event = events.next_event().expect("the watch goes on");
        (event["type"] == "DELETED").then_some(event)
    });
    assert_eq!(name(&deleted["object"]), name(&created[0]));
}
