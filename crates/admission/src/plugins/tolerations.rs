//! Lists of tolerations, where one may cover another.

use meta::Value;

/// Two lists as one, without those that another covers.
pub(crate) fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut merged: Vec<&Value> = Vec::with_capacity(all.len());
    for (at, toleration) in all.iter().enumerate() {
        // Of equal ones the first stays.
        let covered = merged.iter().any(|other| covers(other, toleration))
            || all[at + 1..].iter().any(|o| !is_equal(o, toleration) && covers(o, toleration));
        if !covered {
            merged.push(toleration);
        }
    }
    merged.into_iter().cloned().collect()
}

/// Whether each of the tolerations is allowed by one of a list; an empty list allows all.
pub(crate) fn are_allowed(tolerations: &[Value], allowed: &[Value]) -> bool {
    allowed.is_empty()
        || tolerations
            .iter()
            .all(|toleration| allowed.iter().any(|allowed| covers(allowed, toleration)))
}

fn is_equal(a: &Value, b: &Value) -> bool {
    let same = |field| a.str_at(&[field]) == b.str_at(&[field]);
    same("key")
        && same("operator")
        && same("value")
        && same("effect")
        && a.i64_at(&["tolerationSeconds"]) == b.i64_at(&["tolerationSeconds"])
}

/// Whether `wide` tolerates everything that `narrow` does.
fn covers(wide: &Value, narrow: &Value) -> bool {
    if is_equal(wide, narrow) {
        return true;
    }
    let (of_wide, of_narrow) = (|field| wide.str_at(&[field]), |field| narrow.str_at(&[field]));
    // Exists without a key is for all keys and values.
    let any_key = of_wide("key").is_empty() && of_wide("operator") == "Exists";
    if of_narrow("key") != of_wide("key") && !any_key {
        return false;
    }
    if of_narrow("effect") != of_wide("effect") && !of_wide("effect").is_empty() {
        return false;
    }
    if let ("NoExecute", Some(wide)) = (of_wide("effect"), wide.i64_at(&["tolerationSeconds"]))
        && narrow.i64_at(&["tolerationSeconds"]).is_none_or(|narrow| narrow > wide)
    {
        return false;
    }
    match of_wide("operator") {
        "Equal" | "" => of_narrow("operator") == "Equal" && of_narrow("value") == of_wide("value"),
        // Compat: upstream does not know Lt and Gt here.
        operator => operator == "Exists",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::yaml;

    #[test]
    fn a_wider_toleration_takes_the_place_of_narrower_ones() {
        let cases = [
            ("[]", "[]", "[]"),
            ("[{key: a}]", "[]", "[{key: a}]"),
            (
                "[{key: a, operator: Exists}]",
                "[{key: a, operator: Exists}]",
                "[{key: a, operator: Exists}]",
            ),
            (
                "[{key: a, operator: Equal, value: b}]",
                "[{key: a, operator: Exists}]",
                "[{key: a, operator: Exists}]",
            ),
            (
                "[{operator: Exists}]",
                "[{key: a, operator: Exists, effect: NoExecute}]",
                "[{operator: Exists}]",
            ),
            (
                "[{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 10}]",
                "[{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 20}]",
                "[{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 20}]",
            ),
            (
                "[{key: a, operator: Exists, effect: NoExecute}]",
                "[{key: a, operator: Exists, effect: NoSchedule}]",
                "[{key: a, operator: Exists, effect: NoExecute}, {key: a, operator: Exists, effect: NoSchedule}]",
            ),
        ];
        for (first, second, expected) in cases {
            let (first, second) = (yaml(first), yaml(second));
            let merged = merge(first.as_array().unwrap(), second.as_array().unwrap());
            assert_eq!(Value::from(merged), yaml(expected));
        }
    }

    #[test]
    fn every_toleration_has_to_be_allowed() {
        let cases = [
            ("[{key: a, operator: Exists}]", "[]", true),
            ("[]", "[{key: a, operator: Exists}]", true),
            ("[{key: a, operator: Equal, value: b}]", "[{key: a, operator: Exists}]", true),
            ("[{key: a, operator: Exists}]", "[{key: a, operator: Equal, value: b}]", false),
            (
                "[{key: a, operator: Exists}, {key: b, operator: Exists}]",
                "[{key: a, operator: Exists}]",
                false,
            ),
        ];
        for (tolerations, allowed, expected) in cases {
            let (tolerations, allowed) = (yaml(tolerations), yaml(allowed));
            let (tolerations, allowed) =
                (tolerations.as_array().unwrap(), allowed.as_array().unwrap());
            assert_eq!(are_allowed(tolerations, allowed), expected, "{tolerations:?}");
        }
    }
}
