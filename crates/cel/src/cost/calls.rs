//! What calls of the libraries can cost at most, and how large their results can get.

use meta::Str;

use crate::cost::estimate::{CallEstimate, Size};
use crate::cost::{CostEstimate, LIST, REGEX, STRUCT, TRAVERSAL};
use crate::types::Type;

/// What is known about an argument before it has a value.
pub(crate) struct Argument {
    pub(crate) path: Vec<Str>,
    pub(crate) ty: Type,
    pub(crate) size: Option<Size>,
    /// The number, if it is written out.
    pub(crate) literal: Option<i64>,
}

/// The patterns of named formats are at most this long.
const FORMAT_REGEX_SIZE: f64 = 128.0;

/// The names of formats are at most this long.
const FORMAT_SIZE: u64 = 64;

/// Finds the declared size at a path.
type SizeAt<'s> = dyn Fn(&[Str]) -> Option<Size> + 's;

/// None for functions that cel-go itself estimates.
pub(crate) fn call_estimate(
    function: &str,
    overload: &str,
    target: Option<&Argument>,
    args: &[Argument],
    size_at: &SizeAt<'_>,
) -> Option<CallEstimate> {
    let size = |arg: &Argument| arg.size.or_else(|| size_at(&arg.path)).unwrap_or(Size::UNKNOWN);
    if let Some(estimate) = extension(overload, target, args, &size) {
        return Some(estimate);
    }
    kubernetes(function, overload, target, args, &size, size_at)
}

fn costs(cost: CostEstimate) -> CallEstimate {
    CallEstimate { cost, size: None }
}

fn one() -> CallEstimate {
    costs(CostEstimate::fixed(1))
}

/// cel-go's extensions: sets and lists.
fn extension(
    overload: &str,
    target: Option<&Argument>,
    args: &[Argument],
    size: &dyn Fn(&Argument) -> Size,
) -> Option<CallEstimate> {
    let list = |factor: f64, size: Size| {
        let cost = size.cost(factor).plus(CostEstimate::fixed(1)).plus(CostEstimate::fixed(LIST));
        Some(CallEstimate { cost, size: Some(size) })
    };
    let number = |arg: &Argument, otherwise: u64| {
        arg.literal.map_or(otherwise, |int| u64::try_from(int).unwrap_or(0))
    };
    match (overload, target, args) {
        ("list_sets_contains_list" | "list_sets_intersects_list", _, [a, b]) => {
            Some(costs(size(a).times(size(b)).cost(1.0).plus(CostEstimate::fixed(1))))
        }
        ("list_sets_equivalent_list", _, [a, b]) => {
            Some(costs(size(a).times(size(b)).cost(2.0).plus(CostEstimate::fixed(1))))
        }
        ("list_slice", Some(target), [start, end]) => {
            let end = number(end, size(target).max);
            list(1.0, Size::fixed(end.wrapping_sub(number(start, 0))))
        }
        ("lists_range", None, [count]) => list(1.0, Size::fixed(number(count, u64::MAX))),
        ("list_reverse" | "list_flatten", Some(target), []) => list(1.0, size(target)),
        ("list_flatten_int", Some(target), [depth]) => {
            list(number(depth, u64::MAX) as f64, size(target))
        }
        ("list_distinct", Some(target), []) => list(2.0, size(target).times(size(target))),
        (overload, Some(target), []) if overload.ends_with("_sort") => {
            list(sort_factor(overload), size(target).times(size(target)))
        }
        (overload, Some(_), [keys]) if overload.ends_with("_sortByAssociatedKeys") => {
            list(sort_factor(overload), size(keys).times(size(keys)))
        }
        _ => None,
    }
}

fn sort_factor(overload: &str) -> f64 {
    let text = overload.starts_with("list_string_") || overload.starts_with("list_bytes_");
    if text { 2.0 + TRAVERSAL } else { 2.0 }
}

