//! Admission policies in CEL.

use std::sync::Mutex;

use integration::{Answer, Http, Shared, eventually, shared};
use serde_json::{Value, json};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// A namespace, and policies that are bound to nothing else. They are gone with it.
struct Place {
    server: Shared,
    http: Http,
    namespace: String,
    made: Mutex<Vec<String>>,
}

impl Place {
    fn new(purpose: &str) -> Self {
        let server = shared();
        let (http, namespace) = (server.http(), server.namespace(purpose));
        Self { server, http, namespace, made: Mutex::default() }
    }

    fn make(&self, resource: &str, object: &Value) {
        let path = format!("{GROUP}/{resource}");
        self.http.post(&path, object).expect(201);
        let name = object["metadata"]["name"].as_str().expect("a name");
        self.made.lock().expect("no panic").push(format!("{path}/{name}"));
    }

    /// A policy and its binding to this namespace; the binding is completed by `binding`.
    fn bind(&self, kind: &str, spec: &Value, binding: &Value) {
        let name = self.namespace.as_str();
        self.make(kind, &json!({"metadata": {"name": name}, "spec": spec}));
        let mut bound = json!({
            "policyName": name,
            "matchResources": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
            },
        });
        for (field, value) in binding.as_object().expect("an object") {
            bound[field] = value.clone();
        }
        let bindings = format!(
            "{}bindings",
            kind.strip_suffix("ies").map_or(kind.to_owned(), |start| format!("{start}y"))
        );
        self.make(&bindings, &json!({"metadata": {"name": name}, "spec": bound}));
    }

    fn validate(&self, resources: &Value, spec: &Value, binding: &Value) {
        let mut spec = spec.clone();
        spec["matchConstraints"] = json!({"resourceRules": [resources]});
        let mut binding = binding.clone();
        if binding["validationActions"].is_null() {
            binding["validationActions"] = json!(["Deny"]);
        }
        self.bind("validatingadmissionpolicies", &spec, &binding);
    }

    fn mutate(&self, resources: &Value, spec: &Value) {
        let mut spec = spec.clone();
        spec["matchConstraints"] = json!({"resourceRules": [resources]});
        if spec["reinvocationPolicy"].is_null() {
            spec["reinvocationPolicy"] = "Never".into();
        }
        self.bind("mutatingadmissionpolicies", &spec, &json!({}));
    }

    fn path(&self, group: &str, resource: &str) -> String {
        format!("/{group}/namespaces/{}/{resource}", self.namespace)
    }

    /// Writes until the answer is this: kube-apiserver takes a moment to see a policy.
    fn post_until(&self, path: &str, object: &Value, code: u16) -> Answer {
        let mut count = 0;
        let mut post = || {
            let mut object = object.clone();
            count += 1;
            let name = object["metadata"]["name"].as_str().unwrap_or("x").to_owned();
            object["metadata"]["name"] = format!("{name}-{count}").into();
            self.http.post(path, &object)
        };
        if !self.server.flavour().is_peer() {
            let answer = post();
            assert_eq!(answer.code, code, "{}", answer.text());
            return answer;
        }
        eventually("the policy counts", || Some(post()).filter(|answer| answer.code == code))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for at in self.made.lock().expect("no panic").drain(..).rev() {
            self.http.delete(&at);
        }
    }
}

fn rule(group: &str, resource: &str) -> Value {
    json!({
        "operations": ["CREATE", "UPDATE"], "apiGroups": [group], "apiVersions": ["v1"],
        "resources": [resource],
    })
}

fn deployment(name: &str, replicas: u32) -> Value {
    let labels = json!({"app": "x"});
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "registry.example.com/app:1"}]},
            },
        },
    })
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"metadata": {"name": name}, "data": data})
}

#[test]
fn replicas_are_limited() {
    let place = Place::new("replicas");
    place.validate(
        &rule("apps", "deployments"),
        &json!({"validations": [{"expression": "object.spec.replicas <= 5"}]}),
        &json!({}),
    );
    let path = place.path("apis/apps/v1", "deployments");
    let refused = place.post_until(&path, &deployment("many", 6), 422).json();
    let name = &place.namespace;
    let why = format!(
        "ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: failed \
         expression: object.spec.replicas <= 5"
    );
    let object = refused["details"]["name"].as_str().expect("a name");
    assert_eq!(refused["message"], format!("deployments.apps \"{object}\" is forbidden: {why}"));
    assert_eq!(refused["reason"], "Invalid");
    assert_eq!(refused["details"]["causes"], json!([{"message": why}]));
    let few = place.http.post(&path, &deployment("few", 5)).expect(201);
    let at = format!("{path}/few");
    let scale = json!({"spec": {"replicas": 6}});
    place.http.patch(&at, "application/merge-patch+json", &scale).expect(422);
    assert_eq!(few["spec"]["replicas"], 5);
}

