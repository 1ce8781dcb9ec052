//! The functions, one file per library. Which libraries there are, and in which version, is what
//! kube-apiserver 1.36 offers to new expressions.

mod authz;
mod cidr;
mod format;
mod format_string;
mod ip;
mod json_patch;
mod lists;
mod lists_extended;
mod optional;
mod quantity;
pub(crate) mod regex;
mod semver;
mod sets;
mod standard;
mod strings;
mod time;
mod two_var_comprehensions;
mod urls;

pub use authz::{AuthorizerBinding, AuthorizerCheck, AuthorizerChecks, Check};
pub use cidr::Prefix;
pub use format::Format;
pub(crate) use format_string::{Clause, FormatArgument, check_format};
pub use semver::Version;
pub use urls::Url;

use crate::functions::Functions;
use crate::types::Type;

/// Declares everything. The order is that of kube-apiserver: where overloads of several libraries
/// fit, the first one decides.
pub(crate) fn declare(functions: &mut Functions) {
    standard::declare(functions);
    time::declare(functions);
    urls::declare(functions);
    regex::declare(functions);
    lists::declare(functions);
    authz::declare(functions);
    optional::declare(functions);
    quantity::declare(functions);
    strings::declare(functions);
    sets::declare(functions);
    ip::declare(functions);
    cidr::declare(functions);
    format::declare(functions);
    two_var_comprehensions::declare(functions);
    semver::declare(functions);
    lists_extended::declare(functions);
}

/// Declares what only the mutations of admission policies have.
pub(crate) fn declare_for_mutations(functions: &mut Functions) {
    json_patch::declare(functions);
}

/// The first type parameter of a signature.
pub(crate) const A: Type = Type::Param(0);
/// The second one.
pub(crate) const B: Type = Type::Param(1);

fn list_of(items: Type) -> Type {
    Type::list(items)
}

/// The types that have an order, and their names in the ids of overloads.
const COMPARABLE: [(&str, Type); 8] = [
    ("int", Type::Int),
    ("uint", Type::Uint),
    ("double", Type::Double),
    ("bool", Type::Bool),
    ("duration", Type::Duration),
    ("timestamp", Type::Timestamp),
    ("string", Type::String),
    ("bytes", Type::Bytes),
];
