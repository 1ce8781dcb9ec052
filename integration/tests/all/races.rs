//! Concurrent writers of one object. A request without a resourceVersion never gets a 409: the server
//! retries it on the current object.

use std::thread;

use http::Method;
use integration::{Http, shared};
use serde_json::{Value, json};

const WRITERS: usize = 8;
const ROUNDS: usize = 12;

/// A content type, and what sets a key in it.
type Patch<'a> = (&'a str, &'a dyn Fn(&str, &str) -> Value);

/// Runs a writer of each number, all of them side by side.
fn side_by_side(write: impl Fn(usize, usize) + Sync) {
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let write = &write;
            scope.spawn(move || (0..ROUNDS).for_each(|round| write(writer, round)));
        }
    });
}

fn config_map(http: &Http, namespace: &str, name: &str) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let object = json!({"metadata": {"name": name}, "data": {"start": "0"}});
    http.post(&path, &object).expect(201);
    format!("{path}/{name}")
}

fn data(http: &Http, path: &str) -> usize {
    http.get(path).expect(200)["data"].as_object().map_or(0, serde_json::Map::len)
}

#[test]
fn every_patch_type_is_retried_on_conflict() {
    let server = shared();
    let (http, namespace) = (server.http(), server.namespace("races"));
    let merge = |key: &str, value: &str| json!({"data": {key: value}});
    let kinds: [Patch<'_>; 3] = [
        ("application/merge-patch+json", &merge),
        ("application/strategic-merge-patch+json", &merge),
        (
            "application/json-patch+json",
            &|key, value| json!([{"op": "add", "path": format!("/data/{key}"), "value": value}]),
        ),
    ];
    for (number, (content_type, patch)) in kinds.into_iter().enumerate() {
        let path = config_map(&http, &namespace, &format!("patched-{number}"));
        let path = path.as_str();
        let of = |writer: usize, round: usize| (format!("k{writer}-{round}"), round.to_string());
        let patches: Vec<Vec<Value>> = (0..WRITERS)
            .map(|writer| {
                let key_and_value = |round| of(writer, round);
                let patch = |round| {
                    let (key, value) = key_and_value(round);
                    patch(&key, &value)
                };
                (0..ROUNDS).map(patch).collect()
            })
            .collect();
        side_by_side(|writer, round| {
            http.patch(path, content_type, &patches[writer][round]).expect(200);
        });
        assert_eq!(data(&http, path), WRITERS * ROUNDS + 1, "{content_type}: no write is lost");
    }
}

#[test]
fn appliers_of_different_fields_never_conflict() {
    let server = shared();
    let (http, namespace) = (server.http(), server.namespace("races"));
    // The first of them makes the object.
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/applied");
    side_by_side(|writer, round| {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "applied"},
            "data": {format!("k{writer}"): round.to_string()},
        });
        let path = format!("{path}?fieldManager=m{writer}");
        let body = object.to_string();
        let answer = http.send(Method::PATCH, &path, Some("application/apply-patch+yaml"), body);
        assert!(matches!(answer.code, 200 | 201), "{}", answer.text());
        assert_eq!(answer.json()["data"][format!("k{writer}")], round.to_string());
    });
    let object = http.get(&path).expect(200);
    for writer in 0..WRITERS {
        assert_eq!(object["data"][format!("k{writer}")], (ROUNDS - 1).to_string(), "{object}");
    }
    let owners = object["metadata"]["managedFields"].as_array().map_or(0, Vec::len);
    assert_eq!(owners, WRITERS);
}

#[test]
fn updates_without_a_version_scales_and_deletes_never_conflict() {
    let server = shared();
    let (http, namespace) = (server.http(), server.namespace("races"));
    let path = config_map(&http, &namespace, "updated");
    side_by_side(|writer, round| {
        let data = json!({"start": format!("{writer}-{round}")});
        http.put(&path, &json!({"metadata": {"name": "updated"}, "data": data})).expect(200);
    });

    let deployments = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let template = json!({
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    http.post(&deployments, &json!({"metadata": {"name": "d"}, "spec": spec})).expect(201);
    side_by_side(|writer, round| {
        let (path, patch) = match writer % 3 {
            0 => ("scale", json!({"spec": {"replicas": round}})),
            1 => ("status", json!({"status": {"observedGeneration": round}})),
            _ => ("", json!({"metadata": {"annotations": {format!("a{writer}"): "x"}}})),
        };
        let path = format!("{deployments}/d/{path}");
        let path = path.trim_end_matches('/');
        http.patch(path, "application/merge-patch+json", &patch).expect(200);
    });

    // One delete gets a 200, the others a 404, and none a 409.
    side_by_side(|writer, _| {
        let answer = if writer == 0 {
            http.post(path.trim_end_matches("/updated"), &json!({"metadata": {"name": "updated"}}))
        } else if writer == 1 {
            http.patch(&path, "application/merge-patch+json", &json!({"data": {"x": "y"}}))
        } else {
            http.delete(&path)
        };
        let reason = answer.json()["reason"].as_str().unwrap_or_default().to_owned();
        let fine =
            matches!(answer.code, 200 | 201) || reason == "NotFound" || reason == "AlreadyExists";
        assert!(fine, "{}", answer.text());
    });
}

#[test]
fn an_update_with_a_resource_version_succeeds_once() {
    let server = shared();
    let (http, namespace) = (server.http(), server.namespace("races"));
    let path = config_map(&http, &namespace, "counter");
    // Read, increment, update, retry on conflict: as every controller does.
    side_by_side(|_, _| {
        loop {
            let mut object = http.get(&path).expect(200);
            let count: usize =
                object["data"]["start"].as_str().and_then(|n| n.parse().ok()).unwrap();
            object["data"]["start"] = (count + 1).to_string().into();
            let answer = http.put(&path, &object);
            if answer.code == 200 {
                break;
            }
            assert_eq!((answer.code, answer.json()["reason"].as_str()), (409, Some("Conflict")));
        }
    });
    let counted = http.get(&path).expect(200)["data"]["start"].clone();
    assert_eq!(counted, (WRITERS * ROUNDS).to_string());
}
