//! Against bytes that the real server has stored.

use super::*;

/// The codec of the resource that a key belongs to.
fn codec_of(definitions: &Definitions, schema: &Arc<Schema>, key: &str) -> Arc<dyn StorageCodec> {
    let mut resources = definitions.resources.iter().filter(|facts| {
        let storage = facts.storage.as_ref();
        storage.is_some_and(|storage| key.starts_with(&format!("{}/", storage.prefix)))
            && facts.on_by_default
    });
    let facts = resources.next().unwrap_or_else(|| panic!("no resource stores {key}"));
    let storage = facts.storage.as_ref().expect("just seen");
    let gvk = storage.version.with_kind(&facts.kind.kind);
    let (gvk, ty) = match definitions.type_of(&gvk) {
        Some(ty) if gvk.group != "apiextensions.k8s.io" => (gvk, ty),
        _ => (facts.kind.clone(), facts.type_id),
    };
    StorageFormats::new(definitions, schema, StorageFormat::Protobuf, &crate::strategies::crd())
        .codec(facts, &gvk, ty)
}

fn bytes_of(hex: &str) -> Bytes {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(digits).collect::<Vec<_>>().into()
}

#[test]
fn what_the_real_server_stored_is_read_and_written_byte_for_byte() {
    let mut definitions = Definitions::load();
    let schema = Arc::new(std::mem::take(&mut definitions.schema));
    for line in include_str!("golden.tsv").lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [key, hex, served] = columns[..] else { panic!("three columns: {line}") };
        let (key, only_read) = key.strip_prefix('~').map_or((key, false), |key| (key, true));
        let codec = codec_of(&definitions, &schema, key);
        let stored = bytes_of(hex);

        let json = codec.decode(&stored).unwrap_or_else(|error| panic!("{key}: {error}"));
        let tree = |json: &[u8]| codec::json::decode_any(json, LENIENT).expect("JSON").value;
        let mut expected = tree(served.as_bytes());
        expected.remove_at(&["metadata", "resourceVersion"]);
        let mut object = tree(&json);
        // One is stored in another version than it was read in; they differ in nothing else.
        expected.set_at(&["apiVersion"], object.str_at(&["apiVersion"]).to_owned());
        assert_eq!(object, expected, "{key}");
        if only_read {
            continue;
        }

        object.remove_at(&["metadata", "resourceVersion"]);
        let again = codec.encode(&object, &json).unwrap_or_else(|error| panic!("{key}: {error}"));
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&again), text(&stored), "{key}");
        assert_eq!(again, stored, "{key}");
    }
}

#[test]
fn other_forms_and_versions_can_be_read() {
    let mut definitions = Definitions::load();
    let schema = Arc::new(std::mem::take(&mut definitions.schema));
    let cases = [
        (
            "configmaps/a/b",
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b","creationTimestamp":null},"data":{"k":"v"}}"#,
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b"},"data":{"k":"v"}}"#,
        ),
        (
            "configmaps/a/b",
            "apiVersion: v1\ndata:\n  k: v\nkind: ConfigMap\nmetadata:\n  name: b\n",
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b"},"data":{"k":"v"}}"#,
        ),
        (
            "events/a/b",
            r#"{"kind":"Event","apiVersion":"events.k8s.io/v1","metadata":{"name":"b"},"note":"n"}"#,
            r#""message":"n""#,
        ),
    ];
    for (key, stored, expected) in cases {
        let codec = codec_of(&definitions, &schema, key);
        let json = codec.decode(&Bytes::from(stored)).unwrap_or_else(|error| panic!("{error}"));
        let json = String::from_utf8_lossy(&json).into_owned();
        assert!(json.contains(expected), "{json}");
    }
    let codec = codec_of(&definitions, &schema, "configmaps/a/b");
    for broken in ["", "k8s\0", "{", "\u{0}", r#"{"kind":"Other","apiVersion":"v1"}"#] {
        assert!(codec.decode(&Bytes::from(broken)).is_err(), "{broken:?}");
    }
}

/// kube-apiserver sets some defaults when it reads only: what is stored has none of them, and what clients get has.
#[test]
fn defaults_of_what_the_server_sets_itself_are_not_stored() {
    let mut definitions = Definitions::load();
    let schema = Arc::new(std::mem::take(&mut definitions.schema));
    let cases = [
        (
            "persistentvolumeclaims/a/b",
            r#"{"kind":"PersistentVolumeClaim","apiVersion":"v1","metadata":{"name":"b"},"spec":{"volumeMode":"Block"},"status":{}}"#,
            "Pending",
        ),
        (
            "jobs/a/b",
            r#"{"kind":"Job","apiVersion":"batch/v1","metadata":{"name":"b"},"spec":{"template":{"metadata":{"labels":{"l":"v"}},"spec":{"containers":[{"name":"c"}]}}},"status":{}}"#,
            r#""metadata":{"name":"b","labels":{"l":"v"}}"#,
        ),
        (
            "horizontalpodautoscalers/a/b",
            r#"{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2","metadata":{"name":"b"},"spec":{"scaleTargetRef":{"kind":"D","name":"d"},"maxReplicas":1,"behavior":{"scaleUp":{"selectPolicy":"Min"}}},"status":{"desiredReplicas":0,"currentMetrics":null}}"#,
            r#""scaleDown":{"selectPolicy":"Max""#,
        ),
    ];
    for form in [StorageFormat::Protobuf, StorageFormat::Own] {
        for (key, object, default) in cases {
            let codec = if form == StorageFormat::Own {
                let facts = definitions.resources.iter().find(|facts| {
                    let prefix = facts.storage.as_ref().map(|storage| &*storage.prefix);
                    facts.on_by_default && prefix == key.split('/').next()
                });
                let facts = facts.expect("a resource stores it");
                let storage = facts.storage.as_ref().expect("just seen");
                let gvk = storage.version.with_kind(&facts.kind.kind);
                let ty = definitions.type_of(&gvk).expect("the kind has a type");
                StorageFormats::new(&definitions, &schema, form, &crate::strategies::crd())
                    .codec(facts, &gvk, ty)
            } else {
                codec_of(&definitions, &schema, key)
            };
            let json = Bytes::from(object);
            let tree = codec::json::decode_any(object.as_bytes(), LENIENT).expect("JSON").value;
            let stored = codec.encode(&tree, &json).expect("it can be stored");
            let read_back = codec.read_back(&tree, &json).expect("it is read back");
            let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
            assert!(text(&read_back).contains(default), "{}", text(&read_back));
            assert_eq!(text(&codec.decode(&stored).expect("it was stored")), text(&read_back));
            // The own store holds what clients get.
            let is_stored = text(&stored).contains("Pending") || text(&stored).contains("Percent");
            assert!(form == StorageFormat::Own || !is_stored, "{}", text(&stored));
        }
    }
}
