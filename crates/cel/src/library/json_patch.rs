//! `jsonpatch.escapeKey`, for the mutations of admission policies.

use super::standard::text;
use crate::functions::Functions;
use crate::types::Type;
use crate::value::Val;

pub(super) fn declare(f: &mut Functions) {
    let id = "string_jsonpatch_escapeKey_string";
    f.global("jsonpatch.escapeKey", id, &[Type::String], Type::String, |args| {
        Ok(Val::text(text(args)?.replace('~', "~0").replace('/', "~1")))
    });
}
