//! Group, version, kind and resource: how Kubernetes names what it serves.

use std::fmt;

use crate::Str;

/// `apps` + `v1`. The core group is the empty string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersion {
    pub group: Str,
    pub version: Str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionKind {
    pub group: Str,
    pub version: Str,
    pub kind: Str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionResource {
    pub group: Str,
    pub version: Str,
    pub resource: Str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKind {
    pub group: Str,
    pub kind: Str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    pub group: Str,
    pub resource: Str,
}

impl GroupVersion {
    pub fn new(group: impl AsRef<str>, version: impl AsRef<str>) -> Self {
        Self { group: Str::new(group), version: Str::new(version) }
    }

    /// Reads an `apiVersion`: `v1` or `apps/v1`. More than one slash is an error, as in Go.
    pub fn parse(api_version: &str) -> Option<Self> {
        match api_version.split_once('/') {
            None => Some(Self::new("", api_version)),
            Some((_, version)) if version.contains('/') => None,
            Some((group, version)) => Some(Self::new(group, version)),
        }
    }

    pub fn with_kind(&self, kind: impl AsRef<str>) -> GroupVersionKind {
        GroupVersionKind {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: Str::new(kind),
        }
    }
}

impl GroupVersionKind {
    pub fn new(group: impl AsRef<str>, version: impl AsRef<str>, kind: impl AsRef<str>) -> Self {
        GroupVersion::new(group, version).with_kind(kind)
    }

    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    pub fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.group.clone(), kind: self.kind.clone() }
    }
}

impl GroupVersionResource {
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.resource.clone() }
    }
}

impl GroupKind {
    pub fn new(group: impl AsRef<str>, kind: impl AsRef<str>) -> Self {
        Self { group: Str::new(group), kind: Str::new(kind) }
    }
}

impl GroupResource {
    pub fn new(group: impl AsRef<str>, resource: impl AsRef<str>) -> Self {
        Self { group: Str::new(group), resource: Str::new(resource) }
    }
}

/// As in `apiVersion`: `v1`, `apps/v1`.
impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.group.is_empty() {
            write!(f, "{}/", self.group)?;
        }
        f.write_str(&self.version)
    }
}

/// As in error messages: `apps/v1, Kind=Deployment`.
impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// As in error messages: `Pod`, `Deployment.apps`.
impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// As in error messages: `pods`, `deployments.apps`.
impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}
