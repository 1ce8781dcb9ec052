//! What drivers offer: slices of pools of devices, and the taints on them.

use cel::Version;
use meta::{
    FieldErrors, Value,
    names::{is_dns1123_label, is_dns1123_subdomain, is_qualified_name},
    quantity::Quantity,
};

use crate::validation::devices::{attribute_name, driver, each, pool_name, set, taint};
use crate::validation::{
    cursor::Field,
    pod_spec::{is_native_resource, node_selector, quantity},
};

pub(crate) fn validate(object: &Value, errors: &mut FieldErrors) {
    validate_since(object, None, errors);
}

pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut FieldErrors) {
    validate_since(object, Some(old), errors);
}

fn validate_since(object: &Value, old: Option<&Value>, errors: &mut FieldErrors) {
    let root = Field::root(object);
    let spec = root.get("spec");
    let pool = spec.get("pool");
    driver(&spec.get("driver"), errors);
    pool_name(&pool.get("name"), errors);
    pool.get("resourceSliceCount").positive(errors);
    if pool.get("generation").int_or_zero() < 0 {
        pool.get("generation").invalid(errors, "must be greater than or equal to zero");
    }
    if let Some(old) = old {
        let before = Field::root(old);
        let before = before.get("spec");
        pool.get("name").immutable(&before.get("pool").get("name"), errors);
        spec.get("driver").immutable(&before.get("driver"), errors);
        spec.get("nodeName").immutable(&before.get("nodeName"), errors);
    }
    nodes_of_slice(&spec, errors);
    let (counters, devices) = (spec.get("sharedCounters"), spec.get("devices"));
    if counters.is_set() && devices.is_set() {
        let why = "only one of `sharedCounters` or `devices` is allowed";
        spec.invalid_value(errors, "", why);
    }
    let is_advanced = devices.items().any(|device| {
        !device.get("taints").is_empty()
            || !device.get("consumesCounters").is_empty()
            || device.get("attributes").entries().any(|(_, attribute)| {
                ["bools", "ints", "strings", "versions"].iter().any(|f| attribute.get(f).is_set())
            })
    });
    let max = if is_advanced { 64 } else { 128 };
    let per_device = spec.get("perDeviceNodeSelection").bool();
    set(&devices, max, errors, "name", |item, errors| {
        let before = old.map_or(&[][..], |old| old.items_at(&["spec", "devices"])).iter();
        let mut before = before.filter(|old| old.str_at(&["name"]) == item.str_at(&["name"]));
        device(&item, before.next(), per_device, errors);
    });
    set(&counters, 8, errors, "name", |item, errors| {
        item.get("name").require_rule(errors, is_dns1123_label);
        shared_counters(&item.get("counters"), errors);
    });
}

