//! Decodes, encodes and caps `metadata.managedFields`: which manager owns which fields.

use std::{cell::OnceCell, collections::BTreeMap};

use meta::{Map, Str, Value, field::quote, json};
use schema::Schema;

use super::{atom::TypeRef, fields_v1::FieldsV1, set::Set, typed::reconcile};

/// All entries by [`ManagedFieldsEntry::id`].
pub(super) type ManagedFields = BTreeMap<String, ManagedFieldsEntry>;

#[derive(Clone, Debug, Default)]
pub(super) struct ManagedFieldsEntry {
    pub(super) manager: String,
    /// The operation is `Apply`, not `Update`.
    pub(super) applied: bool,
    /// The version in which the set is written.
    pub(super) api_version: String,
    pub(super) subresource: String,
    /// RFC 3339 in UTC; empty if unknown.
    pub(super) time: String,
    pub(super) set: OwnedSet,
}

/// The fields of an entry. Most writes change those of few managers, so that the others' need not be
/// decoded, nor encoded anew.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnedSet {
    // Invariant: canonical, what `Set::to_value` would write.
    encoded: Option<Value>,
    // Invariant: there, or can be decoded.
    decoded: OnceCell<Set>,
}

impl OwnedSet {
    fn decode(fields: Value) -> Result<Self, String> {
        if FieldsV1::of(&fields).is_some() {
            return Ok(Self { encoded: Some(fields), decoded: OnceCell::new() });
        }
        Ok(Set::from_value(&fields)?.0.into())
    }

    fn encode(self) -> Value {
        self.encoded.unwrap_or_else(|| self.decoded.into_inner().unwrap_or_default().to_value())
    }

    /// The fields as they were read, if they have not been decoded since.
    fn undecoded(&self) -> Option<FieldsV1<'_>> {
        let encoded = self.encoded.as_ref().filter(|_| self.decoded.get().is_none());
        encoded.and_then(FieldsV1::of_canonical)
    }

    pub(super) fn set(&self) -> &Set {
        self.decoded.get_or_init(|| {
            let fields = self.encoded.as_ref().map(Set::from_value);
            fields.and_then(Result::ok).unwrap_or_default().0
        })
    }

    pub(super) fn into_set(self) -> Set {
        self.set();
        self.decoded.into_inner().unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.undecoded().map_or_else(|| self.set().is_empty(), FieldsV1::is_empty)
    }

    pub(super) fn includes(&self, other: &Set) -> bool {
        match self.undecoded() {
            Some(fields) => fields.includes(other),
            None => self.set().includes(other),
        }
    }

    pub(super) fn is_equal(&self, other: &Set) -> bool {
        match self.undecoded() {
            Some(fields) => fields.len() == other.len() && fields.includes(other),
            None => self.set() == other,
        }
    }

    pub(super) fn intersection(&self, other: &Set) -> Set {
        match self.undecoded() {
            Some(fields) => fields.intersection(other),
            None => self.set().intersection(other),
        }
    }

    /// Adapts the fields to the schema: they may have been written before a list or object became atomic.
    pub(super) fn reconcile(&mut self, schema: &Schema, type_ref: TypeRef<'_>) {
        if self.undecoded().is_some_and(|fields| !fields.divides_atomics(schema, type_ref)) {
            return;
        }
        if let Some(set) = reconcile(schema, type_ref, self.set()) {
            *self = set.into();
        }
    }
}

impl From<Set> for OwnedSet {
    fn from(set: Set) -> Self {
        Self { encoded: None, decoded: OnceCell::from(set) }
    }
}

impl ManagedFieldsEntry {
    /// The manager identifier. Entries of `Apply` are shared between versions, entries of `Update`
    /// are not. Compat: the text is upstream's, because conflicts are listed in its order.
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

    /// The manager's name in the message of a conflict.
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

    /// What entries are sorted by.
    fn place(&self) -> (bool, &str, &str, &str, &str) {
        (!self.applied, &self.time, &self.manager, &self.api_version, &self.subresource)
    }

    fn decode(mut entry: Value, at: usize) -> Result<Self, String> {
        let fields = entry.remove_at(&["fieldsV1"]).unwrap_or_default();
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
        let set = OwnedSet::decode(fields).map_err(|why| format!("error decoding set: {why}"))?;
        let (manager, subresource, time) = (text("manager"), text("subresource"), text("time"));
        Ok(Self { manager, applied, api_version, subresource, time, set })
    }

