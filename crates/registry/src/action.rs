//! Subresources that act instead of storing something: `pods/binding`, `pods/eviction`,
//! `serviceaccounts/token`.

use std::sync::Arc;

use admission::{BoxFuture, Operation};
use meta::{ApiError, GroupVersionKind, Status, User, Value, selector::LabelSelector};
use store::{Expect, StoreError};

use crate::{
    Kind, ResourceResponse, audit,
    create::{attributes, gvr},
    decode::{self, tree},
    delete,
    get::entry,
    managed_fields, object_meta,
    options::{DeleteOptions, WriteOptions},
    resource_request::ResourceRequest,
    response_format::{self, ResponseFormat},
    storage::store_error,
};

/// Handles a POST to a subresource.
pub trait Action: Send + Sync + 'static {
    /// The kinds that the body may have, all with the same fields; the first one is assumed where
    /// the body names none.
    fn accepts(&self) -> Vec<GroupVersionKind>;

    /// Fills in what the body leaves out.
    fn default(&self, _object: &mut Value) {}

    /// Completes what was sent, between mutating and validating admission.
    fn complete<'a>(
        &'a self,
        _object: &'a mut Value,
        _cx: &'a ActionContext<'a>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn act<'a>(
        &'a self,
        object: Value,
        cx: &'a ActionContext<'a>,
    ) -> BoxFuture<'a, Result<ActionOutcome, ApiError>>;
}

/// The response of an action.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionOutcome {
    /// An object of the kind that was sent.
    Object(Value),
    /// A `Status` with `Success`.
    Done,
}

/// The object that a subresource belongs to, and the user who sent the request.
pub struct ActionContext<'a> {
    request: &'a ResourceRequest<'a>,
    pub dry_run: bool,
}

impl<'a> ActionContext<'a> {
    pub fn kind(&self) -> &'a Kind {
        self.request.kind
    }

    pub fn user(&self) -> &'a User {
        self.request.user
    }

    pub fn namespace(&self) -> &'a str {
        &self.request.info.namespace
    }

    pub fn name(&self) -> &'a str {
        &self.request.info.name
    }

    /// Adds a `Warning` header to the response.
    pub fn warn(&self, text: String) {
        self.request.warnings.add(text);
    }

    /// Adds an annotation to the audit event.
    pub fn annotate(&self, key: &str, value: &str) {
        self.request.audit.annotations.add(key, value);
    }

    /// The object as it is now.
    pub async fn object(&self) -> Result<Value, ApiError> {
        let entry = entry(self.request, "").await?;
        tree(&self.kind().view(&entry)?)
    }

    /// Deletes the object without another pass through admission.
    pub fn delete<'b>(&'b self, options: &'b DeleteOptions) -> BoxFuture<'b, Result<(), ApiError>> {
        Box::pin(delete::delete_without_admission(self.request, options))
    }
}

