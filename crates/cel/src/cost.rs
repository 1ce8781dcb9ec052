//! What an expression costs: an estimate before it is accepted (`estimate.rs`), the account while it
//! runs (`actual.rs`). The numbers are cel-go's and kube-apiserver's; a cluster's rules were written
//! to fit them.

pub(crate) mod actual;
mod calls;
mod estimate;

pub(crate) use estimate::estimate;

/// What one expression may cost when it runs.
pub const PER_CALL_LIMIT: u64 = 1_000_000;

/// What all rules of one object may cost together.
pub const PER_OBJECT_BUDGET: u64 = 10_000_000;

/// What all match conditions of one webhook or policy may cost together.
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
