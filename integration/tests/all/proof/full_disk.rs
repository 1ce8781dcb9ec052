//! A full disk: writes fail with a clear error, reads continue, and writes work again once there is space.

use integration::{Flavour, Server, eventually};
use serde_json::{Value, json};

use super::load::CONFIG_MAPS;

/// More than fit.
const OBJECTS_MAX: usize = 1000;

#[test]
fn a_full_disk_refuses_writes_and_nothing_else() {
    let mut server = Server::of(Flavour::Embedded);
    assert!(server.stop().success());
    // Enough for a start and some objects.
    server.limit_files(2048);
    server.start_again();
    let http = server.http();
    let mut watch = http.stream(&format!("{CONFIG_MAPS}?watch=true"));
    let make = |n: usize| {
        let object = json!({"metadata": {"name": format!("cm-{n}")}, "data": {"text": text(n)}});
        http.post(CONFIG_MAPS, &object)
    };
    let (made, refused) = (0..OBJECTS_MAX)
        .map(|n| (n, make(n)))
        .find(|(_, answer)| answer.code != 201)
        .expect("the disk is full in the end");
    assert!(made > 5, "there was no room for {made} objects: {}", refused.text());
    let status = refused.expect(500);
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("etcdserver: mvcc: database space exceeded"), "{status}");

    // As often as one likes, and in every way.
    for _ in 0..5 {
        make(made).expect(500);
        let first = format!("{CONFIG_MAPS}/cm-0");
        let change = json!({"data": {"text": text(made + 1)}});
        http.patch(&first, "application/merge-patch+json", &change).expect(500);
        assert_eq!(http.get(&first).expect(200)["data"]["text"], text(0));
        assert_eq!(http.get("/readyz").code, 200, "who reads is served");
    }
    assert_whole(&http.get(CONFIG_MAPS).expect(200), made);

    server.make_room();
    let again = make(made).expect(201);
    // No client has seen a refused write.
    let mut seen = Vec::new();
    while seen.last() != Some(&again["metadata"]["name"]) {
        let event = watch.next_event().expect("the watch goes on");
        if event["object"]["data"]["text"].is_string() {
            assert_eq!(event["type"], "ADDED", "{event}");
            seen.push(event["object"]["metadata"]["name"].clone());
        }
    }
    let names: Vec<Value> = (0..=made).map(|n| format!("cm-{n}").into()).collect();
    assert_eq!(seen, names);

    server.kill();
    server.start_again();
    assert_whole(&server.http().get(CONFIG_MAPS).expect(200), made + 1);
}

#[test]
fn a_server_that_is_killed_on_a_full_disk_starts_again() {
    let mut server = Server::of(Flavour::Embedded);
    assert!(server.stop().success());
    server.limit_files(2048);
    server.start_again();
    let http = server.http();
    let object =
        |n: usize| json!({"metadata": {"name": format!("cm-{n}")}, "data": {"text": text(n)}});
    let made = (0..OBJECTS_MAX)
        .find(|n| http.post(CONFIG_MAPS, &object(*n)).code != 201)
        .expect("the disk is full in the end");
    server.kill();
    server.start_again();
    assert_whole(&server.http().get(CONFIG_MAPS).expect(200), made);
    server.make_room();
    eventually("there is room", || {
        (server.http().post(CONFIG_MAPS, &object(made)).code == 201).then_some(())
    });
}

fn text(n: usize) -> String {
    format!("{n}-").repeat(10_000)
}

/// All that were acknowledged, and only those.
#[track_caller]
fn assert_whole(list: &Value, count: usize) {
    let items = list["items"].as_array().expect("a list").iter();
    let mut texts: Vec<&str> = items.filter_map(|item| item["data"]["text"].as_str()).collect();
    texts.sort_by_key(|text| text.split('-').next().and_then(|n| n.parse::<usize>().ok()));
    assert!(texts.iter().eq((0..count).map(text).collect::<Vec<_>>().iter()), "{}", texts.len());
}
