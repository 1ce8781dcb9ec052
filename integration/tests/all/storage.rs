//! The storage flags: prefix, media type, encryption; and objects that cannot be decoded or decrypted.

use integration::{Flavour, Http, KmsPlugin, Server, TlsEtcd, eventually, peer_program};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn stored(server: &Server, path: &str) -> Option<Vec<u8>> {
    let etcd = server.etcd().expect("it is on etcd");
    etcd.value(&format!("{}/{path}", server.storage_prefix()))
}

/// Puts bytes in the place of an object; answers its key.
fn put(server: &Server, path: &str, value: &[u8]) -> String {
    let key = format!("{}/{path}", server.storage_prefix());
    server.etcd().expect("it is on etcd").put(&key, value);
    key
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

#[test]
fn an_object_that_cannot_be_read_keeps_no_other_back() {
    let gate = "--feature-gates=AllowUnsafeMalformedObjectDeletion=true";
    let server = Server::with(Flavour::Etcd, &[gate]);
    let http = server.http();
    http.post(CONFIG_MAPS, &named("good")).expect(201);
    let key = put(&server, "configmaps/default/bad", b"k8s\0garbage");
    let bad = format!("{CONFIG_MAPS}/bad");
    let error = http.get(&bad).expect(500);
    let words = format!("StorageError: corrupt object, Code: 7, Key: {key}, ");
    assert!(error["message"].as_str().is_some_and(|text| text.contains(&words)), "{error}");
    assert_eq!(error["reason"], "InternalError");
    for list in [CONFIG_MAPS, "/api/v1/configmaps?limit=500"] {
        let error = http.get(list).expect(500);
        assert_eq!(
            (&error["reason"], &error["message"]),
            (
                &json!("StorageReadError"),
                &json!("failed to read one or more configmaps from the storage")
            )
        );
        assert_eq!(error["details"]["causes"][0]["field"], key);
    }

    // Other resources are not affected.
    http.get(&format!("{CONFIG_MAPS}/good")).expect(200);
    http.get("/api/v1/namespaces/kube-system/configmaps").expect(200);
    http.post(CONFIG_MAPS, &named("new")).expect(201);
    http.post(CONFIG_MAPS, &named("bad")).expect(409);
    http.put(&bad, &named("bad")).expect(500);
    http.delete(&bad).expect(500);
    assert!(
        http.get("/metrics")
            .text()
            .contains("pintle_unreadable_objects{group=\"\",resource=\"configmaps\"} 1")
    );

    let ignore = "ignoreStoreReadErrorWithClusterBreakingPotential=true";
    http.delete(&format!("{CONFIG_MAPS}/good?{ignore}")).expect(422);
    http.delete(&format!("{bad}?{ignore}&gracePeriodSeconds=1")).expect(422);
    http.delete(&format!("{bad}?{ignore}")).expect(200);
    http.get(&bad).expect(404);
    http.get(CONFIG_MAPS).expect(200);
    http.post(CONFIG_MAPS, &named("bad")).expect(201);
}

#[test]
fn without_its_gate_nothing_unreadable_is_deleted() {
    let server = Server::of(Flavour::Etcd);
    put(&server, "configmaps/default/bad", b"garbage");
    let http = server.http();
    let ignore = "ignoreStoreReadErrorWithClusterBreakingPotential=true";
    http.delete(&format!("{CONFIG_MAPS}/bad?{ignore}")).expect(500);
    assert_eq!(stored(&server, "configmaps/default/bad").as_deref(), Some(&b"garbage"[..]));
    http.post(CONFIG_MAPS, &named("good")).expect(201);
    http.delete(&format!("{CONFIG_MAPS}/good?{ignore}")).expect(200);
}

#[test]
fn a_watch_gets_410_when_an_object_becomes_unreadable() {
    let server = Server::of(Flavour::Etcd);
    let http = server.http();
    let made = http.post(CONFIG_MAPS, &named("turned")).expect(201);
    let from = made["metadata"]["resourceVersion"].as_str().expect("a version");
    let mut watch = http.stream(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={from}"));
    put(&server, "configmaps/default/turned", b"garbage");
    let error = loop {
        let event = watch.next_event().expect("the watch says why it ends");
        if event["type"] == "ERROR" {
            break event;
        }
    };
    assert_eq!(error["object"]["code"], 410, "{error}");
}

#[test]
fn a_resource_out_of_the_watch_cache_is_read_from_the_store() {
    let flags =
        ["--watch-cache-sizes=configmaps#0,secrets#5", "--storage-media-type=application/json"];
    let one = Server::with(Flavour::Etcd, &flags);
    let two = one.beside_with(Flavour::Etcd, &["--watch-cache=false"]);
    for n in 0..10 {
        let name = format!("cm-{n}");
        one.http().post(CONFIG_MAPS, &named(&name)).expect(201);
        // Any state will do, which from a cache might be an older one.
        let found = two.http().get(&format!("{CONFIG_MAPS}/{name}?resourceVersion=0"));
        found.expect(200);
        let list = two.http().get(&format!("{CONFIG_MAPS}?resourceVersion=0")).expect(200);
        assert_eq!(list["items"].as_array().map(Vec::len), Some(n + 2), "{list}");
    }
    let first = one.http().get(&format!("{CONFIG_MAPS}?limit=5")).expect(200);
    let token = first["metadata"]["continue"].as_str().expect("there is more");
    let rest = one.http().get(&format!("{CONFIG_MAPS}?continue={token}")).expect(200);
    assert_eq!(rest["items"].as_array().map(Vec::len), Some(6));
    let bytes = stored(&one, "configmaps/default/cm-1").expect("is there");
    assert!(bytes.starts_with(b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\""));
    // The other one writes protobuf, and each reads both.
    two.http().post(SECRETS, &named("s")).expect(201);
    assert!(stored(&one, "secrets/default/s").expect("is there").starts_with(b"k8s\0"));
    one.http().get(&format!("{SECRETS}/s")).expect(200);
}

#[test]
fn storage_size_and_object_counts_are_metrics_unless_disabled() {
    let count = "apiserver_resource_objects{group=\"\",resource=\"namespaces\"}";
    let size = "apiserver_storage_size_bytes{storage_cluster_id=\"";
    let server = Server::with(Flavour::Etcd, &[]);
    eventually("the size is measured", || {
        let text = server.http().get("/metrics").text();
        (text.contains(count) && text.contains(&format!("{size}etcd-0"))).then_some(())
    });
    let flags = ["--etcd-count-metric-poll-period=0", "--etcd-db-metric-poll-interval=0"];
    let text = Server::with(Flavour::Embedded, &flags).http().get("/metrics").text();
    assert!(!text.contains(count) && !text.contains(size), "{text}");
}

/// A secret that one server made is the same to the other, and not in clear.
fn both_read(one: &Server, other: &Http, name: &str) {
    let object = json!({"metadata": {"name": name}, "stringData": {"word": "of-mouth"}});
    let made = one.http().post(SECRETS, &object).expect(201);
    assert_eq!(other.get(&format!("{SECRETS}/{name}")).expect(200), made);
    let bytes = stored(one, &format!("secrets/default/{name}")).expect("is there");
    assert!(bytes.starts_with(b"k8s:enc:kms:v2:test:"), "{}", String::from_utf8_lossy(&bytes));
    assert!(!contains(&bytes, b"of-mouth"));
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn keys_of_a_kms_plugin_can_be_rotated() {
    let mut plugin = KmsPlugin::start("test", "key-one");
    let config = format!("--encryption-provider-config={}", plugin.config.display());
    let pintle = Server::with(Flavour::Etcd, &[&config]);
    let second = pintle.beside_with(Flavour::Etcd, &[&config]);
    both_read(&pintle, &second.http(), "a");
    if let Some(program) = peer_program() {
        let real = pintle.beside_with(Flavour::Peer(program), &[&config]);
        both_read(&real, &pintle.http(), "by-the-real-one");
        both_read(&pintle, &real.http(), "for-the-real-one");
        // Both kinds of servers name the check alike.
        for server in [&real, &pintle] {
            let verbose = server.http().get("/readyz?verbose").text();
            assert!(verbose.contains("[+]kms-providers ok"), "{verbose}");
        }
    }
    let bytes = stored(&pintle, "secrets/default/a").expect("is there");
    assert!(contains(&bytes, b"key-one"), "the key is named");

    // Without the plugin nothing can be said about its key any more, but what was decrypted is known.
    plugin.stop();
    eventually("the check fails", || {
        let answer = pintle.http().get("/readyz/kms-providers");
        (answer.code == 500).then_some(())
    });
    pintle.http().get(&format!("{SECRETS}/a")).expect(200);

    // A rewrite that changes nothing writes with the new key, once that is known.
    plugin.set_key("key-two");
    plugin.start_again();
    eventually("the new key is used", || {
        let (http, path) = (pintle.http(), format!("{SECRETS}/a"));
        // Asking looks again, if the last look was some time ago.
        http.get("/readyz/kms-providers");
        http.put(&path, &http.get(&path).expect(200)).expect(200);
        contains(&stored(&pintle, "secrets/default/a")?, b"key-two").then_some(())
    });
    let read = second.http().get(&format!("{SECRETS}/a")).expect(200);
    assert_eq!(read["data"]["word"], "b2YtbW91dGg=");
}

#[test]
fn a_kms_plugin_need_not_have_a_file() {
    let plugin = KmsPlugin::start_without_file("test", "key-one");
    let config = format!("--encryption-provider-config={}", plugin.config.display());
    let server = Server::with(Flavour::Embedded, &[&config]);
    let http = server.http();
    http.post(SECRETS, &named("a")).expect(201);
    http.get(&format!("{SECRETS}/a")).expect(200);
    let check = http.get("/readyz/kms-providers");
    assert_eq!((check.code, check.text().as_str()), (200, "ok"));
}

#[test]
fn etcd_is_reached_over_tls_and_comes_back() {
    let etcd = TlsEtcd::start();
    // One member that is not there: the next one is asked.
    let servers = format!("--etcd-servers=https://127.0.0.1:1,{}", etcd.url);
    let mut flags = vec![servers];
    flags.extend(etcd.flags());
    flags.extend(
        ["--etcd-healthcheck-timeout=1s", "--etcd-readycheck-timeout=1s"].map(str::to_owned),
    );
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::with(Flavour::Embedded, &flags);
    let http = server.http();
    let made = http.post(CONFIG_MAPS, &named("a")).expect(201);
    let from = made["metadata"]["resourceVersion"].as_str().expect("a version");
    let mut watch = http.stream(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={from}"));

    etcd.kill();
    eventually("the check fails", || (http.get("/readyz/etcd").code == 500).then_some(()));
    assert!(http.get("/livez/etcd").text().contains("etcd"));
    etcd.start_again();
    eventually("the check is well again", || (http.get("/readyz").code == 200).then_some(()));
    http.post(CONFIG_MAPS, &named("b")).expect(201);
    eventually("the watch goes on", || {
        (watch.next_event()?["object"]["metadata"]["name"] == "b").then_some(())
    });
}

#[test]
fn etcd_servers_overrides_store_a_resource_in_another_etcd() {
    let other = TlsEtcd::start();
    let mut flags = vec![format!("--etcd-servers-overrides=/configmaps#{}", other.url)];
    flags.extend(other.flags());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::with(Flavour::Etcd, &flags);
    let http = server.http();
    http.post(CONFIG_MAPS, &named("there")).expect(201);
    http.post(SECRETS, &named("here")).expect(201);
    http.get(&format!("{CONFIG_MAPS}/there")).expect(200);
    assert_eq!(stored(&server, "configmaps/default/there"), None);
    assert!(stored(&server, "secrets/default/here").is_some());
}