#[test]
fn labels_are_required_with_a_message_of_the_policy() {
    let place = Place::new("labels");
    place.validate(
        &rule("", "configmaps"),
        &json!({
            "variables": [
                {"name": "labels", "expression": "object.metadata.?labels.orValue({})"},
                {"name": "missing", "expression": "['owner', 'team'].filter(l, !(l in variables.labels))"},
            ],
            "validations": [{
                "expression": "variables.missing.size() == 0",
                "messageExpression": "'missing labels: ' + variables.missing.join(', ')",
                "reason": "Forbidden",
            }],
        }),
        &json!({}),
    );
    let path = place.path("api/v1", "configmaps");
    let mut object = config_map("a", json!({}));
    object["metadata"]["labels"] = json!({"team": "x"});
    let refused = place.post_until(&path, &object, 403).json();
    assert_eq!(refused["reason"], "Forbidden");
    let message = refused["message"].as_str().expect("a message");
    assert!(message.ends_with("denied request: missing labels: owner"), "{message}");
    object["metadata"]["labels"]["owner"] = "y".into();
    object["metadata"]["name"] = "fine".into();
    place.http.post(&path, &object).expect(201);
}

#[test]
fn images_come_from_a_known_registry() {
    let place = Place::new("images");
    place.validate(
        &rule("apps", "deployments"),
        &json!({"validations": [{
            "expression": "object.spec.template.spec.containers.all(c, c.image.startsWith('registry.example.com/'))",
            "message": "images must come from registry.example.com",
        }]}),
        &json!({}),
    );
    let path = place.path("apis/apps/v1", "deployments");
    let mut other = deployment("other", 1);
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "example.org/app".into();
    let refused = place.post_until(&path, &other, 422).json();
    let message = refused["message"].as_str().expect("a message");
    assert!(message.ends_with("images must come from registry.example.com"), "{message}");
    place.http.post(&path, &deployment("own", 1)).expect(201);
}

#[test]
fn parameters_by_name_by_selector_and_missing() {
    type Case<'a> = (Value, &'a [(&'a str, &'a str)], u32, u16, &'a str);
    let policy = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{
            "expression": "object.spec.replicas <= int(params.data.max)",
            "messageExpression": "'at most ' + params.data.max",
        }],
    });
    let param = |name: &str, max: &str| {
        let mut param = config_map(name, json!({"max": max}));
        param["metadata"]["labels"] = json!({"kind": "limit"});
        param
    };
    let cases: [Case<'_>; 6] = [
        (json!({"name": "limit"}), &[("limit", "3")], 4, 422, "at most 3"),
        (json!({"name": "limit"}), &[("limit", "3")], 3, 201, ""),
        (
            json!({"selector": {"matchLabels": {"kind": "limit"}}}),
            &[("a", "9"), ("b", "2")],
            4,
            422,
            "at most 2",
        ),
        (json!({"name": "gone", "parameterNotFoundAction": "Allow"}), &[], 4, 201, ""),
        (
            json!({"name": "gone", "parameterNotFoundAction": "Deny"}),
            &[],
            4,
            422,
            "failed to configure binding: no params found for policy binding with `Deny` \
             parameterNotFoundAction",
        ),
        // A parameter in another namespace is not found.
        (
            json!({"name": "limit", "namespace": "default", "parameterNotFoundAction": "Deny"}),
            &[("limit", "3")],
            1,
            422,
            "failed to configure binding: no params found for policy binding with `Deny` \
             parameterNotFoundAction",
        ),
    ];
    for (param_ref, params, replicas, code, message) in cases {
        let place = Place::new("params");
        for (name, max) in params {
            place.http.post(&place.path("api/v1", "configmaps"), &param(name, max)).expect(201);
        }
        let mut param_ref = param_ref;
        if param_ref["parameterNotFoundAction"].is_null() {
            param_ref["parameterNotFoundAction"] = "Deny".into();
        }
        place.validate(&rule("apps", "deployments"), &policy, &json!({"paramRef": param_ref}));
        let path = place.path("apis/apps/v1", "deployments");
        let answer = place.post_until(&path, &deployment("d", replicas), code).json();
        let told = answer["message"].as_str().unwrap_or_default();
        assert!(told.ends_with(message), "{param_ref}: {told}");
    }
}

