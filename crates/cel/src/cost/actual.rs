//! What a call costs when it runs, by its function and overload and the sizes of what it got.

use crate::cost::{LIST, REGEX, STRUCT, TRAVERSAL};
use crate::kubernetes_value::KubernetesValue;
use crate::value::Val;

/// How a call's cost is counted; chosen when the call is planned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CallCost {
    One,
    /// Walking through the first argument this many times (tenths of a character).
    Walk(u8),
    /// As `Walk(1)`, by cel-go itself: the size of an optional is that of its value.
    WalkStandard,
    /// Walking through the result twice.
    WalkResult,
    /// Comparing element by element until the shorter ends.
    Shorter,
    Equal,
    SizeOfSecond,
    Sum,
    Matches,
    Contains,
    /// Everything in the first argument.
    Deep,
    ContainsIp {
        text: bool,
    },
    ContainsCidr {
        text: bool,
    },
    Validate,
    Selector,
    Authorize,
    Sets(u8),
    ListOfResult,
    Flatten,
    /// Comparing the elements of this argument with each other.
    SelfCompare(u8),
}

/// The overload is empty if it is only known at run time.
pub(crate) fn call_cost_of(function: &str, overload: &str) -> CallCost {
    match overload {
        "list_sets_contains_list" | "list_sets_intersects_list" => return CallCost::Sets(1),
        "list_sets_equivalent_list" => return CallCost::Sets(2),
        "list_slice" | "lists_range" | "list_reverse" => return CallCost::ListOfResult,
        "list_flatten" | "list_flatten_int" => return CallCost::Flatten,
        "list_distinct" => return CallCost::SelfCompare(0),
        _ if overload.starts_with("list_") && overload.ends_with("_sort") => {
            return CallCost::SelfCompare(0);
        }
        _ if overload.ends_with("_sortByAssociatedKeys") => return CallCost::SelfCompare(1),
        _ => {}
    }
    match function {
        "check" => return CallCost::Authorize,
        "fieldSelector" | "labelSelector" => return CallCost::Selector,
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => return CallCost::Deep,
        "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "jsonpatch.escapeKey"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver" => {
            return CallCost::Walk(1);
        }
        "ip" if overload != "cidr_ip" => return CallCost::Walk(1),
        "replace" | "split" | "ip.isCanonical" => return CallCost::Walk(2),
        "join" => return CallCost::WalkResult,
        "find" | "findAll" => return CallCost::Matches,
        "containsIP" => {
            return CallCost::ContainsIp { text: overload == "cidr_contains_ip_string" };
        }
        "containsCIDR" => {
            return CallCost::ContainsCidr { text: overload == "cidr_contains_cidr_string" };
        }
        "validate" => return CallCost::Validate,
        "_==_" => return CallCost::Equal,
        _ => {}
    }
    match overload {
        "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
        | "strings_quote" | "string_format" => CallCost::WalkStandard,
        "in_list" => CallCost::SizeOfSecond,
        "less_string"
        | "greater_string"
        | "less_equals_string"
        | "greater_equals_string"
        | "less_bytes"
        | "greater_bytes"
        | "less_equals_bytes"
        | "greater_equals_bytes"
        | "not_equals" => CallCost::Shorter,
        "add_string" | "add_bytes" => CallCost::Sum,
        "matches_string" => CallCost::Matches,
        "contains_string" => CallCost::Contains,
        _ => CallCost::One,
    }
}

