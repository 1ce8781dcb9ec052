//! The user of a request, the parsed request, and what is collected while it is handled.

use std::sync::{Mutex, PoisonError};

use crate::{GroupResource, Str};

/// Who sent a request, or who it acts as.
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

/// Texts for `Warning` headers, collected while a request is handled.
#[derive(Debug, Default)]
pub struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    /// Adds a text; the same one is said once.
    pub fn add(&self, text: impl Into<String>) {
        let (mut texts, text) =
            (self.0.lock().unwrap_or_else(PoisonError::into_inner), text.into());
        if !texts.contains(&text) {
            texts.push(text);
        }
    }

    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