/// Where the devices are: exactly one way to say it.
fn nodes_of_slice(spec: &Field<'_>, errors: &mut FieldErrors) {
    let mut given = Vec::new();
    let (name, selector) = (spec.get("nodeName"), spec.get("nodeSelector"));
    if name.is_set() && name.is_empty() {
        name.invalid(errors, "must be either unset or set to a non-empty string");
    } else if name.is_set() {
        given.push("`nodeName`");
        name.rule(errors, is_dns1123_subdomain);
    }
    if selector.is_set() {
        given.push("`nodeSelector`");
        node_selector(&selector, errors);
        let terms = selector.get("nodeSelectorTerms");
        if terms.len() != 1 {
            terms.invalid(errors, "must have exactly one node selector term");
        }
    }
    for (field, shown) in
        [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")]
    {
        let flag = spec.get(field);
        if flag.bool() {
            given.push(shown);
        } else if flag.is_set() {
            flag.invalid(errors, "must be either unset or set to true");
        }
    }
    let why = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is \
               required";
    match given.len() {
        0 => spec.required(errors, why),
        1 => {}
        _ => {
            let why = format!("{why}, but multiple fields are set");
            spec.invalid_value(errors, format!("{{{}}}", given.join(", ")), &why);
        }
    }
}

fn device(device: &Field<'_>, old: Option<&Value>, per_device: bool, errors: &mut FieldErrors) {
    device.get("name").rule(errors, is_dns1123_label);
    let (attributes, capacities) = (device.get("attributes"), device.get("capacity"));
    let count = attributes.len() + capacities.len();
    if count > 32 {
        let why = "the total number of attributes and capacities must not exceed 32";
        device.invalid_value(errors, count as i64, why);
    }
    let values: usize = attributes.entries().map(|(_, attribute)| listed_values(&attribute)).sum();
    if values > 48 {
        let why = "the total number of attribute values must not exceed 48";
        device.invalid_value(errors, values as i64, why);
    }
    for (name, entry) in attributes.entries() {
        attribute_name(name, &attributes, errors);
        attribute(&entry, errors);
    }
    let many = device.get("allowMultipleAllocations").bool();
    for (name, entry) in capacities.entries() {
        attribute_name(name, &capacities, errors);
        let policy = entry.get("requestPolicy");
        if policy.is_set() && many {
            request_policy(&policy, entry.value_at(&["value"]), errors);
        } else if policy.is_set() {
            policy.forbidden(errors, "allowMultipleAllocations must be true");
        }
    }
    let taints = device.get("taints");
    if old.and_then(|old| old.get("taints")) != taints.value() || old.is_none() {
        each(&taints, 16, errors, |item, errors| taint(&item, None, errors));
    }
    set(&device.get("consumesCounters"), 2, errors, "counterSet", |item, errors| {
        item.get("counterSet").require_rule(errors, is_dns1123_label);
        shared_counters(&item.get("counters"), errors);
    });
    nodes_of_device(device, per_device, errors);
    binding_conditions(device, errors);
    node_mappings(device, errors);
}

fn listed_values(attribute: &Field<'_>) -> usize {
    let listed = ["bools", "ints", "strings", "versions"].map(|list| attribute.get(list).len());
    listed.iter().sum::<usize>().max(1)
}

fn nodes_of_device(device: &Field<'_>, per_device: bool, errors: &mut FieldErrors) {
    let [name, selector, all] =
        ["nodeName", "nodeSelector", "allNodes"].map(|field| device.get(field));
    if !per_device {
        if name.is_set() || selector.is_set() || all.is_set() {
            let why = "`nodeName`, `nodeSelector` and `allNodes` can only be set if \
                       `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            device.invalid_value(errors, Value::Null, why);
        }
        return;
    }
    let mut given = Vec::new();
    if name.is_set() && name.is_empty() {
        name.invalid(errors, "must not be empty");
    } else if name.is_set() {
        given.push("`nodeName`");
        name.rule(errors, is_dns1123_subdomain);
    }
    if selector.is_set() {
        given.push("`nodeSelector`");
        node_selector(&selector, errors);
    }
    if all.bool() {
        given.push("`allNodes`");
    } else if all.is_set() {
        all.invalid(errors, "must be either unset or set to true");
    }
    let why = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when \
               `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    match given.len() {
        0 => device.required(errors, why),
        1 => {}
        _ => device.invalid_value(errors, format!("{{{}}}", given.join(", ")), why),
    }
}

fn attribute(attribute: &Field<'_>, errors: &mut FieldErrors) {
    const BYTES_MAX: usize = 64;
    let text = |field: &Field<'_>, is_version: bool, errors: &mut FieldErrors| {
        if is_version && Version::parse(field.str()).is_err() {
            let why = "must be a string compatible with semver.org spec 2.0.0";
            field.invalid_value(errors, field.str(), why);
        }
        if field.len() > BYTES_MAX {
            errors.too_long(field.path(), BYTES_MAX);
        }
    };
    let mut given = 0;
    for name in ["bool", "int", "string", "version", "bools", "ints", "strings", "versions"] {
        let field = attribute.get(name);
        if !field.is_set() {
            continue;
        }
        given += 1;
        match name {
            "string" | "version" => text(&field, name == "version", errors),
            "strings" | "versions" => {
                for item in field.items() {
                    text(&item, name == "versions", errors);
                }
            }
            _ => {}
        }
    }
    match given {
        0 => attribute.invalid_value(errors, "", "exactly one value must be specified"),
        1 => {}
        _ => attribute.invalid(errors, "exactly one value must be specified"),
    }
}

fn request_policy(policy: &Field<'_>, capacity: Option<&Value>, errors: &mut FieldErrors) {
    let capacity = amount(capacity);
    let (values, range, default) =
        (policy.get("validValues"), policy.get("validRange"), policy.get("default"));
    if !values.is_empty() && range.is_set() {
        let why = "exactly one policy can be specified, cannot specify \"validValues\" and \
                   \"validRange\" at the same time";
        return policy.forbidden(errors, why);
    }
    if !values.is_empty() {
        if default.is_set() {
            valid_values(&values, &amount(default.value()), &capacity, errors);
        } else {
            default.required(errors, "required when validValues is defined");
        }
    } else if range.is_set() {
        if default.is_set() {
            valid_range(&range, &amount(default.value()), &capacity, errors);
        } else {
            default.required(errors, "required when validRange is defined");
        }
    }
}

fn amount(value: Option<&Value>) -> Quantity {
    value.and_then(quantity).unwrap_or_else(|| Quantity::new(0, meta::quantity::Format::DecimalSi))
}

fn valid_values(
    values: &Field<'_>,
    default: &Quantity,
    capacity: &Quantity,
    errors: &mut FieldErrors,
) {
    let amounts: Vec<Quantity> = values.items().map(|item| amount(item.value())).collect();
    for (at, pair) in amounts.windows(2).enumerate() {
        if pair[0] > pair[1] {
            let why = "values must be sorted in ascending order";
            values.index(at + 1).invalid_value(errors, pair[1].to_string(), why);
        }
    }
    each(values, 10, errors, |item, errors| {
        let option = amount(item.value());
        if option > *capacity {
            let why = format!("option is larger than capacity value: {capacity}");
            item.invalid_value(errors, option.to_string(), &why);
        }
    });
    let mut seen = std::collections::BTreeSet::new();
    for (item, amount) in values.items().zip(&amounts) {
        if !seen.insert(amount.value()) {
            errors.duplicate(item.path(), amount.value().to_string());
        }
    }
    if !amounts.contains(default) {
        let why = "default value is not valid according to the requestPolicy";
        values.invalid_value(errors, default.to_string(), why);
    }
}

fn valid_range(
    range: &Field<'_>,
    default: &Quantity,
    capacity: &Quantity,
    errors: &mut FieldErrors,
) {
    let [min_field, max_field, step_field] = ["min", "max", "step"].map(|part| range.get(part));
    if !min_field.is_set() {
        return min_field.required(errors, "required when validRange is defined");
    }
    let min = amount(min_field.value());
    if min > *capacity {
        let why = format!("min is larger than capacity value: {capacity}");
        min_field.invalid_value(errors, min.to_string(), &why);
    }
    if *default < min {
        let why = format!("default is less than min: {min}");
        min_field.invalid_value(errors, default.to_string(), &why);
    }
    let max = max_field.is_set().then(|| amount(max_field.value()));
    if let Some(max) = &max {
        if min > *max {
            let why = format!("min is larger than max: {max}");
            max_field.invalid_value(errors, min.to_string(), &why);
        }
        if max > capacity {
            let why = format!("max is larger than capacity value: {capacity}");
            max_field.invalid_value(errors, max.to_string(), &why);
        }
        if default > max {
            let why = format!("default is more than max: {max}");
            max_field.invalid_value(errors, default.to_string(), &why);
        }
    }
    if !step_field.is_set() {
        return;
    }
    let step = amount(step_field.value());
    let mut added = min.clone();
    added.add(&step);
    if added > *capacity {
        let why = format!("one step {added} is larger than capacity value: {capacity}");
        step_field.invalid_value(errors, step.to_string(), &why);
    }
    for value in std::iter::once(default).chain(&max) {
        // Upstream divides by zero here.
        let fits = value.value().checked_sub(min.value()).zip(Some(step.value()));
        if fits.is_none_or(|(far, step)| far.checked_rem(step) != Some(0)) {
            let why = format!("value is not a multiple of a given step ({step}) from ({min})");
            step_field.invalid_value(errors, value.to_string(), &why);
        }
    }
}

fn shared_counters(counters: &Field<'_>, errors: &mut FieldErrors) {
    if counters.is_empty() {
        return counters.required(errors, "");
    }
    if counters.len() > 32 {
        return errors.too_many(counters.path(), counters.len(), 32);
    }
    for (name, _) in counters.entries() {
        for why in is_dns1123_label(name) {
            counters.invalid_value(errors, name, &why);
        }
    }
}

/// What has to be true of a device before its pod may start.
pub(crate) fn binding_conditions(owner: &Field<'_>, errors: &mut FieldErrors) {
    let (good, bad) = (owner.get("bindingConditions"), owner.get("bindingFailureConditions"));
    for list in [&good, &bad] {
        each(list, 4, errors, |item, errors| item.rule(errors, is_qualified_name));
    }
    let good_texts: std::collections::HashSet<&str> = good
        .value()
        .and_then(Value::as_array)
        .unwrap_or_default()
        .iter()
        .map(|item| item.as_str().unwrap_or_default())
        .collect();
    let is_good = |text: &str| good_texts.contains(text);
    for list in [&good, &bad] {
        let mut seen = std::collections::BTreeSet::new();
        for item in list.items() {
            if !seen.insert(item.str()) {
                item.duplicate(errors);
            }
            if std::ptr::eq(list, &raw const bad) && is_good(item.str()) {
                let why = "bindingFailureConditions must not overlap with bindingConditions";
                item.invalid(errors, why);
            }
        }
    }
    if good.is_empty() && !bad.is_empty() {
        let why = "bindingConditions are required to use bindingFailureConditions";
        good.invalid(errors, why);
    }
    if bad.is_empty() && !good.is_empty() {
        let why = "bindingFailureConditions are required to use bindingConditions";
        bad.invalid(errors, why);
    }
}

fn node_mappings(device: &Field<'_>, errors: &mut FieldErrors) {
    for (name, mapping) in device.get("nodeAllocatableResourceMappings").entries() {
        if !is_native_resource(name) {
            mapping.invalid_value(errors, name, "must be a node allocatable resource name");
        }
        let (multiplier, key) = (mapping.get("allocationMultiplier"), mapping.get("capacityKey"));
        if !multiplier.is_set() && !key.is_set() {
            let why = "at least one of allocationMultiplier or capacityKey must be set";
            mapping.invalid_value(errors, "", why);
        }
        if multiplier.is_set() && !amount(multiplier.value()).sign().is_gt() {
            multiplier.invalid(errors, "must be positive");
        }
        if key.is_set() && key.is_empty() {
            key.invalid(errors, "capacityKey must not be an empty string");
        } else if key.is_set() && device.value_at(&["capacity", key.str()]).is_none() {
            key.not_found(errors);
        }
    }
}
