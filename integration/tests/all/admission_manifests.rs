//! Webhook configurations and policies from files: `staticManifestsDir`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use integration::{Flavour, Server, Webhook, eventually, pintle_program};
use serde_json::{Value, json};

use crate::assert_contains;

const GATE: &str = "--feature-gates=ManifestBasedAdmissionControlConfig=true";
const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const PLUGINS: [(&str, &str); 4] = [
    ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyConfiguration"),
    ("MutatingAdmissionWebhook", "WebhookAdmissionConfiguration"),
    ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyConfiguration"),
    ("ValidatingAdmissionWebhook", "WebhookAdmissionConfiguration"),
];

/// Makes a directory for each plugin and the file that names them; the flag for it.
fn configuration(directory: &Path) -> String {
    let plugins = PLUGINS.iter().map(|(plugin, kind)| {
        let manifests = directory.join(plugin);
        fs::create_dir_all(&manifests).expect("a directory");
        json!({"name": plugin, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": kind, "staticManifestsDir": manifests,
        }})
    });
    let file = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": plugins.collect::<Vec<Value>>(),
    });
    let path = directory.join("admission.json");
    fs::write(&path, file.to_string()).expect("a file");
    format!("--admission-control-config-file={}", path.display())
}

/// Replaces a file at once, as a tool that deploys it would.
fn write(directory: &Path, plugin: &str, objects: &[Value]) {
    let text: Vec<String> = objects.iter().map(ToString::to_string).collect();
    let (part, file) =
        (directory.join(plugin).join(".next"), directory.join(plugin).join("a.yaml"));
    fs::write(&part, text.join("\n---\n")).expect("a file");
    fs::rename(part, file).expect("a file");
}

fn object(kind: &str, name: &str, field: &str, value: Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, field: value,
    })
}

fn rules() -> Value {
    json!([
        {
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["configmaps"],
        },
        {
            "operations": ["CREATE"], "apiGroups": ["admissionregistration.k8s.io"],
            "apiVersions": ["*"], "resources": ["*"],
        },
    ])
}

fn binding(kind: &str, actions: Option<Value>) -> Value {
    let mut spec = json!({"policyName": "p.static.k8s.io"});
    if let Some(actions) = actions {
        spec["validationActions"] = actions;
    }
    object(kind, "p.static.k8s.io", "spec", spec)
}

/// Refuses what has this name.
fn validating_policy(refused: &str) -> [Value; 2] {
    let policy = json!({
        "matchConstraints": {"resourceRules": rules()},
        "validations": [{
            "expression": format!("object.metadata.name != '{refused}'"), "message": "by a file",
        }],
    });
    [
        object("ValidatingAdmissionPolicy", "p.static.k8s.io", "spec", policy),
        binding("ValidatingAdmissionPolicyBinding", Some(json!(["Deny"]))),
    ]
}

fn mutating_policy() -> [Value; 2] {
    let policy = json!({
        "matchConstraints": {"resourceRules": rules()},
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {
            "expression": "Object{metadata: Object.metadata{labels: {'policy': 'file'}}}",
        }}],
    });
    [
        object("MutatingAdmissionPolicy", "p.static.k8s.io", "spec", policy),
        binding("MutatingAdmissionPolicyBinding", None),
    ]
}

fn webhooks(kind: &str, webhook: &Webhook, path: &str) -> Value {
    object(
        kind,
        "w.static.k8s.io",
        "webhooks",
        json!([{
            "name": "decide.example.com",
            "clientConfig": {"url": webhook.url(path), "caBundle": webhook.ca_bundle},
            "rules": rules(),
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }]),
    )
}

/// Adds a label under `/mutate`, notes the kinds it has seen.
fn webhook(seen: &Arc<Mutex<Vec<String>>>) -> Webhook {
    let seen = seen.clone();
    Webhook::by_path(move |path, review| {
        let request = &review["request"];
        let kind = request["kind"]["kind"].as_str().unwrap_or_default();
        seen.lock().expect("no panic").push(format!("{path} {kind}"));
        let mut response = json!({"uid": request["uid"], "allowed": true});
        if path.starts_with("/mutate") {
            let add = json!([{"op": "add", "path": "/metadata/labels/webhook", "value": "file"}]);
            response["patchType"] = "JSONPatch".into();
            response["patch"] = STANDARD.encode(add.to_string()).into();
        }
        json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})
    })
}

fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn config_maps(server: &Server) -> String {
    format!("/api/v1/namespaces/{}/configmaps", server.namespace("files"))
}

