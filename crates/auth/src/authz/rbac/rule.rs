//! One rule of a role: what it allows, and what it covers of another.

use meta::{Str, Value, authorization::Attributes, field::quote};

/// A `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    pub verbs: Vec<Str>,
    pub api_groups: Vec<Str>,
    pub resources: Vec<Str>,
    pub resource_names: Vec<Str>,
    pub non_resource_urls: Vec<Str>,
}

pub(super) const ALL: &str = "*";

impl Rule {
    /// A rule as it is written in a role.
    pub fn from_object(rule: &Value) -> Self {
        let texts = |field| {
            let items = rule.items_at(&[field]).iter();
            items.filter_map(Value::as_str).map(Str::new).collect()
        };
        Self {
            verbs: texts("verbs"),
            api_groups: texts("apiGroups"),
            resources: texts("resources"),
            resource_names: texts("resourceNames"),
            non_resource_urls: texts("nonResourceURLs"),
        }
    }

    /// The rules of a role.
    pub fn all_of(role: &Value) -> Vec<Self> {
        role.items_at(&["rules"]).iter().map(Self::from_object).collect()
    }

    /// As it is written in a role.
    pub fn to_object(&self) -> Value {
        let mut object = Value::object();
        let fields = [
            ("verbs", &self.verbs),
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ];
        for (field, texts) in fields {
            if !texts.is_empty() {
                object.set_at(&[field], texts.clone());
            }
        }
        object
    }

    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if !has_or_all(&self.verbs, attributes.verb) {
            return false;
        }
        if !attributes.is_resource {
            return self.non_resource_urls.iter().any(|url| url_covers(url, attributes.path));
        }
        has_or_all(&self.api_groups, attributes.group)
            && self
                .resources
                .iter()
                .any(|known| names(known, attributes.resource, attributes.subresource))
            && (self.resource_names.is_empty() || has(&self.resource_names, attributes.name))
    }

    /// Whether it allows all that `part` does, which has at most one of each.
    fn covers(&self, part: &Self) -> bool {
        let names_covered = self.resource_names.is_empty()
            || (!part.resource_names.is_empty()
                && part.resource_names.iter().all(|name| has(&self.resource_names, name)));
        part.verbs.iter().all(|verb| has_or_all(&self.verbs, verb))
            && part.api_groups.iter().all(|group| has_or_all(&self.api_groups, group))
            && part
                .resources
                .iter()
                .all(|resource| self.resources.iter().any(|known| resource_covers(known, resource)))
            && names_covered
            && part
                .non_resource_urls
                .iter()
                .all(|url| self.non_resource_urls.iter().any(|known| url_covers(known, url)))
    }

    /// The same in parts that have at most one verb, group, resource and name each.
    fn parts(&self) -> Vec<Self> {
        let mut parts = Vec::new();
        let one = |text: &Str| vec![text.clone()];
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let part = Self {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        ..Self::default()
                    };
                    if self.resource_names.is_empty() {
                        parts.push(part);
                        continue;
                    }
                    let named = self.resource_names.iter();
                    parts.extend(
                        named.map(|name| Self { resource_names: one(name), ..part.clone() }),
                    );
                }
            }
        }
        for url in &self.non_resource_urls {
            for verb in &self.verbs {
                parts.push(Self {
                    verbs: one(verb),
                    non_resource_urls: one(url),
                    ..Self::default()
                });
            }
        }
        parts
    }

    /// Compat: how error messages write a rule.
    pub(super) fn compact_text(&self) -> String {
        let fields = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let given = fields.iter().filter(|(_, texts)| !texts.is_empty());
        let given: Vec<String> =
            given.map(|(name, texts)| format!("{name}:{}", quoted(texts))).collect();
        format!("{{{}}}", given.join(", "))
    }
}

/// What of `wanted` none of the rules in `owned` covers, in small parts.
pub fn missing(owned: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let parts = wanted.iter().flat_map(Rule::parts);
    parts.filter(|part| !owned.iter().any(|rule| rule.covers(part))).collect()
}

/// Parts that differ in their verbs only become one again.
#[cfg(test)]
pub(super) fn compact(rules: Vec<Rule>) -> Vec<Rule> {
    let mut compacted: Vec<Rule> = Vec::new();
    for rule in rules {
        let same = |have: &&mut Rule| {
            rule.non_resource_urls.is_empty()
                && have.non_resource_urls.is_empty()
                && have.api_groups == rule.api_groups
                && have.resources == rule.resources
                && have.resource_names == rule.resource_names
        };
        match compacted.iter_mut().find(same) {
            Some(have) => have.verbs.extend(rule.verbs),
            None => compacted.push(rule),
        }
    }
    compacted
}

/// Whether a resource in a rule (`pods`, `pods/log`, `*/scale`, `*`) means this one.
fn names(known: &str, resource: &str, subresource: &str) -> bool {
    if known == ALL {
        return true;
    }
    if subresource.is_empty() {
        return known == resource;
    }
    split(known) == (resource, subresource) || split(known) == (ALL, subresource)
}

/// Whether a resource in a rule covers another. Unlike in a request, an empty subresource is one.
fn resource_covers(known: &str, resource: &str) -> bool {
    let of_any = |(_, subresource): (&str, &str)| known.strip_prefix("*/") == Some(subresource);
    known == ALL || known == resource || resource.split_once('/').is_some_and(of_any)
}

fn split(resource: &str) -> (&str, &str) {
    resource.split_once('/').unwrap_or((resource, ""))
}

fn has(texts: &[Str], wanted: &str) -> bool {
    texts.iter().any(|text| text == wanted)
}

fn has_or_all(texts: &[Str], wanted: &str) -> bool {
    texts.iter().any(|text| text == ALL || text == wanted)
}

/// `/healthz`, or `/healthz/*` for all that begins like it.
fn url_covers(known: &str, path: &str) -> bool {
    known == path || (known.ends_with('*') && path.starts_with(known.trim_end_matches('*')))
}

/// Compat: Go's `%q` of a list.
pub(crate) fn quoted(texts: &[Str]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quote(text)).collect();
    format!("[{}]", texts.join(" "))
}
