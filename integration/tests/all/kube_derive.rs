//! An operator as authors write it with kube-rs: the definition is derived from a struct, installed by
//! apply, waited for, and its objects are handled by their own type.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use integration::eventually::PATIENCE;
use integration::{Shared, shared};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{Controller, WatchStreamExt, watcher};
use kube::{Client, CustomResource, CustomResourceExt, KubeSchema, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// What a lighthouse should do.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "derived.example.com",
    version = "v1",
    kind = "Lighthouse",
    namespaced,
    status = "LighthouseStatus",
    derive = "PartialEq",
    shortname = "lh",
    category = "harbour",
    selectable = ".spec.colour",
    printcolumn(json_path = ".spec.colour", name = "Colour", type_ = "string"),
    scale(spec_replicas_path = ".spec.lamps", status_replicas_path = ".status.lit"),
    validation = Rule::new("self.metadata.name != 'pharos'").message("there is one already")
)]
#[x_kube(validation = Rule::new("self.lamps <= self.sockets").message("a lamp needs a socket"))]
#[serde(rename_all = "camelCase")]
struct LighthouseSpec {
    #[x_kube(validation = Rule::new("self == oldSelf").message("paint stays"))]
    colour: Colour,
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 9))]
    lamps: i32,
    sockets: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keeper: Option<String>,
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Set)]
    sectors: BTreeSet<String>,
    fuel: Fuel,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
enum Colour {
    Red,
    White,
}

/// One of these: kube-rs makes `oneOf` of it.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum Fuel {
    Oil { litres: i64 },
    Current { volts: i64 },
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
struct LighthouseStatus {
    lit: i32,
}

const fn one() -> i32 {
    1
}

fn lighthouse(name: &str) -> Lighthouse {
    let spec = LighthouseSpec {
        colour: Colour::Red,
        lamps: 2,
        sockets: 4,
        keeper: None,
        sectors: BTreeSet::from(["north".to_owned()]),
        fuel: Fuel::Oil { litres: 40 },
    };
    Lighthouse::new(name, spec)
}

