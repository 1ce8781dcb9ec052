//! CustomResourceDefinitions: read from files, installed, waited for.

use std::path::Path;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::api::{DynamicObject, Patch, PatchParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

use crate::Error;

const KIND: &str = "CustomResourceDefinition";

/// Definitions are served within milliseconds; after this time one that is not has conditions that say why.
const ESTABLISHED_MAX: Duration = Duration::from_secs(10);

/// Applies a definition, so that one that is there is brought up to date, and waits for it.
pub(crate) async fn install(client: &Client, crd: &Value) -> Result<(), Error> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", KIND);
    let resource = ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let name = crd["metadata"]["name"].as_str().unwrap_or_default();
    let mut crd = crd.clone();
    crd["apiVersion"] = "apiextensions.k8s.io/v1".into();
    crd["kind"] = KIND.into();
    // The server's own, and refused in an apply.
    if let Some(object) = crd.as_object_mut() {
        object.remove("status");
    }
    let params = PatchParams::apply("pintle-testing").force();
    let applied = api.patch(name, &params, &Patch::Apply(&crd)).await?;
    let mut last = applied;
    let established = tokio::time::timeout(ESTABLISHED_MAX, wait(&api, name, &mut last)).await;
    match established {
        Ok(Ok(())) => wait_until_served(client, &crd).await,
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::NotEstablished {
            name: name.to_owned(),
            seconds: ESTABLISHED_MAX.as_secs(),
            conditions: last.data["status"]["conditions"].to_string(),
        }),
    }
}

/// Follows the definition until its condition Established is true.
async fn wait(api: &Api<DynamicObject>, name: &str, last: &mut DynamicObject) -> Result<(), Error> {
    let selector = WatchParams::default().fields(&format!("metadata.name={name}"));
    loop {
        if is_established(&last.data) {
            return Ok(());
        }
        let from = last.resource_version().unwrap_or_default();
        let events = api.watch(&selector, &from).await?;
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.try_next().await? {
            if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
                *last = object;
                if is_established(&last.data) {
                    return Ok(());
                }
            }
        }
    }
}

/// Discovery follows the condition by a moment; clients that look a kind up must find it.
async fn wait_until_served(client: &Client, crd: &Value) -> Result<(), Error> {
    let plural = crd["spec"]["names"]["plural"].as_str().unwrap_or_default();
    let group = crd["spec"]["group"].as_str().unwrap_or_default();
    for version in crd["spec"]["versions"].as_array().into_iter().flatten() {
        let Some(name) = version["name"].as_str().filter(|_| version["served"] == true) else {
            continue;
        };
        let deadline = tokio::time::Instant::now() + ESTABLISHED_MAX;
        loop {
            let found = client.list_api_group_resources(&format!("{group}/{name}")).await;
            let is_served = |resource: &APIResource| resource.name == plural;
            match found {
                Ok(list) if list.resources.iter().any(is_served) => break,
                Err(error) if tokio::time::Instant::now() >= deadline => return Err(error.into()),
                _ if tokio::time::Instant::now() >= deadline => {
                    let (name, seconds) = (format!("{plural}.{group}"), ESTABLISHED_MAX.as_secs());
                    let conditions = "it is not in discovery".to_owned();
                    return Err(Error::NotEstablished { name, seconds, conditions });
                }
                _ => tokio::time::sleep(DISCOVERY_PAUSE).await,
            }
        }
    }
    Ok(())
}

const DISCOVERY_PAUSE: Duration = Duration::from_millis(2);

fn is_established(crd: &Value) -> bool {
    let conditions = crd["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

/// The definitions of a file, or of the files of a directory in the order of their names.
pub(crate) fn read(path: &Path) -> Result<Vec<Value>, Error> {
    let failed = |path: &Path, why: String| Error::File { path: path.display().to_string(), why };
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        let entries = std::fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = entries.map_err(|error| failed(path, error.to_string()))?;
        files =
            entries.into_iter().map(|entry| entry.path()).filter(|path| is_yaml(path)).collect();
        files.sort();
    }
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file);
        let text = text.map_err(|error| failed(&file, error.to_string()))?;
        for document in documents(&text) {
            let object = parse(document).map_err(|why| failed(&file, why))?;
            if object["kind"] == KIND {
                found.push(object);
            }
        }
    }
    if found.is_empty() {
        return Err(failed(path, format!("no {KIND}")));
    }
    Ok(found)
}

fn is_yaml(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml" | "json"))
}

/// The documents of a stream. A line of a text block is indented, so `---` at its beginning is always a mark.
fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        let is_mark = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r']));
        if is_mark {
            documents.push(String::new());
        } else if let Some(last) = documents.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    let is_comment = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    documents.retain(|document| !document.lines().all(is_comment));
    documents
}

/// As the server reads it: YAML, of which JSON is a part.
fn parse(document: String) -> Result<Value, String> {
    let loaded = codec::yaml::load(document.as_bytes()).map_err(|error| error.to_string())?;
    let json = meta::json::to_string(&loaded.value);
    serde_json::from_str(&json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_found_among_other_objects() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).expect("writable");
        };
        write(
            "b.yaml",
            "# a comment\n---\nkind: CustomResourceDefinition\nmetadata: {name: b}\n--- \nkind: Role\n",
        );
        write("a.json", r#"{"kind": "CustomResourceDefinition", "metadata": {"name": "a"}}"#);
        write("kustomization.txt", "kind: [");
        let found = read(dir.path()).expect("readable");
        let names: Vec<_> = found.iter().map(|crd| crd["metadata"]["name"].clone()).collect();
        assert_eq!(names, ["a", "b"]);

        write("c.yml", "kind: Role\n");
        let error = read(&dir.path().join("c.yml")).expect_err("none there");
        assert!(error.to_string().ends_with("c.yml: no CustomResourceDefinition"), "{error}");
        write("d.yaml", "kind: [\n");
        let error = read(dir.path()).expect_err("malformed");
        assert!(error.to_string().contains("d.yaml: "), "{error}");
        assert!(read(&dir.path().join("missing")).is_err());
    }
}
