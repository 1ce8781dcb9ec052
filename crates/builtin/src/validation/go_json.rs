//! Values as kube-apiserver's internal types, printed by Go's `json.Marshal`: errors show them. Errors about
//! immutable specs show the difference of two, printed by `json.MarshalIndent`.
//!
//! The internal types have no JSON tags, so their fields have Go's names, and none is left out. What they
//! are is a fact: `api/go-types.tsv`, written by `tools/facts`.

use std::{collections::HashMap, sync::LazyLock};

use meta::{Str, Value, json::write_string};

pub(crate) use super::unified_diff::Differ;
use super::unified_diff::LINES_MAX;

/// How two values of an internal type (`PodSpec`) differ.
pub(crate) fn diff(go_type: &str, old: &Value, new: &Value) -> String {
    diff_with(&mut Differ::default(), go_type, old, new)
}

/// The same of one of several pairs in an object.
pub(crate) fn diff_with(differ: &mut Differ, go_type: &str, old: &Value, new: &Value) -> String {
    let [old, new] = [old, new].map(|value| print_lines(go_type, value));
    differ.unified_diff(old.as_deref(), new.as_deref())
}

/// A value of an internal type in one line; the value itself is of the version that clients see.
pub(crate) fn compact(go_type: &str, value: Option<&Value>) -> String {
    print(go_type, value, false).unwrap_or_else(|beginning| beginning)
}

/// What is printed of one value. Go prints all fields of a struct, so that a small list becomes a long text, of which
/// an error shows the beginning ([`meta::field::FIELD_ERROR_BYTES_MAX`]).
const PRINTED_BYTES_MAX: usize = 1024 * 1024;

/// The internal type of a kind.
pub(crate) fn kind_type(api_version: &str, kind: &str) -> Option<&'static str> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let package = match group {
        "internal.apiserver.k8s.io" => "apiserverinternal",
        // Compat: both are core's type.
        "" | "events.k8s.io" => "",
        // Compat: its rules are declared for the versions that clients see, so errors show those.
        "scheduling.k8s.io" => return None,
        group => group.split('.').next().unwrap_or_default(),
    };
    let name = if package.is_empty() { kind.to_owned() } else { format!("{package}.{kind}") };
    TYPES.get_key_value(name.as_str()).map(|(name, _)| *name)
}

/// The type of a member of a struct, by its JSON name.
pub(crate) fn member_type(go_type: &'static str, json: &str) -> Option<&'static str> {
    let go_type = go_type.trim_start_matches('*');
    let fields = match (go_type, json) {
        (DEVICE, "basic") => return Some(DEVICE),
        (REQUEST, "name" | "exactly" | "firstAvailable") => TYPES.get(REQUEST)?,
        (REQUEST, _) => TYPES.get(EXACT_REQUEST)?,
        _ => TYPES.get(go_type)?,
    };
    fields.iter().find_map(|field| match field.name {
        "-" => member_type(field.go_type, json),
        _ => (field.json == Some(json)).then_some(field.go_type),
    })
}

// `resource.k8s.io/v1beta1` has the fields of `exactly` in the request itself, and all of a device but its name in `basic`.
const REQUEST: &str = "resource.DeviceRequest";
const EXACT_REQUEST: &str = "resource.ExactDeviceRequest";
const DEVICE: &str = "resource.Device";

/// The value of a member of a struct, which clients may have sent at another place.
fn member<'a>(go_type: &str, json: &str, value: &'a Value) -> Option<&'a Value> {
    let elsewhere = || match (go_type, json) {
        (REQUEST, "exactly") => {
            // A field that is there and empty (`deviceClassName: ""`) is not set.
            let is_set = |value: &Value| value.as_str() != Some("") && value.as_i64() != Some(0);
            let mut fields = TYPES.get(EXACT_REQUEST)?.iter();
            let flat =
                fields.any(|field| value.get(field.json.unwrap_or_default()).is_some_and(is_set));
            flat.then_some(value)
        }
        (DEVICE, json) => value.get("basic")?.get(json),
        _ => None,
    };
    value.get(json).or_else(elsewhere)
}