/// The definition in place, as an operator puts it there when it starts.
async fn coast(purpose: &str) -> (Shared, Client, Api<Lighthouse>) {
    let server = shared();
    let client = server.kube().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let by = PatchParams::apply("operator").force();
    let definition = Patch::Apply(Lighthouse::crd());
    definitions.patch(Lighthouse::crd_name(), &by, &definition).await.expect("it is installed");
    let established =
        await_condition(definitions, Lighthouse::crd_name(), conditions::is_crd_established());
    in_time(established).await.expect("the definition is established");
    let api = Api::namespaced(client.clone(), &server.namespace(purpose));
    (server, client, api)
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

/// Why the server has refused something.
#[track_caller]
fn refusal<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> (u16, String) {
    match answer.expect_err("the server refuses") {
        kube::Error::Api(status) => (status.code, status.message.clone()),
        other => panic!("not an answer of the server: {other:?}"),
    }
}

#[tokio::test]
async fn a_derived_kind_is_created_read_changed_and_deleted() {
    let (_server, _client, api) = coast("derived-life").await;
    let post = PostParams::default();
    let made = api.create(&post, &lighthouse("a")).await.expect("it is created");
    assert_eq!((made.spec, made.status), (lighthouse("a").spec, None));
    // The server fills in defaults, and warns about unknown fields.
    let bare = json!({
        "apiVersion": "derived.example.com/v1", "kind": "Lighthouse", "metadata": {"name": "b"},
        "spec": {"colour": "White", "sockets": 1, "fuel": {"current": {"volts": 230}}},
    });
    let bare = api.patch("b", &PatchParams::apply("operator"), &Patch::Apply(&bare)).await;
    let bare = bare.expect("it is applied");
    assert_eq!((bare.spec.lamps, bare.spec.sectors.len()), (1, 0));

    let grown = Patch::Merge(json!({"spec": {"lamps": 3}}));
    let grown = api.patch("a", &PatchParams::default(), &grown).await.expect("it is patched");
    assert_eq!((grown.spec.lamps, grown.metadata.generation), (3, Some(2)));
    let mut kept = grown.clone();
    kept.spec.keeper = Some("Ann".to_owned());
    let kept = api.replace("a", &post, &kept).await.expect("it is replaced");
    assert_eq!(kept.spec.keeper.as_deref(), Some("Ann"));
    assert_eq!(refusal(api.replace("a", &post, &grown).await).0, 409);

    let red = ListParams::default().fields("spec.colour=Red");
    let red = api.list(&red).await.expect("a list");
    assert_eq!(red.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["a"]);
    api.delete("a", &DeleteParams::default()).await.expect("it is deleted");
    assert!(api.get_opt("a").await.expect("an answer").is_none());
    api.delete_collection(&DeleteParams::default(), &ListParams::default())
        .await
        .expect("the rest is deleted");
    assert_eq!(api.list(&ListParams::default()).await.expect("a list").items.len(), 0);
}

#[tokio::test]
async fn what_a_derived_schema_forbids_is_refused() {
    let (_server, _client, api) = coast("derived-refused").await;
    let post = PostParams::default();
    api.create(&post, &lighthouse("a")).await.expect("it is created");
    let with = |change: fn(&mut LighthouseSpec)| {
        let mut object = lighthouse("x");
        change(&mut object.spec);
        object
    };
    let cases = [
        (with(|spec| spec.lamps = 5), "a lamp needs a socket"),
        (with(|spec| (spec.lamps, spec.sockets) = (10, 10)), "should be less than or equal to 9"),
        (lighthouse("pharos"), "there is one already"),
    ];
    for (object, why) in cases {
        let (code, message) = refusal(api.create(&post, &object).await);
        assert!(code == 422 && message.contains(why), "{why} is missing in {code} {message}");
    }
    let by = PatchParams::default();
    let merges = [
        (json!({"spec": {"colour": "White"}}), "paint stays"),
        (json!({"spec": {"colour": "Blue"}}), "Unsupported value: \"Blue\""),
        (
            json!({"spec": {"fuel": {"current": {"volts": 1}}}}),
            "must validate one and only one schema",
        ),
        (json!({"spec": {"sockets": "four"}}), "must be of type integer"),
    ];
    for (merge, why) in merges {
        let (code, message) = refusal(api.patch("a", &by, &Patch::Merge(merge)).await);
        assert!(code == 422 && message.contains(why), "{why} is missing in {code} {message}");
    }
}

#[tokio::test]
async fn status_and_scale_of_a_derived_kind_have_ways_of_their_own() {
    let (_server, _client, api) = coast("derived-status").await;
    api.create(&PostParams::default(), &lighthouse("a")).await.expect("it is created");
    let by = PatchParams::apply("keeper").force();
    let lit = json!({
        "apiVersion": "derived.example.com/v1", "kind": "Lighthouse", "status": {"lit": 2},
    });
    let lit = api.patch_status("a", &by, &Patch::Apply(&lit)).await.expect("its status is applied");
    assert_eq!(lit.status, Some(LighthouseStatus { lit: 2 }));
    let mut both = lit.clone();
    both.spec.lamps = 4;
    both.status = Some(LighthouseStatus { lit: 1 });
    let replaced = api.replace_status("a", &PostParams::default(), &both).await;
    let replaced = replaced.expect("its status is replaced");
    assert_eq!((replaced.spec.lamps, replaced.status), (2, Some(LighthouseStatus { lit: 1 })));
    let merge = Patch::Merge(json!({"status": {"lit": 2}}));
    let merged = api.patch_status("a", &PatchParams::default(), &merge).await;
    assert_eq!(merged.expect("its status is patched").status, Some(LighthouseStatus { lit: 2 }));

    let scale = api.get_scale("a").await.expect("it has a scale");
    let counts = (scale.spec.and_then(|spec| spec.replicas), scale.status.map(|now| now.replicas));
    assert_eq!(counts, (Some(2), Some(2)));
    let more = Patch::Merge(json!({"spec": {"replicas": 3}}));
    api.patch_scale("a", &PatchParams::default(), &more).await.expect("it is scaled");
    assert_eq!(api.get("a").await.expect("it is there").spec.lamps, 3);
}

#[tokio::test]
async fn watches_of_a_derived_kind_hand_out_its_type() {
    let (_server, _client, api) = coast("derived-watch").await;
    for streaming in [false, true] {
        let config = watcher::Config::default().fields("spec.colour=Red");
        let config = if streaming { config.streaming_lists() } else { config };
        let name = if streaming { "streamed" } else { "listed" };
        api.create(&PostParams::default(), &lighthouse(name)).await.expect("it is created");
        let events = watcher(api.clone(), config).applied_objects();
        let mut events = pin!(events.try_filter(|seen| {
            let wanted = seen.name_any() == name;
            async move { wanted }
        }));
        let first = in_time(events.next()).await.expect("an event").expect("the stream is fine");
        assert_eq!(first.spec.lamps, 2);
        let patch = Patch::Merge(json!({"spec": {"lamps": 4}}));
        api.patch(name, &PatchParams::default(), &patch).await.expect("it is patched");
        let second = in_time(events.next()).await.expect("an event").expect("the stream is fine");
        assert_eq!(second.spec.lamps, 4);
    }
}

/// What the operator below works with.
struct Keeper {
    api: Api<Lighthouse>,
}

/// Lights as many lamps as there should be.
async fn light(object: Arc<Lighthouse>, keeper: Arc<Keeper>) -> Result<Action, kube::Error> {
    let status = json!({"status": LighthouseStatus { lit: object.spec.lamps }});
    let name = object.name_any();
    keeper.api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(Action::await_change())
}

#[tokio::test]
async fn an_operator_brings_the_status_in_line_with_the_spec() {
    let (_server, _client, api) = coast("derived-operator").await;
    let keeper = Arc::new(Keeper { api: api.clone() });
    let again = |_: Arc<Lighthouse>, _: &kube::Error, _: Arc<Keeper>| {
        Action::requeue(Duration::from_millis(100))
    };
    let operator = Controller::new(api.clone(), watcher::Config::default());
    let operator = operator.run(light, again, keeper).for_each(|_| async {});
    let operator = tokio::spawn(operator);
    api.create(&PostParams::default(), &lighthouse("a")).await.expect("it is created");
    for lamps in [2, 4, 0] {
        let patch = Patch::Merge(json!({"spec": {"lamps": lamps}}));
        api.patch("a", &PatchParams::default(), &patch).await.expect("it is patched");
        let lit = move |object: Option<&Lighthouse>| {
            let status = object.and_then(|object| object.status.as_ref());
            status.is_some_and(|status| status.lit == lamps)
        };
        in_time(await_condition(api.clone(), "a", lit)).await.expect("the lamps are lit");
    }
    operator.abort();
}
