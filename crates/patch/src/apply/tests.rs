use meta::{Value, cancel, growth, json, limits::THREAD_STACK_BYTES, value};
use schema::{Field, ListType, Node, NodeType, Schema, Type, TypeId};

use super::*;
use crate::json_text::parse;

/// A custom kind with a list of every list type.
fn foo_schema() -> (Schema, TypeId) {
    let mut schema = Schema::default();
    let add = |schema: &mut Schema, fields: Vec<(&str, Node)>| {
        let mut ty = Type::default();
        ty.fields = fields
            .into_iter()
            .map(|(name, node)| Field { name: name.into(), node, ..Field::default() })
            .collect();
        schema.add(ty)
    };
    let text = || Node::from(NodeType::String);
    let list = |item: Node, kind| Node::from(NodeType::List(Box::new(item), kind));
    let map = |item: Node| Node::from(NodeType::Map(Box::new(item)));
    let keys = |names: &[&str]| ListType::Map(names.iter().map(|&name| name.into()).collect());

    let meta = add(
        &mut schema,
        vec![
            ("name", text()),
            ("namespace", text()),
            ("uid", text()),
            ("resourceVersion", text()),
            ("labels", map(text())),
            ("annotations", map(text())),
            ("finalizers", list(text(), ListType::Set)),
            ("managedFields", list(NodeType::AnyObject.into(), ListType::Atomic)),
        ],
    );
    let item_id = TypeId(meta.0 + 1);
    let item = || Node::from(NodeType::Object(item_id));
    let proto = Node { default: Some("TCP".into()), ..text() };
    add(
        &mut schema,
        vec![
            ("name", text()),
            ("port", NodeType::Int64.into()),
            ("proto", proto),
            ("value", text()),
            ("sub", list(item(), keys(&["name"]))),
            ("m", map(text())),
        ],
    );
    let nested = add(&mut schema, vec![("a", text()), ("b", item())]);
    let spec = add(
        &mut schema,
        vec![
            ("num", NodeType::Int64.into()),
            ("str", text()),
            ("flag", NodeType::Bool.into()),
            ("list", list(item(), keys(&["name"]))),
            ("ports", list(item(), keys(&["port", "proto"]))),
            ("set", list(text(), ListType::Set)),
            ("atomicList", list(item(), ListType::Atomic)),
            ("atomicMap", Node { atomic: true, ..map(text()) }),
            ("map", map(text())),
            ("nested", NodeType::Object(nested).into()),
            ("free", NodeType::AnyObject.into()),
            ("any", NodeType::Any.into()),
        ],
    );
    let status = add(&mut schema, vec![("phase", text())]);
    let root = add(
        &mut schema,
        vec![
            ("apiVersion", text()),
            ("kind", text()),
            ("metadata", NodeType::Object(meta).into()),
            ("spec", NodeType::Object(spec).into()),
            ("status", NodeType::Object(status).into()),
        ],
    );
    (schema, root)
}

/// One request of a scenario: manager, operation and body, and the expected managedFields and
/// object.
struct World {
    schema: Schema,
    ty: TypeId,
    live: Option<Value>,
    clock: u32,
}

impl World {
    fn new() -> Self {
        let (schema, ty) = foo_schema();
        Self { schema, ty, live: None, clock: 0 }
    }

    fn body(spec: &str) -> Value {
        let mut body =
            value!({"apiVersion": "ex.com/v1", "kind": "Foo", "metadata": {"name": "x"}});
        body.set_at(&["spec"], parse(spec).unwrap());
        body
    }

    fn with<T>(
        &mut self,
        name: &str,
        act: impl FnOnce(&TypeContext<'_>, &Manager<'_>, &mut Option<Value>) -> T,
    ) -> T {
        self.clock += 1;
        let now = format!("2030-01-01T00:00:{:02}Z", self.clock);
        let fields = Filter::Except(Set::of(&[&["status"]]));
        let types = TypeContext {
            schema: &self.schema,
            ty: self.ty,
            fields: &fields,
            versions: &SingleVersion,
        };
        let manager = Manager { name, api_version: "ex.com/v1", subresource: "", now: &now };
        act(&types, &manager, &mut self.live)
    }

    fn apply(&mut self, name: &str, spec: &str, force: bool) -> Result<(), ApplyError> {
        let body = Self::body(spec);
        self.with(name, |types, manager, live| {
            *live = Some(apply(live.as_ref(), &body, types, manager, force)?);
            Ok(())
        })
    }

