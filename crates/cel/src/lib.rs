//! Kubernetes' CEL: the expressions of `x-kubernetes-validations`, admission policies and match
//! conditions, typed and costed as kube-apiserver 1.36 does it. It does no I/O and knows no async.
//!
//! An expression is compiled once and run often:
//!
//! ```
//! use std::sync::Arc;
//! use cel::{Bound, Decl, Env, PER_CALL_LIMIT, Val};
//! use meta::value;
//!
//! // What the data looks like: kinds and largest sizes, as the schema has them.
//! let decl = Arc::new(Decl::object([
//!     ("replicas", Arc::new(Decl::int()), true),
//!     ("name", Arc::new(Decl::string(Some(63))), false),
//! ]));
//! let env = Env::new().data("self", &decl);
//!
//! // Text, types and constants are checked here; the errors read as users know them.
//! let program = env.compile("self.replicas < 10 && self.name.startsWith('a')").unwrap();
//! assert_eq!(program.output_type(), &cel::Type::Bool);
//! assert!(program.estimate().max < 100);
//! let wrong = env.compile("self.replica < 10").unwrap_err().to_string();
//! assert!(wrong.starts_with("ERROR: <input>:1:5: undefined field 'replica'"));
//!
//! // The object stays where it is; the result may borrow from it.
//! let object = value!({"replicas": 3i64, "name": "abc"});
//! let variables = [Bound::Data(&object, &decl)];
//! let outcome = program.evaluate(&variables, PER_CALL_LIMIT);
//! assert!(matches!(outcome.result, Ok(Val::Bool(true))));
//! assert_eq!(outcome.cost, 6);
//! ```
//!
//! In reading order: [`decl`] (what is declared about data), `source`, `lex`, `ast`, `parse` and
//! `macros` (text to tree), [`types`], `unify` and `check` (types), `validate` (literals), `cost`
//! (before and while running), `plan` and [`eval`] (running), [`value`] and `ops` (values), and
//! `library` (functions, one file each).
//!
//! A policy binds the variable `authorizer` to a [`KubernetesValue::Authorizer`]; [`AuthorizerChecks`] says
//! how a synchronous evaluation uses an asynchronous authorizer.

pub mod admission;
mod ast;
mod check;
mod cost;
pub mod decl;
mod env;
pub mod escape;
pub mod eval;
mod functions;
mod go_text;
mod json_value;
mod kubernetes_value;
mod lex;
mod library;
mod macros;
mod ops;
mod parse;
mod plan;
pub mod regex;
mod source;
pub mod time;
pub mod types;
mod unify;
mod validate;
pub mod value;

pub use cost::{CostEstimate, MATCH_CONDITIONS_BUDGET, PER_CALL_LIMIT, PER_OBJECT_BUDGET};
pub use decl::{Decl, DeclKind, Field, ListType, ObjectDecl};
pub use env::{CompileError, Env};
pub use eval::{Bound, LazyFields, Outcome, Program};
pub use kubernetes_value::KubernetesValue;
pub use library::{
    AuthorizerBinding, AuthorizerCheck, AuthorizerChecks, Check, Format, Prefix, Url, Version,
};
pub use source::Issues;
pub use types::Type;
pub use value::{EvalError, EvalResult, List, Map, Val};
