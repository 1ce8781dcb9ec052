//! Several servers over one etcd: two Pintles, and Pintle and the real kube-apiserver taking turns.

use std::collections::BTreeSet;

use integration::{Flavour, Http, Server, Stream, eventually, peer_program};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn two_servers_over_one_etcd_see_each_others_writes_at_once() {
    let one = Server::of(Flavour::Etcd);
    let two = one.beside(Flavour::Etcd);
    let (first, second) = (one.http(), two.http());
    let mut watch = second.stream(&format!("{CONFIG_MAPS}?watch=true"));
    for n in 0..20 {
        let name = format!("cm-{n}");
        let path = format!("{CONFIG_MAPS}/{name}");
        let made = first.post(CONFIG_MAPS, &json!({"metadata": {"name": name}})).expect(201);
        // Not eventually: at once.
        let mut found = second.get(&path).expect(200);
        assert_eq!(made, found);
        found["data"] = json!({"n": n.to_string()});
        let changed = second.put(&path, &found).expect(200);
        assert_eq!(first.get(&path).expect(200), changed);
        first.delete(&path).expect(200);
        second.get(&path).expect(404);
    }
    let mut deleted = 0;
    while deleted < 20 {
        let event = watch.next_event().expect("the other server's writes are seen");
        deleted += usize::from(event["type"] == "DELETED");
    }
}

/// Every kind is listed, watched, changed and deleted by the server that has not made it. Where there
/// is no kube-apiserver, the bytes it stored (`builtin`'s `golden.tsv`) stand in for it.
#[test]
fn pintle_and_the_real_server_take_turns_over_one_etcd() {
    let Some(program) = peer_program() else {
        eprintln!("SKIPPED: there is no kube-apiserver here (make peer builds it)");
        return;
    };
    let real = Server::of(Flavour::Peer(program));
    let pintle = real.beside(Flavour::Etcd);
    let (real, pintle) = (real.http(), pintle.http());
    let kinds = every_kind();
    let paths: BTreeSet<&str> = kinds.iter().map(|kind| kind.path.as_str()).collect();
    for path in collections(&real) {
        assert!(paths.contains(path.as_str()), "every_kind.json has no object for {path}");
    }
    for kind in &kinds {
        eprintln!("{}", kind.path);
        kind.verify_on_both_servers(&real, &pintle);
        kind.verify_on_both_servers(&pintle, &real);
    }
    let definition = kinds.iter().find(|kind| kind.path.contains("customresourcedefinitions"));
    let definition = definition.expect("definitions are in the table");
    let custom = Kind {
        path: "/apis/turns.example.org/v1/gadgets".to_owned(),
        name: "g".to_owned(),
        object: json!({"apiVersion": "turns.example.org/v1", "kind": "Gadget",
            "spec": {"m": {"z": 1, "a": "<x>"}}}),
    };
    for (one, other) in [(&real, &pintle), (&pintle, &real)] {
        one.post(&definition.path, &definition.named()).expect(201);
        for server in [one, other] {
            // A definition is served a moment after it was made.
            eventually("it is served", || (server.get(&custom.path).code == 200).then_some(()));
        }
        custom.verify_on_both_servers(one, other);
        // An object that is still there goes with its definition.
        other.post(&custom.path, &custom.named()).expect(201);
        one.delete(&definition.at()).expect(200);
        for server in [one, other] {
            eventually("it is gone", || (server.get(&definition.at()).code == 404).then_some(()));
        }
    }
}

/// A kind's collection, and an object of it.
struct Kind {
    path: String,
    name: String,
    object: Value,
}

fn every_kind() -> Vec<Kind> {
    let kinds: Vec<Value> =
        serde_json::from_str(include_str!("every_kind.json")).expect("the table is JSON");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let kind = |kind: Value| Kind {
        path: text(&kind["path"]).expect("every kind has a path"),
        name: text(&kind["name"]).unwrap_or_else(|| "turns".to_owned()),
        object: kind["object"].clone(),
    };
    kinds.into_iter().map(kind).collect()
}

/// Where objects can be made, listed and deleted, according to discovery.
fn collections(server: &Http) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let mut add = |base: &str| {
        for resource in server.get(base).expect(200)["resources"].as_array().expect("a list") {
            let verbs = resource["verbs"].as_array().expect("a list");
            let name = resource["name"].as_str().expect("a name");
            let stored =
                ["create", "list", "delete"].iter().all(|verb| verbs.contains(&json!(verb)));
            if stored && !name.contains('/') {
                let namespace =
                    if resource["namespaced"] == true { "namespaces/default/" } else { "" };
                paths.insert(format!("{base}/{namespace}{name}"));
            }
        }
    };
    add("/api/v1");
    for group in server.get("/apis").expect(200)["groups"].as_array().expect("a list") {
        for version in group["versions"].as_array().expect("a list") {
            add(&format!("/apis/{}", version["groupVersion"].as_str().expect("a version")));
        }
    }
    paths
}

