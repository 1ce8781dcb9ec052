//! kubectl journeys that make objects: one line of `kubectl create` per kind, and what becomes of it.

use crate::{assert_contains, with_each_kubectl};

#[test]
fn every_generator_makes_an_object_that_can_be_read_and_deleted() {
    // (arguments of `kubectl create`, the object it creates)
    let cases = [
        ("configmap cm --from-literal=a=b", "configmap/cm"),
        ("secret generic opaque --from-literal=password=hunter2", "secret/opaque"),
        (
            "secret docker-registry pull --docker-server=s --docker-username=u --docker-password=p",
            "secret/pull",
        ),
        ("serviceaccount robot", "serviceaccount/robot"),
        ("deployment web --image=nginx --replicas=3", "deployment.apps/web"),
        ("job once --image=busybox -- true", "job.batch/once"),
        ("cronjob often --image=busybox --schedule='*/5 * * * *' -- true", "cronjob.batch/often"),
        ("service clusterip inner --tcp=80:8080", "service/inner"),
        ("service nodeport outer --tcp=80", "service/outer"),
        ("service externalname away --external-name=example.com", "service/away"),
        ("ingress front --rule=example.com/=inner:80", "ingress.networking.k8s.io/front"),
        (
            "role reader --verb=get,list --resource=pods,deployments.apps",
            "role.rbac.authorization.k8s.io/reader",
        ),
        (
            "rolebinding readers --role=reader --serviceaccount=default:robot",
            "rolebinding.rbac.authorization.k8s.io/readers",
        ),
        ("quota small --hard=pods=2,configmaps=7", "resourcequota/small"),
        (
            "poddisruptionbudget steady --selector=app=web --min-available=1",
            "poddisruptionbudget.policy/steady",
        ),
    ];
    with_each_kubectl("create", |kubectl| {
        for (what, name) in cases {
            assert_eq!(kubectl.ok(&format!("create {what}")), format!("{name} created\n"));
            assert_eq!(kubectl.ok(&format!("get {name} -o name")), format!("{name}\n"));
            let again = kubectl.fail(&format!("create {what}"));
            assert_contains(&again, &["already exists"]);
        }
        for (_, name) in cases {
            let deleted = kubectl.ok(&format!("delete {name} --wait=false"));
            assert!(deleted.contains(" deleted"), "{deleted}");
            assert_contains(&kubectl.fail(&format!("get {name}")), &["(NotFound)", "not found"]);
        }
    });
}

#[test]
fn cluster_wide_kinds_need_no_namespace() {
    with_each_kubectl("cluster-wide", |kubectl| {
        let cases = [
            (
                "clusterrole test-reader --verb=get --resource=pods",
                "clusterrole.rbac.authorization.k8s.io/test-reader",
            ),
            (
                "clusterrolebinding test-readers --clusterrole=test-reader --user=jane",
                "clusterrolebinding.rbac.authorization.k8s.io/test-readers",
            ),
            ("priorityclass test-high --value=1000", "priorityclass.scheduling.k8s.io/test-high"),
            ("namespace test-space", "namespace/test-space"),
        ];
        for (what, name) in cases {
            // The second kubectl finds what the first one left: namespaces outlive their deletion
            // where no controller runs.
            let made = kubectl.ok(&format!("create {what} --dry-run=server"));
            assert_eq!(made, format!("{name} created (server dry run)\n"));
            assert_contains(&kubectl.fail(&format!("get {name}")), &["NotFound"]);
        }
        for (what, name) in &cases[..3] {
            assert_eq!(kubectl.ok(&format!("create {what}")), format!("{name} created\n"));
            kubectl.ok(&format!("delete {name}"));
        }
    });
}

