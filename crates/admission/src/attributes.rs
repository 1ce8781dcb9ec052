//! A write or CONNECT as the plugins see it.

use std::{
    any::Any,
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::quota::WriteCharges;
use meta::{
    ApiError, AuditAnnotations, GroupVersionKind, GroupVersionResource, User, Value, Warnings,
};

/// kube-apiserver's `admission.Attributes`. The object itself is handed to the plugins beside it: it
/// changes on the way.
pub struct Attributes<'a> {
    pub operation: Operation,
    pub gvk: &'a GroupVersionKind,
    pub gvr: &'a GroupVersionResource,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    /// The user that the request acts as.
    pub user: &'a User,
    /// The user that sent the request; another one than `user` under impersonation.
    pub authenticated_user: &'a User,
    pub options: &'a dyn RequestOptions,
    /// The object as it was; None on create and connect.
    pub old: Option<&'a Value>,
    pub warnings: &'a Warnings,
    pub audit: &'a AuditAnnotations,
    pub reinvocation: Reinvocation,
    /// What quotas were charged for this write.
    pub charges: WriteCharges,
    /// When the client gets a 504; None: the request is long-running, or the server's own.
    pub deadline: Option<tokio::time::Instant>,
}

impl Attributes<'_> {
    pub fn is_dry_run(&self) -> bool {
        self.options.is_dry_run()
    }

    /// Whether this is about a resource, in any of its versions, or a subresource of it.
    pub fn is(&self, group: &str, resource: &str, subresource: &str) -> bool {
        self.gvr.resource == resource && self.gvr.group == group && self.subresource == subresource
    }

    /// Whether this is about pods themselves.
    pub fn is_pod(&self) -> bool {
        self.is("", "pods", "")
    }

    /// A 403: `{resource} "{name}" is forbidden: {why}`.
    pub fn forbidden(&self, object: Option<&Value>, why: impl Into<String>) -> ApiError {
        let of_object = |field| object.map_or("", |object| object.str_at(&["metadata", field]));
        let names = [self.name, of_object("name"), of_object("generateName"), "Unknown"];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        ApiError::Forbidden {
            resource: self.gvr.group_resource(),
            name: name.to_owned(),
            why: why.into(),
            causes: Vec::new(),
        }
    }

    /// Sends the client a `Warning` header.
    pub fn warn(&self, text: impl Into<String>) {
        self.warnings.add(text);
    }

    /// Adds to the annotations of the request's audit event. Compat: what a webhook or policy names is left out
    /// unless it is a qualified name with a prefix.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        let key = key.into();
        if key.matches('/').count() != 1 || !meta::names::is_qualified_name(&key).is_empty() {
            // A webhook chooses its length.
            let key = meta::limits::cut(&key, meta::limits::QUOTED_BYTES_MAX);
            tracing::warn!(
                "audit annotation key {} has an invalid format",
                meta::field::quote(&key)
            );
            return;
        }
        self.audit.add(key, value);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    /// As an `AdmissionReview` spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The options of the request: `CreateOptions`, `UpdateOptions`, `DeleteOptions`, or those of a
/// CONNECT (`PodExecOptions`).
pub trait RequestOptions: Send + Sync {
    fn is_dry_run(&self) -> bool;

    /// The options as the object that they are. Made when a plugin asks for it: few do.
    ///
    /// Compat: a patch that creates has `CreateOptions` here and one that updates `UpdateOptions`.
    fn to_object(&self, operation: Operation) -> Value;
}

/// The options of a CONNECT are an object from the start.
impl RequestOptions for Value {
    fn is_dry_run(&self) -> bool {
        false
    }

    fn to_object(&self, _operation: Operation) -> Value {
        self.clone()
    }
}

/// Whether the mutating plugins run a second time, and what each of them remembers of the first.
///
/// A webhook or policy that another plugin's change concerns asks for the second run; there is at
/// most one.
#[derive(Default)]
pub struct Reinvocation {
    running: AtomicBool,
    requested: AtomicBool,
    values: Mutex<HashMap<&'static str, Box<dyn Any + Send>>>,
}

impl Reinvocation {
    /// Whether this is the second run.
    pub fn is_reinvocation(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }

    /// Asks for a second run. During the second run this has no effect.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }

    pub(crate) fn begin_if_requested(&self) -> bool {
        let begins = self.requested.load(Ordering::Relaxed) && !self.is_reinvocation();
        self.running.store(begins, Ordering::Relaxed);
        begins
    }

    /// What a plugin keeps between the two runs.
    pub fn with_value<T: Any + Send + Default, R>(
        &self,
        plugin: &'static str,
        run: impl FnOnce(&mut T) -> R,
    ) -> R {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let value = values.entry(plugin).or_insert_with(|| Box::<T>::default());
        match value.downcast_mut() {
            Some(value) => run(value),
            // Another type under the same name is a mistake of the plugin: it starts anew.
            None => run(&mut T::default()),
        }
    }
}
