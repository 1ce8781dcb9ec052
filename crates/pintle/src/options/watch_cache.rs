//! `--watch-cache`, `--watch-cache-sizes` and `--encoding-cache-size`.

use std::collections::HashMap;

use meta::{GroupResource, quantity::Quantity};

use crate::flags::Parsed;

/// As in kube-apiserver, sizes have no effect but for 0, which disables the cache.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WatchCache {
    off: bool,
    /// Named resources, and whether they bypass the watch cache.
    named: HashMap<GroupResource, bool>,
}

impl WatchCache {
    /// Adds errors and warnings with kube-apiserver's messages.
    pub(super) fn from_flags(
        parsed: &Parsed,
        errors: &mut Vec<String>,
        warnings: &mut Vec<String>,
    ) -> Self {
        let mut named = HashMap::new();
        let off = !parsed.bool("watch-cache");
        // Compat: the sizes are not validated without caches.
        let sizes = if off { Vec::new() } else { parsed.texts("watch-cache-sizes") };
        for text in sizes {
            let [resource, size] = text.split('#').collect::<Vec<_>>()[..] else {
                errors.push(format!("invalid value of watch cache size: {text}"));
                continue;
            };
            match size.parse::<i64>() {
                Ok(0) => drop(named.insert(parse(resource), true)),
                Ok(1..) => {
                    warnings.push(format!(
                        "Dropping watch-cache-size for {resource} - watchCache size is now dynamic"
                    ));
                    named.insert(parse(resource), false);
                }
                Ok(_) => errors.push(format!("watch cache size cannot be negative: {text}")),
                Err(_) => errors.push(format!("invalid size of watch cache size: {text}")),
            }
        }
        Self { off, named }
    }

    /// Whether a resource bypasses the watch cache.
    pub(crate) fn is_off(&self, resource: &GroupResource) -> bool {
        self.off || self.named.get(resource).copied().unwrap_or(false)
    }
}

/// `--encoding-cache-size`
pub(super) fn encoding_cache_bytes(parsed: &Parsed, errors: &mut Vec<String>) -> usize {
    let text = parsed.text("encoding-cache-size");
    let bytes = Quantity::parse(&text).ok().and_then(|size| usize::try_from(size.value()).ok());
    bytes.unwrap_or_else(|| {
        errors.push(format!("--encoding-cache-size must be a size such as 64Mi, or 0: {text:?}"));
        0
    })
}

/// `pods`, `deployments.apps`
fn parse(text: &str) -> GroupResource {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    GroupResource::new(group, resource)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags;

    #[test]
    fn a_size_of_zero_turns_a_cache_off() {
        let pods = GroupResource::new("", "pods");
        let deployments = GroupResource::new("apps", "deployments");
        let dropped = "Dropping watch-cache-size for pods - watchCache size is now dynamic";
        let cases: [(&[&str], bool, bool, &str); 7] = [
            (&[], false, false, ""),
            (&["--watch-cache=false", "--watch-cache-sizes=pods"], true, true, ""),
            (&["--watch-cache-sizes=deployments.apps#0,pods#7"], false, true, dropped),
            (&["--default-watch-cache-size=0"], false, false, ""),
            (
                &["--watch-cache-sizes=pods,pods#1#2"],
                false,
                false,
                "invalid value of watch cache size: pods; invalid value of watch cache size: pods#1#2",
            ),
            (
                &["--watch-cache-sizes=pods#-1"],
                false,
                false,
                "watch cache size cannot be negative: pods#-1",
            ),
            (
                &["--watch-cache-sizes=pods#x"],
                false,
                false,
                "invalid size of watch cache size: pods#x",
            ),
        ];
        for (args, no_pods, no_deployments, expected) in cases {
            let parsed = flags::parse(args.iter().map(ToString::to_string)).expect("flags");
            let (mut errors, mut warnings) = (Vec::new(), Vec::new());
            let cache = WatchCache::from_flags(&parsed, &mut errors, &mut warnings);
            errors.append(&mut warnings);
            assert_eq!(errors.join("; "), expected, "{args:?}");
            let off = (cache.is_off(&pods), cache.is_off(&deployments));
            assert_eq!(off, (no_pods, no_deployments), "{args:?}");
        }
    }
}
