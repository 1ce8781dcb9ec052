//! Custom resources: definitions, and objects of the kinds they define.

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use http::Request;
use integration::{Http, Server, Shared, eventually, shared};
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition of `boats` in a group of its own.
fn definition(group: &str) -> Value {
    json!({
        "metadata": {"name": format!("boats.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "categories": ["all"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.oars", "statusReplicasPath": ".status.oars"},
                },
                "selectableFields": [{"jsonPath": ".spec.name"}],
                "additionalPrinterColumns": [
                    {"name": "Oars", "type": "integer", "jsonPath": ".spec.oars"},
                    {"name": "Bow", "type": "string", "jsonPath": ".spec.crew[?(@.seat==\"bow\")].who"},
                ],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["name"], "properties": {
                        "name": {"type": "string", "maxLength": 8},
                        "oars": {"type": "integer", "minimum": 0, "default": 2},
                        "crew": {
                            "type": "array",
                            "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["seat"],
                            "items": {"type": "object", "required": ["seat"], "properties": {
                                "seat": {"type": "string"}, "who": {"type": "string"},
                            }},
                        },
                        "cargo": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    }},
                    "status": {"type": "object", "properties": {"oars": {"type": "integer"}}},
                }}},
            }],
        },
    })
}

/// Waits until a definition has a condition.
fn wait_for(http: &Http, name: &str, condition: &str) -> Value {
    eventually(&format!("{name} is {condition}"), || {
        let found = http.get(&format!("{DEFINITIONS}/{name}"));
        let found = (found.code == 200).then(|| found.json())?;
        let conditions = found["status"]["conditions"].as_array()?;
        conditions
            .iter()
            .any(|known| known["type"] == condition && known["status"] == "True")
            .then_some(found)
    })
}

/// The server, and where the boats of a new group are.
fn harbour(purpose: &str) -> (Shared, Http, String) {
    let server = shared();
    let http = server.http();
    let group = format!("{purpose}.example.com");
    http.post(DEFINITIONS, &definition(&group)).expect(201);
    wait_for(&http, &format!("boats.{group}"), "Established");
    let namespace = server.namespace(purpose);
    let path = format!("/apis/{group}/v1/namespaces/{namespace}/boats");
    eventually("boats are served", || (http.get(&path).code == 200).then_some(()));
    (server, http, path)
}

fn boat(path: &str, name: &str, spec: &Value) -> Value {
    let group = path.split('/').nth(2).expect("a path has a group");
    json!({"apiVersion": format!("{group}/v1"), "kind": "Boat", "metadata": {"name": name}, "spec": spec})
}

