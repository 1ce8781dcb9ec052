use super::*;

const POD: &str = concat!(
    r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"default","uid":"u1","#,
    r#""creationTimestamp":"2024-01-01T00:00:00Z","labels":{"app":"web","q\"":"\u00e9"},"#,
    r#""managedFields":[{"manager":"x","fieldsV1":{"f:a":{"}":{}}}}]},"#,
    r#""spec":{"containers":[{"name":"a","image":"b]\\"}],"nodeName":"n1","hostNetwork":true},"#,
    r#""status":{"phase":"Running","n":12,"x":null}}"#
);

fn wanted() -> FieldSet {
    let paths = ["metadata.name", "spec.nodeName", "status.phase", "spec.hostNetwork", "status.n"];
    FieldSet::new(paths.into_iter().chain(["status.x", "spec.containers", "spec.none", "none"]))
}

#[test]
fn scan_finds_the_parts_of_a_pod() {
    let found = scan(POD.as_bytes(), &wanted()).unwrap();
    assert!(POD[found.body_at..].starts_with(r#""metadata":{"name""#));
    assert!(POD[found.metadata.clone()].starts_with(r#"{"name""#));
    assert!(POD[found.metadata.clone()].ends_with("]}"));
    assert_eq!(found.labels, [("app".into(), "web".into()), ("q\"".into(), "é".into())]);
    let fields: Vec<Option<&str>> = found.fields.iter().map(Option::as_deref).collect();
    let expected = [
        Some("web"),
        Some("n1"),
        Some("Running"),
        Some("true"),
        Some("12"),
        None,
        None,
        None,
        None,
    ];
    assert_eq!(fields, expected);

    let mut without = POD.to_owned();
    without.replace_range(found.managed_fields.unwrap(), "");
    assert!(without.contains(r#""\u00e9"}},"spec""#), "{without}");
}

/// Stored bytes, order, bytes with revision 42 and their `metadata`.
#[test]
fn the_revision_goes_where_go_prints_it() {
    let cases = [
        (
            r#"{"kind":"A","apiVersion":"v1","metadata":{"name":"a","uid":"u","generation":1},"x":1}"#,
            KeyOrder::Struct,
            r#"{"kind":"A","apiVersion":"v1","metadata":{"name":"a","uid":"u","resourceVersion":"42","generation":1},"x":1}"#,
        ),
        (
            "{\"apiVersion\":\"a/v1\",\"kind\":\"A\",\"metadata\":{\"name\":\"a\",\"uid\":\"u\"}}\n",
            KeyOrder::Sorted,
            r#"{"apiVersion":"a/v1","kind":"A","metadata":{"name":"a","resourceVersion":"42","uid":"u"}}"#,
        ),
        (
            r#"{"metadata":{"name":"a"}}"#,
            KeyOrder::Struct,
            r#"{"metadata":{"name":"a","resourceVersion":"42"}}"#,
        ),
        (r#"{"metadata":{}}"#, KeyOrder::Sorted, r#"{"metadata":{"resourceVersion":"42"}}"#),
        (
            r#"{"a":1,"metadata":{"resourceVersion":"12345","uid":"u"},"z":2}"#,
            KeyOrder::Sorted,
            r#"{"a":1,"metadata":{"resourceVersion":"42","uid":"u"},"z":2}"#,
        ),
        (
            r#"{"metadata":{"resourceVersion":""}}"#,
            KeyOrder::Struct,
            r#"{"metadata":{"resourceVersion":"42"}}"#,
        ),
        (
            r#"{"kind":"A","data":1,"metadata":{"labels":{"a":"b"},"managedFields":[]}}"#,
            KeyOrder::Struct,
            r#"{"kind":"A","data":1,"metadata":{"resourceVersion":"42","labels":{"a":"b"},"managedFields":[]}}"#,
        ),
        (
            r#"{"metadata":{"managedFields":[1]}}"#,
            KeyOrder::Sorted,
            r#"{"metadata":{"managedFields":[1],"resourceVersion":"42"}}"#,
        ),
        (
            r#"{"metadata":{"labels":{},"managedFields":[1]},"spec":1}"#,
            KeyOrder::Sorted,
            r#"{"metadata":{"labels":{},"managedFields":[1],"resourceVersion":"42"},"spec":1}"#,
        ),
    ];
    for (stored, order, expected) in cases {
        let (bytes, found) = splice(stored.as_bytes(), 42, order, &wanted()).unwrap();
        assert_eq!(std::str::from_utf8(&bytes).unwrap(), expected);
        assert_eq!(insert_revision(stored.as_bytes(), 42, order).unwrap(), bytes);
        let mut again = scan(&bytes, &wanted()).unwrap();
        if let (Some(a), Some(b)) = (&found.managed_fields, &mut again.managed_fields) {
            // Either comma may go with it.
            assert_eq!(cut(expected, a), cut(expected, b));
            *b = a.clone();
        }
        assert_eq!(found, again, "{expected}");
    }
}

fn cut(text: &str, range: &Range<usize>) -> String {
    [&text[..range.start], &text[range.end..]].concat()
}

#[test]
fn scanning_a_non_object_is_an_error() {
    let cases = [
        "",
        "{",
        "[]",
        "{}x",
        r#"{"a"}"#,
        r#"{"a":}"#,
        r#"{"a":1"#,
        r#"{"a":"b"#,
        r#"{"a":"b\"#,
        r#"{"a":{"b":[}"#,
        r#"{"a": 1}"#,
        r#"{"metadata":1}"#,
        r#"{"metadata":{},"metadata":{}}"#,
        r#"{"metadata":{"resourceVersion":1}}"#,
    ];
    for text in cases {
        assert!(scan(text.as_bytes(), &wanted()).is_err(), "{text}");
    }
    let no_metadata = splice(br#"{"kind":"A"}"#, 1, KeyOrder::Struct, &wanted());
    assert_eq!(no_metadata, Err(ScanError::NoMetadata));
    let no_metadata = insert_revision(br#"{"kind":"A"}"#, 1, KeyOrder::Struct);
    assert_eq!(no_metadata, Err(ScanError::NoMetadata));
}

#[test]
fn every_truncation_is_an_error_and_never_a_panic() {
    for end in 0..POD.len() {
        assert!(splice(&POD.as_bytes()[..end], 1, KeyOrder::Struct, &wanted()).is_err());
    }
}
