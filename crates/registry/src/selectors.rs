//! The selectors of a list or watch: namespace, labels, fields. They are evaluated on what the
//! cache has extracted; no object is decoded.

use codec::raw_object::{self, FieldSet};
use meta::{
    ApiError, Str,
    selector::{FieldRequirement, LabelSelector, Operator},
};
use store::Entry;

use crate::{Kind, SelectableSource, options::ListOptions, resource_request::ResourceRequest};

/// Parsed selectors.
pub(crate) struct Selection {
    labels: LabelSelector,
    /// The bits of the labels that every match has.
    label_bits: u64,
    fields: Vec<Term>,
}

struct Term {
    source: SelectableSource,
    equal: bool,
    value: Str,
}

impl Selection {
    pub(crate) fn read(
        request: &ResourceRequest<'_>,
        options: &ListOptions,
    ) -> Result<Self, ApiError> {
        let labels = options.label_selector.clone();
        let mut terms = options
            .field_selector
            .requirements()
            .iter()
            .map(|requirement| term(request.kind, requirement))
            .collect::<Result<Vec<_>, _>>()?;
        // The deprecated path to watch one object: /watch/…/pods/NAME.
        if let Some(name) = request.info.parts.get(1) {
            let is_it = |term: &Term| {
                term.source == SelectableSource::Name && term.equal && term.value == *name
            };
            if !terms.is_empty() && !terms.iter().any(is_it) {
                return Err(ApiError::bad_request(
                    "fieldSelector metadata.name doesn't match requested name",
                ));
            }
            terms.push(Term { source: SelectableSource::Name, equal: true, value: name.clone() });
        }
        let wanted = labels.requirements().iter().filter_map(|requirement| {
            let [value] = requirement.values() else { return None };
            let exact = matches!(
                requirement.operator(),
                Operator::Equals | Operator::DoubleEquals | Operator::In
            );
            exact.then_some((requirement.key(), value.as_str()))
        });
        let label_bits = store::label_bits(wanted);
        Ok(Self { labels, label_bits, fields: terms })
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_empty()
    }

    /// Evaluates everything except fields of converted objects.
    pub(crate) fn matches(&self, entry: &Entry) -> bool {
        entry.label_bits & self.label_bits == self.label_bits
            && self.fields.iter().all(|term| match read(entry, &term.source) {
                Some(text) => (text == term.value) == term.equal,
                None => true,
            })
            && self.labels.matches(&entry.labels)
    }

    /// Whether [`Selection::matches_view`] has fields to evaluate.
    pub(crate) fn needs_view(&self) -> bool {
        self.fields.iter().any(|term| matches!(term.source, SelectableSource::Converted(_)))
    }

    /// Evaluates fields of converted objects, after [`Kind::prepare`].
    pub(crate) fn matches_view(&self, kind: &Kind, entry: &Entry) -> Result<bool, ApiError> {
        for term in &self.fields {
            let SelectableSource::Converted(path) = &term.source else { continue };
            let scanned = raw_object::scan(&kind.view(entry)?, &FieldSet::new([path.as_str()]));
            let text = scanned.map_err(ApiError::internal)?.fields.pop().flatten();
            if (text.unwrap_or_default() == term.value) != term.equal {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The name that every match must have.
    pub(crate) fn exact_name(&self) -> Option<&Str> {
        self.exact(&SelectableSource::Name)
    }

    /// The value that the indexed field of every match must have.
    pub(crate) fn exact_field(&self, field: usize) -> Option<&Str> {
        self.exact(&SelectableSource::Fields(vec![field]))
    }

    fn exact(&self, source: &SelectableSource) -> Option<&Str> {
        let term = self.fields.iter().find(|term| term.source == *source && term.equal)?;
        Some(&term.value)
    }
}

/// None: the field is only in the converted object.
fn read<'a>(entry: &'a Entry, source: &SelectableSource) -> Option<&'a str> {
    Some(match source {
        SelectableSource::Name => &entry.name,
        SelectableSource::Namespace => &entry.namespace,
        SelectableSource::Converted(_) => return None,
        SelectableSource::Fields(places) => {
            let mut texts = places.iter().map(|&at| entry.fields[at].as_str());
            texts.find(|text| !text.is_empty()).unwrap_or_default()
        }
    })
}

fn term(kind: &Kind, requirement: &FieldRequirement) -> Result<Term, ApiError> {
    let label = requirement.field.as_str();
    let Some(source) = kind.selectable(label) else {
        return Err(ApiError::BadRequest(kind.facts.unknown_label(label)));
    };
    let (equal, value) = (!requirement.negated, requirement.value.clone());
    Ok(Term { source: source.clone(), equal, value })
}
