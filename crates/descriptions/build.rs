//! Collects the descriptions of types from the crate k8s-openapi and compresses them for `src/lib.rs`:
//! records separated by `RECORD`, of parts separated by `PART`: the definition, its description, then
//! alternating fields and their descriptions.

use std::io::Write;
use std::path::PathBuf;
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::{api, apiextensions_apiserver, apimachinery, kube_aggregator};
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

const RECORD: char = '\u{1e}';
const PART: char = '\u{1f}';

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let mut packed = String::new();
    for (name, definition) in definitions() {
        if !packed.is_empty() {
            packed.push(RECORD);
        }
        packed.push_str(&name);
        packed.push(PART);
        packed.push_str(description(&definition));
        for (field, property) in definition["properties"].as_object().into_iter().flatten() {
            for part in [field.as_str(), description(property)] {
                packed.push(PART);
                packed.push_str(part);
            }
        }
    }
    let path = PathBuf::from(env::var("OUT_DIR").expect("set by cargo")).join("descriptions.gz");
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(packed.as_bytes()).expect("memory takes all bytes");
    fs::write(path, gzip.finish().expect("memory takes all bytes"))
        .expect("OUT_DIR can be written");
}

fn description(definition: &Value) -> &str {
    let text = definition["description"].as_str().unwrap_or_default();
    assert!(!text.contains([RECORD, PART]), "a description contains a separator");
    text
}

/// The crate has the description of a watch event's `object` in the description of the event.
fn part_event(definitions: &mut Map<String, Value>) {
    let name = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";
    let event = definitions.get_mut(name).expect("added above");
    let whole = description(event).to_owned();
    if let Some((text, object)) = whole.split_once("\n\n") {
        event["properties"]["object"] = json!({"description": object.trim_end()});
        event["description"] = json!(text);
    }
}

/// All definitions of the crate: those that no other refers to are listed here, the others are reached
/// from them.
fn definitions() -> Map<String, Value> {
    let mut generator = SchemaGenerator::default();
    macro_rules! add {
        ($($module:path: $($name:ident)*;)*) => {{$({
            use $module as module;
            $(generator.subschema_for::<module::$name>();)*
        })*}};
    }
    add! {
        api::admissionregistration::v1: MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
            MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
            ValidatingWebhookConfiguration;
        api::admissionregistration::v1alpha1: MutatingAdmissionPolicy MutatingAdmissionPolicyBinding;
        api::admissionregistration::v1beta1: MutatingAdmissionPolicy MutatingAdmissionPolicyBinding;
        api::apiserverinternal::v1alpha1: StorageVersion;
        api::apps::v1: ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet;
        api::authentication::v1: SelfSubjectReview TokenRequest TokenReview;
        api::authorization::v1: LocalSubjectAccessReview SelfSubjectAccessReview
            SelfSubjectRulesReview SubjectAccessReview;
        api::autoscaling::v1: HorizontalPodAutoscaler Scale;
        api::autoscaling::v2: HorizontalPodAutoscaler;
        api::batch::v1: CronJob Job;
        api::certificates::v1: CertificateSigningRequest;
        api::certificates::v1alpha1: ClusterTrustBundle;
        api::certificates::v1beta1: ClusterTrustBundle PodCertificateRequest;
        api::coordination::v1: Lease;
        api::coordination::v1alpha2: LeaseCandidate;
        api::coordination::v1beta1: LeaseCandidate;
        api::core::v1: Binding ComponentStatus ConfigMap Endpoints Event LimitRange Namespace Node
            PersistentVolume Pod PodTemplate ReplicationController ResourceQuota Secret Service
            ServiceAccount;
        api::discovery::v1: EndpointSlice;
        api::events::v1: Event;
        api::flowcontrol::v1: FlowSchema PriorityLevelConfiguration;
        api::networking::v1: IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR;
        api::networking::v1beta1: IPAddress ServiceCIDR;
        api::node::v1: RuntimeClass;
        api::policy::v1: Eviction PodDisruptionBudget;
        api::rbac::v1: ClusterRole ClusterRoleBinding Role RoleBinding;
        api::resource::v1: DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice;
        api::resource::v1alpha3: DeviceTaintRule ResourcePoolStatusRequest;
        api::resource::v1beta1: DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice;
        api::resource::v1beta2: DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate
            ResourceSlice;
        api::scheduling::v1: PriorityClass;
        api::scheduling::v1alpha2: PodGroup Workload;
        api::storage::v1: CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment
            VolumeAttributesClass;
        api::storage::v1beta1: VolumeAttributesClass;
        api::storagemigration::v1beta1: StorageVersionMigration;
        apiextensions_apiserver::pkg::apis::apiextensions::v1: CustomResourceDefinition;
        apimachinery::pkg::apis::meta::v1: APIGroupList APIResourceList APIVersions Patch Status;
        apimachinery::pkg::version: Info;
        kube_aggregator::pkg::apis::apiregistration::v1: APIService;
    }
    generator.subschema_for::<apimachinery::pkg::apis::meta::v1::WatchEvent<api::core::v1::Pod>>();
    let mut definitions = generator.take_definitions(false);
    part_event(&mut definitions);
    definitions
}
