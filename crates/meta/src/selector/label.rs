//! Label selectors: what they require and whether labels fulfil it.

use std::{fmt, sync::Arc};

use super::{
    key_index::{KEYS_INDEXED, KeyIndex},
    parse,
};
use crate::{
    FieldErrors, FieldPath, Map, Str, Value,
    field::quote,
    names::{is_label_value, is_qualified_name},
};

/// Requirements that must all be met. A copy shares them: a watch keeps its selector for as long as it lasts.
#[derive(Clone, Debug, Default)]
pub struct LabelSelector {
    // Invariant: sorted by key.
    requirements: Arc<Vec<Requirement>>,
    /// Where there are so many requirements that labels are looked up in them and not the other way round.
    index: Option<Arc<KeyIndex>>,
    nothing: bool,
}

impl PartialEq for LabelSelector {
    fn eq(&self, other: &Self) -> bool {
        // The index is made from the requirements.
        self.requirements == other.requirements && self.nothing == other.nothing
    }
}

impl Eq for LabelSelector {}

/// What one label has to be. Made by [`Requirement::new`] only, so it is well-formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: Str,
    operator: Operator,
    /// None: none. Boxed, because a selector may have thousands of requirements, and a server thousands of watches.
    values: Option<Box<Values>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Values {
    listed: Vec<Str>,
    /// The values in order, where they are too many to compare each of them with the label of every object.
    sorted: Option<Vec<Str>>,
}

/// A search is faster from here on.
const SEARCHED_VALUES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Equals,
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

impl LabelSelector {
    pub fn everything() -> Self {
        Self::default()
    }

    pub fn nothing() -> Self {
        Self { nothing: true, ..Self::default() }
    }

    /// The text form: `app=web,tier in (a,b),!canary,size>3`.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(Self::of(parse::parse(text)?))
    }

    /// A `LabelSelector` object. None selects nothing, an empty one everything.
    pub fn from_object(selector: Option<&Value>) -> Result<Self, String> {
        let Some(selector) = selector.filter(|selector| !selector.is_null()) else {
            return Ok(Self::nothing());
        };
        let mut requirements = Vec::new();
        let labels = selector.get("matchLabels").and_then(Value::as_object);
        for (key, value) in labels.into_iter().flat_map(Map::iter) {
            let value = Str::new(value.as_str().unwrap_or_default());
            requirements.push(Requirement::new(key, Operator::Equals, vec![value])?);
        }
        for expression in selector.items_at(&["matchExpressions"]) {
            let operator = match expression.str_at(&["operator"]) {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    return Err(format!("{} is not a valid label selector operator", quote(other)));
                }
            };
            let values = expression.items_at(&["values"]).iter();
            let values = values.map(|value| Str::new(value.as_str().unwrap_or_default())).collect();
            requirements.push(Requirement::new(expression.str_at(&["key"]), operator, values)?);
        }
        Ok(Self::of(requirements))
    }

    /// A plain map of labels (`spec.selector` of a Service), which is not checked. An empty one selects
    /// everything.
    pub fn from_labels(labels: &Value) -> Self {
        let labels = labels.as_object().into_iter().flat_map(Map::iter);
        let requirements = labels.map(|(key, value)| {
            let values = vec![Str::new(value.as_str().unwrap_or_default())];
            Requirement {
                key: key.clone(),
                operator: Operator::Equals,
                values: Values::new(values),
            }
        });
        Self::of(requirements.collect())
    }

    fn of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        requirements.shrink_to_fit();
        let index = (requirements.len() >= KEYS_INDEXED).then(|| KeyIndex::of(&requirements));
        let index = index.map(Arc::new);
        Self { requirements: Arc::new(requirements), index, nothing: false }
    }

    /// Adds a requirement. Nothing stays nothing.
    pub fn and(&mut self, requirement: Requirement) {
        if !self.nothing {
            let mut requirements = Vec::clone(&self.requirements);
            requirements.push(requirement);
            *self = Self::of(requirements);
        }
    }

    /// `labels` are sorted by key.
    pub fn matches(&self, labels: &[(Str, Str)]) -> bool {
        // Whichever are fewer are looked up.
        if let Some(index) = &self.index
            && labels.len() <= self.requirements.len()
        {
            let labels = labels.iter().map(|(key, value)| (key.as_str(), Some(value.as_str())));
            return !self.nothing && index.matches(&self.requirements, labels);
        }
        let value = |key: &str| {
            let at = labels.binary_search_by(|(probe, _)| probe.as_str().cmp(key)).ok()?;
            Some(labels[at].1.as_str())
        };
        self.matches_with(value)
    }

    /// Matches the `metadata.labels` of an object.
    pub fn matches_object(&self, object: &Value) -> bool {
        let labels = object.at(&["metadata", "labels"]);
        if let Some(index) = &self.index {
            let labels = labels.and_then(Value::as_object).into_iter().flat_map(Map::iter);
            let labels = labels.map(|(key, value)| (key.as_str(), value.as_str()));
            return !self.nothing && index.matches(&self.requirements, labels);
        }
        self.matches_with(|key| labels.and_then(|labels| labels.get(key)?.as_str()))
    }

    /// Matches labels in any form, given a way to look one up.
    pub fn matches_with<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing
            && self.requirements.iter().all(|required| required.matches(value(&required.key)))
    }

    /// It restricts nothing.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// The only value that a label may have, if it may have only one.
    pub fn exact_value(&self, key: &str) -> Option<&str> {
        let requirement = self.requirements.iter().find(|requirement| requirement.key == key)?;
        match (requirement.operator, requirement.values()) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => Some(value),
            _ => None,
        }
    }
}