#[test]
fn parameters_of_a_custom_kind() {
    let place = Place::new("custom-params");
    let group = format!("{}.example.com", place.namespace);
    let definition = json!({
        "metadata": {"name": format!("limits.{group}")},
        "spec": {
            "group": group, "scope": "Cluster",
            "names": {"plural": "limits", "kind": "Limit"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "max": {"type": "integer"},
                }}},
            }],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    place.http.post(definitions, &definition).expect(201);
    let limits = format!("/apis/{group}/v1/limits");
    eventually("limits are served", || (place.http.get(&limits).code == 200).then_some(()));
    let limit = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Limit",
        "metadata": {"name": "own"}, "max": 2,
    });
    place.http.post(&limits, &limit).expect(201);
    place.validate(
        &rule("apps", "deployments"),
        &json!({
            "paramKind": {"apiVersion": format!("{group}/v1"), "kind": "Limit"},
            "validations": [{"expression": "object.spec.replicas <= params.max"}],
        }),
        &json!({"paramRef": {"name": "own", "parameterNotFoundAction": "Deny"}}),
    );
    let path = place.path("apis/apps/v1", "deployments");
    place.post_until(&path, &deployment("d", 3), 422);
    place.http.post(&path, &deployment("fine", 2)).expect(201);
    place.http.delete(&format!("{definitions}/limits.{group}"));
}

#[test]
fn exemptions_by_match_condition_exclusion_and_authorizer() {
    let never = json!([{"expression": "false", "message": "never"}]);
    let cases = [
        (
            json!({"matchConditions": [{"name": "no", "expression": "request.name.startsWith('x')"}]}),
            201,
        ),
        (
            json!({"matchConditions": [{"name": "no", "expression": "request.name.startsWith('a')"}]}),
            422,
        ),
        (
            json!({"matchConditions": [{
                "name": "admins",
                "expression": "!authorizer.group('admissionregistration.k8s.io').resource('validatingadmissionpolicies').check('delete').allowed()",
            }]}),
            201,
        ),
        (
            json!({"matchConditions": [{"name": "broken", "expression": "object.no.such == 1"}]}),
            422,
        ),
        (
            json!({
                "matchConditions": [{"name": "broken", "expression": "object.no.such == 1"}],
                "failurePolicy": "Ignore",
            }),
            201,
        ),
        (
            json!({"validations": [{
                "expression": "authorizer.requestResource.check('create').allowed() && authorizer.serviceAccount('default', 'default').group('').resource('configmaps').check('delete').reason() != 'x'",
            }]}),
            201,
        ),
        (
            json!({"validations": [{"expression": "namespaceObject.metadata.name == request.namespace && has(request.userInfo.username) && oldObject == null"}]}),
            201,
        ),
    ];
    for (spec, code) in cases {
        let place = Place::new("exempt");
        let mut spec = spec;
        if spec["validations"].is_null() {
            spec["validations"] = never.clone();
        }
        place.validate(&rule("", "configmaps"), &spec, &json!({}));
        let path = place.path("api/v1", "configmaps");
        place.post_until(&path, &config_map("a", json!({})), code);
    }
}

#[test]
fn a_policy_may_warn_instead_of_refusing() {
    let place = Place::new("warn");
    place.validate(
        &rule("", "configmaps"),
        &json!({"validations": [{"expression": "false", "message": "rather not"}]}),
        &json!({"validationActions": ["Warn", "Audit"]}),
    );
    let path = place.path("api/v1", "configmaps");
    let name = &place.namespace;
    let expected = format!(
        "299 - \"Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{name}': \
         rather not\""
    );
    eventually("the policy warns", || {
        let object = json!({"metadata": {"generateName": "a"}});
        let created = place.http.post(&path, &object);
        assert_eq!(created.code, 201, "{}", created.text());
        (created.header("warning") == Some(&expected)).then_some(())
    });
}