    fn update(&mut self, name: &str, spec: &str) {
        let mut body = Self::body(spec);
        self.with(name, |types, manager, live| {
            if let Some(old) = live {
                body.set_at(&["metadata", "uid"], old.str_at(&["metadata", "uid"]));
            } else {
                body.set_at(&["metadata", "uid"], "1");
            }
            update(live.as_ref(), &mut body, types, manager);
            *live = Some(body);
        });
    }

    fn spec(&self) -> String {
        self.live
            .as_ref()
            .and_then(|live| live.get("spec"))
            .map(json::to_string)
            .unwrap_or_default()
    }

    /// `manager operation seconds fields`, one line per entry.
    fn managed_fields(&self) -> String {
        let entries = self
            .live
            .as_ref()
            .map_or(&[][..], |live| live.items_at(&["metadata", "managedFields"]));
        let line = |entry: &Value| {
            let time = entry.str_at(&["time"]);
            let seconds = time.get(17..19).unwrap_or("-");
            let fields = entry.get("fieldsV1").map(json::to_string).unwrap_or_default();
            format!(
                "{} {} {seconds} {fields}",
                entry.str_at(&["manager"]),
                entry.str_at(&["operation"])
            )
        };
        entries.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

#[track_caller]
fn check_owners(world: &World, expected: &[&str]) {
    assert_eq!(world.managed_fields(), expected.join("\n"));
}

#[test]
fn an_applier_owns_the_fields_of_its_configuration_only() {
    let mut world = World::new();
    world
        .apply(
            "a",
            r#"{"num":1,"list":[{"name":"x","value":"1"},{"name":"y"}],"map":{"k":"v"}}"#,
            false,
        )
        .unwrap();
    check_owners(
        &world,
        &[
            r#"a Apply 01 {"f:spec":{"f:list":{"k:{\"name\":\"x\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"y\"}":{".":{},"f:name":{}}},"f:map":{"f:k":{}},"f:num":{}}}"#,
        ],
    );
    world.apply("b", r#"{"list":[{"name":"y"}]}"#, false).unwrap();
    // b applied the existing value: nothing changed, so its entry has no time.
    world.apply("a", r#"{"list":[{"name":"x"}]}"#, false).unwrap();
    assert_eq!(world.spec(), r#"{"list":[{"name":"x"},{"name":"y"}]}"#);
    check_owners(
        &world,
        &[
            r#"b Apply - {"f:spec":{"f:list":{"k:{\"name\":\"y\"}":{".":{},"f:name":{}}}}}"#,
            r#"a Apply 03 {"f:spec":{"f:list":{"k:{\"name\":\"x\"}":{".":{},"f:name":{}}}}}"#,
        ],
    );
}

#[test]
fn an_update_takes_ownership_of_changed_fields() {
    let mut world = World::new();
    world.update("a", r#"{"num":1,"str":"s","set":["p"]}"#);
    check_owners(
        &world,
        &[r#"a Update 01 {"f:spec":{".":{},"f:num":{},"f:set":{".":{},"v:\"p\"":{}},"f:str":{}}}"#],
    );
    world.update("b", r#"{"num":2,"set":["p","q"]}"#);
    check_owners(
        &world,
        &[
            r#"a Update 01 {"f:spec":{".":{},"f:set":{".":{},"v:\"p\"":{}}}}"#,
            r#"b Update 02 {"f:spec":{"f:num":{},"f:set":{"v:\"q\"":{}}}}"#,
        ],
    );
    // Applying the same configuration again changes nothing.
    let before = world.live.clone();
    world.update("c", r#"{"num":2,"set":["p","q"]}"#);
    assert_eq!(world.live, before);
}

#[test]
fn conflicts_are_reported_unless_forced() {
    let mut world = World::new();
    world.apply("a", r#"{"num":1,"list":[{"name":"x","value":"1"}]}"#, false).unwrap();
    let error = world.apply("b", r#"{"num":2}"#, false).unwrap_err();
    assert_eq!(error.to_string(), r#"Apply failed with 1 conflict: conflict with "a": .spec.num"#);
    world.update("u", r#"{"num":1,"str":"s","list":[{"name":"x","value":"1"}]}"#);
    let error = world
        .apply("b", r#"{"num":2,"str":"t","list":[{"name":"x","value":"2"}]}"#, false)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 3 conflicts: conflicts with \"a\":\n- .spec.num\n- .spec.list[name=\"x\"].value\nconflicts with \"u\" using ex.com/v1:\n- .spec.str"
    );
    let ApiError::ApplyConflict { causes, .. } = ApiError::from(error) else {
        panic!("no conflict")
    };
    assert_eq!(causes[2].field, ".spec.str");
    assert_eq!(causes[2].message, r#"conflict with "u" using ex.com/v1"#);
    world.apply("b", r#"{"num":2,"str":"t"}"#, true).unwrap();
    assert_eq!(world.spec(), r#"{"list":[{"name":"x","value":"1"}],"num":2,"str":"t"}"#);
    check_owners(
        &world,
        &[
            r#"a Apply 01 {"f:spec":{"f:list":{"k:{\"name\":\"x\"}":{".":{},"f:name":{},"f:value":{}}}}}"#,
            r#"b Apply 05 {"f:spec":{"f:num":{},"f:str":{}}}"#,
        ],
    );
}

#[test]
fn atomic_values_change_owner_as_a_whole() {
    let mut world = World::new();
    world.apply("a", r#"{"atomicMap":{"x":"1"},"atomicList":[{"name":"p"}]}"#, false).unwrap();
    let error = world.apply("b", r#"{"atomicMap":{"y":"1"}}"#, false).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "a": .spec.atomicMap"#
    );
    world.apply("b", r#"{"atomicMap":{"y":"1"}}"#, true).unwrap();
    assert_eq!(world.spec(), r#"{"atomicList":[{"name":"p"}],"atomicMap":{"y":"1"}}"#);
}

#[test]
fn fields_before_the_first_apply_get_a_manager_of_their_own() {
    let mut world = World::new();
    world.update("u", r#"{"num":1}"#);
    if let Some(live) = &mut world.live {
        live.remove_at(&["metadata", "managedFields"]);
    }
    let error = world.apply("a", r#"{"num":2}"#, false).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "before-first-apply" using ex.com/v1: .spec.num"#
    );
}

#[test]
fn managed_fields_are_reset_on_request_only() {
    let mut world = World::new();
    world.apply("a", r#"{"num":1}"#, false).unwrap();
    let live = world.live.clone().unwrap();
    for (given, expected) in [("null", 1), ("[]", 0), ("[{}]", 0), (r#"[{"operation":"What"}]"#, 1)]
    {
        let mut new = live.clone();
        new.set_at(&["metadata", "uid"], "1");
        new.set_at(&["metadata", "managedFields"], parse(given).unwrap());
        let old = {
            let mut old = live.clone();
            old.set_at(&["metadata", "uid"], "1");
            old
        };
        world.with("u", |types, manager, _| update(Some(&old), &mut new, types, manager));
        assert_eq!(new.items_at(&["metadata", "managedFields"]).len(), expected, "{given}");
    }
}

#[test]
fn old_update_entries_are_merged() {
    let mut world = World::new();
    for number in 0..13 {
        let members: Vec<String> = (0..=number).map(|k| format!(r#""k{k:02}":"v""#)).collect();
        world.update(&format!("u{number:02}"), &format!(r#"{{"map":{{{}}}}}"#, members.join(",")));
    }
    let managed_fields = world.managed_fields();
    assert_eq!(managed_fields.lines().count(), 10);
    assert_eq!(
        managed_fields.lines().next(),
        Some(
            r#"ancient-changes Update 04 {"f:spec":{".":{},"f:map":{".":{},"f:k00":{},"f:k01":{},"f:k02":{},"f:k03":{}}}}"#
        )
    );
}

#[test]
fn configurations_must_fit_the_schema() {
    let mut world = World::new();
    let cases = [
        (r#"{"bogus":1}"#, ".spec.bogus: field not declared in schema"),
        (r#"{"num":"x"}"#, ".spec.num: expected numeric (int or float), got string"),
        (r#"{"list":{"a":1}}"#, ".spec.list: expected list, got &{map[a:1]}"),
        (r#"{"nested":[]}"#, ".spec.nested: expected map, got &{[]}"),
        (r#"{"flag":"yes"}"#, ".spec.flag: expected boolean, got &{yes}"),
        (r#"{"set":["a","a"]}"#, r#".spec.set: duplicate entries for key [="a"]"#),
        (
            r#"{"list":[{"value":"1"}]}"#,
            r#".spec.list: element 0: associative list with keys has an element that omits all key fields ["name"] (and doesn't have default values for any key fields)"#,
        ),
        (
            r#"{"set":[null]}"#,
            ".spec.set: element 0: associative list without keys has an element that's an explicit null",
        ),
    ];
    for (spec, expected) in cases {
        let error = world.apply("a", spec, false).unwrap_err();
        let expected =
            format!("failed to create typed patch object (/x; ex.com/v1, Kind=Foo): {expected}");
        assert_eq!(error, ApplyError::Untyped(expected));
    }
    let mut body = World::body("{}");
    body.set_at(&["metadata", "managedFields"], Value::Array(Vec::new()));
    let error = world.with("a", |types, manager, _| apply(None, &body, types, manager, false));
    assert_eq!(error.unwrap_err().to_string(), "metadata.managedFields must be nil");
    body.set_at(&["apiVersion"], "ex.com/v2");
    let error = world.with("a", |types, manager, _| apply(None, &body, types, manager, false));
    assert_eq!(error.unwrap_err().to_string(), "invalid object type: ex.com/v2, Kind=Foo");
    body.set_at(&["apiVersion"], "ex.com/v1/z");
    let error = world.with("a", |types, manager, _| apply(None, &body, types, manager, false));
    assert_eq!(error.unwrap_err().to_string(), "invalid object type: /, Kind=");
}

#[test]
fn kubectl_upgrades_from_client_side_apply() {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let mut world = World::new();
    world.update("kubectl-client-side-apply", r#"{"num":1,"str":"s"}"#);
    let last = json::to_string(&World::body(r#"{"num":1,"str":"old"}"#));
    world.live.as_mut().unwrap().set_at(&["metadata", "annotations", annotation], last);
    // The client-side applier set num and no manager changed it since; str was changed by another
    // manager.
    let error = world.apply("kubectl", r#"{"num":2,"str":"t"}"#, false).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using ex.com/v1: .spec.str"#
    );
    assert!(world.apply("other", r#"{"num":2}"#, false).is_err());
    world.apply("kubectl", r#"{"num":2}"#, false).unwrap();
    assert_eq!(world.spec(), r#"{"num":2,"str":"s"}"#);
    assert_eq!(
        world.live.unwrap().str_at(&["metadata", "annotations", annotation]),
        "{\"apiVersion\":\"ex.com/v1\",\"kind\":\"Foo\",\"metadata\":{\"name\":\"x\"},\"spec\":{\"num\":2}}\n"
    );
}

#[test]
fn times_alone_are_no_change() {
    let object = |time: &str, number: i64| value!({"metadata": {"managedFields": [{"manager": "a", "time": time}]}, "spec": {"num": number}});
    let mut new = object("2030-01-01T00:00:02Z", 1);
    keep_times_if_unchanged(&object("2030-01-01T00:00:01Z", 1), &mut new);
    assert_eq!(new, object("2030-01-01T00:00:01Z", 1));
    let mut new = object("2030-01-01T00:00:02Z", 2);
    keep_times_if_unchanged(&object("2030-01-01T00:00:01Z", 1), &mut new);
    assert_eq!(new, object("2030-01-01T00:00:02Z", 2));
}

#[test]
fn scale_updates_transfer_ownership_of_replicas() {
    let path = vec![PathElement::field("spec"), PathElement::field("replicas")];
    let paths = ReplicasPaths::from([("apps/v1".to_owned(), Some(path))]);
    let entry = |manager: &str, version: &str, fields: &str| {
        let mut entry = value!({"operation": "Update", "fieldsType": "FieldsV1"});
        entry.set_at(&["manager"], manager);
        entry.set_at(&["apiVersion"], version);
        entry.set_at(&["fieldsV1"], parse(fields).unwrap());
        entry
    };
    let parent = entry("a", "apps/v1", r#"{"f:spec":{"f:paused":{},"f:replicas":{}}}"#);
    let mut parent = value!({"metadata": {"managedFields": [(parent)]}});
    let mut scale = Value::object();
    scale_to_subresource(&parent, &mut scale, &paths).unwrap();
    let replicas = r#"{"f:spec":{"f:replicas":{}}}"#;
    let managed: &[&str] = &["metadata", "managedFields"];
    assert_eq!(scale.items_at(managed), [entry("a", "autoscaling/v1", replicas)]);
    scale.set_at(managed, vec![entry("b", "autoscaling/v1", replicas)]);
    scale_to_parent(&scale, &mut parent, "apps/v1", &paths).unwrap();
    assert_eq!(
        parent.items_at(managed),
        [entry("a", "apps/v1", r#"{"f:spec":{"f:paused":{}}}"#), entry("b", "apps/v1", replicas)]
    );
}

/// A minimal built-in kind: a struct that is always present, an optional one, a list that is always
/// written, and fields with `omitempty`.
fn built_in_schema() -> (Schema, TypeId) {
    use schema::Presence::{Always, OmitEmpty};
    let mut schema = Schema::default();
    let field = |name: &str, kind: NodeType, presence, pointer| Field {
        name: name.into(),
        node: kind.into(),
        presence,
        pointer,
        ..Field::default()
    };
    let mut types = vec![
        vec![field("limit", NodeType::String, OmitEmpty, false)],
        vec![
            field("name", NodeType::String, Always, false),
            field("tty", NodeType::Bool, OmitEmpty, false),
            field("resources", NodeType::Object(TypeId(0)), OmitEmpty, false),
        ],
        vec![
            field("replicas", NodeType::Int32, OmitEmpty, true),
            field("ready", NodeType::Int32, Always, false),
            field("security", NodeType::Object(TypeId(0)), OmitEmpty, true),
            field(
                "containers",
                NodeType::List(
                    Box::new(NodeType::Object(TypeId(1)).into()),
                    ListType::Map(vec!["name".into()]),
                ),
                Always,
                false,
            ),
            field(
                "tolerations",
                NodeType::List(Box::new(NodeType::Object(TypeId(1)).into()), ListType::Atomic),
                OmitEmpty,
                false,
            ),
        ],
        vec![field("uid", NodeType::String, OmitEmpty, false)],
    ];
    types.push(vec![
        field("apiVersion", NodeType::String, OmitEmpty, false),
        field("kind", NodeType::String, OmitEmpty, false),
        field("metadata", NodeType::Object(TypeId(3)), OmitEmpty, false),
        field("spec", NodeType::Object(TypeId(2)), OmitEmpty, false),
    ]);
    for fields in types {
        let mut ty = Type::default();
        ty.fields = fields;
        schema.add(ty);
    }
    (schema, TypeId(4))
}

#[test]
fn built_in_types_compare_like_go_structs() {
    let (schema, ty) = built_in_schema();
    let fields = Filter::All;
    let types = TypeContext { schema: &schema, ty, fields: &fields, versions: &SingleVersion };
    let manager =
        Manager { name: "u", api_version: "v1", subresource: "", now: "2030-01-01T00:00:00Z" };
    let owned = |live: Option<&str>, new: &str| {
        let body = |spec: &str| {
            let mut body = value!({"metadata": {"uid": "1"}});
            body.set_at(&["spec"], parse(spec).unwrap());
            body
        };
        let mut live = live.map(body);
        if let Some(live) = &mut live {
            // Without any entry in managedFields an update would not be tracked.
            let entry = value!({"manager": "a", "operation": "Update", "apiVersion": "v1",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:x": {}}});
            live.set_at(&["metadata", "managedFields"], Value::Array(vec![entry]));
        }
        let mut new = body(new);
        update(live.as_ref(), &mut new, &types, &manager);
        let entries = new.items_at(&["metadata", "managedFields"]);
        let own = entries.iter().find(|entry| entry.str_at(&["manager"]) == "u");
        own.and_then(|entry| entry.get("fieldsV1")).map(json::to_string).unwrap_or_default()
    };
    let cases = [
        // The struct of spec was there before, its list was null; the optional struct is new.
        (
            None,
            r#"{"replicas":0,"ready":0,"security":{"limit":"1"},"containers":[{"name":"a","tty":false}]}"#,
            r#"{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:resources":{}}},"f:replicas":{},"f:security":{".":{},"f:limit":{}}}}"#,
        ),
        (Some(r#"{"ready":0}"#), r#"{"ready":1}"#, r#"{"f:spec":{"f:ready":{}}}"#),
        // Zero values are no change, whether they are written or not.
        (
            Some(r#"{"ready":0,"containers":null,"tolerations":[{"name":"t","resources":{}}]}"#),
            r#"{"tolerations":[{"name":"t","tty":false}]}"#,
            "",
        ),
    ];
    for (live, new, expected) in cases {
        assert_eq!(owned(live, new), expected, "{new}");
    }
}

#[test]
fn the_deepest_object_is_applied_twice_on_a_small_stack() {
    let run = || {
        let (schema, ty) = foo_schema();
        let types =
            TypeContext { schema: &schema, ty, fields: &Filter::All, versions: &SingleVersion };
        let manager = Manager { name: "m", api_version: "v1", subresource: "", now: "" };
        let config = |text: &str| {
            // The object, its `spec` and `free` are levels too.
            let levels = meta::limits::OBJECT_DEPTH_MAX - 2;
            let free = (0..levels).fold(Value::from(text), |inner, _| value!({"a": (inner)}));
            value!({"apiVersion": "v1", "kind": "Foo", "spec": {"free": (free)}})
        };
        let live = apply(None, &config("x"), &types, &manager, false).unwrap();
        let again = apply(Some(&live), &config("y"), &types, &manager, false).unwrap();
        assert!(json::to_string(&again).contains("\"y\""));
        let other = Manager { name: "o", ..manager };
        let error = apply(Some(&live), &config("z"), &types, &other, false).unwrap_err();
        assert!(error.to_string().starts_with("Apply failed with 1 conflict"));
        let forced = apply(Some(&live), &config("z"), &types, &other, true).unwrap();
        let mut updated = config("w");
        update(Some(&forced), &mut updated, &types, &manager);
        let less = value!({"apiVersion": "v1", "kind": "Foo", "spec": {}});
        apply(Some(&updated), &less, &types, &other, true).unwrap();
    };
    // Debug builds take several times the stack.
    let stack_bytes = if cfg!(debug_assertions) { THREAD_STACK_BYTES } else { 1 << 20 };
    std::thread::Builder::new().stack_size(stack_bytes).spawn(run).unwrap().join().unwrap();
}

/// Applies, updates and removals of every kind of list and of maps.
#[test]
fn apply_costs_no_more_than_in_proportion() {
    let (schema, ty) = foo_schema();
    let types = TypeContext { schema: &schema, ty, fields: &Filter::All, versions: &SingleVersion };
    let manager = Manager { name: "m", api_version: "v1", subresource: "", now: "" };
    let named = |i: usize| value!({"name": (format!("n{i}"))});
    let many: [(&str, &dyn Fn(usize) -> Value); 7] = [
        ("list", &|n| (0..n).map(named).collect::<Vec<_>>().into()),
        ("ports", &|n| {
            let port = |i: usize| value!({"port": (i as i64), "proto": "UDP"});
            (0..n).map(port).collect::<Vec<_>>().into()
        }),
        ("set", &|n| (0..n).map(|i| Value::from(format!("v{i}"))).collect::<Vec<_>>().into()),
        ("set", &|n| (0..n).rev().map(|i| Value::from(format!("v{i}"))).collect::<Vec<_>>().into()),
        ("atomicList", &|n| (0..n).map(named).collect::<Vec<_>>().into()),
        ("free", &|n| {
            let members = (0..n).map(|i| (meta::Str::from(format!("k{i}")), Value::from("v")));
            Value::Object(members.collect())
        }),
        ("list", &|n| vec![value!({"name": "same"}); n].into()),
    ];
    for (field, make) in many {
        let config = |n: usize| {
            let mut spec = Value::object();
            spec.set_at(&[field], make(n));
            value!({"apiVersion": "v1", "kind": "Foo", "spec": (spec)})
        };
        growth::assert_linear(field, 200, config, |config| {
            let Ok(live) = apply(None, config, &types, &manager, true) else { return };
            let other = Manager { name: "o", ..manager };
            let again = apply(Some(&live), config, &types, &other, true).unwrap();
            let less = value!({"apiVersion": "v1", "kind": "Foo", "spec": {}});
            let removed = apply(Some(&again), &less, &types, &manager, true).unwrap();
            let mut updated = config.clone();
            update(Some(&removed), &mut updated, &types, &manager);
        });
        let config = config(100);
        assert!(cancel::is_interruptible(|| {
            let _ = apply(None, &config, &types, &manager, true);
        }));
    }
}