/// The type of an item of a list.
pub(crate) fn item_type(go_type: &'static str) -> Option<&'static str> {
    go_type.trim_start_matches('*').strip_prefix("[]")
}

/// The type of a value of a map.
pub(crate) fn entry_type(go_type: &'static str) -> Option<&'static str> {
    Some(go_type.trim_start_matches('*').strip_prefix("map[")?.split_once(']')?.1)
}

/// Whether Go prints a value of the type with other names or other fields than clients send.
pub(crate) fn has_go_names(go_type: &str) -> bool {
    let element = go_type.trim_start_matches(['*', '[', ']']);
    match element.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        Some((_, entry)) => has_go_names(entry),
        None => TYPES.contains_key(element) || element == "metav1.LabelSelector",
    }
}

/// None: there are more lines than are compared.
fn print_lines(go_type: &str, value: &Value) -> Option<String> {
    print(go_type, Some(value), true).ok()
}

/// Err: the beginning, of what is too long.
fn print(go_type: &str, value: Option<&Value>, indented: bool) -> Result<String, String> {
    let out = Vec::with_capacity(1024);
    let mut printer = Printer { out, indented, depth: 0, lines: 1, is_cut: false, pod_spec: value };
    printer.value(go_type, value);
    let text = String::from_utf8(printer.out).unwrap_or_default();
    if printer.is_cut { Err(text) } else { Ok(text) }
}

struct GoField {
    name: &'static str,
    /// None: the versioned type has it elsewhere.
    json: Option<&'static str>,
    go_type: &'static str,
}

static TYPES: LazyLock<HashMap<&'static str, Vec<GoField>>> = LazyLock::new(|| {
    let lines = include_str!("../../api/go-types.tsv").lines();
    lines
        .map(|line| {
            let mut columns = line.split('\t');
            let name = columns.next().unwrap_or_default();
            let fields = columns.filter_map(|field| {
                let mut parts = field.splitn(3, ' ');
                let (name, json, go_type) = (parts.next()?, parts.next()?, parts.next()?);
                Some(GoField { name, json: Some(json).filter(|json| *json != "-"), go_type })
            });
            (name, fields.collect())
        })
        .collect()
});

struct Printer<'a> {
    out: Vec<u8>,
    indented: bool,
    depth: usize,
    lines: usize,
    /// The text is too long, and the rest of the value is left out.
    is_cut: bool,
    /// Where the versioned type has what the internal one has in its security context.
    pod_spec: Option<&'a Value>,
}

impl<'a> Printer<'a> {
    fn value(&mut self, go_type: &str, value: Option<&'a Value>) {
        if self.is_cut() {
            return;
        }
        let value = value.filter(|value| !value.is_null());
        if let Some(target) = go_type.strip_prefix('*') {
            return match value {
                Some(value) => self.value(target, Some(value)),
                None => self.text("null"),
            };
        }
        if go_type == "[]byte" {
            return self.leaf(value, "null");
        }
        if let Some(item) = go_type.strip_prefix("[]") {
            let items = value.and_then(Value::as_array);
            return self.list(items, |printer, value| printer.value(item, Some(value)));
        }
        if let Some((_, item)) = go_type.strip_prefix("map[").and_then(|rest| rest.split_once(']'))
        {
            let Some(map) = value.and_then(Value::as_object) else { return self.text("null") };
            let mut members = Members::default();
            for (key, value) in map.iter() {
                if self.is_cut() {
                    break;
                }
                members.begin(self, key);
                self.value(item, Some(value));
            }
            return members.end(self);
        }
        match go_type {
            "string" | "types.UID" | "types.NodeName" => self.leaf(value, "\"\""),
            "bool" => self.leaf(value, "false"),
            "int32" | "int64" | "intstr.IntOrString" => self.leaf(value, "0"),
            "resource.Quantity" => self.leaf(value, "\"0\""),
            "metav1.LabelSelector" => self.tagged(&SELECTOR, value),
            "metav1.Condition" => self.tagged(&CONDITION, value),
            name => match TYPES.get(name) {
                Some(fields) => {
                    let outer = self.pod_spec;
                    if name == "PodSpec" {
                        self.pod_spec = value;
                    }
                    let mut members = Members::default();
                    self.fields(name, fields, value, &mut members);
                    members.end(self);
                    self.pod_spec = outer;
                }
                None => self.leaf(value, "null"),
            },
        }
    }

    fn is_cut(&mut self) -> bool {
        self.is_cut |=
            if self.indented { self.lines > LINES_MAX } else { self.out.len() > PRINTED_BYTES_MAX };
        self.is_cut
    }

