//! The user of a request, the parsed request, and what is collected while it is handled.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use crate::{GroupResource, Str};

/// The authenticated or the impersonated user of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    pub name: Str,
    pub uid: Str,
    pub groups: Vec<Str>,
    /// Sorted by key.
    pub extra: Vec<(Str, Vec<Str>)>,
}

impl User {
    pub const ANONYMOUS: &'static str = "system:anonymous";
    pub const MASTERS: &'static str = "system:masters";
    pub const AUTHENTICATED: &'static str = "system:authenticated";
    pub const UNAUTHENTICATED: &'static str = "system:unauthenticated";

    pub fn anonymous() -> Self {
        Self {
            name: Str::new_static(Self::ANONYMOUS),
            groups: vec![Str::new_static(Self::UNAUTHENTICATED)],
            ..Self::default()
        }
    }

    /// A service account, as the server knows it without a token.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self {
            name: format!("system:serviceaccount:{namespace}:{name}").into(),
            groups: vec![
                Str::new_static("system:serviceaccounts"),
                format!("system:serviceaccounts:{namespace}").into(),
            ],
            ..Self::default()
        }
    }

    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|name| name == group)
    }
}

/// A request's path and method, taken apart once; every filter and handler reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// The path as it was sent, without the query.
    pub path: String,
    /// `get list watch create update patch delete deletecollection proxy`, or the lower-case HTTP
    /// method of a non-resource request.
    pub verb: Str,
    /// False: only `path` and `verb` mean anything.
    pub is_resource: bool,
    /// `api` or `apis`.
    pub prefix: Str,
    pub group: Str,
    pub version: Str,
    pub namespace: Str,
    pub resource: Str,
    pub subresource: Str,
    pub name: Str,
    /// Whatever follows the namespace: resource, name, subresource and the rest (proxy paths).
    pub parts: Vec<Str>,
    /// As sent; read by field-aware authorizers.
    pub field_selector: String,
    pub label_selector: String,
}

impl RequestInfo {
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.resource.clone() }
    }

    /// Watches, proxies and the ways into pods: not bound by the request timeout.
    pub fn is_long_running(&self) -> bool {
        if !self.is_resource {
            return self.path.starts_with("/debug/pprof/");
        }
        matches!(self.verb.as_str(), "watch" | "proxy")
            || matches!(
                self.subresource.as_str(),
                "attach" | "exec" | "proxy" | "log" | "portforward"
            )
    }

    pub fn is_read_only(&self) -> bool {
        matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}

/// The `Warning` headers of a response.
#[derive(Debug, Default)]
pub struct Warnings(Mutex<CollectedWarnings>);

#[derive(Debug, Default)]
struct CollectedWarnings {
    texts: Vec<String>,
    seen: HashSet<String>,
    /// Of all texts, each counted as if it were cut.
    chars: usize,
}

impl Warnings {
    /// Adds a text; the same one is said once. Texts that could not be in the answer are dropped.
    pub fn add(&self, text: impl Into<String>) {
        let mut collected = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if collected.chars > WARNINGS_CHARS_MAX {
            return;
        }
        let mut text = text.into();
        if let Some((end, _)) = text.char_indices().nth(WARNINGS_CHARS_MAX + 1) {
            text.truncate(end);
        }
        if !text.is_empty() && collected.seen.insert(text.clone()) {
            collected.chars += text.chars().count().min(WARNING_CHARS_MAX);
            collected.texts.push(text);
        }
    }

    /// All texts; the last one says how many more there were.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).texts
    }
}

/// Compat: once all warnings of a request together pass this, each is cut to [`WARNING_CHARS_MAX`], and those
/// that pass it then are dropped.
pub const WARNINGS_CHARS_MAX: usize = 4096;
pub const WARNING_CHARS_MAX: usize = 256;
