//! Kubernetes' own descriptions of types and fields, which `kubectl explain` shows.
//!
//! They come from the crates k8s-openapi and k8s-pb at build time and are embedded compressed. They are
//! decompressed to render OpenAPI documents, and dropped afterwards.

use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;

use flate2::read::GzDecoder;
use schema::openapi::Describe;

/// The decompressed descriptions: one text of about 1 MB, and the offset of each definition in it.
#[derive(Debug)]
pub struct Descriptions {
    text: String,
    // Sorted by name.
    records: Vec<Range<usize>>,
}

impl Descriptions {
    pub fn load() -> Self {
        let packed: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.gz"));
        // A gzip file ends with the uncompressed size. Growing the buffer step by step would fragment the
        // heap by a megabyte.
        let size = packed.last_chunk().map_or(0, |size| u32::from_le_bytes(*size) as usize);
        let mut text = String::with_capacity(size);
        GzDecoder::new(packed).read_to_string(&mut text).expect("packed by the build script");
        let mut begin = 0;
        let record = |record: &str| {
            let range = begin..begin + record.len();
            begin = range.end + RECORD.len_utf8();
            range
        };
        let records = text.split(RECORD).map(record).collect();
        Self { text, records }
    }

    /// What a definition is a list of. k8s-openapi has one generic type for all lists, and k8s-pb none of kinds
    /// that are newer than it.
    fn item_of<'a>(&self, list: &'a str) -> Option<(&'a str, Description<'_>)> {
        let item = list.strip_suffix("List")?;
        Some((item, self.known(item)?))
    }

    fn known(&self, definition: &str) -> Option<Description<'_>> {
        let parts = |record: &Range<usize>| self.text[record.clone()].split(PART);
        let name = |record: &Range<usize>| parts(record).next().unwrap_or_default();
        let at = self.records.binary_search_by(|record| name(record).cmp(definition)).ok()?;
        let record = &self.text[self.records[at].clone()];
        let (_, described) = record.split_once(PART)?;
        let (text, fields) = described.split_once(PART).unwrap_or((described, ""));
        Some(Description { text, fields })
    }
}

impl Describe for Descriptions {
    /// What a definition (`io.k8s.api.core.v1.Pod`) is. `None` if nothing is known about it.
    fn definition(&self, definition: &str) -> Option<Cow<'_, str>> {
        if let Some(known) = self.known(definition) {
            return (!known.text.is_empty()).then_some(Cow::Borrowed(known.text));
        }
        let item = kind(self.item_of(definition)?.0);
        Some(Cow::Owned(format!("{item}List is a list of {item} objects.")))
    }

    /// What a field of a definition is.
    fn field(&self, definition: &str, field: &str) -> Option<Cow<'_, str>> {
        let known = self.known(definition);
        if let Some(text) = known.as_ref().and_then(|known| known.field(field)) {
            return Some(Cow::Borrowed(text));
        }
        let (item, item_known) = self.item_of(definition)?;
        match field {
            // Lists have them in common with what they are a list of; protobuf has neither.
            "kind" | "apiVersion" => item_known.field(field).map(Cow::Borrowed),
            _ if known.is_some() => None,
            "items" => Some(Cow::Owned(format!("The {} objects of the list.", kind(item)))),
            "metadata" => Some(Cow::Borrowed("The metadata of the list.")),
            _ => None,
        }
    }
}

/// What is known about one definition.
struct Description<'a> {
    text: &'a str,
    /// Alternating names and descriptions.
    fields: &'a str,
}

impl<'a> Description<'a> {
    fn field(&self, name: &str) -> Option<&'a str> {
        let mut parts = self.fields.split(PART);
        while let (Some(field), Some(text)) = (parts.next(), parts.next()) {
            if field == name {
                return (!text.is_empty()).then_some(text);
            }
        }
        None
    }
}

fn kind(definition: &str) -> &str {
    definition.rsplit('.').next().unwrap_or(definition)
}

// As in `build.rs`.
const RECORD: char = '\u{1e}';
const PART: char = '\u{1f}';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_of_both_crates_is_there() {
        assert_eq!(Descriptions::load().records.len(), 849);
    }

    #[test]
    fn definitions_are_in_the_order_of_their_names() {
        let descriptions = Descriptions::load();
        let name = |record: &Range<usize>| {
            descriptions.text[record.clone()].split(PART).next().map(str::to_owned)
        };
        assert!(descriptions.records.iter().map(name).is_sorted());
    }

    #[test]
    fn types_and_fields_are_described() {
        let descriptions = Descriptions::load();
        let core = |name: &str| format!("io.k8s.api.core.v1.{name}");
        let meta = |name: &str| format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}");
        let text = |name: String| descriptions.definition(&name);
        let field = |name: String, field: &str| descriptions.field(&name, field);
        // The first is of a kind that k8s-pb has in another version, the second of one that it does not have.
        let rules = "io.k8s.api.resource.v1beta2.DeviceTaintRuleList".to_owned();
        let requests = || "io.k8s.api.resource.v1alpha3.ResourcePoolStatusRequestList".to_owned();
        let cases = [
            (text(core("Pod")), Some("Pod is a collection of containers")),
            (field(core("Pod"), "spec"), Some("Specification of the desired behavior")),
            (field(core("Pod"), "nope"), None),
            (text(core("PodList")), Some("PodList is a list of Pods.")),
            (field(core("PodList"), "items"), Some("List of pods.")),
            (field(core("PodList"), "kind"), Some("Kind is a string value")),
            (field(core("PodList"), "nope"), None),
            (field(rules, "items"), Some("Items is the list of DeviceTaintRules.")),
            (text(requests()), Some("ResourcePoolStatusRequestList is a list of")),
            (field(requests(), "items"), Some("The ResourcePoolStatusRequest objects")),
            (field(requests(), "kind"), Some("Kind is a string value")),
            (field(meta("ListOptions"), "limit"), Some("limit is a maximum number of")),
            (field(meta("PatchOptions"), "force"), Some("Force is going to \"force\"")),
            (field(core("PodLogOptions"), "insecureSkipTLSVerifyBackend"), Some("insecureSkip")),
            (text(core("Nope")), None),
            (text(core("NopeList")), None),
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

    /// Lines are joined, paragraphs and indentation stay, and neither instructions for generators nor
    /// prost's links are left.
    #[test]
    fn comments_of_go_are_texts_of_openapi() {
        let descriptions = Descriptions::load();
        let options = "io.k8s.apimachinery.pkg.apis.meta.v1.ListOptions";
        let field = |name| descriptions.field(options, name).unwrap_or_default();
        let version = field("resourceVersion");
        assert!(version.contains(" See https://kubernetes.io/docs/"), "{version}");
        assert!(version.ends_with(" for details.\n\nDefaults to unset"), "{version}");
        let events = field("sendInitialEvents");
        assert!(events.contains(" = NotOlderThan\n  is interpreted as"), "{events}");
    }
}