fn kubernetes(
    function: &str,
    overload: &str,
    target: Option<&Argument>,
    args: &[Argument],
    size: &dyn Fn(&Argument) -> Size,
    size_at: &SizeAt<'_>,
) -> Option<CallEstimate> {
    Some(match (function, target, args) {
        ("check", ..) => costs(CostEstimate::fixed(350_000)),
        ("fieldSelector" | "labelSelector", _, [selector]) => {
            let length = size(selector);
            let requirements = length.cost(0.5).scaled((LIST + STRUCT) as f64);
            costs(CostEstimate::fixed(LIST).plus(length.cost(TRAVERSAL)).plus(requirements))
        }
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
            match element(target) {
                Some((ty, path)) => {
                    let mut each = CostEstimate::fixed(1);
                    if matches!(ty, Type::String | Type::Bytes) {
                        let size = size_at(&path).unwrap_or(Size::UNKNOWN);
                        each = each.plus(size.cost(TRAVERSAL));
                    }
                    let count = size(target);
                    costs(CostEstimate { min: count.min, max: count.max }.times(each))
                }
                // A string.
                None => costs(size(target).cost(TRAVERSAL)),
            }
        }
        ("url" | "jsonpatch.escapeKey", _, [text]) => {
            CallEstimate { cost: size(text).cost(TRAVERSAL), size: Some(size(text)) }
        }
        ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
            CallEstimate { cost: size(target).cost(TRAVERSAL), size: Some(size(target)) }
        }
        ("replace", Some(target), [old, new, ..]) => CallEstimate {
            cost: size(target).cost(2.0 * TRAVERSAL),
            size: Some(replaced(size(target), size(old), size(new))),
        },
        ("split", Some(target), _) => {
            let max = match args.get(1).and_then(|limit| limit.literal) {
                Some(limit) => limit as u64,
                None => size(target).max,
            };
            CallEstimate {
                cost: size(target).cost(2.0 * TRAVERSAL),
                size: Some(Size { min: 0, max }),
            }
        }
        ("join", Some(target), _) => {
            let count = size(target);
            let mut total = Size::fixed(0);
            if let Some((_, path)) = element(target) {
                total = count.times(size_at(&path).unwrap_or(Size::UNKNOWN));
            }
            if let Some(separator) = args.first() {
                let between =
                    Size { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
                total = total.plus(size(separator).times(between));
            }
            CallEstimate { cost: total.cost(TRAVERSAL), size: Some(total) }
        }
        ("find" | "findAll", Some(target), [pattern, ..]) => {
            let text = size(target).plus(Size::fixed(1)).cost(TRAVERSAL);
            CallEstimate {
                cost: text.times(size(pattern).cost(REGEX)),
                size: Some(Size { min: 0, max: size(target).max }),
            }
        }
        (
            // Of a network, `ip` has no argument.
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver",
            _,
            [text, ..],
        ) => costs(size(text).cost(TRAVERSAL)),
        ("ip.isCanonical", _, [text, ..]) => costs(size(text).cost(2.0 * TRAVERSAL)),
        (
            "masked"
            | "prefixLength"
            | "family"
            | "ip"
            | "serviceAccount"
            | "path"
            | "group"
            | "resource"
            | "subresource"
            | "namespace"
            | "name"
            | "allowed"
            | "reason"
            | "error"
            | "errored"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "format.named"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery",
            ..,
        ) => one(),
        ("containsIP", _, [other, ..]) => {
            let mut cost = ADDRESS.plus(ADDRESS).cost(TRAVERSAL);
            if overload == "cidr_contains_ip_string" {
                cost = cost.plus(size(other).cost(TRAVERSAL));
            }
            costs(cost)
        }
        ("containsCIDR", _, [other, ..]) => {
            let mut cost = ADDRESS.plus(ADDRESS).cost(TRAVERSAL).plus(ADDRESS.cost(TRAVERSAL));
            cost = cost.plus(CostEstimate::fixed(1));
            if overload == "cidr_contains_cidr_string" {
                cost = cost.plus(size(other).cost(TRAVERSAL));
            }
            costs(cost)
        }
        ("validate", _, [text, ..]) => {
            costs(size(text).cost(TRAVERSAL).scaled(FORMAT_REGEX_SIZE * REGEX))
        }
        ("_==_", _, [left, right]) if left.ty.name() == right.ty.name() => {
            return equality(left, right);
        }
        _ => return None,
    })
}

/// The bytes of an address.
const ADDRESS: Size = Size { min: 4, max: 16 };

fn equality(left: &Argument, right: &Argument) -> Option<CallEstimate> {
    match &left.ty {
        Type::Opaque("net.IP" | "net.CIDR") => Some(one()),
        Type::Object(object) if object.decl.is_none() => match object.name.as_str() {
            "kubernetes.NamedFormat" => {
                Some(costs(Size { min: 1, max: FORMAT_SIZE }.cost(TRAVERSAL)))
            }
            "kubernetes.URL" => {
                let max = right.size.map_or(1, |size| size.max);
                Some(costs(Size { min: 1, max }.cost(TRAVERSAL)))
            }
            _ => Some(one()),
        },
        _ => None,
    }
}

/// Type and path of the elements of a list (or the keys of a map).
fn element(list: &Argument) -> Option<(Type, Vec<Str>)> {
    let ty = match &list.ty {
        Type::List(items) => (**items).clone(),
        Type::Map(entry) => entry.0.clone(),
        Type::Optional(of) => (**of).clone(),
        _ => return None,
    };
    let mut path = list.path.clone();
    if !path.is_empty() {
        path.push(Str::new_static("@items"));
    }
    Some((ty, path))
}

/// How long a text can be after a replacement.
fn replaced(text: Size, old: Size, new: Size) -> Size {
    let (mut count, mut kept) = (Size::fixed(0), Size::fixed(0));
    if old.min == 0 {
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if new.max <= old.min {
        kept.max = text.max;
    } else {
        count.max = (text.max as f64 / old.min as f64).ceil() as u64;
    }
    if old.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if old.max <= new.min {
        kept.min = text.min;
    } else {
        count.min = (text.min as f64 / old.max as f64).ceil() as u64;
    }
    count.times(new).plus(kept)
}
