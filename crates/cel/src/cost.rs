//! The cost of an expression: an estimate before it is accepted (`estimate.rs`), and the actual
//! cost at run time (`actual.rs`). Compat: the numbers are cel-go's and kube-apiserver's, which
//! existing rules were written for.

pub(crate) mod actual;
mod calls;
mod estimate;

pub(crate) use estimate::estimate;

/// The cost limit of one evaluation.
pub const PER_CALL_LIMIT: u64 = 1_000_000;

/// The cost limit of all rules of one object together.
pub const PER_OBJECT_BUDGET: u64 = 10_000_000;

/// The cost limit of all match conditions of one webhook or policy together.
pub const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;

pub(crate) const IDENT: u64 = 1;
pub(crate) const LIST: u64 = 10;
pub(crate) const MAP: u64 = 30;
pub(crate) const STRUCT: u64 = 40;

/// Per character of a string that is walked through.
pub(crate) const TRAVERSAL: f64 = 0.1;

/// Per character of a pattern and unit of text.
pub(crate) const REGEX: f64 = 0.25;

/// The least and the most an expression can cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostEstimate {
    pub min: u64,
    pub max: u64,
}
