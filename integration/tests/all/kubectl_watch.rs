//! kubectl journeys that wait for something: `get -w`, `wait`, `events`.

use std::thread;

use integration::{Server, shared};

use crate::{assert_contains, with_each_kubectl};

#[test]
fn watching_shows_each_change_as_it_happens() {
    with_each_kubectl("watch", |kubectl| {
        kubectl.ok("create configmap first");
        let mut watch = kubectl.follow("get cm -w --output-watch-events");
        watch.wait_for("what is there", |line| line.starts_with("ADDED") && line.contains("first"));
        kubectl.ok("create configmap second --from-literal=key=one");
        watch.wait_for("the new object", |line| {
            line.starts_with("ADDED") && has_data(line, "second", 1)
        });
        kubectl.ok(r#"patch cm second -p '{"data":{"more":"two"}}'"#);
        watch.wait_for("its change", |line| {
            line.starts_with("MODIFIED") && has_data(line, "second", 2)
        });
        kubectl.ok("delete cm second");
        watch.wait_for("its end", |line| line.starts_with("DELETED") && line.contains("second"));
    });
}

/// Whether a line of a watched table is about this object with so many keys.
fn has_data(line: &str, name: &str, keys: usize) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.get(1..3) == Some(&[name, &keys.to_string()])
}

#[test]
fn watching_a_selection_sees_objects_enter_and_leave() {
    with_each_kubectl("watch-labels", |kubectl| {
        let mut watch = kubectl.follow("get cm -w -l team=blue --output-watch-events");
        kubectl.ok("create configmap cm");
        kubectl.ok("label cm cm team=blue");
        watch.wait_for("it enters", |line| line.starts_with("ADDED") && line.contains("cm"));
        kubectl.ok("label cm cm team=red --overwrite");
        watch.wait_for("it leaves", |line| line.starts_with("DELETED") && line.contains("cm"));
    });
}

#[test]
fn wait_returns_when_the_condition_comes_true() {
    with_each_kubectl("wait", |kubectl| {
        kubectl.ok("create deployment web --image=nginx");
        thread::scope(|scope| {
            let waiting = scope
                .spawn(|| kubectl.ok("wait --for=condition=Available deploy/web --timeout=60s"));
            kubectl.ok(r#"patch deploy web --subresource=status --type=merge -p '{"status":{"conditions":[{"type":"Available","status":"True"}]}}'"#);
            assert_eq!(
                waiting.join().expect("kubectl succeeds"),
                "deployment.apps/web condition met\n"
            );
        });
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                kubectl.ok("wait --for=jsonpath='{.spec.replicas}'=3 deploy/web --timeout=60s")
            });
            kubectl.ok("scale deploy web --replicas=3");
            assert_eq!(
                waiting.join().expect("kubectl succeeds"),
                "deployment.apps/web condition met\n"
            );
        });
        thread::scope(|scope| {
            let waiting =
                scope.spawn(|| kubectl.run("wait --for=delete deploy/web --timeout=60s", ""));
            kubectl.ok("delete deploy web");
            assert!(waiting.join().expect("kubectl was started").status.success());
        });
        assert_contains(
            &kubectl.fail("wait --for=condition=Ready pod/nope --timeout=1s"),
            &["not found"],
        );
    });
}

#[test]
fn events_are_listed_with_their_object() {
    with_each_kubectl("events", |kubectl| {
        kubectl.ok("run web --image=nginx");
        let uid = kubectl.ok("get pod web -o jsonpath='{.metadata.uid}'");
        let namespace = kubectl.ok("get pod web -o jsonpath='{.metadata.namespace}'");
        let event = format!(
            "{{apiVersion: v1, kind: Event, metadata: {{name: web.1}}, type: Warning, reason: Sinking, message: taking in water, count: 2, firstTimestamp: 2026-01-01T00:00:00Z, lastTimestamp: 2026-01-01T00:00:00Z, source: {{component: pump}}, involvedObject: {{apiVersion: v1, kind: Pod, name: web, namespace: {namespace}, uid: {uid}}}}}"
        );
        assert_eq!(kubectl.ok_with_yaml("create -f -", &event), "event/web.1 created\n");
        assert_contains(
            &kubectl.ok("events"),
            &["Warning", "Sinking", "Pod/web", "taking in water"],
        );
        assert_contains(&kubectl.ok("events --for pod/web --types=Warning"), &["Sinking"]);
        assert_contains(&kubectl.ok("get events"), &["pod/web", "Sinking"]);
        assert_contains(&kubectl.ok("get events.events.k8s.io -o jsonpath='{.items[0].regarding.name} {.items[0].note}'"), &["web taking in water"]);
        assert_contains(
            &kubectl
                .ok("get events --field-selector involvedObject.name=web,reason=Sinking -o name"),
            &["event/web.1"],
        );
        assert_contains(&kubectl.ok("describe pod web"), &["Sinking", "taking in water"]);
    });
}

#[test]
fn a_deleted_namespace_takes_its_content_along() {
    let server = shared();
    if runs_no_controllers(&server) {
        return;
    }
    with_each_kubectl("doomed", |kubectl| {
        kubectl.ok("create configmap cm");
        kubectl.ok("create deployment web --image=nginx");
        let namespace = kubectl.ok("get cm cm -o jsonpath='{.metadata.namespace}'");
        kubectl.ok(&format!("delete namespace {namespace} --timeout=60s"));
        assert_contains(&kubectl.fail(&format!("get namespace {namespace}")), &["(NotFound)"]);
        assert_eq!(kubectl.ok("get cm,deploy -o name"), "");
    });
}

#[test]
fn owned_objects_follow_their_owner() {
    let server = shared();
    if runs_no_controllers(&server) {
        return;
    }
    with_each_kubectl("owned", |kubectl| {
        kubectl.ok("create configmap owner");
        let uid = kubectl.ok("get cm owner -o jsonpath='{.metadata.uid}'");
        kubectl.ok_with_yaml("create -f -", &format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: owned, ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: owner, uid: {uid}}}]}}}}"));
        kubectl.ok("delete cm owner");
        // No object at all is as good as one that was deleted while waiting.
        let output = kubectl.run("wait --for=delete cm/owned --timeout=60s", "");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
}

#[test]
fn every_namespace_has_its_service_account_and_root_certificate() {
    let server = shared();
    if runs_no_controllers(&server) {
        return;
    }
    with_each_kubectl("defaults", |kubectl| {
        // One by one: kubectl 1.32 gives up if none of several is there yet.
        kubectl.ok("wait --for=create sa/default --timeout=60s");
        kubectl.ok("wait --for=create cm/kube-root-ca.crt --timeout=60s");
        assert_contains(
            &kubectl.ok("get cm kube-root-ca.crt -o jsonpath='{.data.ca\\.crt}'"),
            &["BEGIN CERTIFICATE"],
        );
    });
}

#[test]
fn tokens_are_issued_for_service_accounts() {
    let server = shared();
    if runs_no_controllers(&server) {
        return;
    }
    with_each_kubectl("tokens", |kubectl| {
        kubectl.ok("wait --for=create sa/default --timeout=60s");
        let token = kubectl.ok("create token default");
        assert_eq!(token.split('.').count(), 3, "a token is a JWT");
    });
}

/// The kube-apiserver leaves these to another program, which runs only if it is there.
fn runs_no_controllers(server: &Server) -> bool {
    let without = !server.has_controllers();
    if without {
        eprintln!("skipped: no controllers run beside this kube-apiserver");
    }
    without
}
