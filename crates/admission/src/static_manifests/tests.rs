use std::{fs, path::PathBuf, sync::atomic::AtomicU32, sync::atomic::Ordering};

use meta::value;

use super::*;
use crate::harness::yaml;

/// A directory of its own for each test.
struct Dir(PathBuf);

impl Dir {
    fn new(files: &[(&str, &str)]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pintle-manifests-{}-{number}", std::process::id());
        let dir = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(&dir.0).unwrap();
        for (name, text) in files {
            fs::write(dir.0.join(name), text).unwrap();
        }
        dir
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Takes every object but those with a field `unknown`.
struct Lenient;

impl ManifestDecoder for Lenient {
    fn decode(&self, kind: &str, object: &Value) -> Result<Value, String> {
        if object.get("unknown").is_some() {
            return Err("unknown field \"unknown\"".to_owned());
        }
        let mut object = object.clone();
        object.set_at(&["kind"], kind);
        Ok(object)
    }
}

/// The names of what was loaded, or the error without the path of the directory.
fn loaded(plugin: ManifestPlugin, files: &[(&str, &str)]) -> String {
    let dir = Dir::new(files);
    let names = |part: &[(Str, Value)]| -> String {
        part.iter().map(|(name, _)| name.split('.').next().unwrap()).collect::<Vec<_>>().join(" ")
    };
    match read(&dir.0).and_then(|manifests| load(plugin, &manifests, &Lenient)) {
        Ok(Loaded { configurations, .. }) => match &configurations {
            StaticConfigurations::MutatingWebhooks(own)
            | StaticConfigurations::ValidatingWebhooks(own) => names(own),
            StaticConfigurations::ValidatingPolicies { policies, bindings }
            | StaticConfigurations::MutatingPolicies { policies, bindings } => {
                format!("{} | {}", names(policies), names(bindings))
            }
        },
        Err(why) => why.replace(&format!("{}/", dir.0.display()), ""),
    }
}

const HEAD: &str = "apiVersion: admissionregistration.k8s.io/v1\n";

fn webhook(name: &str, client_config: &str) -> String {
    format!(
        "{HEAD}kind: ValidatingWebhookConfiguration\nmetadata: {{name: {name}}}\nwebhooks:\n\
         - {{name: w.example.com, clientConfig: {client_config}}}\n"
    )
}

fn policy(name: &str, spec: &str) -> String {
    format!("{HEAD}kind: ValidatingAdmissionPolicy\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

fn binding(name: &str, spec: &str) -> String {
    format!(
        "{HEAD}kind: ValidatingAdmissionPolicyBinding\nmetadata: {{name: {name}}}\nspec: {spec}\n"
    )
}

#[test]
fn webhooks_are_read_from_files_in_the_order_of_their_names() {
    let url = "{url: 'https://127.0.0.1:1/'}";
    let a = webhook("a.static.k8s.io", url);
    let b = webhook("b.static.k8s.io", url);
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n- {}- {}",
        b.replace('\n', "\n  ").trim_end_matches("  "),
        a.replace('\n', "\n  ").trim_end_matches("  ")
    );
    let typed = format!(
        "{HEAD}kind: ValidatingWebhookConfigurationList\nitems:\n\
         - {{metadata: {{name: c.static.k8s.io}}, webhooks: []}}\n"
    );
    let json = meta::json::to_string(&yaml(&a));
    let service = "{service: {namespace: n, name: s}}";
    let cases: Vec<(Vec<(&str, String)>, &str)> = vec![
        (vec![], ""),
        (vec![("2.yaml", b.clone()), ("3.YML", a.clone()), ("note.txt", "x: [".into())], "a b"),
        (vec![("1.yaml", format!("---\n# nothing\n{b}---\n{a}--- # end\n"))], "a b"),
        (vec![("1.yaml", list)], "a b"),
        (vec![("1.json", json)], "a"),
        (vec![("1.yaml", typed)], "c"),
        (vec![("1.yaml", String::new())], ""),
        (
            vec![("1.yaml", format!("{a}--- more\n{b}"))],
            "failed to split YAML documents in file \"1.yaml\": invalid Yaml document separator: \
             more",
        ),
        (
            vec![("1.yaml", "kind: Pod\napiVersion: v1\n".into())],
            "error loading 1.yaml: unsupported resource type *v1.Pod",
        ),
        (
            vec![("1.yaml", a.replace("k8s.io/v1", "k8s.io/v1beta1"))],
            "error loading 1.yaml: unsupported resource type *v1beta1.ValidatingWebhookConfiguration",
        ),
        (
            vec![("1.yaml", a.replace("Validating", "Mutating"))],
            "error loading 1.yaml: unsupported resource type *v1.MutatingWebhookConfiguration",
        ),
        (vec![("1.yaml", "a: 1\n".into())], "error loading 1.yaml: Object 'Kind' is missing"),
        (
            vec![("1.yaml", format!("{a}unknown: 1\n"))],
            "error loading 1.yaml: ValidatingWebhookConfiguration \"a.static.k8s.io\": unknown \
             field \"unknown\"",
        ),
        (
            vec![("1.yaml", format!("{a}kind: ValidatingWebhookConfiguration\n"))],
            "error loading 1.yaml: strict decoding error: line 6: key \"kind\" already set in map",
        ),
        (
            vec![("1.yaml", webhook("a.example.com", url))],
            "error loading 1.yaml: \"a.example.com\" in file \"1.yaml\" must have a name ending \
             with \".static.k8s.io\"",
        ),
        (
            vec![("1.yaml", webhook("''", url))],
            "error loading 1.yaml: resource in file \"1.yaml\" must have a name",
        ),
        (
            vec![("1.yaml", a.clone()), ("2.yaml", a.clone())],
            "error loading 2.yaml: duplicate name \"a.static.k8s.io\" found in file \"2.yaml\" \
             (previously seen in \"1.yaml\")",
        ),
        (
            vec![("1.yaml", webhook("a.static.k8s.io", service))],
            "error loading 1.yaml: webhook \"w.example.com\" in \"a.static.k8s.io\" (file \
             \"1.yaml\"): clientConfig.service is not supported for static manifests; use \
             clientConfig.url instead",
        ),
        (
            vec![("1.yaml", webhook("a.static.k8s.io", "{}"))],
            "error loading 1.yaml: webhook \"w.example.com\" in \"a.static.k8s.io\" (file \
             \"1.yaml\"): clientConfig.url is required for static manifests",
        ),
    ];
    for (files, expected) in cases {
        let files: Vec<(&str, &str)> =
            files.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let found = loaded(ManifestPlugin::ValidatingAdmissionWebhook, &files);
        assert_eq!(found, expected, "{files:?}");
    }
}

#[test]
fn policies_from_files_have_no_parameters_and_their_bindings_a_policy() {
    let p = policy("p.static.k8s.io", "{}");
    let b = binding("b.static.k8s.io", "{policyName: p.static.k8s.io}");
    let cases = [
        (format!("{p}---\n{b}"), "p | b"),
        // The names of policies and of bindings are apart.
        (format!("{p}---\n{}", b.replace("b.static", "p.static")), "p | p"),
        (p.clone(), "p | "),
        (
            policy("p.static.k8s.io", "{paramKind: {kind: K, apiVersion: v1}}"),
            "error loading 1.yaml: ValidatingAdmissionPolicy \"p.static.k8s.io\": spec.paramKind is \
             not supported for static manifests",
        ),
        (
            format!("{p}---\n{}", binding("b.static.k8s.io", "{}")),
            "error loading 1.yaml: binding \"b.static.k8s.io\" must reference a policy \
             (spec.policyName)",
        ),
        (
            format!("{p}---\n{}", binding("b.static.k8s.io", "{policyName: p}")),
            "error loading 1.yaml: binding \"b.static.k8s.io\": spec.policyName \"p\" must end with \
             \".static.k8s.io\"",
        ),
        (
            format!(
                "{p}---\n{}",
                binding("b.static.k8s.io", "{policyName: p.static.k8s.io, paramRef: {name: x}}")
            ),
            "error loading 1.yaml: binding \"b.static.k8s.io\": spec.paramRef is not supported for \
             static manifests",
        ),
        (
            b,
            "binding \"b.static.k8s.io\" references policy \"p.static.k8s.io\" which does not exist \
             in the manifest directory",
        ),
        (
            p.replace("Validating", "Mutating"),
            "error loading 1.yaml: unsupported resource type *v1.MutatingAdmissionPolicy",
        ),
    ];
    for (text, expected) in cases {
        let found = loaded(ManifestPlugin::ValidatingAdmissionPolicy, &[("1.yaml", &text)]);
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn the_hash_is_that_of_the_texts() {
    let hash = |files: &[(&str, &str)]| {
        let dir = Dir::new(files);
        read(&dir.0).expect("readable").hash
    };
    assert_eq!(hash(&[]), "");
    assert_eq!(hash(&[("a.yaml", "")]), "");
    // Of `---` and a zero byte.
    let one = hash(&[("a.yaml", "---\n")]);
    assert_eq!(one, metrics::hexadecimal(&Sha256::digest(b"---\n\0")[..]));
    assert_eq!(one, hash(&[("b.yaml", "---\n"), ("c.yaml", "")]));
    assert_ne!(one, hash(&[("a.yaml", "---\n---\n")]));
}

#[test]
fn a_directory_needs_the_gate_and_has_to_be_there() {
    let dir = Dir::new(&[("file", "x")]);
    let path = dir.0.display().to_string();
    let file = format!("{path}/file");
    let cases = [
        ("", false, Ok(false)),
        ("", true, Ok(false)),
        (path.as_str(), true, Ok(true)),
        (
            path.as_str(),
            false,
            Err("staticManifestsDir: Forbidden: staticManifestsDir requires the \
                 ManifestBasedAdmissionControlConfig feature gate to be enabled"),
        ),
        (
            "relative",
            true,
            Err("staticManifestsDir: Invalid value: \"relative\": must be an absolute file path"),
        ),
        ("/no/such/directory", true, Err("unable to read: ")),
        (file.as_str(), true, Err("must be a directory")),
    ];
    for (given, gate_is_on, expected) in cases {
        match (directory(given, gate_is_on), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found.is_some(), expected, "{given}"),
            (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }
    for plugin in ManifestPlugin::ALL {
        let of = |fields: Value| {
            let configurations = crate::Configurations::for_test(plugin.name(), fields);
            let configuration = configurations.of(plugin.name()).expect("just given");
            directory_of(plugin, configuration, true)
        };
        let kind = match plugin {
            ManifestPlugin::ValidatingAdmissionPolicy => "ValidatingAdmissionPolicyConfiguration",
            ManifestPlugin::MutatingAdmissionPolicy => "MutatingAdmissionPolicyConfiguration",
            _ => "WebhookAdmissionConfiguration",
        };
        let fields = |directory: Value| {
            value!({
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": (kind),
                "staticManifestsDir": (directory),
            })
        };
        assert_eq!(of(fields(path.as_str().into())), Ok(Some(dir.0.clone())));
        assert_eq!(of(fields(Value::Null)), Ok(None));
        assert!(of(fields(1i64.into())).is_err(), "{kind}");
    }
}