#[test]
fn what_cannot_be_evaluated_obeys_the_failure_policy() {
    let missing = json!([{"expression": "object.data.missing == 'x'"}]);
    // Costs more than one expression may.
    let long = "['a','b','c','d','e','f','g','h','i','j']";
    let nested = (0..7).fold("true".to_owned(), |inner, at| format!("{long}.all(x{at}, {inner})"));
    let costly = json!([{"expression": nested}]);
    let cases = [
        (&missing, "Fail", 422, "resulted in error: no such key: missing"),
        (&missing, "Ignore", 201, ""),
        (&costly, "Fail", 422, "actual cost limit exceeded"),
        (&costly, "Ignore", 201, ""),
    ];
    for (validations, policy, code, message) in cases {
        let place = Place::new("fails");
        let spec = json!({"validations": validations, "failurePolicy": policy});
        place.validate(&rule("", "configmaps"), &spec, &json!({}));
        let path = place.path("api/v1", "configmaps");
        let answer = place.post_until(&path, &config_map("a", json!({"a": "b"})), code).json();
        let told = answer["message"].as_str().unwrap_or_default();
        assert!(told.contains(message), "{told}");
    }
}

#[test]
fn an_unbound_policy_has_no_effect_and_a_deleted_one_none_any_more() {
    let place = Place::new("unbound");
    let spec = json!({
        "matchConstraints": {"resourceRules": [rule("", "configmaps")]},
        "validations": [{"expression": "false"}],
    });
    let name = place.namespace.as_str();
    place.make("validatingadmissionpolicies", &json!({"metadata": {"name": name}, "spec": spec}));
    let path = place.path("api/v1", "configmaps");
    place.http.post(&path, &config_map("a", json!({}))).expect(201);
    let binding = json!({
        "policyName": name, "validationActions": ["Deny"],
        "matchResources": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
        },
    });
    place.make(
        "validatingadmissionpolicybindings",
        &json!({"metadata": {"name": name}, "spec": binding}),
    );
    place.post_until(&path, &config_map("b", json!({})), 422);
    place.http.delete(&format!("{GROUP}/validatingadmissionpolicybindings/{name}")).expect(200);
    place.post_until(&path, &config_map("c", json!({})), 201);
}

#[test]
fn mutations_apply_configurations_and_json_patches() {
    let place = Place::new("mutate");
    place.mutate(
        &rule("apps", "deployments"),
        &json!({
            "variables": [{"name": "count", "expression": "object.spec.replicas + 1"}],
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
                    "Object{metadata: Object.metadata{labels: {'by': 'policy'}}, spec: Object.spec{replicas: variables.count}}"}},
                {"patchType": "JSONPatch", "jsonPatch": {"expression":
                    "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'replicas': string(object.spec.replicas)}}]"}},
                {"patchType": "JSONPatch", "jsonPatch": {"expression":
                    "[JSONPatch{op: 'test', path: '/spec/replicas', value: 99}, JSONPatch{op: 'remove', path: '/metadata/labels'}]"}},
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
                    "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'side', image: 'i'}]}}}}"}},
            ],
        }),
    );
    let path = place.path("apis/apps/v1", "deployments");
    let mut count = 0;
    let created = eventually("the policy counts", || {
        count += 1;
        let created = place.http.post(&path, &deployment(&format!("d{count}"), 1)).expect(201);
        (created["metadata"]["labels"] != Value::Null).then_some(created)
    });
    assert_eq!(created["metadata"]["labels"], json!({"by": "policy"}));
    assert_eq!(created["metadata"]["annotations"]["replicas"], "2");
    assert_eq!(created["spec"]["replicas"], 2);
    let containers = created["spec"]["template"]["spec"]["containers"].as_array();
    let names: Vec<&str> =
        containers.into_iter().flatten().filter_map(|own| own["name"].as_str()).collect();
    assert_eq!(names, ["c", "side"]);
    // What the policy added has the defaults of its kind.
    let side = &created["spec"]["template"]["spec"]["containers"][1];
    assert_eq!(side["terminationMessagePath"], "/dev/termination-log");
}