#[test]
fn what_the_schema_does_not_know_is_dropped_and_what_is_missing_filled_in() {
    let (_server, http, path) = harbour("shape");
    let spec = json!({"name": "Argo", "paint": "red", "cargo": {"gold": [1]}});
    let made = http.post(&path, &boat(&path, "a", &spec)).expect(201);
    assert_eq!(made["spec"], json!({"name": "Argo", "oars": 2, "cargo": {"gold": [1]}}));
    assert_eq!(made["metadata"]["generation"], 1);
    let strict = http.post(&format!("{path}?fieldValidation=Strict"), &boat(&path, "b", &spec));
    let message = strict.expect(400)["message"].to_string();
    assert!(message.contains(r#"unknown field \"spec.paint\""#), "{message}");
}

#[test]
fn what_breaks_the_schema_is_refused_field_by_field() {
    let (_server, http, path) = harbour("refusal");
    let cases = [
        (json!({}), "spec.name: Required value"),
        (
            json!({"name": "a", "oars": -1}),
            "spec.oars in body should be greater than or equal to 0",
        ),
        (json!({"name": "much too long"}), "spec.name: Too long: may not be more than 8 bytes"),
        (json!({"name": 1}), "spec.name in body must be of type string: \\\"integer\\\""),
        (
            json!({"name": "a", "crew": [{"seat": "bow"}, {"seat": "bow"}]}),
            "spec.crew[1]: Duplicate value: {\\\"seat\\\":\\\"bow\\\"}",
        ),
    ];
    for (spec, why) in cases {
        let refused = http.post(&path, &boat(&path, "a", &spec)).expect(422);
        let message = refused["message"].to_string();
        assert!(message.contains(why), "{why} is missing in {message}");
    }
    let mut other = boat(&path, "a", &json!({"name": "a"}));
    other["kind"] = "Ship".into();
    let message = http.post(&path, &other).expect(422)["message"].to_string();
    assert!(message.contains("must be Boat"), "{message}");
}

#[test]
fn status_and_scale_are_written_apart_from_the_rest() {
    let (_server, http, path) = harbour("apart");
    http.post(&path, &boat(&path, "a", &json!({"name": "a", "oars": 4}))).expect(201);
    let merge = "application/merge-patch+json";
    let both = json!({"spec": {"oars": 9}, "status": {"oars": 3}});
    let patched = http.patch(&format!("{path}/a/status"), merge, &both).expect(200);
    assert_eq!((&patched["spec"]["oars"], &patched["status"]["oars"]), (&json!(4), &json!(3)));
    assert_eq!(patched["metadata"]["generation"], 1);
    let scaled = json!({"spec": {"replicas": 6}});
    let scale = http.patch(&format!("{path}/a/scale"), merge, &scaled).expect(200);
    assert_eq!((&scale["kind"], &scale["status"]["replicas"]), (&json!("Scale"), &json!(3)));
    let boat = http.get(&format!("{path}/a")).expect(200);
    assert_eq!((&boat["spec"]["oars"], &boat["metadata"]["generation"]), (&json!(6), &json!(2)));
    let strategic = "application/strategic-merge-patch+json";
    http.patch(&format!("{path}/a"), strategic, &scaled).expect(415);
    http.get(&format!("{path}/a/cargo")).expect(404);
}

#[test]
fn columns_and_field_selectors_come_from_the_definition() {
    let (_server, http, path) = harbour("columns");
    let crew = json!([{"seat": "bow", "who": "Ann"}]);
    http.post(&path, &boat(&path, "a", &json!({"name": "A", "crew": crew}))).expect(201);
    http.post(&path, &boat(&path, "b", &json!({"name": "B", "oars": 5}))).expect(201);
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let request = Request::get(&path).header("accept", accept).body(Bytes::new());
    let table = http.request(request.expect("a valid request")).expect(200);
    let names: Vec<&Value> = table["columnDefinitions"]
        .as_array()
        .expect("a table has columns")
        .iter()
        .map(|column| &column["name"])
        .collect();
    assert_eq!(names, ["Name", "Oars", "Bow"]);
    assert_eq!(table["rows"][0]["cells"], json!(["a", 2, "Ann"]));
    assert_eq!(table["rows"][1]["cells"], json!(["b", 5, null]));
    let found = http.get(&format!("{path}?fieldSelector=spec.name%3DB")).expect(200);
    assert_eq!(found["items"][0]["metadata"]["name"], "b");
    assert_eq!(found["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(found["kind"], "BoatList");
    let refused = http.get(&format!("{path}?fieldSelector=spec.oars%3D2")).expect(400);
    assert_eq!(refused["message"], "field label not supported: spec.oars");
}

#[test]
fn appliers_share_a_list_by_its_keys() {
    let (_server, http, path) = harbour("apply");
    let apply = |manager: &str, spec: Value| {
        let to = format!("{path}/a?fieldManager={manager}");
        http.patch(&to, "application/apply-patch+yaml", &boat(&path, "a", &spec))
    };
    apply("one", json!({"name": "A", "crew": [{"seat": "bow", "who": "Ann"}]})).expect(201);
    let both = apply("two", json!({"name": "A", "crew": [{"seat": "stern"}]})).expect(200);
    assert_eq!(both["spec"]["crew"].as_array().map(Vec::len), Some(2));
    let conflict = apply("two", json!({"name": "B"})).expect(409);
    assert_eq!(conflict["details"]["causes"][0]["field"], ".spec.name");
    let left = apply("two", json!({"name": "A"})).expect(200);
    assert_eq!(left["spec"]["crew"], json!([{"seat": "bow", "who": "Ann"}]));
}

#[test]
fn versions_show_the_same_object_and_owners_survive_a_change_of_version() {
    let (_server, http, path) = harbour("versions");
    let group = path.split('/').nth(2).expect("a path has a group").to_owned();
    let name = format!("{DEFINITIONS}/boats.{group}");
    let apply = "application/apply-patch+yaml";
    let spec = json!({"name": "A", "oars": 3});
    http.patch(&format!("{path}/a?fieldManager=one"), apply, &boat(&path, "a", &spec)).expect(201);

    // A second version, which objects are stored in from now on.
    let mut changed = http.get(&name).expect(200);
    let mut second = changed["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    // Compat: what is the same in all versions is refused in the words of an older API.
    second.as_object_mut().expect("an object").remove("selectableFields");
    let properties = &mut second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    properties.as_object_mut().expect("an object").remove("cargo");
    changed["spec"]["versions"][0]["storage"] = false.into();
    changed["spec"]["versions"].as_array_mut().expect("versions").push(second);
    let changed = http.put(&name, &changed).expect(200);
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));

    let path_v2 = path.replacen("/v1/", "/v2/", 1);
    let read = eventually("the second version is served", || {
        let answer = http.get(&format!("{path_v2}/a"));
        (answer.code == 200).then(|| answer.json())
    });
    assert_eq!(read["apiVersion"], format!("{group}/v2"));
    assert_eq!(read["spec"], json!({"name": "A", "oars": 3}));
    let mut config = boat(&path, "a", &json!({"name": "A"}));
    config["apiVersion"] = format!("{group}/v2").into();
    let to = format!("{path_v2}/a?fieldManager=two");
    let applied = http.patch(&to, apply, &config).expect(200);
    assert_eq!(applied["spec"], json!({"name": "A", "oars": 3}));
    assert_eq!(applied["metadata"]["managedFields"].as_array().map(Vec::len), Some(2));
    let first = http.get(&format!("{path}/a")).expect(200);
    assert_eq!(first["spec"], json!({"name": "A", "oars": 3}));
}

#[test]
fn a_changed_definition_counts_at_once_and_ends_old_watches() {
    let (_server, http, path) = harbour("change");
    let group = path.split('/').nth(2).expect("a path has a group").to_owned();
    let name = format!("{DEFINITIONS}/boats.{group}");
    http.post(&path, &boat(&path, "a", &json!({"name": "A"}))).expect(201);
    let mut watch = http.stream(&format!("{path}?watch=1"));
    watch.expect("ADDED");
    let mut changed = http.get(&name).expect(200);
    let properties = &mut changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    properties["spec"]["properties"]["sail"] = json!({"type": "string", "default": "white"});
    http.put(&name, &changed).expect(200);
    eventually("the default is filled in", || {
        let boat = http.get(&format!("{path}/a")).expect(200);
        (boat["spec"]["sail"] == "white").then_some(())
    });
    assert_eq!(watch.next_event(), None);
}

#[test]
fn a_deleted_definition_takes_its_objects_along_and_waits_for_those_that_are_held() {
    let (_server, http, path) = harbour("leaving");
    let group = path.split('/').nth(2).expect("a path has a group").to_owned();
    let name = format!("boats.{group}");
    let mut held = boat(&path, "held", &json!({"name": "A"}));
    held["metadata"]["finalizers"] = json!(["example.com/anchor"]);
    http.post(&path, &held).expect(201);
    http.post(&path, &boat(&path, "free", &json!({"name": "B"}))).expect(201);
    let leaving = http.delete(&format!("{DEFINITIONS}/{name}")).expect(200);
    let finalizer = "customresourcecleanup.apiextensions.k8s.io";
    assert_eq!(leaving["metadata"]["finalizers"], json!([finalizer]));
    wait_for(&http, &name, "Terminating");
    eventually("the free one is gone", || {
        (http.get(&format!("{path}/free")).code == 404).then_some(())
    });
    let late = http.post(&path, &boat(&path, "late", &json!({"name": "C"}))).expect(403);
    assert!(late["message"].to_string().contains("is terminating"), "{late}");
    let released = json!({"metadata": {"finalizers": null}});
    http.patch(&format!("{path}/held"), "application/merge-patch+json", &released).expect(200);
    eventually("the definition is gone", || {
        (http.get(&format!("{DEFINITIONS}/{name}")).code == 404).then_some(())
    });
    let answer = eventually("boats are not served any more", || {
        let answer = http.get(&path);
        (answer.code == 404).then_some(answer)
    });
    assert_eq!(answer.text(), "404 page not found\n");
}

#[test]
fn names_are_accepted_once_per_group() {
    let (_server, http, path) = harbour("names");
    let group = path.split('/').nth(2).expect("a path has a group").to_owned();
    let mut second = definition(&group);
    second["metadata"]["name"] = format!("ships.{group}").into();
    second["spec"]["names"] = json!({"plural": "ships", "kind": "Boat", "listKind": "Ships"});
    http.post(DEFINITIONS, &second).expect(201);
    let refused = eventually("the names are accepted or refused", || {
        let found = http.get(&format!("{DEFINITIONS}/ships.{group}")).expect(200);
        let conditions = found["status"]["conditions"].as_array()?.clone();
        conditions.into_iter().find(|known| known["type"] == "NamesAccepted")
    });
    assert_eq!((&refused["status"], &refused["reason"]), (&json!("False"), &json!("KindConflict")));
    assert_eq!(http.get(&format!("/apis/{group}/v1/ships")).code, 404);
    http.delete(&format!("{DEFINITIONS}/boats.{group}")).expect(200);
    wait_for(&http, &format!("ships.{group}"), "Established");
}

#[test]
fn a_group_is_in_discovery_openapi_and_api_services() {
    let (_server, http, path) = harbour("told");
    let group = path.split('/').nth(2).expect("a path has a group").to_owned();
    eventually("the group is in discovery", || {
        let groups = http.get("/apis").expect(200);
        let groups = groups["groups"].as_array()?.clone();
        groups.iter().any(|known| known["name"] == group.as_str()).then_some(())
    });
    let resources = http.get(&format!("/apis/{group}/v1")).expect(200);
    assert_eq!(resources["resources"][0]["name"], "boats");
    assert!(resources["resources"][0]["storageVersionHash"].is_string());
    let document = eventually("OpenAPI knows boats", || {
        let answer = http.get(&format!("/openapi/v3/apis/{group}/v1"));
        (answer.code == 200).then(|| answer.json())
    });
    let reversed: Vec<&str> = group.split('.').rev().collect();
    let boat = &document["components"]["schemas"][format!("{}.v1.Boat", reversed.join("."))];
    assert_eq!(boat["properties"]["spec"]["properties"]["oars"]["default"], 2);
    assert_eq!(boat["x-kubernetes-group-version-kind"][0]["kind"], "Boat");
    eventually("the group is registered", || {
        let services = "/apis/apiregistration.k8s.io/v1/apiservices";
        let answer = http.get(&format!("{services}/v1.{group}"));
        let answer = (answer.code == 200).then(|| answer.json())?;
        (answer["status"]["conditions"][0]["reason"] == "Local").then_some(())
    });
}

#[test]
fn custom_resources_are_there_after_a_restart() {
    let mut server = Server::start();
    let http = server.http();
    http.post(DEFINITIONS, &definition("restart.example.com")).expect(201);
    wait_for(&http, "boats.restart.example.com", "Established");
    let path = "/apis/restart.example.com/v1/namespaces/default/boats";
    eventually("boats are served", || (http.get(path).code == 200).then_some(()));
    let made = http.post(path, &boat(path, "a", &json!({"name": "A"}))).expect(201);
    server.stop();
    server.start_again();
    let http = server.http();
    let read = eventually("boats are served again", || {
        let answer = http.get(&format!("{path}/a"));
        (answer.code == 200).then(|| answer.json())
    });
    assert_eq!(read, made);
}

#[test]
fn owned_and_namespaced_objects_go_with_what_they_belong_to() {
    let (server, http, path) = harbour("belonging");
    if !server.has_controllers() {
        return;
    }
    let namespace = path.split('/').nth(5).expect("a path has a namespace").to_owned();
    let owner = http.post(&path, &boat(&path, "owner", &json!({"name": "A"}))).expect(201);
    let reference = json!([{
        "apiVersion": owner["apiVersion"], "kind": "Boat", "name": "owner",
        "uid": owner["metadata"]["uid"],
    }]);
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let owned = json!({"metadata": {"name": "owned", "ownerReferences": reference}});
    http.post(&maps, &owned).expect(201);
    http.post(&path, &boat(&path, "other", &json!({"name": "B"}))).expect(201);
    http.delete(&format!("{path}/owner")).expect(200);
    eventually("what it owned is gone", || {
        (http.get(&format!("{maps}/owned")).code == 404).then_some(())
    });
    http.delete(&format!("/api/v1/namespaces/{namespace}")).expect(200);
    eventually("the namespace is gone", || {
        (http.get(&format!("/api/v1/namespaces/{namespace}")).code == 404).then_some(())
    });
    let all = path.replace(&format!("/namespaces/{namespace}"), "");
    assert_eq!(http.get(&all).expect(200)["items"], json!([]));
}

/// A rule that is newer than the object: what an update leaves as it was is a warning.
#[test]
fn what_broke_a_rule_before_there_was_one_may_stay_with_a_warning() {
    let (_server, http, path) = harbour("ratchet");
    http.post(&path, &boat(&path, "a", &json!({"name": "A"}))).expect(201);
    let group = path.split('/').nth(2).expect("a path has a group");
    let at = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/name/x-kubernetes-validations";
    let rule =
        json!([{"op": "add", "path": at, "value": [{"rule": "self != 'A'", "message": "not A"}]}]);
    http.patch(&format!("{DEFINITIONS}/boats.{group}"), "application/json-patch+json", &rule)
        .expect(200);
    eventually("the rule is in effect", || {
        let new =
            http.post(&format!("{path}?dryRun=All"), &boat(&path, "b", &json!({"name": "A"})));
        (new.code == 422).then_some(())
    });
    let changed = http.patch(
        &format!("{path}/a"),
        "application/merge-patch+json",
        &json!({"spec": {"oars": 3}}),
    );
    let warnings: Vec<_> = changed.headers.get_all("warning").iter().collect();
    assert_eq!(warnings, [r#"299 - "spec.name: Invalid value: \"A\": not A""#]);
    assert_eq!(changed.expect(200)["spec"], json!({"name": "A", "oars": 3}));
}

#[tokio::test]
async fn kube_rs_watches_and_applies_custom_resources() {
    let (server, _http, path) = harbour("kubers");
    let parts: Vec<&str> = path.split('/').collect();
    let (group, namespace) = (parts[2], parts[5]);
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", "Boat"));
    let api: Api<DynamicObject> = Api::namespaced_with(server.kube().await, namespace, &resource);
    let events = watcher(api.clone(), watcher::Config::default()).applied_objects();
    let mut events = std::pin::pin!(events.map_ok(|boat| boat.data["spec"]["oars"].clone()));
    let made: DynamicObject =
        serde_json::from_value(boat(&path, "a", &json!({"name": "A"}))).expect("a boat");
    api.create(&PostParams::default(), &made).await.expect("it is created");
    assert_eq!(events.next().await.expect("an event").expect("a boat"), json!(2));
    let config = boat(&path, "a", &json!({"oars": 7}));
    let applied = api
        .patch("a", &PatchParams::apply("rower").force(), &Patch::Apply(&config))
        .await
        .expect("it is applied");
    assert_eq!(applied.data["spec"], json!({"name": "A", "oars": 7}));
    assert_eq!(events.next().await.expect("an event").expect("a boat"), json!(7));
}