    fn fields(
        &mut self,
        struct_type: &str,
        fields: &[GoField],
        value: Option<&'a Value>,
        members: &mut Members,
    ) {
        for field in fields {
            match (field.name, field.go_type) {
                // Go prints the fields of an embedded struct among the others.
                ("-", "metav1.ObjectMeta") => {
                    let metadata = value.and_then(|value| value.get("metadata"));
                    self.tagged_fields(&METADATA, metadata, members);
                }
                ("-", embedded) => {
                    let fields = TYPES.get(embedded).map_or(&[][..], Vec::as_slice);
                    self.fields(embedded, fields, value, members);
                }
                (name, go_type) => {
                    members.begin(self, name);
                    let value = match field.json {
                        Some(json) => value.and_then(|value| member(struct_type, json, value)),
                        None => self.pod_spec.and_then(|spec| spec.get(&json_name(name))),
                    };
                    self.value(go_type, value);
                }
            }
        }
    }

    /// A type of the published packages: its fields have tags, and are left out when they are empty.
    fn tagged(&mut self, ty: &Tagged, value: Option<&'a Value>) {
        let mut members = Members::default();
        self.tagged_fields(ty, value, &mut members);
        members.end(self);
    }

    fn tagged_fields(&mut self, ty: &Tagged, value: Option<&'a Value>, members: &mut Members) {
        for (name, below) in ty.0 {
            let Some(value) = value.and_then(|value| value.get(name)) else { continue };
            members.begin(self, name);
            match (below, value) {
                (Some(below), Value::Array(items)) => {
                    self.list(Some(items), |printer, value| printer.tagged(below, Some(value)));
                }
                (None, Value::Array(items)) => {
                    self.list(Some(items), |printer, value| printer.leaf(Some(value), "null"));
                }
                (_, Value::Object(map)) => {
                    let mut members = Members::default();
                    for (key, value) in map.iter() {
                        if self.is_cut() {
                            break;
                        }
                        members.begin(self, key);
                        self.leaf(Some(value), "null");
                    }
                    members.end(self);
                }
                (_, value) => self.leaf(Some(value), "null"),
            }
        }
    }

    fn list(&mut self, items: Option<&'a [Value]>, print: impl Fn(&mut Self, &'a Value)) {
        let Some(items) = items else { return self.text("null") };
        if items.is_empty() {
            return self.text("[]");
        }
        self.depth += 1;
        for (at, item) in items.iter().enumerate() {
            meta::cancel::checkpoint();
            if self.is_cut() {
                break;
            }
            self.text(if at == 0 { "[" } else { "," });
            self.new_line();
            print(self, item);
        }
        self.depth -= 1;
        self.new_line();
        self.text("]");
    }

    fn leaf(&mut self, value: Option<&Value>, zero: &str) {
        match value {
            Some(value) => meta::json::write_value(&mut self.out, value),
            None => self.text(zero),
        }
    }

    fn text(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn new_line(&mut self) {
        if !self.indented {
            return;
        }
        self.lines += 1;
        self.out.push(b'\n');
        self.out.extend(std::iter::repeat_n(b' ', self.depth));
    }
}

/// The punctuation of an object.
#[derive(Default)]
struct Members {
    some: bool,
}

impl Members {
    fn begin(&mut self, printer: &mut Printer<'_>, name: &str) {
        if !self.some {
            printer.depth += 1;
        }
        printer.text(if self.some { "," } else { "{" });
        self.some = true;
        printer.new_line();
        write_string(&mut printer.out, name);
        printer.text(if printer.indented { ": " } else { ":" });
    }

    fn end(self, printer: &mut Printer<'_>) {
        if self.some {
            printer.depth -= 1;
            printer.new_line();
            printer.text("}");
        } else {
            printer.text("{}");
        }
    }
}

/// `HostPID` is `hostPID`.
fn json_name(go_name: &str) -> Str {
    let mut chars = go_name.chars();
    let first = chars.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}

