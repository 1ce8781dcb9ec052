//! Encryption at rest: stored bytes, key rotation, missing keys.

use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use integration::{Flavour, Server, eventually};
use serde_json::{Value, json};

use crate::assert_contains;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const KEY_1: &str = "{name: key1, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}";
const KEY_2: &str = "{name: key2, secret: ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=}";
const PROVIDERS: [&str; 3] = ["secretbox", "aesgcm", "aescbc"];

#[test]
fn every_encryption_provider_hides_secrets_on_disk() {
    encrypted_by_every_provider(Flavour::Embedded);
}

#[test]
fn every_encryption_provider_hides_secrets_in_etcd() {
    encrypted_by_every_provider(Flavour::Etcd);
}

fn encrypted_by_every_provider(flavour: Flavour) {
    let mut server = Server::of(flavour);
    make(&server, "plain");
    assert!(is_there(&at_rest(&server, "plain"), "plain"), "the test can tell");
    for (n, provider) in PROVIDERS.iter().enumerate() {
        // One writes, the others read what they wrote.
        let mut providers: Vec<String> =
            PROVIDERS.iter().map(|name| format!("{{{name}: {{keys: [{KEY_1}]}}}}")).collect();
        providers.rotate_left(n);
        let flag = configure(&server, &format!("{}, {{identity: {{}}}}", providers.join(", ")));
        server.set_flags(&[&flag]);
        assert!(server.stop().success());
        server.start_again();
        make(&server, provider);
        let kept = at_rest(&server, provider);
        assert!(has(&kept, format!("k8s:enc:{provider}:v1:key1:").as_bytes()), "{provider}");
        assert!(!is_there(&kept, provider), "{provider}");
        for name in ["plain"].iter().chain(&PROVIDERS[..=n]) {
            assert_eq!(read(&server, name)["data"]["a"], encoded(name));
        }
    }
    let list = server.http().get(SECRETS).expect(200);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1 + PROVIDERS.len()));
}

#[test]
fn keys_can_be_rotated_and_a_missing_one_is_named() {
    let mut server = Server::of(Flavour::Embedded);
    let before = make(&server, "before");
    let flag = configure(&server, &secretbox(KEY_1));
    server.set_flags(&[&flag, "--encryption-provider-config-automatic-reload"]);
    assert!(server.stop().success());
    server.start_again();
    assert_eq!(read(&server, "before"), before, "what was there can still be read");
    make(&server, "after");

    // What is kept in the clear is written again by an update that changes nothing; but only once.
    let rewritten = rewrite(&server, "before");
    assert_ne!(rewritten["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    assert_eq!(rewrite(&server, "before"), rewritten);

    // Another key, without a restart.
    configure(&server, &secretbox(&format!("{KEY_2}, {KEY_1}")));
    let old = read(&server, "after");
    eventually("the new key writes", || (rewrite(&server, "after") != old).then_some(()));
    assert!(has(&at_rest(&server, "after"), b"k8s:enc:secretbox:v1:key2:"));

    // A server without the key, or with another one of its name, says which one it wants.
    assert!(server.stop().success());
    let wrong_2 = "{name: key2, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}";
    for keys in [KEY_1.to_owned(), format!("{wrong_2}, {KEY_1}")] {
        configure(&server, &secretbox(&keys));
        server.start_again();
        let path = format!("{SECRETS}/after");
        let list = server.http().get(SECRETS);
        for answer in [server.http().get(&path), server.http().delete(&path), list] {
            assert_eq!(answer.code, 500, "{keys}");
            let key = format!("Key: {}/secrets/default/after", server.storage_prefix());
            assert_contains(&answer.text(), &[&key, "k8s:enc:secretbox:v1:key2"]);
        }
        assert_eq!(read(&server, "before"), rewritten, "others go on");
        assert!(server.stop().success());
    }
    // And leaves everything as it is.
    configure(&server, &secretbox(&format!("{KEY_2}, {KEY_1}")));
    server.start_again();
    assert_eq!(read(&server, "before"), rewritten);
    assert_eq!(read(&server, "after")["data"]["a"], encoded("after"));
}

fn secretbox(keys: &str) -> String {
    format!("{{secretbox: {{keys: [{keys}]}}}}, {{identity: {{}}}}")
}

/// Writes the configuration, and answers the flag that names it.
fn configure(server: &Server, providers: &str) -> String {
    let file: PathBuf = server.scratch("encryption").join("config.yaml");
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
         - resources: [secrets]\n  providers: [{providers}]\n"
    );
    // Renamed into place, so that the server never reads half of it.
    let part = file.with_extension("part");
    fs::write(&part, text).and_then(|()| fs::rename(&part, &file)).expect("writable");
    format!("--encryption-provider-config={}", file.display())
}

/// Long enough not to be found by chance.
fn secret(name: &str) -> String {
    format!("the secret of {name}")
}

fn encoded(name: &str) -> String {
    STANDARD.encode(secret(name))
}

fn make(server: &Server, name: &str) -> Value {
    let secret = json!({"metadata": {"name": name}, "data": {"a": encoded(name)}});
    server.http().post(SECRETS, &secret).expect(201)
}

fn read(server: &Server, name: &str) -> Value {
    server.http().get(&format!("{SECRETS}/{name}")).expect(200)
}

/// An update that changes nothing.
fn rewrite(server: &Server, name: &str) -> Value {
    server.http().put(&format!("{SECRETS}/{name}"), &read(server, name)).expect(200)
}

/// The bytes of the store: all of them, or in etcd those of the secret.
fn at_rest(server: &Server, name: &str) -> Vec<u8> {
    if let Some(etcd) = server.etcd() {
        let key = format!("{}/secrets/default/{name}", server.storage_prefix());
        return etcd.value(&key).expect("it is in etcd");
    }
    let files = fs::read_dir(server.data_directory().join("store")).expect("the store is there");
    let files = files.map(|file| file.expect("a file").path());
    files.flat_map(|file| fs::read(file).expect("the log can be read")).collect()
}

/// Whether the secret can be read there, as it is or encoded.
fn is_there(kept: &[u8], name: &str) -> bool {
    has(kept, secret(name).as_bytes()) || has(kept, encoded(name).as_bytes())
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