impl CallCost {
    /// What the call cost. An argument that failed is none, and so is a result.
    pub(crate) fn of(
        self,
        first: Option<&Val<'_>>,
        second: Option<&Val<'_>>,
        result: Option<&Val<'_>>,
    ) -> u64 {
        // The factors come in steps, as floats are not associative.
        let walk = |size: u64| (size as f64 * TRAVERSAL).ceil() as u64;
        match self {
            Self::One => 1,
            Self::Walk(times) => {
                (size_of(first) as f64 * f64::from(times) * TRAVERSAL).ceil() as u64
            }
            Self::WalkStandard => walk(optional_size_of(first)),
            Self::WalkResult => (size_of(result) as f64 * 2.0 * TRAVERSAL).ceil() as u64,
            Self::Equal if matches!(first, Some(Val::Kubernetes(_))) => 1,
            Self::Equal | Self::Shorter => {
                walk(optional_size_of(first).min(optional_size_of(second)))
            }
            Self::SizeOfSecond => optional_size_of(second),
            Self::Sum => walk(optional_size_of(first) + optional_size_of(second)),
            Self::Matches => {
                let text = ((1.0 + size_of(first) as f64) * TRAVERSAL).ceil() as u64;
                let pattern = (size_of(second) as f64 * REGEX).ceil() as u64;
                text.saturating_mul(pattern)
            }
            Self::Contains => walk(size_of(first)).saturating_mul(walk(size_of(second))),
            Self::Deep => first.map_or(1, deep),
            Self::ContainsIp { text } => {
                let compare = walk(size_of(first) + size_of(first));
                compare + if text { walk(size_of(second)) } else { 0 }
            }
            Self::ContainsCidr { text } => {
                let compare = walk(size_of(first) + size_of(first));
                let mask = walk(size_of(first)) + 1;
                compare + mask + if text { walk(size_of(second)) } else { 0 }
            }
            Self::Validate => match first {
                Some(Val::Kubernetes(value)) => match &**value {
                    KubernetesValue::Format(format) => {
                        let text = ((1.0 + size_of(second) as f64) * TRAVERSAL).ceil() as u64;
                        text * (format.regex_size as f64 * REGEX).ceil() as u64
                    }
                    _ => 1,
                },
                _ => 1,
            },
            Self::Selector => {
                let size = size_of(second);
                let requirements = (size as f64 * 0.5).ceil();
                LIST + walk(size) + (requirements * (LIST + STRUCT) as f64).ceil() as u64
            }
            Self::Authorize => 350_000,
            Self::Sets(factor) => {
                1 + size_of(first).saturating_mul(size_of(second)) * u64::from(factor)
            }
            Self::ListOfResult => size_of(result) + 1 + LIST,
            Self::Flatten => {
                let depth = match second {
                    Some(Val::Int(depth)) => *depth as f64,
                    _ => 1.0,
                };
                // Compat: a negative depth wraps around.
                ((size_of(first) as f64 * depth) as i64 as u64).wrapping_add(1 + LIST)
            }
            Self::SelfCompare(at) => {
                let Some(Val::List(list)) = (if at == 0 { first } else { second }) else {
                    return 1;
                };
                let text = matches!(list.get(0), Some(Ok(Val::String(_) | Val::Bytes(_))));
                let factor = if text { 2.0 + TRAVERSAL } else { 2.0 };
                let size = list.len() as u64;
                (size.saturating_mul(size) as f64 * factor) as u64 + 1 + LIST
            }
        }
    }
}

fn size_of(value: Option<&Val<'_>>) -> u64 {
    value.and_then(Val::size).unwrap_or(1)
}

/// As cel-go itself counts: an optional is as large as its value.
fn optional_size_of(value: Option<&Val<'_>>) -> u64 {
    match value {
        Some(Val::Optional(Some(inner))) => optional_size_of(Some(inner)),
        value => size_of(value),
    }
}

/// Every element of every element.
fn deep(value: &Val<'_>) -> u64 {
    match value {
        Val::String(text) => (text.as_str().len() as f64 * TRAVERSAL) as u64,
        Val::Bytes(bytes) => (bytes.len() as f64 * TRAVERSAL) as u64,
        Val::List(list) => list.iter().map(|item| item.as_ref().map_or(1, deep)).sum(),
        Val::Map(map) => map
            .keys()
            .iter()
            .map(|key| {
                let value = map.find(key);
                deep(key) + value.ok().flatten().as_ref().map_or(1, deep)
            })
            .sum(),
        _ => 1,
    }
}