impl Kind {
    fn at(&self) -> String {
        format!("{}/{}", self.path, self.name)
    }

    fn named(&self) -> Value {
        let mut object = self.object.clone();
        object["metadata"]["name"] = self.name.as_str().into();
        object
    }

    /// One server creates an object, both update it, and the other one deletes it; watches on both see
    /// all events.
    fn verify_on_both_servers(&self, one: &Http, other: &Http) {
        let at = self.at();
        let start = other.get(&self.path).expect(200);
        let from = start["metadata"]["resourceVersion"].as_str().expect("lists have a version");
        let watch = format!("{}?watch=true&resourceVersion={from}", self.path);
        let mut watches = [one.stream(&watch), other.stream(&watch)];
        one.post(&self.path, &self.named()).expect(201);
        self.agree(one, other);

        let patch = json!({"metadata": {"annotations": {"n": "1"}}});
        other.patch(&at, "application/merge-patch+json", &patch).expect(200);
        self.agree(one, other);
        eventually("a put is not overtaken", || {
            let mut object = one.get(&at).expect(200);
            object["metadata"]["labels"]["put"] = "yes".into();
            let answer = one.put(&at, &object);
            (answer.code != 409).then(|| answer.expect(200))
        });
        self.agree(one, other);

        // Some kinds have a protection finalizer.
        let free = json!({"metadata": {"finalizers": null}});
        other.patch(&at, "application/merge-patch+json", &free).expect(200);
        other
            .delete(&format!("{at}?gracePeriodSeconds=0&propagationPolicy=Background"))
            .expect(200);
        for server in [one, other] {
            eventually("it is gone", || (server.get(&at).code == 404).then_some(()));
        }
        for watch in &mut watches {
            self.saw_it_all(watch);
        }
    }

    /// Both servers show the same, down to the last field, by itself and in a list.
    fn agree(&self, one: &Http, other: &Http) {
        let listed = |server: &Http| {
            let list = server.get(&self.path).expect(200);
            let mut items = list["items"].as_array().into_iter().flatten();
            items.find(|item| item["metadata"]["name"] == self.name.as_str()).cloned()
        };
        let mut shown = (Value::Null, Value::Null);
        // Conditions may still be on their way.
        eventually("both servers show the same", || {
            let now = (one.get(&self.at()).expect(200), other.get(&self.at()).expect(200));
            if now.0 != now.1 && now != shown {
                eprintln!("{} differs:\n{}\n{}", self.path, now.0, now.1);
                shown = now.clone();
            }
            let same = now.0 == now.1 && listed(one) == listed(other);
            (same && listed(one).is_some()).then_some(())
        });
    }

    fn saw_it_all(&self, watch: &mut Stream) {
        let mut types = Vec::new();
        while types.last() != Some(&json!("DELETED")) {
            let event = watch.next_event().expect("the watch goes on");
            if event["object"]["metadata"]["name"] == self.name.as_str() {
                types.push(event["type"].clone());
            }
        }
        let changed = types.iter().filter(|kind| **kind == "MODIFIED").count();
        assert!(types[0] == "ADDED" && changed >= 2, "{}: {types:?}", self.path);
    }
}

#[test]
fn a_server_says_where_other_servers_reach_it_until_it_stops() {
    let flags = ["--peer-advertise-ip=192.0.2.9", "--peer-advertise-port=6444"];
    let mut server = Server::with(Flavour::Etcd, &flags);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let list = server.http().get(leases).expect(200);
    let identity = list["items"][0]["metadata"]["name"].as_str().expect("one lease").to_owned();
    let key = format!("{}/peerserverleases/{identity}", server.storage_prefix());
    let stored = |server: &Server| server.etcd().expect("it is on etcd").value(&key);
    let lease = eventually("the lease is there", || stored(&server));
    let has = |part: &[u8]| lease.windows(part.len()).any(|window| window == part);
    assert!(has(b"192.0.2.9") && has(b"apiserverIdentity"), "{lease:?}");
    assert!(server.stop().success());
    assert_eq!(stored(&server), None);
}
