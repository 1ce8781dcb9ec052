//! What is accepted, but deserves a word: texts for `Warning` headers, called from the kinds'
//! strategies. They are word for word those of kube-apiserver, because people and tools read them.

mod address;
mod node_label;
mod pod_spec;
mod service;
#[cfg(test)]
mod tests;
mod virtual_path;
mod volume;

use meta::{Value, names::is_dns1123_label};

use crate::validation::cursor::Field;

pub(crate) use self::{
    address::{cidr, ip},
    node_label::{label_selector, node_label},
    pod_spec::{pod, template},
    service::service,
    volume::{claim, claim_spec, persistent_volume},
};

/// The template of a controller, when it is made or changed.
pub(crate) fn controller(object: &Value, old: Option<&Value>) -> Vec<String> {
    if !counted_up(object, old) {
        return Vec::new();
    }
    let root = Field::root(object);
    let mut texts = if old.is_none() { pods_named_after(object) } else { Vec::new() };
    texts.extend(template(&root.get("spec").get("template")));
    texts
}

/// Whether the object is new or asks for something else than before.
pub(crate) fn counted_up(object: &Value, old: Option<&Value>) -> bool {
    let generation = |object: &Value| object.i64_at(&["metadata", "generation"]);
    old.is_none_or(|old| generation(object) != generation(old))
}

/// A controller's pods take its name, and their hosts take theirs.
pub(crate) fn pods_named_after(controller: &Value) -> Vec<String> {
    named(controller, "this is used in Pod names and hostnames")
}

fn named(object: &Value, used: &str) -> Vec<String> {
    let wrong = is_dns1123_label(object.str_at(&["metadata", "name"]));
    if wrong.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: {used}, which can result in surprising behavior; a DNS label is \
         recommended: [{}]",
        wrong.join(" ")
    )]
}

/// A load balancer's addresses.
pub(crate) fn load_balancer(object: &Value) -> Vec<String> {
    let root = Field::root(object);
    let status = root.get("status");
    let balancer = status.get("loadBalancer");
    let ingress = balancer.get("ingress");
    let mut texts = Vec::new();
    for point in ingress.items().filter(|point| !point.get("ip").is_empty()) {
        // Compat: upstream names the item, not its field.
        texts.extend(ip(&point.path().to_string(), point.str_at(&["ip"])));
    }
    texts
}
