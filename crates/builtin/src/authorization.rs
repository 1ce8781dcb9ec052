pub(crate) mod access_review;
pub(crate) mod rules_review;
