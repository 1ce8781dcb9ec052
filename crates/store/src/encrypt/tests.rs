use std::sync::Arc;

use bytes::Bytes;
use meta::{GroupResource, Str};

use super::{Encrypted, Encryption, EncryptionConfig};
use crate::{Backend, Expect, MemoryBackend, Range, StoreError, Write};

const HEADER: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n";

fn config(rules: &str) -> Result<EncryptionConfig, String> {
    let text = format!("{HEADER}resources:\n{rules}");
    EncryptionConfig::parse("enc.yaml", text.as_bytes(), &|kms| Err(format!("no {}", kms.name)))
}

fn encryption(rules: &str) -> Encryption {
    let places =
        [("secrets", ""), ("configmaps", ""), ("serviceaccounts", ""), ("services/specs", "")].map(
            |(place, group)| {
                (place, GroupResource::new(group, place.split('/').next().unwrap_or("")))
            },
        );
    let leases = ("leases", GroupResource::new("coordination.k8s.io", "leases"));
    let places = places.into_iter().chain([leases]);
    let places = places.map(|(place, resource)| (Str::new(place), resource));
    Encryption::new("/registry", places, config(rules).expect("a good configuration"))
}

fn sealed(encryption: &Encryption, key: &str, value: &'static str) -> Bytes {
    encryption.seal(key, &Bytes::from_static(value.as_bytes())).expect("it can be encrypted")
}

/// 32, 24 and 16 bytes.
const LONG: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const MIDDLE: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3";
const SHORT: &str = "MDEyMzQ1Njc4OWFiY2RlZg==";
const OTHER: &str = "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=";

/// What kube-apiserver v1.36 wrote into etcd with the configuration of the test below.
const GOLDEN: &[(&str, &str)] = &[
    (
        "/registry/secrets/default/golden",
        "azhzOmVuYzpzZWNyZXRib3g6djE6Ym94MTo9PZrjX5ez1IYWmvhSoqBvCYPIKPmXm6eJoPCeMsl6SFDRH9mRElBe\
         +1H3rEnXhzfsYYHbJG6ykNSiJkHM6coOQXf8xz9+7xrrwYfg4Qd8jspWQSHRTaTmoaGcPHNp3UZTGlLrqTJPT9zf\
         ZPuF8r5QYYrqD5Zf4eZGKHPh/IkUgJzbBCwSsy7xEEbrGv4sGVkl3LnV3lwtmDNTBUhc8bUeGynUWmpNn0eFaD2S\
         7S1i3xNwy5AeTDSo2LmK99SlNvgybzFg4auQyloQUwBfE/VyRi+XWRsEkvTro7q8sDAIR6Eg5CKMtyjj3EPXcYKL\
         n9slWLXz4jE=",
    ),
    (
        "/registry/configmaps/default/golden",
        "azhzOmVuYzphZXNnY206djE6Z2NtMTqyCA/W6fydBK3ONQ2YGT/7CisUNDw6li+Uwrux+ftqTtVJoomWjeaE4naL\
         fE6S8BMEHM9IKI6nvKrKVyo8DweRQgTU9DDyUHXOHCgoIpZl8yGC4X+RrjU/Agddi8WT9o+w4mMH399M5KCI13sM\
         +4HwuW6EI1FM8qzEi8fa9A0PqnzscCv0BzJ8SynqD1AYOxvNoTu+X1ujUKhBEVX699sBW/bs2FvTbaBc0E4bF4w4\
         25RyKFPSZnBFuoW0cnZVs78QN+AA/MKSInO4UfHGtuZcbgpUuv4FMo/i",
    ),
    (
        "/registry/serviceaccounts/default/golden",
        "azhzOmVuYzphZXNjYmM6djE6Y2JjMTr+nvtPuyZUDwQTPzGZ3cKbkBzvH/mEfxSWTGA0EkaxLC8bOGZzClWcyGDz\
         GAQ+pJ5Kiwo0qN70gK4V10oaDtD0W8J9ghA/VAPbQ2bNziwvgD61T23ap2i6cGi56x6SutHNMTUfkaxU3vb2I81Q\
         WJAOGg28ccsHoJxJGwvhN+lC1g==",
    ),
    (
        "/registry/leases/default/golden",
        "azhzOmVuYzphZXNnY206djE6Z2NtMjQ6juyhzg8+LS0rXeXeyXpuDqPp0SNPB9Hw4MV39mrEhJ0D3yANCk2kaTUB\
         ueIrfh2F9j2tc8temYq0fVNIimWGOlG20fxbLnI2IzRdZ+AnhsyW4gTUn+35ld5EEON6fsoE1Y71kde8ujWf2dNS\
         5Gj03p39Y3sRTh5EMpXVRyYM5hClAh9dAE5BXX0oiWzv4HXLIYbVtaFQdhL+1jpN/79Czvp5hqF8U/iuh3sIgWTF\
         i/CTlPXSxdKWk8K8KtDpg9A2+JL6Rcwzcl5Mk1ipdX5NnruJMVdFqa+MT/Bdvy/6BLczF/VVlNCB/23RKnI242VL\
         iyKa7PcmGwjXc0b8tl0AqQ==",
    ),
];

