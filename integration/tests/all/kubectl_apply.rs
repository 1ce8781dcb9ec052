//! kubectl apply in its finer points: validation by the server, dry runs, and the way from the client's side to the server's.

use crate::{assert_contains, with_each_kubectl};

fn config_map(data: &str, more: &str) -> String {
    format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: cm}}, data: {{{data}}}{more}}}")
}

#[test]
fn strict_validation_names_what_the_server_does_not_know() {
    let pod = |more: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{containers: [{{name: c, image: nginx{more}}}]}}}}"
        )
    };
    with_each_kubectl("strict", |kubectl| {
        for line in [
            "apply --validate=strict -f -",
            "apply --server-side --validate=strict -f -",
            "create --validate=strict -f -",
        ] {
            let refused = kubectl.fail_with_yaml(line, &pod(", imagePullPolice: Always"));
            assert_contains(&refused, &["imagePullPolice"]);
        }
        assert_contains(&kubectl.fail("get pod p"), &["not found"]);
        // A warning is given, and the field is dropped.
        let warned = kubectl.run("apply --validate=warn -f -", &pod(", imagePullPolice: Always"));
        assert!(warned.status.success());
        assert_contains(
            &String::from_utf8_lossy(&warned.stderr),
            &["unknown field \"spec.containers[0].imagePullPolice\""],
        );
        let seen = kubectl.ok("get pod p -o jsonpath='{.spec.containers[0].imagePullPolicy}'");
        assert_eq!(seen, "Always", "the default of an image without a tag");
        let ignored = kubectl.run("apply --validate=ignore -f -", &pod(", nonsense: 1"));
        assert!(ignored.status.success() && ignored.stderr.is_empty(), "{ignored:?}");
        kubectl.ok("delete pod p --grace-period=0 --force");
    });
}

#[test]
fn a_dry_run_on_the_server_shows_defaults_and_leaves_nothing() {
    let service =
        "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80}]}}";
    with_each_kubectl("dry-run", |kubectl| {
        for line in [
            "apply --dry-run=server -f -",
            "apply --server-side --dry-run=server -f -",
            "create --dry-run=server -f -",
        ] {
            assert_contains(
                &kubectl.ok_with_yaml(line, service),
                &["service/s ", "(server dry run)"],
            );
            let shown = kubectl
                .ok_with_yaml(&format!("{line} -o jsonpath={{.spec.sessionAffinity}}"), service);
            assert_eq!(shown, "None", "{line}");
            assert_contains(&kubectl.fail("get service s"), &["not found"]);
        }
        kubectl.ok_with_yaml("apply -f -", &config_map("a: b", ""));
        let before = kubectl.ok("get cm cm -o jsonpath='{.metadata.resourceVersion}'");
        kubectl.ok("patch cm cm --dry-run=server -p '{\"data\":{\"a\":\"c\"}}'");
        kubectl.ok("label cm cm x=y --dry-run=server");
        kubectl.ok_with_yaml("replace --dry-run=server -f -", &config_map("a: d", ""));
        kubectl.ok("delete cm cm --dry-run=server");
        assert_eq!(kubectl.ok("get cm cm -o jsonpath='{.metadata.resourceVersion}'"), before);
    });
}

#[test]
fn an_object_moves_from_client_side_to_server_side_apply_and_back() {
    with_each_kubectl("migrate", |kubectl| {
        kubectl.ok_with_yaml("apply -f -", &config_map("old: x, both: x", ""));
        // What kubectl applied before is its own: no conflict, and what is left out goes.
        kubectl.ok_with_yaml("apply --server-side -f -", &config_map("both: v2, new: v2", ""));
        assert_eq!(kubectl.ok("get cm cm -o jsonpath='{.data}'"), r#"{"both":"v2","new":"v2"}"#);
        // The annotation is kept up to date, so that the client's side can go on from here.
        let last = kubectl.ok("apply view-last-applied cm cm");
        assert_contains(&last, &["new: v2"]);
        kubectl.ok_with_yaml("apply -f -", &config_map("both: z", ""));
        assert_eq!(kubectl.ok("get cm cm -o jsonpath='{.data}'"), r#"{"both":"z"}"#);
        // Nothing new, nothing written.
        let before = kubectl.ok("get cm cm -o jsonpath='{.metadata.resourceVersion}'");
        kubectl.ok_with_yaml("apply -f -", &config_map("both: z", ""));
        assert_eq!(kubectl.ok("get cm cm -o jsonpath='{.metadata.resourceVersion}'"), before);
    });
}

#[test]
fn diff_of_a_server_side_apply_shows_what_it_would_change() {
    with_each_kubectl("ssa-diff", |kubectl| {
        kubectl.ok_with_yaml("apply --server-side -f -", &config_map("a: before", ""));
        assert_eq!(
            kubectl.ok_with_yaml("diff --server-side -f -", &config_map("a: before", "")),
            ""
        );
        let output = kubectl.run("diff --server-side -f -", &config_map("a: after", ""));
        assert_eq!(output.status.code(), Some(1));
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_contains(&shown, &["-  a: before", "+  a: after"]);
        // A field of another manager is a conflict in a diff too.
        kubectl.ok(
            "patch cm cm --field-manager=other --type=merge -p '{\"data\":{\"a\":\"theirs\"}}'",
        );
        let conflict =
            kubectl.fail_with_yaml("diff --server-side -f -", &config_map("a: after", ""));
        assert_contains(&conflict, &["conflict with \"other\" using v1: .data.a"]);
    });
}
