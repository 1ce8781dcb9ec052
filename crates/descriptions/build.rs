//! Collects Kubernetes' own sentences about its types from the crates k8s-openapi and k8s-pb, packed for
//! `src/lib.rs`: records that are separated by `RECORD`, made of parts that are separated by `PART`:
//! the definition, what it is, and then in turns a field and what that is.
//!
//! The sources of the crates are read, not compiled: compiling k8s-openapi takes longer than any other
//! dependency. It is generated code, one type in a file, one item in a line, indented by where it belongs.

#[path = "build/k8s_pb.rs"]
mod k8s_pb;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;

const RECORD: char = '\u{1e}';
const PART: char = '\u{1f}';

/// The version of Kubernetes, as k8s-openapi names its modules.
const VERSION: &str = "v1_36";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    // It says which versions of the crates are read.
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    let mut definitions = BTreeMap::new();
    let [k8s_openapi, k8s_pb] = sources_of(["k8s-openapi", "k8s-pb"]);
    collect(&k8s_openapi.join("src").join(VERSION), &mut definitions);
    assert!(!definitions.is_empty(), "the sources of k8s-openapi have another form than expected");
    split_watch_event(&mut definitions);
    let kinds: Vec<String> = definitions.keys().cloned().collect();
    for module in ["api", "apimachinery", "apiextensions_apiserver", "kube_aggregator"] {
        let prefix = format!("io.k8s.{}", module.replace('_', "-"));
        k8s_pb::collect(&k8s_pb.join("src").join(module), &prefix, &mut definitions);
    }
    assert!(
        definitions.len() > kinds.len(),
        "the sources of k8s-pb have another form than expected"
    );
    add_lists_of_new_versions(&kinds, &mut definitions);
    let mut packed = String::new();
    for (name, definition) in definitions {
        if !packed.is_empty() {
            packed.push(RECORD);
        }
        packed.push_str(&name);
        let fields = definition.fields.iter().flat_map(|(name, text)| [name, text]);
        for part in std::iter::once(&definition.text).chain(fields) {
            assert!(!part.contains([RECORD, PART]), "a description contains a separator");
            packed.push(PART);
            packed.push_str(part);
        }
    }
    let path = PathBuf::from(variable("OUT_DIR")).join("descriptions.gz");
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(packed.as_bytes()).expect("memory takes all bytes");
    fs::write(path, gzip.finish().expect("memory takes all bytes"))
        .expect("OUT_DIR can be written");
}

fn variable(name: &str) -> String {
    env::var(name).expect("set by cargo")
}

/// Where cargo keeps the sources of packages of this workspace. Cargo downloads them if they are not there, but
/// not what else the tests need: it is asked about a package that has these dependencies, in the versions of
/// the workspace.
fn sources_of<const N: usize>(packages: [&str; N]) -> [PathBuf; N] {
    let lock_file = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    let lock = fs::read_to_string(&lock_file).expect("the workspace has a lock file");
    let versions = packages.map(|package| {
        let entry = lock
            .split("[[package]]")
            .find(|entry| entry.lines().any(|line| line == format!("name = \"{package}\"")));
        let version = entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next());
        (package, version.unwrap_or_else(|| panic!("{package} is not in the workspace")))
    });
    let asking = PathBuf::from(variable("OUT_DIR")).join("source");
    fs::create_dir_all(asking.join("src")).expect("OUT_DIR can be written");
    let mut manifest =
        "[package]\nname = \"asking\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n"
            .to_owned();
    for (package, version) in versions {
        manifest.push_str(&format!(
            "{package} = {{ version = \"={version}\", default-features = false }}\n"
        ));
    }
    for (name, text) in
        [("Cargo.toml", manifest.as_str()), ("Cargo.lock", &lock), ("src/lib.rs", "")]
    {
        fs::write(asking.join(name), text).expect("OUT_DIR can be written");
    }
    let mut cargo = Command::new(variable("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--manifest-path"]);
    cargo.arg(asking.join("Cargo.toml"));
    // Without it cargo would download what other platforms need as well.
    cargo.args(["--filter-platform", &variable("HOST")]);
    // Where the configuration of the workspace counts.
    let run = cargo.current_dir(variable("CARGO_MANIFEST_DIR")).output().expect("cargo runs");
    assert!(run.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&run.stderr));
    let metadata = String::from_utf8(run.stdout).expect("cargo writes UTF-8");
    versions.map(|(package, version)| {
        let manifests = metadata.split("\"manifest_path\":\"").skip(1);
        let mut directories =
            manifests.filter_map(|rest| rest.split('"').next()?.strip_suffix("/Cargo.toml"));
        // The directory of a package that was downloaded has its name and version.
        let found = directories.find(|path| path.ends_with(&format!("/{package}-{version}")));
        PathBuf::from(found.unwrap_or_else(|| panic!("cargo does not say where {package} is")))
    })
}