#[test]
fn values_encrypted_by_kube_apiserver_are_decrypted() {
    let encryption = encryption(&format!(
        "- resources: [secrets]
  providers: [{{secretbox: {{keys: [{{name: box1, secret: {LONG}}}]}}}}]
- resources: [configmaps]
  providers: [{{aesgcm: {{keys: [{{name: gcm1, secret: {LONG}}}]}}}}]
- resources: [serviceaccounts]
  providers: [{{aescbc: {{keys: [{{name: cbc1, secret: {LONG}}}]}}}}]
- resources: ['*.coordination.k8s.io']
  providers: [{{aesgcm: {{keys: [{{name: gcm24, secret: {MIDDLE}}}]}}}}]
"
    ));
    for (key, stored) in GOLDEN {
        let stored = Bytes::from(codec::base64::decode(stored).expect("base64"));
        let opened = encryption.open_local(key, &stored).expect("it can be decrypted");
        assert!(!opened.stale, "{key}");
        assert!(opened.value.starts_with(b"k8s\0"), "{key}");
        assert!(opened.value.windows(6).any(|part| part == b"golden"), "{key}");
        // Every flipped bit is detected, except by the cipher that does not authenticate.
        if !stored.starts_with(b"k8s:enc:aescbc") {
            let mut bent = stored.to_vec();
            *bent.last_mut().expect("not empty") ^= 1;
            let error =
                encryption.open_local(key, &bent.into()).expect_err("it was changed").to_string();
            assert!(error.contains("message authentication failed"), "{error}");
        }
    }
}

#[test]
fn every_cipher_decrypts_what_it_encrypted() {
    let key = "/registry/secrets/default/a";
    for (provider, secrets) in [
        ("secretbox", &[LONG][..]),
        ("aesgcm", &[LONG, MIDDLE, SHORT]),
        ("aescbc", &[LONG, MIDDLE, SHORT]),
    ] {
        for secret in secrets {
            let rules = format!(
                "- {{resources: [secrets], providers: [{{{provider}: {{keys: [{{name: k, secret: {secret}}}]}}}}]}}\n"
            );
            let encryption = encryption(&rules);
            for len in [0, 1, 15, 16, 17, 31, 32, 33, 1000] {
                let value = Bytes::from(vec![7_u8; len]);
                let stored = encryption.seal(key, &value).expect("sealed");
                assert!(stored.starts_with(format!("k8s:enc:{provider}:v1:k:").as_bytes()));
                assert_ne!(stored, encryption.seal(key, &value).expect("sealed"), "a fresh nonce");
                assert_eq!(encryption.open_local(key, &stored).expect("opened").value, value);
            }
        }
    }
}