/// The fields of a published type in their order, with the types of those that are lists of objects.
struct Tagged(&'static [(&'static str, Option<&'static Tagged>)]);

static SELECTOR: Tagged =
    Tagged(&[("matchLabels", None), ("matchExpressions", Some(&REQUIREMENT))]);
static REQUIREMENT: Tagged = Tagged(&[("key", None), ("operator", None), ("values", None)]);
static CONDITION: Tagged = Tagged(&[
    ("type", None),
    ("status", None),
    ("observedGeneration", None),
    ("lastTransitionTime", None),
    ("reason", None),
    ("message", None),
]);
static METADATA: Tagged = Tagged(&[
    ("name", None),
    ("generateName", None),
    ("namespace", None),
    ("uid", None),
    ("resourceVersion", None),
    ("generation", None),
    ("creationTimestamp", None),
    ("deletionTimestamp", None),
    ("deletionGracePeriodSeconds", None),
    ("labels", None),
    ("annotations", None),
    ("ownerReferences", Some(&OWNER)),
    ("finalizers", None),
]);
static OWNER: Tagged = Tagged(&[
    ("apiVersion", None),
    ("kind", None),
    ("name", None),
    ("uid", None),
    ("controller", None),
    ("blockOwnerDeletion", None),
]);

#[cfg(test)]
mod tests {
    use meta::value;

    use super::*;

    #[test]
    fn specs_are_printed_as_go_prints_internal_types() {
        let old = value!({
            "hostPID": true,
            "containers": [{"name": "c", "image": "i<1>", "resources": {"limits": {"cpu": "1"}}}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "topologySpreadConstraints": [{
                "maxSkew": 1i64, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}], "matchLabels": {"a": "b"}}
            }]
        });
        let text = print_lines("PodSpec", &old).unwrap();
        for expected in [
            "{\n \"Volumes\": [\n  {\n   \"Name\": \"v\",\n   \"HostPath\": null,\n   \"EmptyDir\": {\n    \"Medium\": \"\",\n    \"SizeLimit\": null\n   },\n",
            " \"InitContainers\": null,\n \"Containers\": [\n  {\n   \"Name\": \"c\",\n   \"Image\": \"i\\u003c1\\u003e\",\n",
            "   \"Resources\": {\n    \"Limits\": {\n     \"cpu\": \"1\"\n    },\n    \"Requests\": null,\n    \"Claims\": null\n   },\n",
            "   \"LabelSelector\": {\n    \"matchLabels\": {\n     \"a\": \"b\"\n    },\n    \"matchExpressions\": [\n     {\n      \"key\": \"a\",\n      \"operator\": \"Exists\"\n     }\n    ]\n   },\n",
        ] {
            assert!(text.contains(expected), "{expected}\nin\n{text}");
        }
        let mut new = old.clone();
        new.set_at(&["nodeName"], "n");
        let expected = " \"NodeName\": \"\",\n";
        assert!(diff("PodSpec", &old, &new).contains(&format!("-{expected}")));
    }

    #[test]
    fn what_the_security_context_has_comes_from_the_spec() {
        let spec = value!({"hostPID": true, "securityContext": {"runAsUser": 5i64}});
        let text = print_lines("PodSpec", &spec).unwrap();
        assert!(text.contains("\"HostNetwork\": false,\n  \"HostPID\": true,\n"), "{text}");
        assert!(text.contains("\"RunAsUser\": 5"), "{text}");
    }

    #[test]
    fn a_type_is_found_by_the_path_of_its_value() {
        let job = kind_type("batch/v1", "Job");
        assert_eq!(job, Some("batch.Job"));
        let spec = member_type("batch.Job", "spec");
        assert_eq!(spec, Some("batch.JobSpec"));
        let template = spec.and_then(|spec| member_type(spec, "template"));
        assert_eq!(template, Some("PodTemplateSpec"));
        let value = value!({"metadata": {"labels": {"a": "b"}}, "spec": {"hostIPC": true}});
        let text = compact("PodTemplateSpec", Some(&value));
        assert!(
            text.starts_with("{\"labels\":{\"a\":\"b\"},\"Spec\":{\"Volumes\":null,"),
            "{text}"
        );
        let volumes = member_type("PodSpec", "volumes").and_then(item_type);
        let secret = volumes.and_then(|volume| member_type(volume, "secret"));
        assert_eq!(secret, Some("*SecretVolumeSource"));
        let limits = member_type("ResourceRequirements", "limits");
        assert_eq!(limits.and_then(entry_type), Some("resource.Quantity"));
        assert!(!has_go_names(limits.expect("containers have limits")));
        assert!(has_go_names("[]Volume") && has_go_names("*SecretVolumeSource"));
    }

    #[test]
    fn flat_requests_and_basic_devices_are_printed_as_the_internal_types_have_them() {
        let spec = value!({"devices": {"requests": [
            {"name": "flat", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1i64},
            {"name": "nested", "exactly": {"deviceClassName": "c"}},
            {"name": "neither", "deviceClassName": ""},
        ]}});
        let flat = "{\"DeviceClassName\":\"c\",\"Selectors\":null,\"AllocationMode\":\"ExactCount\",\"Count\":1,\
                    \"AdminAccess\":null,\"Tolerations\":null,\"Capacity\":null}";
        let nested = flat.replace("ExactCount", "").replace(":1,", ":0,");
        assert_eq!(
            compact("resource.ResourceClaimSpec", Some(&spec)),
            format!(
                "{{\"Devices\":{{\"Requests\":[\
                 {{\"Name\":\"flat\",\"Exactly\":{flat},\"FirstAvailable\":null}},\
                 {{\"Name\":\"nested\",\"Exactly\":{nested},\"FirstAvailable\":null}},\
                 {{\"Name\":\"neither\",\"Exactly\":null,\"FirstAvailable\":null}}],\
                 \"Constraints\":null,\"Config\":null}}}}"
            )
        );
        let flat = value!({"name": "d", "allNodes": true});
        let basic = value!({"name": "d", "basic": {"allNodes": true}});
        let text = compact(DEVICE, Some(&basic));
        assert!(text.contains("\"Name\":\"d\"") && text.contains("\"AllNodes\":true"), "{text}");
        assert_eq!(text, compact(DEVICE, Some(&flat)));
        assert_eq!(member_type(REQUEST, "selectors"), Some("[]resource.DeviceSelector"));
        assert_eq!(member_type(REQUEST, "name"), Some("string"));
        assert_eq!(member_type(DEVICE, "basic"), Some(DEVICE));
    }

    /// A volume has some 15 bytes, and thirty lines as Go prints it.
    #[test]
    fn no_more_is_printed_than_is_compared_or_shown() {
        let volumes = |count: usize| -> Vec<Value> {
            (0..count).map(|at| value!({"name": (format!("v{at}"))})).collect()
        };
        let spec = |count| value!({"volumes": (volumes(count))});
        for (count, fits) in [(100, true), (1_000, false)] {
            assert_eq!(print("PodSpec", Some(&spec(count)), true).is_ok(), fits);
        }
        let text = print("PodSpec", Some(&spec(50_000)), true).expect_err("too long");
        assert!(text.lines().count() < LINES_MAX + 200, "{}", text.lines().count());
        let text = compact("PodSpec", Some(&spec(50_000)));
        assert!(text.len() < PRINTED_BYTES_MAX + 4_000, "{}", text.len());
        let limits: meta::Map =
            (0..50_000).map(|at| (Str::from(format!("k{at}")), Value::from("1"))).collect();
        let text = print("ResourceRequirements", Some(&value!({"limits": (limits)})), true);
        assert!(text.expect_err("too long").lines().count() < LINES_MAX + 200);
        assert_eq!(
            diff("PodSpec", &spec(1_000), &spec(50_000)),
            "(too many lines to be compared)\n"
        );
    }

    #[test]
    fn every_type_is_known() {
        let known = ["string", "types.UID", "types.NodeName", "bool", "int32", "int64", "byte"];
        let others = [
            "intstr.IntOrString",
            "metav1.Condition",
            "metav1.DeleteOptions",
            "metav1.GroupResource",
            "metav1.LabelSelector",
            "metav1.MicroTime",
            "metav1.ObjectMeta",
            "metav1.StatusReason",
            "metav1.Time",
            "resource.Quantity",
            "runtime.RawExtension",
        ];
        for (name, fields) in TYPES.iter() {
            for field in fields {
                let mut element = field.go_type;
                while let Some(below) = element
                    .strip_prefix('*')
                    .or_else(|| element.strip_prefix("[]"))
                    .or_else(|| Some(element.strip_prefix("map[")?.split_once(']')?.1))
                {
                    element = below;
                }
                let is_known = known.contains(&element)
                    || others.contains(&element)
                    || TYPES.contains_key(element);
                assert!(is_known, "{name}.{} is a {}", field.name, field.go_type);
            }
        }
    }
}
