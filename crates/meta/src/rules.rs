//! Everything that somebody may do, as far as it can be listed: what an authorizer knows, and what
//! `SelfSubjectRulesReview` shows.

use crate::Str;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub resource: Vec<ResourceRule>,
    pub non_resource: Vec<NonResourceRule>,
    /// There may be more that can't be listed (a webhook decides).
    pub incomplete: bool,
    pub error: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRule {
    pub verbs: Vec<Str>,
    pub api_groups: Vec<Str>,
    pub resources: Vec<Str>,
    pub resource_names: Vec<Str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NonResourceRule {
    pub verbs: Vec<Str>,
    pub urls: Vec<Str>,
}
