//! Selectors come from clients and are matched against every object: neither costs more than in proportion to its size.

use meta::{
    Str, Value,
    growth::assert_linear,
    selector::{FieldSelector, LabelSelector},
    value,
};
use proptest::prelude::*;

type Make = fn(usize) -> String;

#[test]
fn selectors_are_parsed_and_matched_in_linear_time() {
    let texts: [(&str, Make); 7] = [
        ("values", |n| format!("a in ({})", joined(n, "v"))),
        ("equal values", |n| format!("a notin ({})", vec!["v"; n].join(","))),
        ("keys", |n| joined(n, "k")),
        ("equal keys", |n| vec!["k=v"; n].join(",")),
        ("absent keys", |n| vec!["!k"; n].join(",")),
        ("spaces", |n| format!("a{}=b", " ".repeat(n))),
        ("parentheses", |n| format!("a in {}", "(".repeat(n))),
    ];
    let labels: Vec<(Str, Str)> =
        (0..200).map(|at| (Str::from(format!("k{at:06}")), Str::from("v"))).collect();
    for (name, make) in texts {
        assert_linear(name, 1_500, make, |text| drop(LabelSelector::parse(text)));
        let parsed =
            |n| LabelSelector::parse(&make(n)).unwrap_or_else(|_| LabelSelector::nothing());
        assert_linear(name, 1_500, parsed, |selector| {
            std::hint::black_box(selector.matches(&labels));
        });
    }
    let terms: [(&str, Make); 3] = [
        ("terms", |n| vec!["metadata.name=a"; n].join(",")),
        ("escapes", |n| format!("metadata.name={}", r"\,".repeat(n))),
        ("one text", |n| format!("metadata.name={}", "x".repeat(20 * n))),
    ];
    for (name, make) in terms {
        assert_linear(name, 1_500, make, |text| drop(FieldSelector::parse(text)));
    }
}

#[test]
fn selectors_of_objects_are_read_in_linear_time() {
    let expressions = |n: usize| {
        let values: Vec<Value> = (0..n).map(|at| Value::from(format!("v{at}"))).collect();
        let one = value!({"key": "a", "operator": "In", "values": (values)});
        let more = vec![value!({"key": "b", "operator": "Exists"}); n];
        let labels = (0..n).map(|at| (Str::from(format!("k{at}")), Value::from("v"))).collect();
        let expressions: Vec<Value> = more.into_iter().chain([one]).collect();
        value!({"matchLabels": (Value::Object(labels)), "matchExpressions": (expressions)})
    };
    assert_linear("matchExpressions", 500, expressions, |selector| {
        drop(LabelSelector::from_object(Some(selector)));
    });
}

/// 6 000 values were compared with the label of each of 10 000 objects.
#[test]
fn many_values_are_searched_and_not_compared_one_by_one() {
    let labels = [(Str::from("a"), Str::from("v009999"))];
    let in_order = format!("a in ({})", joined(10_000, "v"));
    let reversed: Vec<Value> =
        (0..10_000).rev().map(|at| Value::from(format!("v{at:06}"))).collect();
    let reversed = value!({"matchExpressions": [
        {"key": "a", "operator": "In", "values": (reversed)}]});
    let selectors = [
        LabelSelector::parse(&in_order).expect("valid"),
        LabelSelector::from_object(Some(&reversed)).expect("valid"),
    ];
    for selector in selectors {
        assert!(selector.matches(&labels));
        assert!(!selector.matches(&[(Str::from("a"), Str::from("none"))]));
        let matches = |times: &usize| {
            for _ in 0..*times {
                std::hint::black_box(selector.matches(&labels));
            }
        };
        let cost = meta::growth::cpu_time_of(|| matches(&1_000));
        assert!(cost < std::time::Duration::from_millis(100), "{cost:?}");
    }
}

/// 5 000 requirements were looked up in the labels of each object: now it is the labels that are looked up.
#[test]
fn labels_are_looked_up_in_many_requirements() {
    let labels = [(Str::from("a"), Str::from("v")), (Str::from("b"), Str::from("7"))];
    let absent: Vec<String> = (0..5_000).map(|at| format!("!k{at}")).collect();
    let unequal: Vec<String> = (0..5_000).map(|at| format!("a!=v{at}")).collect();
    let numbers: Vec<String> = (0..5_000).map(|at| format!("b<{}", at + 8)).collect();
    for (text, matches) in [
        (absent.join(","), true),
        (unequal.join(","), true),
        (numbers.join(","), true),
        (format!("{},b!=7", unequal.join(",")), false),
        (format!("{},c", absent.join(",")), false),
    ] {
        let selector = LabelSelector::parse(&text).expect("valid");
        assert_eq!(selector.matches(&labels), matches);
        let cost = meta::growth::cpu_time_of(|| {
            for _ in 0..10_000 {
                std::hint::black_box(selector.matches(&labels));
            }
        });
        // One by one it were 50 million comparisons.
        assert!(cost < std::time::Duration::from_millis(500), "{cost:?}");
    }
}

fn joined(n: usize, prefix: &str) -> String {
    (0..n).map(|at| format!("{prefix}{at:06}")).collect::<Vec<_>>().join(",")
}

fn requirement() -> impl Strategy<Value = String> {
    ("[a-e]", 0u8..9, "[0-4]", "[0-4]").prop_map(|(key, operator, value, other)| match operator {
        0 => key,
        1 => format!("!{key}"),
        2 => format!("{key}={value}"),
        3 => format!("{key}=={value}"),
        4 => format!("{key}!={value}"),
        5 => format!("{key} in ({value},{other})"),
        6 => format!("{key} notin ({value},{other})"),
        7 => format!("{key}>{value}"),
        _ => format!("{key}<{value}"),
    })
}

proptest! {
    /// Of few requirements, and of the same ones so often that labels are looked up in them, or that they are
    /// merged into one.
    #[test]
    fn many_requirements_match_what_each_of_them_matches(
        few in proptest::collection::vec(requirement(), 1..4),
        others in 0usize..30,
        repeated in 0usize..30,
        labels in proptest::collection::btree_map("[a-f]", "[0-4x]", 0..5),
    ) {
        let labels: Vec<(Str, Str)> =
            labels.into_iter().map(|(key, value)| (Str::from(key), Str::from(value))).collect();
        let mut all = few.clone();
        all.extend(std::iter::repeat_n(few[0].clone(), repeated));
        all.extend((0..others).map(|at| format!("!other{at}")));
        let selector = LabelSelector::parse(&all.join(",")).unwrap();
        let one_by_one = selector.requirements().iter().all(|requirement| {
            let label = labels.iter().find(|(key, _)| key == requirement.key());
            requirement.matches(label.map(|(_, value)| value.as_str()))
        });
        prop_assert_eq!(selector.matches(&labels), one_by_one);
        let pairs = labels.iter().map(|(key, value)| (key.clone(), meta::Value::from(value.as_str())));
        let object = value!({"metadata": {"labels": (meta::Value::Object(pairs.collect()))}});
        prop_assert_eq!(selector.matches_object(&object), one_by_one);
    }
}
