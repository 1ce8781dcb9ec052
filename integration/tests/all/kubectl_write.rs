//! kubectl journeys that change objects: apply, edit, patch, label, replace, scale, delete.

use integration::shared;

use crate::{assert_contains, with_each_kubectl};

#[test]
fn apply_creates_changes_and_leaves_alone() {
    let web = |replicas: u32, extra: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web{extra}}}, spec: {{replicas: {replicas}, selector: {{matchLabels: {{app: web}}}}, template: {{metadata: {{labels: {{app: web}}}}, spec: {{containers: [{{name: c, image: nginx}}]}}}}}}}}"
        )
    };
    with_each_kubectl("apply", |kubectl| {
        let apply = |document: &str| kubectl.ok_with_yaml("apply -f -", document);
        assert_eq!(apply(&web(1, ", labels: {tier: front}")), "deployment.apps/web created\n");
        assert_eq!(apply(&web(1, ", labels: {tier: front}")), "deployment.apps/web unchanged\n");
        assert_eq!(apply(&web(4, "")), "deployment.apps/web configured\n");
        let seen = kubectl.ok("get deploy web -o jsonpath='{.spec.replicas} {.metadata.labels.tier} {.metadata.generation}'");
        assert_eq!(seen, "4  2", "what is no longer in the file is gone");
        assert_contains(&kubectl.ok("apply view-last-applied deploy/web"), &["replicas: 4"]);
    });
}

#[test]
fn server_side_apply_keeps_track_of_who_owns_what() {
    let cm = |value: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: cm}}, data: {{key: {value}}}}}"
        )
    };
    with_each_kubectl("ssa", |kubectl| {
        assert_eq!(
            kubectl.ok_with_yaml("apply --server-side -f -", &cm("a")),
            "configmap/cm serverside-applied\n"
        );
        let conflict =
            kubectl.fail_with_yaml("apply --server-side --field-manager=other -f -", &cm("b"));
        assert_contains(
            &conflict,
            &["Apply failed with 1 conflict: conflict with \"kubectl\": .data.key"],
        );
        kubectl.ok_with_yaml(
            "apply --server-side --field-manager=other --force-conflicts -f -",
            &cm("b"),
        );
        assert_eq!(kubectl.ok("get cm cm -o jsonpath='{.data.key}'"), "b");
        let managers = kubectl.ok(
            "get cm cm --show-managed-fields -o jsonpath='{.metadata.managedFields[*].manager}'",
        );
        assert_eq!(managers, "other");
        // An apply without a field drops its ownership, and without an owner the field is removed.
        kubectl.ok_with_yaml(
            "apply --server-side --field-manager=other -f -",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: cm}}",
        );
        assert_eq!(kubectl.ok("get cm cm -o jsonpath='{.data}'"), "");
    });
}

#[test]
fn edit_saves_what_the_editor_leaves() {
    with_each_kubectl("edit", |kubectl| {
        kubectl.ok("create configmap cm --from-literal=key=before");
        let edited = kubectl
            .clone()
            .with_env("KUBE_EDITOR", "sed -i s/before/after/")
            .ok("edit configmap cm");
        assert_eq!(edited, "configmap/cm edited\n");
        assert_eq!(kubectl.ok("get cm cm -o jsonpath='{.data.key}'"), "after");
        let output = kubectl.clone().with_env("KUBE_EDITOR", "true").run("edit configmap cm", "");
        assert_contains(
            &String::from_utf8_lossy(&output.stderr),
            &["Edit cancelled, no changes made"],
        );
    });
}