impl Requirement {
    /// Checks key and values as the operator demands. Errors are field errors as text.
    pub fn new(key: &str, operator: Operator, values: Vec<Str>) -> Result<Self, String> {
        let mut errors = FieldErrors::default();
        let (key_at, values_at) = (FieldPath::new("key"), FieldPath::new("values"));
        let wrong = is_qualified_name(key);
        if !wrong.is_empty() {
            errors.invalid(key_at, key, &wrong.join("; "));
        }
        if let Some(why) = operator.count_error(values.len()) {
            // Go prints a list that was never made as null.
            let shown = if values.is_empty() { Value::Null } else { values.clone().into() };
            errors.invalid(&values_at, shown, why);
        }
        for (at, value) in values.iter().enumerate() {
            if operator.compares_numbers() && value.parse::<i64>().is_err() {
                let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.invalid(values_at.index(at), value.as_str(), why);
            }
        }
        for (at, value) in values.iter().enumerate() {
            let wrong = is_label_value(value);
            if !wrong.is_empty() {
                errors.invalid(values_at.index(at).key(key), value.as_str(), &wrong.join("; "));
            }
        }
        if !errors.is_empty() {
            return Err(errors.to_string());
        }
        Ok(Self { key: Str::new(key), operator, values: Values::new(values) })
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn operator(&self) -> Operator {
        self.operator
    }

    pub fn values(&self) -> &[Str] {
        self.values.as_ref().map_or(&[], |values| &values.listed)
    }

    /// Whether a label with this value (or its absence) is fine.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let has = |value: &str| match self.values.as_ref().and_then(|own| own.sorted.as_ref()) {
            Some(sorted) => sorted.binary_search_by(|own| own.as_str().cmp(value)).is_ok(),
            None => self.values().iter().any(|own| own == value),
        };
        match (self.operator, value) {
            (Operator::Exists, value) => value.is_some(),
            (Operator::DoesNotExist, value) => value.is_none(),
            (Operator::NotIn | Operator::NotEquals, None) => true,
            (_, None) => false,
            (Operator::In | Operator::Equals | Operator::DoubleEquals, Some(value)) => has(value),
            (Operator::NotIn | Operator::NotEquals, Some(value)) => !has(value),
            (Operator::GreaterThan, Some(value)) => {
                self.numbers(value).is_some_and(|(value, bound)| value > bound)
            }
            (Operator::LessThan, Some(value)) => {
                self.numbers(value).is_some_and(|(value, bound)| value < bound)
            }
        }
    }

    fn numbers(&self, value: &str) -> Option<(i64, i64)> {
        Some((value.parse().ok()?, self.values().first()?.parse().ok()?))
    }
}

impl Values {
    fn new(mut listed: Vec<Str>) -> Option<Box<Self>> {
        if listed.is_empty() {
            return None;
        }
        listed.shrink_to_fit();
        let sorted = (listed.len() >= SEARCHED_VALUES).then(|| {
            let mut sorted = listed.clone();
            sorted.sort_unstable();
            sorted
        });
        Some(Box::new(Self { listed, sorted }))
    }
}

impl Operator {
    /// Whether a label must be there.
    pub(super) fn needs_label(self) -> bool {
        !matches!(self, Self::NotEquals | Self::NotIn | Self::DoesNotExist)
    }

    fn compares_numbers(self) -> bool {
        matches!(self, Self::GreaterThan | Self::LessThan)
    }

    fn count_error(self, count: usize) -> Option<&'static str> {
        match self {
            Self::In | Self::NotIn if count == 0 => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Self::Equals | Self::DoubleEquals | Self::NotEquals if count != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Self::Exists | Self::DoesNotExist if count != 0 => {
                Some("values set must be empty for exists and does not exist")
            }
            Self::GreaterThan | Self::LessThan if count != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        }
    }
}

