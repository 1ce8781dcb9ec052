//! `metadata.managedFields`: who owns which fields, since when, and how they got them.

use std::collections::BTreeMap;

use meta::{Map, Value, field::quote, json};

use super::set::Set;

/// Everyone who owns something, by [`Owner::id`].
pub(super) type Owners = BTreeMap<String, Owner>;

#[derive(Clone, Debug, Default)]
pub(super) struct Owner {
    pub(super) manager: String,
    /// By server-side apply, instead of by an update of any kind.
    pub(super) applied: bool,
    /// The version in which the set is written.
    pub(super) api_version: String,
    pub(super) subresource: String,
    /// RFC 3339 in UTC; empty where it is not known.
    pub(super) time: String,
    pub(super) set: Set,
}

impl Owner {
    /// What tells owners apart. An applier is the same one in every version; an updater is not. The
    /// form is upstream's, since conflicts are listed in its order.
    pub(super) fn id(&self) -> String {
        let text = |name: &str, value: &str| match value {
            "" => String::new(),
            _ => format!(",\"{name}\":{}", json::to_string(&value.into())),
        };
        let mut members = text("manager", &self.manager) + &text("operation", self.operation());
        if !self.applied {
            members += &text("apiVersion", &self.api_version);
        }
        members += &text("subresource", &self.subresource);
        format!("{{{}}}", members.trim_start_matches(','))
    }

    /// As it is called in the message of a conflict.
    pub(super) fn show(&self) -> String {
        let mut shown = vec![quote(&self.manager)];
        if !self.subresource.is_empty() {
            shown.push(format!("with subresource {}", quote(&self.subresource)));
        }
        if !self.applied {
            shown.push(format!("using {}", self.api_version));
        }
        shown.join(" ")
    }

    fn operation(&self) -> &'static str {
        if self.applied { "Apply" } else { "Update" }
    }

    fn decode(entry: &Value, at: usize) -> Result<Self, String> {
        let text = |name: &str| entry.str_at(&[name]).to_owned();
        let applied = match entry.str_at(&["operation"]) {
            "Apply" => true,
            "Update" => false,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        let api_version = text("apiVersion");
        if api_version.is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match entry.str_at(&["fieldsType"]) {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
            other => {
                let other = quote(other);
                return Err(format!("invalid fieldsType {other} in managed fields entry {at}"));
            }
        }
        let set = Set::from_value(entry.get("fieldsV1").unwrap_or(&Value::Null))
            .map_err(|why| format!("error decoding set: {why}"))?;
        let (manager, subresource, time) = (text("manager"), text("subresource"), text("time"));
        Ok(Self { manager, applied, api_version, subresource, time, set })
    }

    fn encode(&self) -> Value {
        let mut entry = Map::new();
        let texts = [
            ("manager", self.manager.as_str()),
            ("operation", self.operation()),
            ("apiVersion", &self.api_version),
            ("time", &self.time),
            ("fieldsType", "FieldsV1"),
            ("subresource", &self.subresource),
        ];
        for (name, text) in texts {
            if !text.is_empty() {
                entry.insert(name, text);
            }
        }
        entry.insert("fieldsV1", self.set.to_value());
        entry.into()
    }
}

pub(super) fn decode(object: &Value) -> Result<Owners, String> {
    let entries = object.items_at(&["metadata", "managedFields"]);
    let owners = entries.iter().enumerate().map(|(at, entry)| {
        let owner = Owner::decode(entry, at)?;
        Ok((owner.id(), owner))
    });
    owners.collect()
}

/// Writes the owners into an object: appliers first, then by time, name, version and subresource.
pub(super) fn encode(object: &mut Value, owners: &Owners) {
    if owners.is_empty() {
        object.remove_at(&["metadata", "managedFields"]);
        return;
    }
    let mut sorted: Vec<&Owner> = owners.values().collect();
    sorted.sort_by_key(|owner| {
        (!owner.applied, &owner.time, &owner.manager, &owner.api_version, &owner.subresource)
    });
    let entries: Vec<Value> = sorted.into_iter().map(Owner::encode).collect();
    object.set_at(&["metadata", "managedFields"], Value::Array(entries));
}

/// A client asks to forget everything: `managedFields` is `[]` or `[{}]`.
pub(super) fn is_reset(object: &Value) -> bool {
    match object.at(&["metadata", "managedFields"]).and_then(Value::as_array) {
        Some([]) => true,
        Some([Value::Object(entry)]) => entry.is_empty(),
        _ => false,
    }
}

/// Owners by update are bounded; the oldest of each version become one, under a name of their own.
pub(super) fn cap_updaters(owners: &mut Owners) {
    let mut updaters: Vec<(String, String)> = owners
        .iter()
        .filter(|(_, owner)| !owner.applied)
        .map(|(id, owner)| (owner.time.clone(), id.clone()))
        .collect();
    updaters.sort();
    let mut count = updaters.len();
    let mut first_of_version: BTreeMap<String, String> = BTreeMap::new();
    for (_, id) in updaters {
        if count <= UPDATERS_MAX {
            return;
        }
        let Some(owner) = owners.get(&id).cloned() else { continue };
        let Some(first) = first_of_version.get(&owner.api_version) else {
            first_of_version.insert(owner.api_version.clone(), id);
            continue;
        };
        let bucket = Owner {
            manager: "ancient-changes".to_owned(),
            api_version: owner.api_version.clone(),
            ..Owner::default()
        };
        let bucket_id = bucket.id();
        if !owners.contains_key(&bucket_id) {
            let set = owners.remove(first).map(|first| first.set).unwrap_or_default();
            owners.insert(bucket_id.clone(), Owner { set, ..bucket });
        }
        owners.remove(&id);
        count -= 1;
        if let Some(bucket) = owners.get_mut(&bucket_id) {
            bucket.set = std::mem::take(&mut bucket.set).union(owner.set);
            // The younger of the two.
            bucket.time = owner.time;
        }
    }
}

const UPDATERS_MAX: usize = 10;
