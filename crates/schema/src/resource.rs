//! Facts about resources: names, scope, verbs, subresources.
