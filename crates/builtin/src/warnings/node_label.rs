//! Labels of nodes that have a better successor.

use crate::validation::cursor::Field;

/// What to say about the use of a label, if anything.
pub(crate) fn node_label(key: &str) -> Option<&'static str> {
    DEPRECATED.iter().find(|(label, _)| *label == key).map(|(_, text)| *text)
}

const DEPRECATED: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

/// The expressions of a selector or of one of its terms.
pub(super) fn expressions(term: &Field<'_>, texts: &mut Vec<String>) {
    for expression in term.get("matchExpressions").items() {
        let key = expression.get("key");
        if let Some(text) = node_label(key.str()) {
            texts.push(format!("{}: {} is {text}", key.path(), key.str()));
        }
    }
}

pub(crate) fn label_selector(selector: &Field<'_>) -> Vec<String> {
    let mut texts = Vec::new();
    expressions(selector, &mut texts);
    let labels = selector.get("matchLabels");
    for (key, _) in labels.entries() {
        if let Some(text) = node_label(key) {
            texts.push(format!("{}: {text}", labels.path().child(key)));
        }
    }
    texts
}
