//! kubectl journeys that only look: what there is, how it is explained, how it is printed.

use integration::shared;
use serde_json::{Value, json};

use crate::{assert_contains, with_each_kubectl};

#[test]
fn a_fresh_server_has_its_namespaces() {
    with_each_kubectl("fresh", |kubectl| {
        let names = kubectl.ok("get namespaces -o name");
        let system = ["default", "kube-node-lease", "kube-public", "kube-system"];
        for name in system {
            assert_contains(&names, &[&format!("namespace/{name}\n")]);
        }
        assert_contains(
            &kubectl.ok("get service kubernetes -n default -o name"),
            &["service/kubernetes"],
        );
    });
}

#[test]
fn the_server_says_who_it_is() {
    with_each_kubectl("version", |kubectl| {
        let version: Value = serde_json::from_str(&kubectl.ok("version -o json")).expect("JSON");
        let server = &version["serverVersion"];
        assert_eq!((&server["major"], &server["minor"]), (&json!("1"), &json!("36")));
        assert!(
            server["gitVersion"].as_str().is_some_and(|text| text.starts_with("v1.36.")),
            "{version}"
        );
        assert_contains(&kubectl.ok("cluster-info"), &["is running at", shared().url()]);
        assert_eq!(kubectl.ok("get --raw /readyz"), "ok");
        assert_eq!(kubectl.ok("get --raw /livez"), "ok");
    });
}

#[test]
fn the_administrator_may_do_everything() {
    with_each_kubectl("can-i", |kubectl| {
        assert_eq!(kubectl.ok("auth can-i '*' '*'"), "yes\n");
        assert_contains(
            &kubectl.ok("auth whoami -o jsonpath='{.status.userInfo.groups}'"),
            &["system:masters", "system:authenticated"],
        );
        let output = kubectl.run("auth can-i list pods --as=jane", "");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "no\n");
        assert_contains(
            &kubectl.fail("get pods --as=jane"),
            &[r#"User "jane" cannot list resource "pods" in API group """#],
        );
    });
}

#[test]
fn api_resources_lists_every_kind() {
    with_each_kubectl("resources", |kubectl| {
        let list = kubectl.ok("api-resources --no-headers");
        let rows: Vec<Vec<&str>> =
            list.lines().map(|line| line.split_whitespace().collect()).collect();
        for expected in KINDS {
            let expected: Vec<&str> = expected.split(' ').collect();
            assert!(rows.contains(&expected), "{expected:?} is missing in:\n{list}");
        }
        let verbs = kubectl.ok("api-resources -o wide --api-group=apps");
        assert_contains(
            &verbs,
            &["create,delete,deletecollection,get,list,patch,update,watch", "all"],
        );
        let names = kubectl.ok("api-resources --namespaced=false --api-group= -o name");
        let mut names: Vec<&str> = names.lines().collect();
        names.sort_unstable();
        assert_eq!(names, ["componentstatuses", "namespaces", "nodes", "persistentvolumes"]);
    });
}

