//! Services with fields that do nothing, or soon won't.

use meta::{Value, field::quote};

use super::{cidr, ip};
use crate::validation::cursor::Field;

pub(crate) fn service(service: &Value) -> Vec<String> {
    let root = Field::root(service);
    let spec = root.get("spec");
    let mut texts = Vec::new();
    if service.at(&["metadata", "annotations", HINTS]).is_some() {
        texts.push(format!("annotation {HINTS} is deprecated, please use {MODE} instead"));
    }
    let is_external = spec.get("type").is("ExternalName");
    let is_headless = spec.get("type").is("ClusterIP") && spec.get("clusterIP").is("None");
    if !is_external && !is_headless && !spec.get("clusterIP").is_empty() {
        each_ip(&spec.get("clusterIPs"), &mut texts);
    }
    let (balancer, external) = (spec.get("loadBalancerIP"), spec.get("externalIPs"));
    if is_headless {
        let ignored = [
            ("loadBalancerIP", !balancer.is_empty()),
            ("externalIPs", !external.is_empty()),
            ("SessionAffinity", !spec.get("sessionAffinity").is("None")),
        ];
        for (field, _) in ignored.iter().filter(|(_, is_set)| *is_set) {
            texts.push(format!("spec.{field} is ignored for headless services"));
        }
    }
    each_ip(&external, &mut texts);
    if !external.is_empty() && !is_headless && !is_external {
        texts.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
                .to_owned(),
        );
    }
    if !balancer.is_empty() {
        texts.extend(ip(&balancer.path().to_string(), balancer.str()));
    }
    for range in spec.get("loadBalancerSourceRanges").items() {
        texts.extend(cidr(&range.path().to_string(), range.str()));
    }
    if is_external && !external.is_empty() {
        texts.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !is_external && !spec.get("externalName").is_empty() {
        texts
            .push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    let distribution = spec.get("trafficDistribution");
    if distribution.is("PreferClose") {
        texts.push(format!(
            "{}: {} is deprecated; use \"PreferSameZone\"",
            distribution.path(),
            quote(distribution.str())
        ));
    }
    texts
}

const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const MODE: &str = "service.kubernetes.io/topology-mode";

fn each_ip(ips: &Field<'_>, texts: &mut Vec<String>) {
    for item in ips.items() {
        texts.extend(ip(&item.path().to_string(), item.str()));
    }
}