#[test]
fn an_authenticated_value_cannot_be_moved_to_another_object() {
    let encryption = encryption(&format!(
        "- {{resources: [secrets], providers: [{{aesgcm: {{keys: [{{name: k, secret: {LONG}}}]}}}}]}}\n"
    ));
    let stored = sealed(&encryption, "/registry/secrets/default/a", "x");
    assert!(encryption.open_local("/registry/secrets/default/b", &stored).is_err());
}

#[test]
fn rules_match_by_resource_then_group_then_wildcard() {
    let one = |name: &str| format!("{{secretbox: {{keys: [{{name: {name}, secret: {LONG}}}]}}}}");
    let encryption = encryption(&format!(
        "- {{resources: [secrets], providers: [{}]}}
- {{resources: ['*.example.com'], providers: [{}]}}
- {{resources: [configmaps], providers: [{{identity: {{}}}}]}}
- {{resources: ['*.*'], providers: [{}]}}
",
        one("secret"),
        one("group"),
        one("all")
    ));
    let cases = [
        ("/registry/secrets/ns/a", "k8s:enc:secretbox:v1:secret:"),
        ("/registry/example.com/widgets/ns/a", "k8s:enc:secretbox:v1:group:"),
        ("/registry/configmaps/ns/a", "plain"),
        ("/registry/services/specs/ns/a", "k8s:enc:secretbox:v1:all:"),
        ("/registry/other.io/things/a", "k8s:enc:secretbox:v1:all:"),
        // No resource: allocators and the like.
        ("/registry/ranges/serviceips", "plain"),
        ("compact_rev_key", "plain"),
    ];
    for (key, begins) in cases {
        assert!(sealed(&encryption, key, "plain").starts_with(begins.as_bytes()), "{key}");
    }
}

#[test]
fn the_first_key_encrypts_and_all_keys_decrypt() {
    let key = "/registry/secrets/ns/a";
    let old = encryption(&format!(
        "- {{resources: [secrets], providers: [{{aescbc: {{keys: [{{name: a, secret: {LONG}}}]}}}}]}}\n"
    ));
    let new = encryption(&format!(
        "- {{resources: [secrets], providers: [{{aescbc: {{keys: [{{name: b, secret: {OTHER}}}, {{name: a, secret: {LONG}}}]}}}}, {{identity: {{}}}}]}}\n"
    ));
    let by_old = new.open_local(key, &sealed(&old, key, "x")).expect("the second key");
    assert_eq!((by_old.value.as_ref(), by_old.stale), (&b"x"[..], true));
    let plain = new.open_local(key, &Bytes::from_static(b"{}")).expect("not encrypted yet");
    assert_eq!((plain.value.as_ref(), plain.stale), (&b"{}"[..], true));
    let by_new = new.open_local(key, &sealed(&new, key, "x")).expect("the first key");
    assert!(!by_new.stale);
}

#[test]
fn the_error_of_an_unreadable_value_names_the_missing_key() {
    let key = "/registry/secrets/ns/a";
    let with = |providers: &str| {
        encryption(&format!("- {{resources: [secrets], providers: [{providers}]}}\n"))
    };
    let keyed = |kind: &str, name: &str, secret: &str| {
        format!("{{{kind}: {{keys: [{{name: {name}, secret: {secret}}}]}}}}")
    };
    let stored = sealed(&with(&keyed("secretbox", "key1", LONG)), key, "x");
    let cases = [
        (
            keyed("secretbox", "key2", LONG),
            "no matching key was found for the provided Secretbox transformer: the value was written \
             with k8s:enc:secretbox:v1:key1, which is not configured",
        ),
        (
            keyed("aesgcm", "key1", LONG),
            "no matching prefix found: the value was written with k8s:enc:secretbox:v1:key1, which is \
             not configured",
        ),
        (
            "{identity: {}}".to_owned(),
            "no matching prefix found: the value was written with k8s:enc:secretbox:v1:key1, which is \
             not configured",
        ),
        (
            keyed("secretbox", "key1", OTHER),
            "k8s:enc:secretbox:v1:key1: cipher: message authentication failed (another key was used, \
             or the data was changed)",
        ),
    ];
    for (providers, why) in cases {
        let error = with(&providers).open_local(key, &stored).expect_err("it cannot be read");
        assert_eq!(error.to_string(), format!("unable to transform key \"{key}\": {why}"));
    }
    let none = Encryption::new("/registry", [], EncryptionConfig::default());
    let error = none.open_local(key, &stored).expect_err("it cannot be read").to_string();
    assert!(error.contains("identity transformer tried to read encrypted data"), "{error}");
}

