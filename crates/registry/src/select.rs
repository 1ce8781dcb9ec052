//! Which objects a list or watch is about: a namespace, labels, fields. Judged on what the cache
//! has already extracted; no object is decoded.

use meta::{
    ApiError, Str,
    selector::{FieldRequirement, FieldSelector, LabelSelector, Operator},
};
use store::Entry;

use crate::{Kind, SelectableSource, options::ListOptions, rest::Rest};

/// A selection, ready to judge entries.
pub(crate) struct Selection {
    labels: LabelSelector,
    /// The bits that the labels of every match have.
    label_bits: u64,
    fields: Vec<Term>,
}

struct Term {
    source: SelectableSource,
    equal: bool,
    value: Str,
}

impl Selection {
    pub(crate) fn read(rest: &Rest<'_>, options: &ListOptions) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(&options.label_selector).map_err(ApiError::BadRequest)?;
        let fields = FieldSelector::parse(&options.field_selector).map_err(ApiError::BadRequest)?;
        let mut terms = fields
            .requirements()
            .iter()
            .map(|requirement| term(rest.kind, requirement))
            .collect::<Result<Vec<_>, _>>()?;
        // The old way to watch one object: /watch/…/pods/NAME.
        if let Some(name) = rest.info.parts.get(1) {
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

    pub(crate) fn matches(&self, entry: &Entry) -> bool {
        entry.label_bits & self.label_bits == self.label_bits
            && self
                .fields
                .iter()
                .all(|term| (read(entry, &term.source) == term.value) == term.equal)
            && self.labels.matches(&entry.labels)
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

fn read<'a>(entry: &'a Entry, source: &SelectableSource) -> &'a str {
    match source {
        SelectableSource::Name => &entry.name,
        SelectableSource::Namespace => &entry.namespace,
        SelectableSource::Fields(places) => {
            let mut texts = places.iter().map(|&at| entry.fields[at].as_str());
            texts.find(|text| !text.is_empty()).unwrap_or_default()
        }
    }
}

fn term(kind: &Kind, requirement: &FieldRequirement) -> Result<Term, ApiError> {
    let label = requirement.field.as_str();
    let Some(source) = kind.selectable(label) else {
        return Err(ApiError::BadRequest(kind.facts.unknown_label(label)));
    };
    let (equal, value) = (!requirement.negated, requirement.value.clone());
    Ok(Term { source: source.clone(), equal, value })
}
