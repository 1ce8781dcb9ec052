//! The object of a request while webhooks or policies change it, in the version that each of them
//! wants.

use meta::{ApiError, GroupVersionKind, GroupVersionResource, Value};

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
        Self { attributes, cluster, object, versioned: None }
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
        }
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
        **object = if is_same {
            changed.value.clone()
        } else {
            convert(self.cluster, &changed.value, &own.resource, self.attributes.gvr).await?
        };
        Ok(())
    }
}
