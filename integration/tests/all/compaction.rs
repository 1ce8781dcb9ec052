//! Lists and watches from a compacted revision.

use integration::{Flavour, Server};
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