/// Name, short names, version, in a namespace?, kind: as kubectl prints them.
const KINDS: &[&str] = &[
    "bindings v1 true Binding",
    "configmaps cm v1 true ConfigMap",
    "endpoints ep v1 true Endpoints",
    "events ev v1 true Event",
    "limitranges limits v1 true LimitRange",
    "namespaces ns v1 false Namespace",
    "nodes no v1 false Node",
    "persistentvolumeclaims pvc v1 true PersistentVolumeClaim",
    "persistentvolumes pv v1 false PersistentVolume",
    "pods po v1 true Pod",
    "podtemplates v1 true PodTemplate",
    "replicationcontrollers rc v1 true ReplicationController",
    "resourcequotas quota v1 true ResourceQuota",
    "secrets v1 true Secret",
    "serviceaccounts sa v1 true ServiceAccount",
    "services svc v1 true Service",
    "mutatingwebhookconfigurations admissionregistration.k8s.io/v1 false MutatingWebhookConfiguration",
    "validatingadmissionpolicies admissionregistration.k8s.io/v1 false ValidatingAdmissionPolicy",
    "validatingwebhookconfigurations admissionregistration.k8s.io/v1 false ValidatingWebhookConfiguration",
    "customresourcedefinitions crd,crds apiextensions.k8s.io/v1 false CustomResourceDefinition",
    "apiservices apiregistration.k8s.io/v1 false APIService",
    "controllerrevisions apps/v1 true ControllerRevision",
    "daemonsets ds apps/v1 true DaemonSet",
    "deployments deploy apps/v1 true Deployment",
    "replicasets rs apps/v1 true ReplicaSet",
    "statefulsets sts apps/v1 true StatefulSet",
    "selfsubjectreviews authentication.k8s.io/v1 false SelfSubjectReview",
    "tokenreviews authentication.k8s.io/v1 false TokenReview",
    "localsubjectaccessreviews authorization.k8s.io/v1 true LocalSubjectAccessReview",
    "selfsubjectaccessreviews authorization.k8s.io/v1 false SelfSubjectAccessReview",
    "selfsubjectrulesreviews authorization.k8s.io/v1 false SelfSubjectRulesReview",
    "subjectaccessreviews authorization.k8s.io/v1 false SubjectAccessReview",
    "horizontalpodautoscalers hpa autoscaling/v2 true HorizontalPodAutoscaler",
    "cronjobs cj batch/v1 true CronJob",
    "jobs batch/v1 true Job",
    "certificatesigningrequests csr certificates.k8s.io/v1 false CertificateSigningRequest",
    "leases coordination.k8s.io/v1 true Lease",
    "endpointslices discovery.k8s.io/v1 true EndpointSlice",
    "events ev events.k8s.io/v1 true Event",
    "flowschemas flowcontrol.apiserver.k8s.io/v1 false FlowSchema",
    "prioritylevelconfigurations flowcontrol.apiserver.k8s.io/v1 false PriorityLevelConfiguration",
    "ingressclasses networking.k8s.io/v1 false IngressClass",
    "ingresses ing networking.k8s.io/v1 true Ingress",
    "ipaddresses ip networking.k8s.io/v1 false IPAddress",
    "networkpolicies netpol networking.k8s.io/v1 true NetworkPolicy",
    "servicecidrs networking.k8s.io/v1 false ServiceCIDR",
    "runtimeclasses node.k8s.io/v1 false RuntimeClass",
    "poddisruptionbudgets pdb policy/v1 true PodDisruptionBudget",
    "clusterrolebindings rbac.authorization.k8s.io/v1 false ClusterRoleBinding",
    "clusterroles rbac.authorization.k8s.io/v1 false ClusterRole",
    "rolebindings rbac.authorization.k8s.io/v1 true RoleBinding",
    "roles rbac.authorization.k8s.io/v1 true Role",
    "deviceclasses resource.k8s.io/v1 false DeviceClass",
    "resourceclaims resource.k8s.io/v1 true ResourceClaim",
    "resourceclaimtemplates resource.k8s.io/v1 true ResourceClaimTemplate",
    "resourceslices resource.k8s.io/v1 false ResourceSlice",
    "priorityclasses pc scheduling.k8s.io/v1 false PriorityClass",
    "csidrivers storage.k8s.io/v1 false CSIDriver",
    "csinodes storage.k8s.io/v1 false CSINode",
    "csistoragecapacities storage.k8s.io/v1 true CSIStorageCapacity",
    "storageclasses sc storage.k8s.io/v1 false StorageClass",
    "volumeattachments storage.k8s.io/v1 false VolumeAttachment",
];

#[test]
fn api_versions_lists_every_group() {
    with_each_kubectl("versions", |kubectl| {
        let versions = kubectl.ok("api-versions");
        let versions: Vec<&str> = versions.lines().collect();
        let expected = [
            "admissionregistration.k8s.io/v1",
            "apiextensions.k8s.io/v1",
            "apiregistration.k8s.io/v1",
            "apps/v1",
            "authentication.k8s.io/v1",
            "authorization.k8s.io/v1",
            "autoscaling/v1",
            "autoscaling/v2",
            "batch/v1",
            "certificates.k8s.io/v1",
            "coordination.k8s.io/v1",
            "discovery.k8s.io/v1",
            "events.k8s.io/v1",
            "flowcontrol.apiserver.k8s.io/v1",
            "networking.k8s.io/v1",
            "node.k8s.io/v1",
            "policy/v1",
            "rbac.authorization.k8s.io/v1",
            "resource.k8s.io/v1",
            "scheduling.k8s.io/v1",
            "storage.k8s.io/v1",
            "v1",
        ];
        for version in expected {
            assert!(versions.contains(&version), "{version} is missing in {versions:?}");
        }
    });
}