/// Serves a POST to a subresource that acts.
pub(crate) async fn act(
    request: &ResourceRequest<'_>,
    action: &dyn Action,
) -> Result<ResourceResponse, ApiError> {
    let format = ResponseFormat::negotiate(request)?;
    let options = WriteOptions::read(request.query, "CreateOptions", false)?;
    let mut object = decode_body(request, action, &options)?;
    let ty = type_of(request, &action.accepts()[0])?;
    audit::typed_request_object(request, &object, (&request.engine.schema, ty), |object| {
        action.default(object);
    });
    let cx = ActionContext { request, dry_run: options.dry_run };
    let namespace = object.str_at(&["metadata", "namespace"]);
    if !namespace.is_empty() && namespace != cx.namespace() {
        let why = "the namespace of the provided object does not match the namespace sent on the \
                   request";
        return Err(ApiError::bad_request(why));
    }
    // What is sent to a subresource is in the namespace of its object.
    if !cx.namespace().is_empty() {
        object.set_at(&["metadata", "namespace"], cx.namespace());
    }
    // Compat: the uid that a Binding or a TokenRequest names is that of its object.
    if !matches!(object.str_at(&["kind"]), "Binding" | "TokenRequest") {
        object_meta::wipe_for_create(&mut object, true);
    }
    // Compat: what is sent in another version is admitted in the first one.
    let gvk = action.accepts()[0].clone();
    object.set_at(&["kind"], gvk.kind.clone());
    object.set_at(&["apiVersion"], gvk.group_version().to_string());
    action.default(&mut object);
    managed_fields::track_sent(request, &options, ty, &mut object);
    let gvr = gvr(request.kind);
    let mut attributes = attributes(request, &gvr, Operation::Create, cx.name(), &options, None);
    // Plugins see what was sent (an Eviction), not what it is sent to.
    attributes.gvk = &gvk;
    request.engine.admission.admit(&attributes, Some(&mut object)).await?;
    action.complete(&mut object, &cx).await?;
    request.engine.admission.validate(&attributes, Some(&object)).await?;
    match action.act(object, &cx).await? {
        ActionOutcome::Done => Ok(response_format::status(request, &format, &done())),
        ActionOutcome::Object(object) => {
            let gvk = gvk_of(&object).unwrap_or_else(|| action.accepts()[0].clone());
            let (schema, ty) = (&request.engine.schema, type_of(request, &gvk)?);
            let mut json = Vec::new();
            codec::json::encode(&object, schema, ty, &mut json);
            response_format::typed(request, &format, 201, json.into(), (schema, ty))
        }
    }
}

/// Asks the admission plugins about a CONNECT. Compat: the object that they see is its options.
pub async fn admit_connect(
    request: &ResourceRequest<'_>,
    options: &mut Value,
) -> Result<(), ApiError> {
    let gvr = gvr(request.kind);
    let gvk = gvk_of(options).ok_or_else(|| ApiError::internal("options without a kind"))?;
    let (name, none) = (request.info.name.as_str(), Value::Null);
    let mut attributes = attributes(request, &gvr, Operation::Connect, name, &none, None);
    attributes.gvk = &gvk;
    request.engine.admission.admit(&attributes, Some(&mut *options)).await?;
    request.engine.admission.validate(&attributes, Some(options)).await
}

/// The `Status` of a subresource that acted.
pub(crate) fn done() -> Status {
    Status { code: 201, ..Status::default() }
}

fn decode_body(
    request: &ResourceRequest<'_>,
    action: &dyn Action,
    options: &WriteOptions,
) -> Result<Value, ApiError> {
    let accepted = action.accepts();
    // A body that names another of the accepted versions is read as that.
    let stated = decode::stated_kind(request);
    let named = accepted.iter().find(|gvk| stated.as_ref() == Some(gvk));
    let gvk = named.or(accepted.first()).ok_or(ApiError::NotServed)?;
    let (ty, validation) = (type_of(request, gvk)?, options.field_validation);
    decode::body(request, &decode::Expected { gvk, schema: &request.engine.schema, ty, validation })
}

fn type_of(
    request: &ResourceRequest<'_>,
    gvk: &GroupVersionKind,
) -> Result<schema::TypeId, ApiError> {
    let mut types = request.engine.schema.types();
    let found = types.find(|(_, ty)| ty.kinds.contains(gvk)).map(|(id, _)| id);
    found.ok_or_else(|| ApiError::internal(format!("no schema for {}", gvk.kind)))
}

fn gvk_of(object: &Value) -> Option<GroupVersionKind> {
    let group_version = meta::GroupVersion::parse(object.str_at(&["apiVersion"]))?;
    let kind = object.str_at(&["kind"]);
    (!kind.is_empty()).then(|| group_version.with_kind(kind))
}

