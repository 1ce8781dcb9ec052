//! What Kubernetes' types and their fields are, in Kubernetes' own words: `kubectl explain` shows them.
//!
//! The sentences come from the crate k8s-openapi at build time and are kept compressed. They are
//! unpacked for rendering OpenAPI documents, and forgotten afterwards.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;

use flate2::read::GzDecoder;

/// The unpacked sentences, about 1 MB.
#[derive(Debug)]
pub struct Descriptions {
    by_definition: HashMap<String, Description>,
}

#[derive(Debug)]
struct Description {
    text: String,
    fields: HashMap<String, String>,
}

impl Descriptions {
    pub fn load() -> Self {
        let packed: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.gz"));
        let mut text = String::new();
        GzDecoder::new(packed).read_to_string(&mut text).expect("packed by the build script");
        let by_definition = text.split(RECORD).filter_map(read).collect();
        Self { by_definition }
    }

    /// What a definition (`io.k8s.api.core.v1.Pod`) is. `None` if nothing is known about it.
    pub fn definition(&self, definition: &str) -> Option<Cow<'_, str>> {
        if let Some(known) = self.by_definition.get(definition) {
            return (!known.text.is_empty()).then_some(Cow::Borrowed(&known.text));
        }
        let item = kind(self.item_of(definition)?.0);
        Some(Cow::Owned(format!("{item}List is a list of {item} objects.")))
    }

    /// What a field of a definition is.
    pub fn field(&self, definition: &str, field: &str) -> Option<Cow<'_, str>> {
        if let Some(known) = self.by_definition.get(definition) {
            let text = known.fields.get(field)?;
            return (!text.is_empty()).then_some(Cow::Borrowed(text));
        }
        let (item, known) = self.item_of(definition)?;
        match field {
            "items" => Some(Cow::Owned(format!("The {} objects of the list.", kind(item)))),
            "metadata" => Some(Cow::Borrowed("What is told about the list as a whole.")),
            // Lists have `kind` and `apiVersion` in common with what they are a list of.
            field => Some(Cow::Borrowed(known.fields.get(field)?)),
        }
    }

    /// Lists are missing from the crate, because one generic type stands for all of them: this is what
    /// a definition is a list of.
    fn item_of<'a>(&self, list: &'a str) -> Option<(&'a str, &Description)> {
        let item = list.strip_suffix("List")?;
        Some((item, self.by_definition.get(item)?))
    }
}

fn kind(definition: &str) -> &str {
    definition.rsplit('.').next().unwrap_or(definition)
}

// As in `build.rs`.
const RECORD: char = '\u{1e}';
const PART: char = '\u{1f}';

fn read(record: &str) -> Option<(String, Description)> {
    let mut parts = record.split(PART).map(str::to_owned);
    let (name, text) = (parts.next()?, parts.next()?);
    let mut fields = HashMap::new();
    while let (Some(field), Some(text)) = (parts.next(), parts.next()) {
        fields.insert(field, text);
    }
    Some((name, Description { text, fields }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_of_the_crate_is_there() {
        assert_eq!(Descriptions::load().by_definition.len(), 683);
    }

    #[test]
    fn types_and_fields_are_described() {
        let descriptions = Descriptions::load();
        let pod = "io.k8s.api.core.v1.Pod";
        let pods = "io.k8s.api.core.v1.PodList";
        let cases = [
            (descriptions.definition(pod), Some("Pod is a collection of containers")),
            (descriptions.field(pod, "spec"), Some("Specification of the desired behavior")),
            (descriptions.field(pod, "nope"), None),
            (descriptions.definition(pods), Some("PodList is a list of Pod objects.")),
            (descriptions.field(pods, "items"), Some("The Pod objects of the list.")),
            (descriptions.field(pods, "kind"), Some("Kind is a string value")),
            (descriptions.field(pods, "nope"), None),
            (descriptions.definition("io.k8s.api.core.v1.Nope"), None),
            (descriptions.definition("io.k8s.api.core.v1.NopeList"), None),
        ];
        for (found, beginning) in cases {
            match beginning {
                Some(beginning) => {
                    let found = found.unwrap_or_default();
                    assert!(found.starts_with(beginning), "{found}");
                }
                None => assert_eq!(found, None),
            }
        }
    }
}
