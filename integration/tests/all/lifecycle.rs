//! Starting, stopping, being killed and starting again. These tests have servers of their own.

use std::collections::HashSet;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use integration::eventually::PATIENCE;
use integration::{Http, Server, Version};
use serde_json::{Value, json};

use crate::assert_contains;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn a_restart_keeps_everything() {
    let mut server = Server::start();
    let kubectl = server.kubectl(Version::Current);
    kubectl.ok("create configmap cm --from-literal=key=value");
    kubectl.ok("create deployment web --image=nginx --replicas=3");
    kubectl.ok("create namespace other");
    kubectl.ok("create secret generic s --from-literal=a=b -n other");
    let everything = "get cm/cm deploy/web ns/other -o json --show-managed-fields";
    let before: Value = serde_json::from_str(&kubectl.ok(everything)).expect("JSON");
    let secret = kubectl.ok("get secret s -n other -o yaml");

    let status = server.stop();
    assert!(status.success(), "a server that is asked to end does so in peace: {status}");
    server.start_again();

    let kubectl = server.kubectl(Version::Current);
    let after: Value = serde_json::from_str(&kubectl.ok(everything)).expect("JSON");
    assert_eq!(before, after, "not even a resourceVersion or uid differs");
    assert_eq!(kubectl.ok("get secret s -n other -o yaml"), secret);
    kubectl.ok("label cm cm still=writable");
    let version = |object: &Value| {
        object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok())
    };
    let relabelled = server.http().get(&format!("{CONFIG_MAPS}/cm")).expect(200);
    assert!(version(&relabelled) > version(&before["items"][0]), "versions go on where they were");
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let mut server = Server::start();
    let mut acknowledged = HashSet::new();
    for round in 0..3 {
        let (sender, promises) = channel();
        for writer in 0..4 {
            let (http, sender) = (server.http(), sender.clone());
            thread::spawn(move || write_until_it_is_gone(&http, round, writer, &sender));
        }
        drop(sender);
        // Killed in the middle of things, not at a quiet moment.
        for _ in 0..40 {
            acknowledged.insert(promises.recv_timeout(PATIENCE).expect("the writers are at work"));
        }
        server.kill();
        // Until the last writer has noticed.
        acknowledged.extend(promises);

        server.start_again();
        let list = server.http().get(CONFIG_MAPS).expect(200);
        let items = list["items"].as_array().expect("a list");
        let there: HashSet<&str> =
            items.iter().filter_map(|object| object["metadata"]["name"].as_str()).collect();
        let lost: Vec<&String> =
            acknowledged.iter().filter(|name| !there.contains(name.as_str())).collect();
        assert!(lost.is_empty(), "of {} these are lost: {lost:?}", acknowledged.len());
    }
}

/// Creates objects one after the other, and passes on the name of each that was acknowledged.
fn write_until_it_is_gone(http: &Http, round: u32, writer: u32, promises: &Sender<String>) {
    for n in 0.. {
        let name = format!("round-{round}-writer-{writer}-{n}");
        let body = json!({"metadata": {"name": name}}).to_string();
        let request = Request::post(CONFIG_MAPS).header("content-type", "application/json");
        match http.try_request(request.body(Bytes::from(body)).expect("a valid request")) {
            Ok(answer) => {
                assert_eq!(answer.code, 201, "{}", answer.text());
                promises.send(name).expect("the test waits for all writers");
            }
            Err(_) => break,
        }
    }
}

#[test]
fn stopping_ends_watches_and_leaves_no_one_waiting() {
    let mut server = Server::start();
    let mut watch = server.http().stream(&format!("{CONFIG_MAPS}?watch=true"));
    server.http().post(CONFIG_MAPS, &json!({"metadata": {"name": "cm"}})).expect(201);
    while watch.next_event().expect("a change is seen")["object"]["metadata"]["name"] != "cm" {}
    assert!(server.stop().success());
    assert_eq!(watch.next_event(), None, "the stream ends, it does not break");
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let server = Server::start();
    let Some(mut command) = server.same_again() else { return };
    let output = output_within(&mut command, Duration::from_secs(30));
    assert!(!output.status.success(), "two servers write to one directory");
    assert_contains(
        &String::from_utf8_lossy(&output.stderr),
        &[&server.data_directory().display().to_string()],
    );
    assert_eq!(server.http().get("/readyz").text(), "ok", "the first one goes on");
}

/// Runs a command that should end by itself, and ends it if it does not.
fn output_within(command: &mut Command, limit: Duration) -> std::process::Output {
    let child = command.spawn().expect("the server can be started");
    let pid = child.id().to_string();
    let (done, waiting) = std::sync::mpsc::channel::<()>();
    let guard = thread::spawn(move || {
        if waiting.recv_timeout(limit).is_err() {
            let _ = Command::new("kill").args(["-9", &pid]).status();
        }
    });
    let output = child.wait_with_output().expect("a child can be waited for");
    let _ = done.send(());
    let _ = guard.join();
    output
}
