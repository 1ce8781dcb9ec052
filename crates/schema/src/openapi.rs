//! OpenAPI documents: v2, one for the whole server, and v3, one per group version.
//!
//! `routes` lists the operations as plain data, `definitions` writes the types that they refer to.
//! `v2` and `v3` combine both in their dialect, as JSON or as gnostic protobuf.

mod assemble;
mod convert;
mod custom;
mod definitions;
mod params;
mod protobuf;
mod routes;
mod v2;
mod v3;

use std::borrow::Cow;
use std::collections::HashMap;

use meta::{GroupVersionKind, Str};

pub use assemble::DocumentEncoding;
pub use convert::v3_from_v2;
pub use custom::{CustomDefinitions, CustomResource};
pub use params::{Param, ParamLocation};
pub use routes::{Action, CUSTOM_PATCHES, Content, Operation, PATCHES, Path, Response, Routes};
pub use v2::v2_document;
pub use v3::v3_document;

use crate::{Schema, TypeId};

/// Descriptions of types and fields.
pub trait Describe {
    fn definition(&self, definition: &str) -> Option<Cow<'_, str>>;
    fn field(&self, definition: &str, field: &str) -> Option<Cow<'_, str>>;
}

/// No descriptions.
pub struct NoDescriptions;

impl Describe for NoDescriptions {
    fn definition(&self, _definition: &str) -> Option<Cow<'_, str>> {
        None
    }

    fn field(&self, _definition: &str, _field: &str) -> Option<Cow<'_, str>> {
        None
    }
}

/// The common input of all documents of a server.
#[derive(Clone, Copy)]
pub struct DocumentSource<'a> {
    pub schema: &'a Schema,
    pub describe: &'a dyn Describe,
    pub custom: &'a CustomDefinitions<'a>,
    /// As published: `1.36`.
    pub version: &'a str,
}

/// Finds the type of a kind.
pub struct TypesByKind<'a>(HashMap<&'a GroupVersionKind, TypeId>);

impl<'a> TypesByKind<'a> {
    pub fn of(schema: &'a Schema) -> Self {
        let kinds = schema.types().flat_map(|(id, ty)| ty.kinds.iter().map(move |kind| (kind, id)));
        Self(kinds.collect())
    }

    pub fn type_of(&self, kind: &GroupVersionKind) -> Option<TypeId> {
        self.0.get(kind).copied()
    }
}

/// The types of requests and responses that belong to no group.
fn meta_v1(kind: &str) -> Str {
    Str::from(format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}"))
}
