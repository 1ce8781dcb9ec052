//! The object of a request while webhooks or policies change it, in the version that each of them
//! wants.

use meta::{ApiError, GroupVersionKind, GroupVersionResource, Map, Str, Value};

use crate::{
    Attributes, Cluster,
    versioned::{VersionedObject, VersionedObjects, convert},
};

/// Keeps the object in the version that was wanted last, so that several with the same wish share one
/// encoding, and converts it back at the end.
pub(crate) struct ChangedObject<'a, 'o> {
    attributes: &'a Attributes<'a>,
    cluster: &'a Cluster,
    object: Option<&'o mut Value>,
    versioned: Option<InVersion>,
    /// Whether a changed object was taken over.
    replaced: bool,
}

struct InVersion {
    resource: GroupVersionResource,
    kind: GroupVersionKind,
    objects: VersionedObjects,
    /// The object is newer than that of the request.
    dirty: bool,
}

impl<'a, 'o> ChangedObject<'a, 'o> {
    pub(crate) fn new(
        attributes: &'a Attributes<'a>,
        cluster: &'a Cluster,
        object: Option<&'o mut Value>,
    ) -> Self {
        Self { attributes, cluster, object, versioned: None, replaced: false }
    }

    /// The object as it is now, in some version: its labels are the same in all.
    pub(crate) fn current(&self) -> Option<&Value> {
        let versioned = self.versioned.as_ref().and_then(|own| own.objects.object.as_ref());
        versioned.map(|own| &own.value).or(self.object.as_deref())
    }

    pub(crate) async fn in_version(
        &mut self,
        (resource, kind): (&GroupVersionResource, &GroupVersionKind),
    ) -> Result<VersionedObjects, ApiError> {
        if let Some(own) = &self.versioned
            && own.resource == *resource
            && own.kind == *kind
        {
            return Ok(own.objects.clone());
        }
        self.finish().await?;
        let object = self.object.as_deref();
        let objects =
            VersionedObjects::new(self.attributes, self.cluster, object, (resource, kind)).await?;
        self.versioned = Some(InVersion {
            resource: resource.clone(),
            kind: kind.clone(),
            objects: objects.clone(),
            dirty: false,
        });
        Ok(objects)
    }

    /// Takes over a changed object of the version that was wanted last.
    pub(crate) fn replace(
        &mut self,
        (resource, kind): (&GroupVersionResource, &GroupVersionKind),
        object: VersionedObject,
    ) {
        if let Some(own) = &mut self.versioned
            && own.resource == *resource
            && own.kind == *kind
        {
            own.objects.object = Some(object);
            own.dirty = true;
            self.replaced = true;
        }
    }

    /// Compat: kube-apiserver keeps the times of managedFields that it has set in this request to the
    /// nanosecond until the object is encoded for the first time. The first patch, be it one that changes
    /// nothing, makes the object another one. Custom objects have their times as text.
    pub(crate) fn has_unrounded_times(&self, resource: &GroupVersionResource) -> bool {
        if self.replaced
            || self.attributes.reinvocation.is_reinvocation()
            || self.cluster.objects.is_custom(resource)
        {
            return false;
        }
        let entries = |object: Option<&'_ Value>| {
            let entries = object.map(|object| object.items_at(&["metadata", "managedFields"]));
            entries.unwrap_or_default().to_vec()
        };
        let (Some(object), was) = (self.object.as_deref(), self.attributes.old) else {
            return false;
        };
        let Some(was) = was else { return !entries(Some(object)).is_empty() };
        let (old, new) = (entries(Some(was)), entries(Some(object)));
        // Within a second a manager's new time is its old one.
        !new.is_empty()
            && (new.iter().any(|entry| !old.contains(entry)) || has_changed(object, was))
    }

    /// The object of the request, in its own version; after [`Self::finish`] it has all changes.
    pub(crate) fn finished(&self) -> Option<&Value> {
        self.object.as_deref()
    }

    /// Writes the changes back into the object of the request, in its own version.
    pub(crate) async fn finish(&mut self) -> Result<(), ApiError> {
        let Some(own) = &mut self.versioned else { return Ok(()) };
        if !own.dirty {
            return Ok(());
        }
        own.dirty = false;
        let (Some(object), Some(changed)) = (&mut self.object, &own.objects.object) else {
            return Ok(());
        };
        let is_same = own.kind == *self.attributes.gvk;
        let mut next = if is_same {
            changed.value.clone()
        } else {
            convert(self.cluster, &changed.value, &own.resource, self.attributes.gvr).await?
        };
        keep_readable_managed_fields(self.attributes, object, &mut next);
        **object = next;
        Ok(())
    }
}

/// Whether a client has changed what managers own.
fn has_changed(object: &Value, was: &Value) -> bool {
    let fields = |object: &Value| -> Vec<(Str, Value)> {
        let fields = object.as_object().into_iter().flat_map(Map::iter);
        let fields = fields.filter(|(key, _)| *key != "metadata");
        let mut fields: Vec<(Str, Value)> =
            fields.map(|(key, value)| (key.clone(), value.clone())).collect();
        for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
            if let Some(value) = object.at(&["metadata", field]) {
                fields.push((Str::new_static(field), value.clone()));
            }
        }
        fields
    };
    fields(object) != fields(was)
}

/// Compat: managedFields that cannot be read are not taken over, and the client is warned of them.
fn keep_readable_managed_fields(attributes: &Attributes<'_>, was: &Value, next: &mut Value) {
    let at = ["metadata", "managedFields"];
    if was.at(&at) == next.at(&at) {
        return;
    }
    let Err(why) = patch::apply::check_managed_fields(next) else { return };
    match was.at(&at) {
        Some(fields) => next.set_at(&at, fields.clone()),
        None => drop(next.remove_at(&at)),
    }
    attributes.warn(format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an \
         outdated mutating admission controller; please fix your requests: {why}"
    ));
}