#[test]
fn mutations_that_do_not_fit_refuse_the_request() {
    let apply = |expression: &str| json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]);
    let json_patch = |expression: &str| json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]);
    let cases = [
        (apply("Object{spec: Object.status{}}"), "type mismatch: unexpected type name"),
        (apply("Object{nonsense: 'x'}"), ".nonsense: field not declared in schema"),
        (
            apply(
                "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: 'c', command: ['x']}]}}}}",
            ),
            "may not mutate atomic arrays, maps or structs: .spec.template.spec.containers",
        ),
        (json_patch("[JSONPatch{op: 'remove', path: '/no/such'}]"), "JSON Patch:"),
        (
            json_patch(
                "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': string(object.spec.nothing)}}]",
            ),
            "no such key: nothing",
        ),
    ];
    for (mutations, message) in cases {
        let place = Place::new("misfit");
        place.mutate(&rule("apps", "deployments"), &json!({"mutations": mutations}));
        let path = place.path("apis/apps/v1", "deployments");
        let refused = place.post_until(&path, &deployment("d", 1), 403).json();
        let told = refused["message"].as_str().expect("a message");
        let name = &place.namespace;
        let start = format!("policy '{name}' with binding '{name}' denied request: ");
        assert!(told.starts_with(&start) && told.contains(message), "{message}: {told}");
    }
}

#[test]
fn a_mutation_is_applied_again_if_the_object_changes_later() {
    let place = Place::new("reinvoke");
    let name = place.namespace.clone();
    let spec = |text: &str, reinvocation: &str| {
        json!({
            "matchConstraints": {"resourceRules": [rule("", "configmaps")]},
            "reinvocationPolicy": reinvocation,
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": text}}],
        })
    };
    let count = "[JSONPatch{op: 'add', path: '/data/seen', value: string(int(object.data.?seen.orValue('0')) + 1)}]";
    let later =
        "'later' in object.data ? [] : [JSONPatch{op: 'add', path: '/data/later', value: 'x'}]";
    for (suffix, text, reinvocation) in [("a", count, "IfNeeded"), ("b", later, "Never")] {
        let name = format!("{name}-{suffix}");
        let policy = json!({"metadata": {"name": name}, "spec": spec(text, reinvocation)});
        place.make("mutatingadmissionpolicies", &policy);
        let binding = json!({
            "policyName": name,
            "matchResources": {
                "namespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": place.namespace},
                },
            },
        });
        place.make(
            "mutatingadmissionpolicybindings",
            &json!({"metadata": {"name": name}, "spec": binding}),
        );
    }
    let path = place.path("api/v1", "configmaps");
    let created = eventually("both policies count", || {
        let object = json!({"metadata": {"generateName": "a"}, "data": {"a": "b"}});
        let created = place.http.post(&path, &object).expect(201);
        (created["data"]["later"] != Value::Null).then_some(created)
    });
    assert_eq!(created["data"]["seen"], "2");
}

#[test]
fn the_status_of_a_policy_says_what_does_not_fit_a_kind() {
    let place = Place::new("types");
    if !place.server.has_controllers() {
        return;
    }
    let spec = json!({
        "matchConstraints": {"resourceRules": [rule("apps", "deployments")]},
        "validations": [
            {"expression": "object.spec.replicas > 1"},
            {"expression": "object.spec.replicas > '1'"},
            {"expression": "object.spec.no == 1", "messageExpression": "string(object.metadata.name)"},
        ],
    });
    let name = place.namespace.as_str();
    let policies = "validatingadmissionpolicies";
    place.make(policies, &json!({"metadata": {"name": name}, "spec": spec}));
    let status = eventually("the policy is checked", || {
        let policy = place.http.get(&format!("{GROUP}/{policies}/{name}")).expect(200);
        (policy["status"]["observedGeneration"] == 1).then(|| policy["status"].clone())
    });
    let warnings = status["typeChecking"]["expressionWarnings"].as_array().expect("warnings");
    let told: Vec<(&str, &str)> = warnings
        .iter()
        .filter_map(|own| Some((own["fieldRef"].as_str()?, own["warning"].as_str()?)))
        .collect();
    let [(first, why), (second, undefined)] = told[..] else { panic!("{told:?}") };
    assert_eq!(first, "spec.validations[1].expression");
    assert!(
        why.starts_with(
            "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_'"
        ),
        "{why}"
    );
    assert_eq!(second, "spec.validations[2].expression");
    assert!(undefined.contains("undefined field 'no'"), "{undefined}");
}
