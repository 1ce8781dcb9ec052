//! OpenAPI documents of what is served: v2, one for everything, and v3, one per group version.
//!
//! `routes` says which requests are answered, as plain data. `definitions` writes out the types that
//! they need. `v2` and `v3` put both together, each in its own dialect, as JSON or in the binary form
//! that some clients ask for.

mod assemble;
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

pub use assemble::Form;
pub use custom::{CustomDefinitions, CustomResource};
pub use params::{Param, Place};
pub use routes::{Action, Content, Operation, Path, Response, Routes};
pub use v2::v2_document;
pub use v3::v3_document;

use crate::{Schema, TypeId};

/// Sentences about types and fields.
pub trait Describe {
    fn definition(&self, definition: &str) -> Option<Cow<'_, str>>;
    fn field(&self, definition: &str, field: &str) -> Option<Cow<'_, str>>;
}

/// Says nothing about anything.
pub struct Undescribed;

impl Describe for Undescribed {
    fn definition(&self, _definition: &str) -> Option<Cow<'_, str>> {
        None
    }

    fn field(&self, _definition: &str, _field: &str) -> Option<Cow<'_, str>> {
        None
    }
}

/// What all documents of a server have in common.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub schema: &'a Schema,
    pub describe: &'a dyn Describe,
    pub custom: &'a CustomDefinitions<'a>,
    /// As clients are told: `1.36`.
    pub version: &'a str,
}

/// Finds the type of a kind.
pub struct Kinds<'a>(HashMap<&'a GroupVersionKind, TypeId>);

impl<'a> Kinds<'a> {
    pub fn of(schema: &'a Schema) -> Self {
        let kinds = schema.types().flat_map(|(id, ty)| ty.kinds.iter().map(move |kind| (kind, id)));
        Self(kinds.collect())
    }

    pub fn type_of(&self, kind: &GroupVersionKind) -> Option<TypeId> {
        self.0.get(kind).copied()
    }
}

/// The types of requests and answers that belong to no group.
fn meta_v1(kind: &str) -> Str {
    Str::from(format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}"))
}
