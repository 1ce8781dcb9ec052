//! Lists and watches from a compacted revision.

use std::time::Instant;

use integration::{Flavour, Server, eventually};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn a_list_whose_revision_is_gone_can_go_on_at_the_newest() {
    // The same for both: what a cache remembers is gone with the restart.
    let flavour = match Flavour::from_env() {
        Flavour::Embedded => Flavour::Etcd,
        other => other,
    };
    let mut server = Server::on_own_etcd(flavour, 1);
    let http = server.http();
    for name in ["a", "b", "c"] {
        let object = json!({"metadata": {"name": name, "labels": {"page": "yes"}}});
        http.post(CONFIG_MAPS, &object).expect(201);
    }
    let list = |more: &str| http.get(&format!("{CONFIG_MAPS}?labelSelector=page&limit=1{more}"));
    let first = list("").expect(200);
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let (token, version) =
        (text(&first["metadata"]["continue"]), text(&first["metadata"]["resourceVersion"]));
    http.delete(&format!("{CONFIG_MAPS}/b")).expect(200);
    let object = json!({"metadata": {"name": "bb", "labels": {"page": "yes"}}});
    let last = http.post(CONFIG_MAPS, &object).expect(201);
    let newest: u64 = text(&last["metadata"]["resourceVersion"]).parse().expect("a number");
    assert!(server.stop().success());
    server.compact(newest);
    server.start_again();

    let gone = list(&format!("&continue={token}")).expect(410);
    assert_eq!(gone["reason"], "Expired");
    assert!(text(&gone["message"]).starts_with("The provided continue parameter is too old"));
    let exact = list(&format!("&resourceVersion={version}")).expect(410);
    assert_eq!(exact["message"], "The resourceVersion for the provided list is too old.");
    assert_eq!(exact["metadata"], json!({}));
    let watch =
        http.get(&format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=1&resourceVersion={version}"));
    assert_eq!(
        (&watch.json()["type"], &watch.json()["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );

    // The token of the answer leads on from the same place, and from there it is consistent again.
    let token = text(&gone["metadata"]["continue"]);
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().expect("items");
        items.iter().map(|item| text(&item["metadata"]["name"])).collect()
    };
    let second = list(&format!("&continue={token}")).expect(200);
    assert_eq!(names(&second), ["bb"]);
    http.delete(&format!("{CONFIG_MAPS}/c")).expect(200);
    let token = text(&second["metadata"]["continue"]);
    let third = list(&format!("&continue={token}")).expect(200);
    assert_eq!(names(&third), ["c"], "as it was when the second page was taken");
    assert_eq!(third["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
}

/// As conformance's "should support continue listing from the last key if the original version has been
/// compacted away" expects it, without a restart.
#[test]
fn a_continue_token_expires_with_compaction() {
    let flags = ["--etcd-compaction-interval=1s"];
    let flavour = Flavour::from_env();
    let server = match flavour {
        Flavour::Embedded => Server::with(flavour, &flags),
        // Other tests need the history of the shared one.
        other => Server::on_own_etcd_with(other, 1, &flags),
    };
    let http = server.http();
    for name in ["a", "b", "c"] {
        let object = json!({"metadata": {"name": name, "labels": {"page": "yes"}}});
        http.post(CONFIG_MAPS, &object).expect(201);
    }
    let list = |more: &str| http.get(&format!("{CONFIG_MAPS}?labelSelector=page&limit=1{more}"));
    let token = |list: &Value| list["metadata"]["continue"].as_str().expect("a token").to_owned();
    let first = token(&list("").expect(200));
    let gone = eventually("the token expires", || {
        let answer = list(&format!("&continue={first}"));
        // Compaction goes up to a revision that was the newest an interval ago.
        http.patch(
            &format!("{CONFIG_MAPS}/a"),
            "application/merge-patch+json",
            &json!({"data": {"at": format!("{:?}", Instant::now())}}),
        );
        (answer.code != 200).then(|| answer.expect(410))
    });
    assert_eq!(gone["reason"], "Expired");
    let rest = list(&format!("&continue={}", token(&gone))).expect(200);
    assert_eq!(rest["items"][0]["metadata"]["name"], "b");
}