/// The canonical text, which parses to the same selector. (Nothing has no text of its own.)
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let mut values: Vec<&str> = self.values().iter().map(Str::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        match self.operator {
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::value;

    fn labels(text: &str) -> Vec<(Str, Str)> {
        let mut labels: Vec<(Str, Str)> = text
            .split(',')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (Str::new(key), Str::new(value)))
            .collect();
        labels.sort();
        labels
    }

    #[test]
    fn labels_are_matched() {
        let cases = [
            ("", "x=y", true),
            ("x=y", "x=y", true),
            ("x=y,z=w", "x=y,z=w", true),
            ("x!=y,z!=w", "x=z,z=a", true),
            ("notin=in", "notin=in", true),
            ("x", "x=z", true),
            ("!x", "y=z", true),
            ("x>1", "x=2", true),
            ("x<1", "x=0", true),
            ("x=z", "", false),
            ("x=y", "x=z", false),
            ("x=y,z=w", "x=w,z=w", false),
            ("x!=y,z!=w", "x=z,z=w", false),
            ("x", "y=z", false),
            ("!x", "x=z", false),
            ("x>1", "x=0", false),
            ("x>1", "x=one", false),
            ("x<1", "x=2", false),
            ("x<1", "y=0", false),
            ("x in (y,z)", "x=z", true),
            ("x in (y,z)", "x=a", false),
            ("x in (,a)", "x=", true),
            ("x notin (y)", "a=b", true),
            ("x notin (y)", "x=y", false),
            ("x=", "x=", true),
            ("x=", "y=", false),
        ];
        for (selector, text, expected) in cases {
            let selector = LabelSelector::parse(selector).unwrap();
            assert_eq!(selector.matches(&labels(text)), expected, "{selector} on {text}");
        }
    }

    #[test]
    fn selector_objects_are_read() {
        let ok = [
            (value!({}), ""),
            (value!({"matchLabels": {"foo": "bar"}}), "foo=bar"),
            (
                value!({"matchLabels": {"foo": "bar"}, "matchExpressions": [
                    {"key": "baz", "operator": "In", "values": ["qux", "norf"]},
                    {"key": "a", "operator": "DoesNotExist"}]}),
                "!a,baz in (norf,qux),foo=bar",
            ),
        ];
        for (object, expected) in &ok {
            let selector = LabelSelector::from_object(Some(object)).unwrap();
            assert_eq!(&selector.to_string(), expected);
        }
        let bad = [
            (
                value!({"matchExpressions": [{"key": "a", "operator": "Foo"}]}),
                "\"Foo\" is not a valid label selector operator",
            ),
            (
                value!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
                "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
            ),
            (
                value!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}),
                "values: Invalid value: [\"x\"]: values set must be empty for exists and does not exist",
            ),
        ];
        for (object, expected) in &bad {
            assert_eq!(&LabelSelector::from_object(Some(object)).unwrap_err(), expected);
        }
        assert!(LabelSelector::from_object(None).unwrap().is_nothing());
        assert!(!LabelSelector::nothing().matches(&[]));
        assert!(LabelSelector::from_object(Some(&value!({}))).unwrap().is_everything());
    }

    #[test]
    fn an_exact_value_is_found() {
        let selector = LabelSelector::parse("a=1,b in (2),c in (1,2),d!=1").unwrap();
        let found = ["a", "b", "c", "d", "e"].map(|key| selector.exact_value(key));
        assert_eq!(found, [Some("1"), Some("2"), None, None, None]);
    }

    proptest! {
        #[test]
        fn the_canonical_text_parses_to_the_same_selector(
            parts in proptest::collection::vec(("[a-d]{1,2}", 0u8..9, "[a-c]{0,2}", "[0-9]{1,3}"), 0..5)
        ) {
            let text: Vec<String> = parts.iter().map(|(key, operator, value, number)| match operator {
                0 => key.clone(),
                1 => format!("!{key}"),
                2 => format!("{key} = {value}"),
                3 => format!("{key}=={value}"),
                4 => format!("{key} !={value}"),
                5 => format!("{key} in ({value},x)"),
                6 => format!("{key}  notin({value}, x )"),
                7 => format!("{key}>{number}"),
                _ => format!("{key}<{number}"),
            }).collect();
            let selector = LabelSelector::parse(&text.join(",")).unwrap();
            prop_assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "[a-b=!<>(),/ int\u{0}é]{0,20}") {
            let _ = LabelSelector::parse(&text);
        }
    }
}