#[derive(Clone, Default)]
struct Definition {
    text: String,
    fields: BTreeMap<String, String>,
}

fn collect(directory: &Path, definitions: &mut BTreeMap<String, Definition>) {
    let entries = fs::read_dir(directory).expect("a directory of k8s-openapi can be read");
    for entry in entries {
        let path = entry.expect("a directory of k8s-openapi can be read").path();
        if path.is_dir() {
            collect(&path, definitions);
        } else {
            let source = fs::read_to_string(&path).expect("a file of k8s-openapi can be read");
            if let Some((_, schema)) = source.split_once("crate::schemars::JsonSchema for ") {
                let (name, definition) = definition(schema);
                definitions.insert(name, definition);
            }
        }
    }
}

/// Reads what follows `impl JsonSchema for`: the name, and then a JSON schema with parts in Rust.
fn definition(schema: &str) -> (String, Definition) {
    let mut lines = schema.lines();
    let name = lines.find_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\".into()"));
    let mut definition = Definition::default();
    let mut in_properties = false;
    let mut field = String::new();
    for line in lines {
        let text = line.trim_start();
        match line.len() - text.len() {
            12 => {
                in_properties = text == "\"properties\": {";
                if let Some(text) = description(text) {
                    definition.text = text;
                }
            }
            16 if in_properties => {
                if let Some((name, _)) = text.strip_prefix('"').and_then(|t| t.split_once('"')) {
                    name.clone_into(&mut field);
                    definition.fields.insert(field.clone(), String::new());
                }
            }
            20 if in_properties => {
                if let Some(text) = description(text) {
                    definition.fields.insert(field.clone(), text);
                }
            }
            _ => {}
        }
    }
    (name.expect("a type has a name").to_owned(), definition)
}

/// The text of a line that gives a description, in JSON or in Rust.
fn description(line: &str) -> Option<String> {
    let json = line.strip_prefix("\"description\": \"").and_then(|rest| rest.strip_suffix("\","));
    let literal = json.or_else(|| {
        let (_, rest) = line.split_once(".insert(\"description\".into(), \"")?;
        rest.strip_suffix("\".into());")
    })?;
    let mut text = String::with_capacity(literal.len());
    let mut characters = literal.chars();
    while let Some(character) = characters.next() {
        text.push(match character {
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some(same @ ('"' | '\\' | '\'')) => same,
                other => panic!("an escape that is not expected: {other:?} in {line}"),
            },
            plain => plain,
        });
    }
    Some(text)
}

/// The crate describes `object` of a watch event in the description of the event.
fn split_watch_event(definitions: &mut BTreeMap<String, Definition>) {
    let name = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";
    let event = definitions.get_mut(name).expect("watch events are among the types");
    if let Some((text, object)) = event.text.split_once("\n\n") {
        event.fields.insert("object".to_owned(), object.trim_end().to_owned());
        event.text = text.to_owned();
    }
}

/// k8s-pb is of an older release than k8s-openapi: the list of a kind in a version that it does not have is
/// described as that in another version of the group.
fn add_lists_of_new_versions(kinds: &[String], definitions: &mut BTreeMap<String, Definition>) {
    for kind in kinds {
        let list = format!("{kind}List");
        let mut parts = list.rsplitn(3, '.');
        let (Some(name), Some(_version), Some(group)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        if definitions.contains_key(&list) {
            continue;
        }
        let same = |known: &&String| {
            let version = known.strip_prefix(group).and_then(|rest| rest.strip_suffix(name));
            let version = version.and_then(|rest| rest.strip_prefix('.')?.strip_suffix('.'));
            version.is_some_and(|version| !version.contains('.'))
        };
        if let Some(other) = definitions.keys().rfind(same).cloned() {
            definitions.insert(list, definitions[&other].clone());
        }
    }
}