#[test]
fn an_invalid_configuration_gets_kube_apiservers_errors() {
    let parsing = |why: &str| format!("error while parsing file: {why}");
    let decoding = |why: &str| {
        parsing(&format!(
            "error decoding encryption provider configuration file \"enc.yaml\": {why}"
        ))
    };
    let cases = [
        ("- {}", parsing(
            "[resources[0].resources: Required value: at least one resources[0].resources is required, \
             resources[0].providers: Required value: at least one resources[0].providers is required]",
        )),
        ("- {resources: [secrets], providers: [{}]}", parsing(
            "resources[0].providers[0]: Invalid value: {\"AESGCM\":null,\"AESCBC\":null,\
             \"Secretbox\":null,\"Identity\":null,\"KMS\":null}: provider does not contain any of the \
             expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
        )),
        ("- {resources: [secrets, secrets, '*.', Pods, '*', 'pods.*'], providers: [{identity: {}}]}", parsing(
            "[resources[0].resources: Invalid value: \
             [\"secrets\",\"secrets\",\"*.\",\"Pods\",\"*\",\"pods.*\"]: the same resource cannot be \
             specified multiple times, resources[0].resources: Invalid value: \
             [\"secrets\",\"secrets\",\"*.\",\"Pods\",\"*\",\"pods.*\"]: using overlapping resources such \
             as 'secrets' and '*.' in the same resource list is not allowed as they will be masked, \
             resources[0].resources[3]: Invalid value: \"Pods\": resource name should not contain \
             capital letters, resources[0].resources[4]: Invalid value: \"*\": use '*.' to encrypt all \
             the resources from core API group or *.* to encrypt all resources, \
             resources[0].resources[5]: Invalid value: \"pods.*\": encrypting the same resource across \
             groups is not supported]",
        )),
        ("- {resources: ['*.events.k8s.io', x.extensions, serviceipallocations], providers: [{identity: {}}]}", parsing(
            "[resources[0].resources[0]: Invalid value: \"*.events.k8s.io\": '*.events.k8s.io' objects \
             are stored using the 'events' API group in etcd. Use 'events' instead in the config file, \
             resources[0].resources[1]: Invalid value: \"x.extensions\": 'extensions' group has been \
             removed and cannot be used for encryption, resources[0].resources[2]: Invalid value: \
             \"serviceipallocations\": resources which do not have REST API/s cannot be encrypted]",
        )),
        ("- {resources: [secrets], providers: [{aescbc: {keys: [{name: '', secret: ''}, {name: k, secret: '%%%'}, {name: k, secret: AAAA}]}}, {secretbox: {}}]}", parsing(
            "[resources[0].providers[0].aescbc.keys[0].name: Required value: name is a mandatory field \
             for a key, resources[0].providers[0].aescbc.keys[0].secret: Required value: secret is a \
             mandatory field for a key, resources[0].providers[0].aescbc.keys[1].secret: Invalid value: \
             \"REDACTED\": secrets must be base64 encoded, \
             resources[0].providers[0].aescbc.keys[2].secret: Invalid value: \"REDACTED\": secret is not \
             of the expected length, got 3, expected one of [16 24 32], \
             resources[0].providers[1].secretbox.keys: Required value: at least one keys is required]",
        )),
        ("- {resources: ['*.*'], providers: [{identity: {}}]}\n- {resources: [secrets], providers: [{identity: {}}]}",
         "error while building transformers: resource \"secrets\" is masked by earlier rule \"*.*\"".to_owned()),
        ("- {resources: ['*.'], providers: [{identity: {}}]}\n- {resources: [secrets], providers: [{identity: {}}]}",
         "error while building transformers: resource \"secrets\" is masked by earlier rule \"*.\"".to_owned()),
        ("- {resources: [secrets], foo: 1, providers: [{identity: {}}]}\nbar: 2",
         decoding("strict decoding error: line 5: unknown field \"bar\", line 4: unknown field \"resources[0].foo\"")),
        ("- {resources: [secrets], providers: [{kms: {name: x, apiVersion: v2, endpoint: 'unix:///x'}}]}",
         "error while building transformers: no x".to_owned()),
        ("- {resources: [secrets], providers: [{kms: {name: x, apiVersion: v2, timeout: -1s, endpoint: 'unix:///x'}}]}",
         parsing("resources[0].providers[0].kms.timeout: Invalid value: \"-1s\": timeout should be a positive value")),
    ];
    for (rules, expected) in cases {
        let error = config(rules).err().unwrap_or_default();
        assert_eq!(error, expected, "{rules}");
    }
    let empty =
        EncryptionConfig::parse("enc.yaml", b"", &|_| Err(String::new())).err().unwrap_or_default();
    assert_eq!(
        empty,
        parsing(
            "error while loading file: encryption provider configuration file \"enc.yaml\" is empty"
        )
    );
    let other =
        EncryptionConfig::parse(
            "enc.yaml",
            b"apiVersion: v1\nkind: Pod\n",
            &|_| Err(String::new()),
        )
        .err()
        .unwrap_or_default();
    assert!(
        other.starts_with(&decoding("no kind \"Pod\" is registered for version \"v1\"")),
        "{other}"
    );
}