impl Kind {
    /// Changes an object as the server itself, without admission and strategy: both have seen the
    /// request that leads to this change.
    pub async fn rewrite(
        &self,
        namespace: &str,
        name: &str,
        dry_run: bool,
        change: &mut (dyn FnMut(&mut Value) -> Result<(), ApiError> + Send),
    ) -> Result<(), ApiError> {
        let storage = self.storage.as_deref().ok_or(ApiError::MethodNotAllowed)?;
        let key = storage.key(namespace, name);
        loop {
            let Some(found) = storage.read(&key).await? else {
                return Err(ApiError::not_found(self.group_resource(), name));
            };
            let json = storage.at_revision(&found.value, found.mod_revision)?;
            let mut object = self.decode(&self.view_of_stored(&json).await?)?;
            change(&mut object)?;
            if dry_run {
                return Ok(());
            }
            let stored = storage.encode(self.to_stored(object).await?)?;
            match storage.write(key.clone(), Expect::At(found.mod_revision), Some(&stored)).await {
                Ok(_) => return Ok(()),
                // Conflict: retry from the current object.
                Err(StoreError::Conflict { .. }) => {}
                Err(other) => return Err(store_error(other)),
            }
        }
    }

    /// The current objects of a namespace (of all if it is empty), decoded. Only for small
    /// collections: large ones are listed as bytes.
    pub async fn objects(&self, namespace: &str) -> Result<Vec<Value>, ApiError> {
        let storage = self.storage.as_deref().ok_or(ApiError::MethodNotAllowed)?;
        let snapshot = storage.cache.fresh().await.map_err(store_error)?;
        let prefix = storage.key_prefix(namespace);
        snapshot.range(&prefix, None).map(|entry| tree(&self.view(entry)?)).collect()
    }

    /// The same, of those that a selector selects; from the cache.
    pub async fn select_objects(
        &self,
        namespace: &str,
        selector: &LabelSelector,
    ) -> Result<Vec<Value>, ApiError> {
        let storage = self.storage.as_deref().ok_or(ApiError::MethodNotAllowed)?;
        let snapshot = storage.cache.snapshot();
        let prefix = storage.key_prefix(namespace);
        let selected =
            snapshot.range(&prefix, None).filter(|entry| selector.matches(&entry.labels));
        let selected: Vec<_> = selected.collect();
        self.prepare(&selected).await?;
        selected.into_iter().map(|entry| tree(&self.view(entry)?)).collect()
    }

    /// An object, decoded; None: there is none. From the cache unless it has to be linearizable.
    pub async fn find_object(
        &self,
        namespace: &str,
        name: &str,
        linearizable: bool,
    ) -> Result<Option<Value>, ApiError> {
        let storage = self.storage.as_deref().ok_or(ApiError::MethodNotAllowed)?;
        let Some(entry) = storage.find(namespace, name, linearizable).await? else {
            return Ok(None);
        };
        self.prepare(&[&entry]).await?;
        tree(&self.view(&entry)?).map(Some)
    }

    /// Whether objects of both kinds are the same stored objects, in two versions.
    pub fn shares_storage(&self, other: &Self) -> bool {
        match (&self.storage, &other.storage) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        }
    }

    /// An object of this kind in another version of it.
    pub async fn convert_to(&self, other: &Self, object: Value) -> Result<Value, ApiError> {
        let stored = self.to_stored(object).await?;
        let storage = self.storage.as_deref().ok_or(ApiError::MethodNotAllowed)?;
        let json = storage.encode(stored)?.json;
        other.decode(&other.view_of_stored(&json).await?)
    }

    /// The current object, decoded.
    pub async fn object(&self, namespace: &str, name: &str) -> Result<Value, ApiError> {
        let storage = self.storage.as_deref().ok_or(ApiError::MethodNotAllowed)?;
        match storage.find(namespace, name, true).await? {
            Some(entry) => tree(&self.view(&entry)?),
            None => Err(ApiError::not_found(self.group_resource(), name)),
        }
    }

    /// The key of an object in the store; error messages show it.
    pub fn storage_key(&self, namespace: &str, name: &str) -> meta::Str {
        self.storage.as_ref().map(|storage| storage.key(namespace, name)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
