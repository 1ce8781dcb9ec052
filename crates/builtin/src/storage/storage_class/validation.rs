//! Validation of storage classes.

use std::collections::{BTreeSet, HashMap, HashSet};

use meta::{FieldErrors, Value, names::is_qualified_name};

use crate::validation::cursor::Field;

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    let root = Field::root(object);
    driver(&root.get("provisioner"), errors);
    parameters(&root.get("parameters"), errors);
    root.get("reclaimPolicy").one_of_or_default(errors, &["Delete", "Retain"]);
    root.get("volumeBindingMode").one_of(errors, &["Immediate", "WaitForFirstConsumer"]);
    topologies(&root.get("allowedTopologies"), errors);
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(object, errors);
    let (root, old) = (Field::root(object), Field::root(old));
    for name in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        root.get(name).immutable(&old.get(name), errors);
    }
}

pub(crate) fn driver(name: &Field<'_>, errors: &mut FieldErrors) {
    if name.require(errors) {
        let lower = name.str().to_lowercase();
        for why in is_qualified_name(&lower) {
            name.invalid_value(errors, lower.as_str(), &why);
        }
    }
}

pub(crate) fn parameters(parameters: &Field<'_>, errors: &mut FieldErrors) {
    if parameters.len() > 512 {
        return errors.too_long(parameters.path(), 512);
    }
    let mut bytes = 0;
    for (key, value) in parameters.entries() {
        if key.is_empty() {
            parameters.invalid_value(errors, key, "field can not be empty.");
        }
        bytes += key.len() + value.len();
    }
    if bytes > 256 * 1024 {
        errors.too_long(parameters.path(), 256 * 1024);
    }
}

fn topologies(terms: &Field<'_>, errors: &mut FieldErrors) {
    let mut seen: HashMap<Vec<(String, BTreeSet<String>)>, usize> = HashMap::new();
    for term in terms.items() {
        let mut expressions: Vec<(String, BTreeSet<String>)> = Vec::new();
        let mut keys = HashSet::new();
        for expression in term.get("matchLabelExpressions").items() {
            let (key, values) = (expression.get("key"), expression.get("values"));
            values.require(errors);
            let mut set = BTreeSet::new();
            for value in values.items() {
                if !set.insert(value.str().to_owned()) {
                    value.duplicate(errors);
                }
            }
            key.rule(errors, is_qualified_name);
            if !keys.insert(key.str().to_owned()) {
                key.duplicate(errors);
            }
            expressions.push((key.str().to_owned(), set));
        }
        expressions.sort();
        // Compat: upstream compares with as many empty terms as there are terms, too.
        let empty = if expressions.is_empty() { terms.len() } else { 0 };
        let same = seen.entry(expressions).or_insert(0);
        for _ in 0..*same + empty {
            if errors.stop_early() {
                return;
            }
            errors.duplicate(term.get("matchLabelExpressions").path(), "");
        }
        *same += 1;
    }
}
