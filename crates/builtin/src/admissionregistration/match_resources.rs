//! What policies and webhooks are called for, where they don't say it.

use meta::Map;

use crate::defaulting::SetDefault;

pub(super) fn default_match_resources(resources: &mut Map) {
    default_selectors(resources);
    for rules in ["resourceRules", "excludeResourceRules"] {
        default_rules(resources, rules);
    }
}

/// Everything is matched, in whatever version it is written.
pub(super) fn default_selectors(matcher: &mut Map) {
    matcher.set_default("matchPolicy", "Equivalent");
    matcher.set_default("namespaceSelector", Map::new());
    matcher.set_default("objectSelector", Map::new());
}

pub(super) fn default_rules(owner: &mut Map, rules: &str) {
    for rule in owner.each(rules) {
        rule.set_default("scope", "*");
    }
}
