//! Compiles the definition files of `api/` into one flat blob that `src/definitions.rs` loads at start,
//! so that a server parses no text before it is ready.
//!
//! `read` turns descriptors and their options into the engine's types, `check` finds what the compiler
//! of the files can't know to be wrong, `write` lays the result out as bytes, `kinds` writes the facts
//! about the behaviour of kinds as Rust.

#[path = "build/check.rs"]
mod check;
#[path = "build/kinds.rs"]
mod kinds;
#[path = "build/options.rs"]
mod options;
#[path = "build/read.rs"]
mod read;
#[path = "build/resources.rs"]
mod resources;
#[path = "build/write.rs"]
mod write;

use std::path::{Path, PathBuf};
use std::{collections::HashMap, env, fs, process::ExitCode};

use meta::Str;
use schema::{GroupVersionFacts, ResourceFacts, Schema, TypeId};

/// Everything that the definition files say.
#[derive(Default)]
struct Definitions {
    schema: Schema,
    group_versions: Vec<GroupVersionFacts>,
    resources: Vec<ResourceFacts>,
    /// What [`ResourceFacts`] does not have of a resource.
    kinds: Vec<kinds::KindFacts>,
    /// The fields of a type that wait for a feature gate.
    gated_fields: HashMap<TypeId, Vec<(Str, String)>>,
    /// In alphabetical order.
    feature_gates: Vec<String>,
    /// `pintle.corev1.Protocol` → its values.
    enums: HashMap<String, Vec<Str>>,
}

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=api");
    println!("cargo::rerun-if-changed=build");
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let api = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("set by cargo")).join("api");
    let pool = compile(&api)?;
    let definitions = read::definitions(&pool)?;
    let faults = check::faults(&definitions);
    if !faults.is_empty() {
        return Err(faults.join("\n"));
    }
    let out = PathBuf::from(env::var("OUT_DIR").expect("set by cargo"));
    let write = |name: &str, bytes: &[u8]| {
        let file = out.join(name);
        fs::write(&file, bytes).map_err(|error| format!("{}: {error}", file.display()))
    };
    write("enums.rs", enums(&definitions)?.as_bytes())?;
    write("kinds.rs", kinds::source(&definitions).as_bytes())?;
    write("definitions.bin", &write::blob(&definitions))
}

/// Lists of values that validation wants too, by the names it has for them.
const LISTS: [(&str, &str); 2] =
    [("KEY_USAGES", "pintle.certificatesv1.KeyUsage"), ("SIGNALS", "pintle.corev1.Signal")];

fn enums(definitions: &Definitions) -> Result<String, String> {
    let mut text = String::new();
    for (name, of) in LISTS {
        let values = definitions.enums.get(of).ok_or_else(|| format!("no enum {of}"))?;
        text.push_str(&format!("pub(crate) const {name}: &[&str] = &{values:?};\n"));
    }
    Ok(text)
}

fn compile(api: &Path) -> Result<prost_reflect::DescriptorPool, String> {
    let mut files = Vec::new();
    find(api, &mut files).map_err(|error| format!("{}: {error}", api.display()))?;
    // The order of files is the order of types: it shouldn't depend on the file system.
    files.sort();
    let mut compiler = protox::Compiler::new([api]).map_err(|error| format!("{error:?}"))?;
    compiler.include_imports(true).open_files(files).map_err(|error| format!("{error:?}"))?;
    Ok(compiler.descriptor_pool())
}

fn find(dir: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    Ok(())
}