#[test]
fn labels_and_annotations_come_and_go() {
    with_each_kubectl("labels", |kubectl| {
        kubectl.ok("create configmap cm");
        let labels = || kubectl.ok("get cm cm -o jsonpath='{.metadata.labels}'");
        assert_eq!(kubectl.ok("label cm cm tier=front"), "configmap/cm labeled\n");
        assert_eq!(labels(), r#"{"tier":"front"}"#);
        assert_contains(
            &kubectl.fail("label cm cm tier=back"),
            &["already has a value (front), and --overwrite is false"],
        );
        kubectl.ok("label cm cm tier=back --overwrite");
        assert_eq!(labels(), r#"{"tier":"back"}"#);
        assert_eq!(kubectl.ok("label cm cm tier-"), "configmap/cm unlabeled\n");
        assert_eq!(labels(), "");
        assert_contains(&kubectl.fail("label cm cm 'tier=not ok'"), &["a valid label must be"]);
        kubectl.ok("annotate cm cm why='because of this'");
        assert_eq!(
            kubectl.ok("get cm cm -o jsonpath='{.metadata.annotations.why}'"),
            "because of this"
        );
        kubectl.ok("label cm --all all=yes");
        assert_contains(&kubectl.ok("get cm -l all=yes -o name"), &["configmap/cm\n"]);
    });
}

#[test]
fn three_kinds_of_patches_apply() {
    with_each_kubectl("patch", |kubectl| {
        kubectl.ok("create deployment web --image=nginx");
        // A strategic merge patch finds the container by its name and leaves its image alone.
        kubectl.ok(r#"patch deploy web -p '{"spec":{"template":{"spec":{"containers":[{"name":"nginx","env":[{"name":"A","value":"1"}]}]}}}}'"#);
        kubectl.ok(r#"patch deploy web -p '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"busybox"}]}}}}'"#);
        let containers = kubectl.ok("get deploy web -o jsonpath='{range .spec.template.spec.containers[*]}{.name}={.image} {.env[*].name},{end}'");
        assert_eq!(containers, "side=busybox ,nginx=nginx A,");
        kubectl.ok(r#"patch deploy web --type=merge -p '{"metadata":{"labels":{"app":null,"x":"y"}},"spec":{"template":{"spec":{"containers":[{"name":"only","image":"busybox"}]}}}}'"#);
        let seen = kubectl.ok("get deploy web -o jsonpath='{.metadata.labels} {.spec.template.spec.containers[*].name}'");
        assert_eq!(seen, r#"{"x":"y"} only"#);
        kubectl.ok(r#"patch deploy web --type=json -p '[{"op":"test","path":"/metadata/labels/x","value":"y"},{"op":"replace","path":"/spec/replicas","value":5},{"op":"remove","path":"/metadata/labels/x"}]'"#);
        assert_eq!(
            kubectl.ok("get deploy web -o jsonpath='{.spec.replicas}{.metadata.labels}'"),
            "5"
        );
        let unchanged = kubectl.ok(r#"patch deploy web -p '{"spec":{"replicas":5}}'"#);
        assert_eq!(unchanged, "deployment.apps/web patched (no change)\n");
        let refused = kubectl.fail(r#"patch deploy web -p '{"spec":{"replicas":-5}}'"#);
        assert_contains(
            &refused,
            &[
                r#"The Deployment "web" is invalid: spec.replicas: Invalid value: -5: must be greater than or equal to 0"#,
            ],
        );
    });
}

#[test]
fn replace_needs_the_version_it_read() {
    with_each_kubectl("replace", |kubectl| {
        kubectl.ok("create configmap cm --from-literal=key=one");
        let read = kubectl.ok("get cm cm -o json");
        assert_eq!(
            kubectl.ok_with_yaml("replace -f -", &read.replace("\"one\"", "\"two\"")),
            "configmap/cm replaced\n"
        );
        let stale = kubectl.fail_with_yaml("replace -f -", &read.replace("\"one\"", "\"three\""));
        assert_contains(
            &stale,
            &[
                "(Conflict)",
                "the object has been modified; please apply your changes to the latest version and try again",
            ],
        );
        assert_eq!(kubectl.ok("get cm cm -o jsonpath='{.data.key}'"), "two");
        let missing = kubectl.fail_with_yaml(
            "replace -f -",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: nope}}",
        );
        assert_contains(&missing, &["(NotFound)"]);
        let forced = kubectl.ok_with_yaml(
            "replace --force -f -",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: cm}, data: {key: four}}",
        );
        assert_contains(&forced, &["configmap/cm replaced"]);
    });
}

#[test]
fn scale_set_and_rollout_change_a_deployment() {
    with_each_kubectl("scale", |kubectl| {
        kubectl.ok("create deployment web --image=nginx");
        assert_eq!(kubectl.ok("scale deploy web --replicas=3"), "deployment.apps/web scaled\n");
        assert_contains(
            &kubectl.fail("scale deploy web --replicas=4 --current-replicas=9"),
            &["Expected replicas to be 9, was 3"],
        );
        assert_eq!(kubectl.ok("get deploy web --subresource=scale -o jsonpath='{.kind} {.spec.replicas} {.status.selector}'"), "Scale 3 app=web");
        assert_eq!(
            kubectl.ok("set image deploy/web nginx=nginx:2"),
            "deployment.apps/web image updated\n"
        );
        assert_eq!(
            kubectl.ok("set env deploy/web COLOR=blue"),
            "deployment.apps/web env updated\n"
        );
        assert_eq!(kubectl.ok("rollout pause deploy/web"), "deployment.apps/web paused\n");
        assert_eq!(kubectl.ok("rollout resume deploy/web"), "deployment.apps/web resumed\n");
        assert_eq!(kubectl.ok("rollout restart deploy/web"), "deployment.apps/web restarted\n");
        assert_contains(
            &kubectl.ok("autoscale deploy web --min=1 --max=5"),
            &["horizontalpodautoscaler.autoscaling/web autoscaled"],
        );
        let seen = kubectl.ok("get deploy web -o jsonpath='{.spec.replicas} {.spec.template.spec.containers[0].image} {.spec.template.spec.containers[0].env[0].value} {.metadata.generation}'");
        assert_eq!(seen, "3 nginx:2 blue 7");
    });
}

#[test]
fn status_is_written_through_its_subresource() {
    with_each_kubectl("status", |kubectl| {
        kubectl.ok("create deployment web --image=nginx");
        kubectl.ok(r#"patch deploy web --subresource=status --type=merge -p '{"status":{"observedGeneration":1,"replicas":1,"readyReplicas":1},"spec":{"replicas":9}}'"#);
        kubectl.ok(r#"patch deploy web --type=merge -p '{"status":{"replicas":7}}'"#);
        let seen = kubectl.ok("get deploy web -o jsonpath='{.spec.replicas} {.status.replicas} {.metadata.generation}'");
        assert_eq!(
            seen, "1 1 1",
            "the spec through /status and the status through the object are ignored"
        );
    });
}

#[test]
fn diff_shows_what_apply_would_do() {
    let cm = |value: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: cm}}, data: {{key: {value}}}}}"
        )
    };
    with_each_kubectl("diff", |kubectl| {
        kubectl.ok_with_yaml("apply -f -", &cm("before"));
        assert_eq!(kubectl.ok_with_yaml("diff -f -", &cm("before")), "");
        let output = kubectl.run("diff -f -", &cm("after"));
        assert_eq!(output.status.code(), Some(1));
        assert_contains(
            &String::from_utf8_lossy(&output.stdout),
            &["-  key: before", "+  key: after"],
        );
        assert_eq!(kubectl.ok("get cm cm -o jsonpath='{.data.key}'"), "before");
    });
}

#[test]
fn objects_are_deleted_by_name_selector_and_all() {
    with_each_kubectl("delete", |kubectl| {
        for name in ["a", "b", "c", "d"] {
            kubectl.ok(&format!("create configmap {name}"));
            kubectl.ok(&format!(
                "label cm {name} mine=yes group={}",
                if name < "c" { "first" } else { "second" }
            ));
        }
        let left = || kubectl.ok("get cm -l mine=yes -o jsonpath='{.items[*].metadata.name}'");
        kubectl.ok("delete cm a");
        assert_eq!(left(), "b c d");
        kubectl.ok("delete cm b --dry-run=server");
        assert_eq!(left(), "b c d");
        kubectl.ok("delete cm -l group=second");
        assert_eq!(left(), "b");
        kubectl.ok("delete cm --all");
        assert_eq!(left(), "");
        assert_contains(&kubectl.fail("delete cm a"), &[r#"configmaps "a" not found"#]);
        assert_eq!(kubectl.ok("delete cm a --ignore-not-found"), "");
    });
}

#[test]
fn finalizers_hold_an_object_until_they_are_gone() {
    with_each_kubectl("finalizers", |kubectl| {
        kubectl.ok_with_yaml("create -f -", "{apiVersion: v1, kind: ConfigMap, metadata: {name: cm, finalizers: [example.com/hold]}}");
        kubectl.ok("delete cm cm --wait=false");
        let held = kubectl.ok("get cm cm -o jsonpath='{.metadata.finalizers[0]} {.metadata.deletionGracePeriodSeconds}'");
        assert_eq!(held, "example.com/hold 0");
        let refused = kubectl.fail(r#"patch cm cm --type=merge -p '{"metadata":{"finalizers":["example.com/hold","example.com/more"]}}'"#);
        assert_contains(
            &refused,
            &["no new finalizers can be added if the object is being deleted"],
        );
        kubectl.ok(r#"patch cm cm --type=merge -p '{"metadata":{"finalizers":null}}'"#);
        assert_contains(&kubectl.fail("get cm cm"), &["(NotFound)"]);
    });
}

#[test]
fn an_immutable_config_map_stays_as_it_is() {
    with_each_kubectl("immutable", |kubectl| {
        kubectl.ok_with_yaml("create -f -", "{apiVersion: v1, kind: ConfigMap, metadata: {name: cm}, immutable: true, data: {a: b}}");
        let refused = kubectl.fail(r#"patch cm cm -p '{"data":{"a":"c"}}'"#);
        assert_contains(&refused, &["data: Forbidden: field is immutable when `immutable` is set"]);
        kubectl.ok("label cm cm still=labelled");
    });
}

#[test]
fn nodes_are_cordoned_and_tainted() {
    with_each_kubectl("nodes", |kubectl| {
        kubectl.ok_with_yaml(
            "create -f -",
            "{apiVersion: v1, kind: Node, metadata: {name: test-node}}",
        );
        assert_eq!(kubectl.ok("cordon test-node"), "node/test-node cordoned\n");
        assert_contains(&kubectl.ok("get node test-node"), &["SchedulingDisabled"]);
        assert_eq!(kubectl.ok("uncordon test-node"), "node/test-node uncordoned\n");
        assert_eq!(
            kubectl.ok("taint node test-node kind=test:NoSchedule"),
            "node/test-node tainted\n"
        );
        assert_contains(&kubectl.ok("describe node test-node"), &["kind=test:NoSchedule"]);
        kubectl.ok("delete node test-node");
    });
}

#[test]
fn a_custom_kind_behaves_like_any_other() {
    let definition = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ferries.test.example.com}
spec:
  group: test.example.com
  scope: Namespaced
  names: {plural: ferries, singular: ferry, kind: Ferry, shortNames: [fy]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.oars, statusReplicasPath: .status.oars}}
    additionalPrinterColumns:
    - {name: Oars, type: integer, jsonPath: .spec.oars}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [name]
            properties:
              name: {type: string, description: What it says on the stern., maxLength: 8}
              oars: {type: integer, minimum: 0, default: 2}
          status:
            type: object
            properties: {oars: {type: integer}}
";
    with_each_kubectl("crd", |kubectl| {
        kubectl.ok_with_yaml("apply -f -", definition);
        kubectl.established("crd/ferries.test.example.com");
        let ferry = |spec: &str| {
            format!(
                "{{apiVersion: test.example.com/v1, kind: Ferry, metadata: {{name: b}}, spec: {{{spec}}}}}"
            )
        };
        assert_eq!(
            kubectl.ok_with_yaml("create -f -", &ferry("name: Argo")),
            "ferry.test.example.com/b created\n"
        );
        let table = kubectl.ok("get fy");
        let rows: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().take(2).collect()).collect();
        assert_eq!(rows, [["NAME", "OARS"], ["b", "2"]]);
        kubectl.ok(r#"patch ferry b --type=merge -p '{"spec":{"oars":6},"status":{"oars":1}}'"#);
        kubectl.ok("scale ferry b --replicas=8");
        assert_eq!(
            kubectl
                .ok("get ferry b -o jsonpath='{.spec.oars} {.status.oars} {.metadata.generation}'"),
            "8  3"
        );
        let refused =
            kubectl.fail(r#"patch ferry b --type=merge -p '{"spec":{"name":"far too long"}}'"#);
        assert_contains(&refused, &["spec.name: Too long: may not be more than 8 bytes"]);
        let refused = kubectl.fail_with_yaml("create -f -", &ferry("oars: many"));
        assert_contains(
            &refused,
            &["spec.name: Required value", "spec.oars in body must be of type integer"],
        );
        assert_contains(
            &kubectl.ok("explain ferry.spec.name"),
            &["FIELD: name <string>", "What it says on the stern."],
        );
        kubectl.ok("delete ferry b");
    });
    shared().kubectl(integration::Version::Current).ok("delete crd ferries.test.example.com");
}