#[test]
fn configurations_from_files_count_like_those_of_the_api() {
    let directory = tempfile::tempdir().expect("a directory");
    let flag = configuration(directory.path());
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let hook = webhook(&seen);
    let mutating = webhooks("MutatingWebhookConfiguration", &hook, "/mutate");
    let validating = webhooks("ValidatingWebhookConfiguration", &hook, "/validate");
    write(directory.path(), "MutatingAdmissionWebhook", &[mutating]);
    write(directory.path(), "ValidatingAdmissionWebhook", &[validating]);
    write(directory.path(), "MutatingAdmissionPolicy", &mutating_policy());
    write(directory.path(), "ValidatingAdmissionPolicy", &validating_policy("refused"));
    let server = Server::with(Flavour::Embedded, &[GATE, &flag]);
    let (http, config_maps) = (server.http(), config_maps(&server));

    let made = http.post(&config_maps, &config_map("a")).expect(201);
    assert_eq!(made["metadata"]["labels"], json!({"policy": "file", "webhook": "file"}));
    let refused = http.post(&config_maps, &config_map("refused"));
    assert_contains(
        &refused.text(),
        &[
            "ValidatingAdmissionPolicy 'p.static.k8s.io' with binding 'p.static.k8s.io' denied request: by a file",
        ],
    );
    assert_eq!(refused.code, 422);
    for resource in [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "mutatingadmissionpolicies",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    ] {
        let list = http.get(&format!("{GROUP}/{resource}")).expect(200);
        assert_eq!(list["items"], json!([]), "{resource} are in files only");
    }

    // What configures admission is seen by those from files, and by no other.
    seen.lock().expect("no panic").clear();
    let policy = |name: &str| {
        object(
            "ValidatingAdmissionPolicy",
            name,
            "spec",
            json!({
                "matchConstraints": {"resourceRules": rules()},
                "validations": [{"expression": "false"}],
            }),
        )
    };
    let path = format!("{GROUP}/validatingadmissionpolicies");
    let made = http.post(&path, &policy("mine")).expect(201);
    assert_eq!(made["metadata"]["labels"], json!({"policy": "file", "webhook": "file"}));
    assert_eq!(http.post(&path, &policy("refused")).code, 422);
    let configuration = object("ValidatingWebhookConfiguration", "mine", "webhooks", json!([]));
    http.post(&format!("{GROUP}/validatingwebhookconfigurations"), &configuration).expect(201);
    let mut seen = std::mem::take(&mut *seen.lock().expect("no panic"));
    // A controller makes one in each namespace.
    seen.retain(|own| !own.ends_with("ConfigMap"));
    assert_eq!(
        seen,
        [
            "/mutate ValidatingAdmissionPolicy",
            "/validate ValidatingAdmissionPolicy",
            "/mutate ValidatingAdmissionPolicy",
            "/mutate ValidatingWebhookConfiguration",
            "/validate ValidatingWebhookConfiguration",
        ]
    );

    // Their names are not for objects of the API.
    let reserved = http.post(&path, &policy("x.static.k8s.io"));
    assert_eq!(reserved.code, 422);
    assert_contains(
        &reserved.text(),
        &[
            "metadata.name: Invalid value: \\\"x.static.k8s.io\\\": names ending with \\\".static.k8s.io\\\" are reserved for static manifest-based configurations",
        ],
    );
}

#[test]
fn files_of_admission_are_reloaded_and_a_wrong_one_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let flag = configuration(directory.path());
    let plugin = "ValidatingAdmissionPolicy";
    write(directory.path(), plugin, &validating_policy("first"));
    let server = Server::with(Flavour::Embedded, &[GATE, &flag]);
    let (http, path) = (server.http(), format!("{}?dryRun=All", config_maps(&server)));
    let code = |name: &str| http.post(&path, &config_map(name)).code;
    assert_eq!((code("first"), code("second")), (422, 201));

    write(directory.path(), plugin, &validating_policy("second"));
    eventually("the new policy counts", || (code("second") == 422).then_some(()));
    assert_eq!(code("first"), 201);

    let mut wrong = validating_policy("third");
    wrong[0]["spec"]["validations"][0]["expression"] = "object.".into();
    write(directory.path(), plugin, &wrong);
    let total = "apiserver_manifest_admission_config_controller_automatic_reloads_total";
    let count = |status: &str| {
        let metrics = http.get("/metrics").text();
        let mut lines = metrics.lines().filter(|line| {
            line.starts_with(total)
                && line.contains(&format!("plugin=\"{plugin}\""))
                && line.contains(&format!("status=\"{status}\""))
        });
        lines.next().and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    eventually("the failure is counted", || (count("failure") == 1).then_some(()));
    assert_eq!((code("second"), code("third")), (422, 201));
    assert_eq!(count("success"), 2, "the start and one reload");
    let info = "apiserver_manifest_admission_config_controller_last_config_info{";
    assert_contains(&http.get("/metrics").text(), &[info]);

    fs::remove_file(directory.path().join(plugin).join("a.yaml")).expect("a file");
    eventually("no policy counts", || (code("second") == 201).then_some(()));
}

#[test]
fn files_of_admission_need_their_gate_and_are_checked_at_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let flag = configuration(directory.path());
    let refused = |flags: &[&str]| {
        let data = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(pintle_program());
        command.arg(format!("--data-dir={}", data.path().display())).arg("--secure-port=0");
        let output = command.args(flags).stdin(Stdio::null()).output().expect("pintle starts");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_contains(
        &refused(&[&flag]),
        &["staticManifestsDir: Forbidden: staticManifestsDir requires the \
           ManifestBasedAdmissionControlConfig feature gate to be enabled"],
    );
    let mut wrong = validating_policy("a");
    wrong[0]["spec"]["validation"] = json!([]);
    write(directory.path(), "ValidatingAdmissionPolicy", &wrong);
    assert_contains(
        &refused(&[&flag, GATE]),
        &[
            "couldn't init admission plugin \"ValidatingAdmissionPolicy\": failed to load static \
             policy manifests from",
            "ValidatingAdmissionPolicy \"p.static.k8s.io\": strict decoding error: unknown field \
             \"spec.validation\"",
        ],
    );
    let mut wrong = validating_policy("a");
    wrong[0]["spec"]["failurePolicy"] = "Maybe".into();
    write(directory.path(), "ValidatingAdmissionPolicy", &wrong);
    assert_contains(
        &refused(&[&flag, GATE]),
        &[
            "spec.failurePolicy: Unsupported value: \"Maybe\": supported values: \"Fail\", \"Ignore\"",
        ],
    );
}
