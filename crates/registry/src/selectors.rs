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

/// What the requirements of one field say together, however many they are.
struct Term {
    source: SelectableSource,
    /// None: any.
    equal: Option<Str>,
    /// Sorted.
    unequal: Vec<Str>,
    /// It must equal several values, so nothing matches.
    contradicts: bool,
}

impl Term {
    fn matches(&self, text: &str) -> bool {
        let is_unequal = self.unequal.binary_search_by(|value| value.as_str().cmp(text)).is_err();
        is_unequal && !self.contradicts && self.equal.as_ref().is_none_or(|value| value == text)
    }

    fn require(&mut self, equal: bool, value: Str) {
        match &self.equal {
            _ if !equal => self.unequal.push(value),
            None => self.equal = Some(value),
            Some(known) => self.contradicts |= *known != value,
        }
    }
}

impl Selection {
    pub(crate) fn read(
        request: &ResourceRequest<'_>,
        options: &ListOptions,
    ) -> Result<Self, ApiError> {
        let labels = options.label_selector.clone();
        let mut terms = Vec::new();
        for requirement in options.field_selector.requirements() {
            let source = source(request.kind, requirement)?;
            let (equal, value) = (!requirement.negated, requirement.value.clone());
            term(&mut terms, source).require(equal, value);
        }
        for term in &mut terms {
            term.unequal.sort_unstable();
        }
        // The deprecated path to watch one object: /watch/…/pods/NAME.
        if let Some(name) = request.info.parts.get(1) {
            let is_it = |requirement: &FieldRequirement| {
                request.kind.selectable(&requirement.field) == Some(&SelectableSource::Name)
                    && !requirement.negated
                    && requirement.value == *name
            };
            if !terms.is_empty() && !options.field_selector.requirements().iter().any(is_it) {
                return Err(ApiError::bad_request(
                    "fieldSelector metadata.name doesn't match requested name",
                ));
            }
            term(&mut terms, &SelectableSource::Name).require(true, name.clone());
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
                Some(text) => term.matches(text),
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
            if !term.matches(&text.unwrap_or_default()) {
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
        self.fields.iter().find(|term| term.source == *source)?.equal.as_ref()
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

/// The term of a field; a kind has few of them.
fn term<'a>(terms: &'a mut Vec<Term>, source: &SelectableSource) -> &'a mut Term {
    let at = terms.iter().position(|term| term.source == *source).unwrap_or_else(|| {
        let (source, unequal) = (source.clone(), Vec::new());
        terms.push(Term { source, equal: None, unequal, contradicts: false });
        terms.len() - 1
    });
    &mut terms[at]
}

fn source<'a>(
    kind: &'a Kind,
    requirement: &FieldRequirement,
) -> Result<&'a SelectableSource, ApiError> {
    let label = requirement.field.as_str();
    kind.selectable(label).ok_or_else(|| ApiError::BadRequest(kind.facts.unknown_label(label)))
}
