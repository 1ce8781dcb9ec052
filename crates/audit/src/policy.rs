//! The audit policy: which requests are recorded, and in which detail.
//!
//! Rules are compiled when the file is loaded. A request costs a comparison of the fields that each
//! rule names, and the first rule that matches decides.

mod decode;
#[cfg(test)]
mod tests;

use std::path::Path;

use meta::{AuditLevel, RequestInfo, Str, User};

use crate::event::Stage;

/// A compiled policy.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
}

/// What a policy says about a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestPolicy {
    pub level: AuditLevel,
    pub omit_stages: StageSet,
    pub omit_managed_fields: bool,
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageSet(u8);

impl StageSet {
    pub fn contains(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }

    #[must_use]
    fn with(self, stage: Stage) -> Self {
        Self(self.0 | 1 << stage as u8)
    }

    #[must_use]
    fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[derive(Clone, Debug, Default)]
struct Rule {
    answer: RequestPolicy,
    users: Vec<Str>,
    user_groups: Vec<Str>,
    verbs: Vec<Str>,
    target: Target,
}

#[derive(Clone, Debug, Default)]
enum Target {
    #[default]
    All,
    Resources {
        /// Empty: all.
        namespaces: Vec<Str>,
        /// Empty: all.
        resources: Vec<GroupResources>,
    },
    NonResourceUrls(Vec<UrlPattern>),
}

#[derive(Clone, Debug)]
struct GroupResources {
    /// None: all groups.
    group: Option<Str>,
    /// Empty: all.
    patterns: Vec<ResourcePattern>,
    /// Empty: all.
    names: Vec<Str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ResourcePattern {
    /// `*`
    All,
    /// `pods`, `pods/log`
    Exact { resource: Str, subresource: Str },
    /// `*/scale`
    Subresource(Str),
    /// `pods/*`. Compat: matches pods as well.
    Below(Str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum UrlPattern {
    All,
    Exact(Str),
    Prefix(Str),
}

impl Policy {
    /// Loads a policy file. The error names the file, and the line where it is about one.
    pub fn load(file: &Path) -> Result<Self, String> {
        decode::load(file)
    }

    /// The answer of the first rule that matches. Without a user (authentication failed), rules
    /// that name users or groups do not match.
    pub fn evaluate(&self, user: Option<&User>, info: &RequestInfo) -> RequestPolicy {
        let rule = self.rules.iter().find(|rule| rule.matches(user, info));
        rule.map(|rule| rule.answer).unwrap_or_default()
    }
}

impl Rule {
    fn matches(&self, user: Option<&User>, info: &RequestInfo) -> bool {
        let one_of = |texts: &[Str], text: &str| texts.iter().any(|known| known == text);
        if !self.verbs.is_empty() && !one_of(&self.verbs, &info.verb) {
            return false;
        }
        if !self.users.is_empty() && !user.is_some_and(|user| one_of(&self.users, &user.name)) {
            return false;
        }
        self.target.matches(info)
            && (self.user_groups.is_empty()
                || user.is_some_and(|user| {
                    user.groups.iter().any(|group| one_of(&self.user_groups, group))
                }))
    }
}

impl Target {
    fn matches(&self, info: &RequestInfo) -> bool {
        match self {
            Self::All => true,
            Self::Resources { namespaces, resources } => {
                info.is_resource
                    && (namespaces.is_empty() || namespaces.contains(&info.namespace))
                    && (resources.is_empty() || resources.iter().any(|group| group.matches(info)))
            }
            Self::NonResourceUrls(urls) => {
                !info.is_resource && urls.iter().any(|url| url.matches(&info.path))
            }
        }
    }
}

impl GroupResources {
    fn matches(&self, info: &RequestInfo) -> bool {
        self.group.as_ref().is_none_or(|group| *group == info.group)
            && (self.patterns.is_empty()
                || (self.patterns.iter().any(|pattern| pattern.matches(info))
                    && (self.names.is_empty() || self.names.contains(&info.name))))
    }
}

impl ResourcePattern {
    fn parse(text: &str) -> Self {
        if text == "*" {
            return Self::All;
        }
        match text.split_once('/') {
            Some(("*", subresource)) => Self::Subresource(subresource.into()),
            Some((resource, "*")) => Self::Below(resource.into()),
            Some((resource, subresource)) => {
                Self::Exact { resource: resource.into(), subresource: subresource.into() }
            }
            None => Self::Exact { resource: text.into(), subresource: Str::default() },
        }
    }

    fn matches(&self, info: &RequestInfo) -> bool {
        match self {
            Self::All => true,
            Self::Exact { resource, subresource } => {
                *resource == info.resource && *subresource == info.subresource
            }
            Self::Subresource(subresource) => {
                !subresource.is_empty() && *subresource == info.subresource
            }
            Self::Below(resource) => *resource == info.resource,
        }
    }
}

impl UrlPattern {
    fn parse(text: &str) -> Self {
        match text {
            "*" => Self::All,
            text => match text.strip_suffix('*') {
                Some(prefix) => Self::Prefix(prefix.into()),
                None => Self::Exact(text.into()),
            },
        }
    }

    fn matches(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::Exact(url) => url == path,
            Self::Prefix(prefix) => path.starts_with(prefix.as_str()),
        }
    }
}