    fn encode(self) -> Value {
        let operation = self.operation();
        // In the order of the keys.
        let members: [(&'static str, Value); 7] = [
            ("apiVersion", self.api_version.into()),
            ("fieldsType", "FieldsV1".into()),
            ("fieldsV1", self.set.encode()),
            ("manager", self.manager.into()),
            ("operation", operation.into()),
            ("subresource", self.subresource.into()),
            ("time", self.time.into()),
        ];
        let given = members.into_iter().filter(|(_, value)| value.as_str() != Some(""));
        given.map(|(name, value)| (Str::new_static(name), value)).collect::<Map>().into()
    }
}

/// Takes the entries out of an object and decodes them.
pub(super) fn take(object: &mut Value) -> Result<ManagedFields, String> {
    decode_entries(object.remove_at(&["metadata", "managedFields"]))
}

pub(super) fn decode(object: &Value) -> Result<ManagedFields, String> {
    decode_entries(object.at(&["metadata", "managedFields"]).cloned())
}

fn decode_entries(entries: Option<Value>) -> Result<ManagedFields, String> {
    let Some(Value::Array(entries)) = entries.map(Value::into_tree) else {
        return Ok(ManagedFields::new());
    };
    let managed_fields = entries.into_iter().enumerate().map(|(at, entry)| {
        let owner = ManagedFieldsEntry::decode(entry, at)?;
        Ok((owner.id(), owner))
    });
    managed_fields.collect()
}

/// Writes the entries into an object: `Apply` first, then by time, manager, version and
/// subresource.
pub(super) fn encode(object: &mut Value, managed_fields: ManagedFields) {
    if managed_fields.is_empty() {
        object.remove_at(&["metadata", "managedFields"]);
        return;
    }
    let mut sorted: Vec<ManagedFieldsEntry> = managed_fields.into_values().collect();
    sorted.sort_by(|a, b| a.place().cmp(&b.place()));
    let entries: Vec<Value> = sorted.into_iter().map(ManagedFieldsEntry::encode).collect();
    object.set_at(&["metadata", "managedFields"], Value::Array(entries));
}

/// A client resets managedFields by setting it to `[]` or `[{}]`.
pub(super) fn is_reset(object: &Value) -> bool {
    match object.at(&["metadata", "managedFields"]).and_then(Value::as_array) {
        Some([]) => true,
        Some([Value::Object(entry)]) => entry.is_empty(),
        _ => false,
    }
}

/// Caps the number of `Update` entries: the oldest of each version are merged into the manager
/// `ancient-changes`.
pub(super) fn cap_update_managers(managed_fields: &mut ManagedFields) {
    let mut updaters: Vec<(String, String)> = managed_fields
        .iter()
        .filter(|(_, owner)| !owner.applied)
        .map(|(id, owner)| (owner.time.clone(), id.clone()))
        .collect();
    updaters.sort();
    let mut count = updaters.len();
    let mut first_of_version: BTreeMap<String, String> = BTreeMap::new();
    // The sets that go into each bucket.
    let mut merged: BTreeMap<String, Vec<Set>> = BTreeMap::new();
    for (_, id) in updaters {
        if count <= UPDATE_MANAGERS_MAX {
            break;
        }
        let Some(api_version) = managed_fields.get(&id).map(|owner| owner.api_version.clone())
        else {
            continue;
        };
        let Some(first) = first_of_version.get(&api_version) else {
            first_of_version.insert(api_version, id);
            continue;
        };
        let bucket = ManagedFieldsEntry {
            manager: "ancient-changes".to_owned(),
            api_version,
            ..ManagedFieldsEntry::default()
        };
        let bucket_id = bucket.id();
        if !managed_fields.contains_key(&bucket_id) {
            let set = managed_fields.remove(first).map(|first| first.set).unwrap_or_default();
            managed_fields.insert(bucket_id.clone(), ManagedFieldsEntry { set, ..bucket });
        }
        let Some(owner) = managed_fields.remove(&id) else { continue };
        count -= 1;
        match managed_fields.get_mut(&bucket_id) {
            Some(bucket) => {
                // The later of the two times.
                bucket.time = owner.time;
                merged.entry(bucket_id).or_default().push(owner.set.into_set());
            }
            // Compat: a bucket that is not the oldest entry of its version is dropped, as upstream.
            None => drop(merged.remove(&bucket_id)),
        }
    }
    for (bucket_id, mut sets) in merged {
        if let Some(bucket) = managed_fields.get_mut(&bucket_id) {
            sets.push(std::mem::take(&mut bucket.set).into_set());
            bucket.set = Set::union_all(sets).into();
        }
    }
}

const UPDATE_MANAGERS_MAX: usize = 10;