#[tokio::test]
async fn the_wrapped_backend_sees_only_encrypted_values() {
    let inner = Arc::new(MemoryBackend::default());
    let rules = format!(
        "- {{resources: [secrets], providers: [{{secretbox: {{keys: [{{name: k, secret: {LONG}}}]}}}}, {{identity: {{}}}}]}}\n"
    );
    let outer = Encrypted::new(inner.clone(), Arc::new(encryption(&rules)));
    let key = "/registry/secrets/ns/a";
    // Written before encryption was configured.
    inner.write(Write::create(key, "old")).await.expect("written");
    assert!(outer.is_stale(key).await.expect("known"));
    let mut watch = outer.watch("/registry/secrets/", 0).await.expect("watched");

    let at = outer.write(Write::put(key, Expect::Any, "new")).await.expect("written");
    let raw = inner.get(key).await.expect("read").expect("there").value;
    assert!(raw.starts_with(b"k8s:enc:secretbox:v1:k:"));
    assert_eq!(outer.get(key).await.expect("read").expect("there").value, "new");
    assert!(!outer.is_stale(key).await.expect("known"));
    let all = outer.range(Range::of("/registry/")).await.expect("read");
    assert_eq!(all.items[0].value, "new");
    match outer.write(Write::update(key, at - 1, "later")).await {
        Err(StoreError::Conflict { current: Some(current) }) => assert_eq!(current.value, "new"),
        other => panic!("{other:?}"),
    }
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(watch.next().await.expect("changes").changes);
    }
    let seen: Vec<_> = seen.into_iter().map(|change| change.value.unwrap_or_default()).collect();
    assert_eq!(seen, ["old", "new"]);
}