#[test]
fn a_pod_that_runs_nowhere_comes_and_goes_at_once() {
    with_each_kubectl("run", |kubectl| {
        assert_eq!(kubectl.ok("run web --image=nginx --port=80"), "pod/web created\n");
        let phase = kubectl.ok(
            "get pod web -o jsonpath='{.status.phase} {.spec.restartPolicy} {.status.qosClass}'",
        );
        assert_eq!(phase, "Pending Always BestEffort");
        assert_contains(
            &kubectl.ok("describe pod web"),
            &["Image:", "nginx", "Status:", "Pending", "<none>"],
        );
        assert_contains(&kubectl.ok("delete pod web"), &["pod \"web\" deleted"]);
        assert_contains(
            &kubectl.fail("get pod web"),
            &[r#"Error from server (NotFound): pods "web" not found"#],
        );
    });
}

#[test]
fn many_documents_in_one_file_are_created_together() {
    let documents = "
apiVersion: v1
kind: ConfigMap
metadata: {name: one, labels: {set: a}}
---
apiVersion: v1
kind: Secret
metadata: {name: two, labels: {set: a}}
stringData: {password: hunter2}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: three, labels: {set: a}}
";
    with_each_kubectl("documents", |kubectl| {
        let made = kubectl.ok_with_yaml("create -f -", documents);
        assert_eq!(made, "configmap/one created\nsecret/two created\nconfigmap/three created\n");
        let found = kubectl.ok("get configmaps,secrets -l set=a -o name");
        assert_eq!(found, "configmap/one\nconfigmap/three\nsecret/two\n");
        let password = kubectl.ok("get secret two -o jsonpath='{.data.password}{.stringData}'");
        assert_eq!(password, "aHVudGVyMg==");
        kubectl.ok_with_yaml("delete -f -", documents);
        assert_eq!(kubectl.ok("get configmaps,secrets -l set=a -o name"), "");
    });
}

#[test]
fn services_get_an_address_and_keep_it() {
    with_each_kubectl("services", |kubectl| {
        kubectl.ok("create deployment web --image=nginx");
        assert_eq!(
            kubectl.ok("expose deployment web --port=80 --target-port=8080"),
            "service/web exposed\n"
        );
        let address = kubectl.ok("get service web -o jsonpath='{.spec.clusterIP}'");
        assert!(address.starts_with("10."), "{address}");
        kubectl.ok("patch service web -p '{\"spec\":{\"sessionAffinity\":\"ClientIP\"}}'");
        assert_eq!(kubectl.ok("get service web -o jsonpath='{.spec.clusterIP}'"), address);
        // Addresses are given out at random: the other one must not be the one it has.
        let other = if address == "10.0.0.77" { "10.0.0.78" } else { "10.0.0.77" };
        let refused = kubectl.fail(&format!(
            "patch service web -p '{{\"spec\":{{\"clusterIP\":\"{other}\",\"clusterIPs\":[\"{other}\"]}}}}'"
        ));
        assert_contains(&refused, &["may not change once set"]);
        assert_contains(
            &kubectl.ok("describe service web"),
            &["Session Affinity:", "ClientIP", "8080/TCP"],
        );
    });
}

#[test]
fn invalid_objects_are_explained() {
    with_each_kubectl("invalid", |kubectl| {
        let pod =
            "{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: A}]}}";
        let message = kubectl.fail_with_yaml("create -f -", pod);
        assert_contains(
            &message,
            &[
                r#"The Pod "x" is invalid"#,
                "spec.containers[0].name: Invalid value: \"A\"",
                "spec.containers[0].image: Required value",
            ],
        );
        let unknown = "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, dta: {a: b}}";
        let message = kubectl.fail_with_yaml("create -f -", unknown);
        assert_contains(&message, &["strict decoding error: unknown field \"dta\""]);
        let kind = "{apiVersion: v1, kind: Nope, metadata: {name: x}}";
        let message = kubectl.fail_with_yaml("create -f -", kind);
        assert_contains(&message, &[r#"no matches for kind "Nope" in version "v1""#]);
    });
}