#[test]
fn explain_reads_as_users_know_it() {
    with_each_kubectl("explain", |kubectl| {
        let fields = kubectl.ok("explain pod.spec.containers --recursive");
        assert_contains(
            &fields,
            &[
                "KIND:       Pod",
                "VERSION:    v1",
                "FIELD: containers <[]Container>",
                "  image\t<string>",
                "  imagePullPolicy\t<string>",
                "  enum: Always, IfNotPresent, Never",
                "    containerPort\t<integer> -required-",
                "  name\t<string> -required-",
            ],
        );
        let replicas = kubectl.ok("explain deployment.spec.replicas");
        assert_contains(
            &replicas,
            &["GROUP:      apps", "FIELD: replicas <integer>", "Number of desired pods"],
        );
        assert_contains(
            &kubectl.fail("explain pod.spec.nope"),
            &[r#"field "nope" does not exist"#],
        );
    });
}

#[test]
fn objects_are_printed_in_every_format() {
    with_each_kubectl("formats", |kubectl| {
        kubectl.ok("create configmap cm --from-literal=key=value");
        assert_eq!(kubectl.ok("get cm cm -o name"), "configmap/cm\n");
        assert_eq!(kubectl.ok("get cm cm -o jsonpath='{.data.key}'"), "value");
        let columns = kubectl.ok("get cm cm -o custom-columns=N:.metadata.name,K:.data.key");
        assert_eq!(columns.split_whitespace().collect::<Vec<_>>(), ["N", "K", "cm", "value"]);
        assert_eq!(kubectl.ok("get cm cm -o go-template='{{.data.key}}'"), "value");
        let yaml = kubectl.ok("get cm cm -o yaml");
        assert!(
            yaml.starts_with("apiVersion: v1\ndata:\n  key: value\nkind: ConfigMap\nmetadata:\n"),
            "{yaml}"
        );
        assert!(!yaml.contains("managedFields"), "kubectl hides them unless asked");
        let json: Value =
            serde_json::from_str(&kubectl.ok("get cm cm -o json --show-managed-fields"))
                .expect("JSON");
        assert_eq!(json["metadata"]["managedFields"][0]["manager"], "kubectl-create");
        assert_eq!(json["metadata"]["managedFields"][0]["fieldsV1"]["f:data"]["f:key"], json!({}));
    });
}

#[test]
fn tables_have_the_columns_of_each_kind() {
    // (what makes the object, what is listed, the header)
    let cases = [
        ("create configmap cm", "configmaps", "NAME DATA AGE"),
        ("create secret generic s", "secrets", "NAME TYPE DATA AGE"),
        ("create serviceaccount sa", "serviceaccounts", "NAME AGE"),
        (
            "run pod --image=nginx",
            "pods",
            "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES",
        ),
        (
            "create deployment web --image=nginx",
            "deployments",
            "NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR",
        ),
        (
            "create service clusterip inner --tcp=80",
            "services",
            "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE SELECTOR",
        ),
        (
            "create job once --image=busybox",
            "jobs",
            "NAME STATUS COMPLETIONS DURATION AGE CONTAINERS IMAGES SELECTOR",
        ),
        (
            "create cronjob often --image=busybox --schedule='* * * * *'",
            "cronjobs",
            "NAME SCHEDULE TIMEZONE SUSPEND ACTIVE LAST SCHEDULE AGE CONTAINERS IMAGES SELECTOR",
        ),
        (
            "create ingress front --rule=example.com/=inner:80",
            "ingresses",
            "NAME CLASS HOSTS ADDRESS PORTS AGE",
        ),
        ("create role reader --verb=get --resource=pods", "roles", "NAME CREATED AT"),
        (
            "create rolebinding readers --role=reader --user=jane",
            "rolebindings",
            "NAME ROLE AGE USERS GROUPS SERVICEACCOUNTS",
        ),
        ("create quota small --hard=pods=2", "resourcequotas", "NAME REQUEST LIMIT AGE"),
        (
            "create poddisruptionbudget steady --selector=app=web --min-available=1",
            "poddisruptionbudgets",
            "NAME MIN AVAILABLE MAX UNAVAILABLE ALLOWED DISRUPTIONS AGE",
        ),
    ];
    with_each_kubectl("columns", |kubectl| {
        for (made_by, kind, header) in cases {
            kubectl.ok(made_by);
            let table = kubectl.ok(&format!("get {kind} -o wide"));
            let words: Vec<&str> =
                table.lines().next().unwrap_or_default().split_whitespace().collect();
            assert_eq!(words.join(" "), header, "{kind}");
        }
        assert_contains(&kubectl.ok("get pods"), &["pod    0/1     Pending   0          "]);
        assert_contains(&kubectl.ok("get deploy web --no-headers"), &["web   0/1   0     0     "]);
        assert_contains(&kubectl.ok("get pods --show-labels"), &["LABELS", "run=pod"]);
        assert_contains(&kubectl.ok("get pods -L run"), &["RUN", "pod"]);
        let all = kubectl.ok("get all -o name");
        assert_eq!(
            all,
            "pod/pod\nservice/inner\ndeployment.apps/web\ncronjob.batch/often\njob.batch/once\n"
        );
    });
}

#[test]
fn lists_are_selected_sorted_and_paged() {
    with_each_kubectl("lists", |kubectl| {
        let document = |n: u32| {
            format!(
                "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: cm-{n:02}, \
                 labels: {{parity: p{}, number: n{n}}}}}, data: {{order: '{:02}'}}}}",
                n % 2,
                99 - n
            )
        };
        let documents: Vec<String> = (0..25).map(document).collect();
        kubectl.ok_with_yaml("create -f -", &documents.join("\n---\n"));
        let names = |line: &str| {
            kubectl
                .ok(line)
                .lines()
                .map(|name| name.trim_start_matches("configmap/cm-").to_owned())
                .collect::<Vec<_>>()
        };
        let all: Vec<String> = (0..25).map(|n| format!("{n:02}")).collect();
        assert_eq!(
            names("get cm -l number -o name --chunk-size=4"),
            all,
            "pages come one after the other, in order"
        );
        assert_eq!(names("get cm -l number -o name --chunk-size=0"), all);
        assert_eq!(names("get cm -l parity=p1 -o name").len(), 12);
        assert_eq!(names("get cm -l 'number in (n3,n5),parity!=p0' -o name"), ["03", "05"]);
        assert_eq!(names("get cm --field-selector metadata.name=cm-07 -o name"), ["07"]);
        let reversed: Vec<String> = all.iter().rev().cloned().collect();
        assert_eq!(names("get cm -l number --sort-by=.data.order -o name"), reversed);
        let elsewhere =
            kubectl.ok("get cm -A -l number=n3 -o jsonpath='{.items[*].metadata.name}'");
        assert_contains(&elsewhere, &["cm-03"]);
        assert_contains(&kubectl.fail("get cm -l 'a in b'"), &["unable to parse requirement"]);
        assert_contains(
            &kubectl.fail("get cm --field-selector a.b=c"),
            &["not a known field selector"],
        );
    });
}

#[test]
fn describe_tells_the_story_of_an_object() {
    with_each_kubectl("describe", |kubectl| {
        kubectl.ok("create deployment web --image=nginx --replicas=2");
        assert_contains(
            &kubectl.ok("describe deployment web"),
            &[
                "Replicas:",
                "2 desired",
                "RollingUpdate",
                "25% max unavailable, 25% max surge",
                "nginx",
            ],
        );
        kubectl.ok("create configmap cm --from-literal=key=value");
        assert_contains(&kubectl.ok("describe configmap cm"), &["key:\n----\nvalue"]);
        kubectl.ok("create secret generic s --from-literal=password=hunter2");
        let secret = kubectl.ok("describe secret s");
        assert_contains(&secret, &["password:  7 bytes", "Opaque"]);
        assert_contains(&kubectl.ok("describe namespace default"), &["Status:       Active"]);
    });
}
