//! The path to the current value of a walk through an object. Kept on the stack, one element per
//! level, and formatted only for errors.

use meta::FieldPath;

#[derive(Clone, Copy)]
pub(super) struct ValuePath<'a> {
    parent: Option<&'a ValuePath<'a>>,
    step: Step<'a>,
    /// The value is a default of the schema, not an object.
    is_default: bool,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root(&'a FieldPath),
    Field(&'a str),
    /// A key that is matched by `additionalProperties` only.
    Key(&'a str),
    Index(usize),
}

impl<'a> ValuePath<'a> {
    /// `above` is the path to the object itself; it is part of field paths only.
    pub(super) fn root(above: &'a FieldPath) -> Self {
        Self { parent: None, step: Step::Root(above), is_default: false }
    }

    pub(super) fn root_of_default(above: &'a FieldPath) -> Self {
        Self { is_default: true, ..Self::root(above) }
    }

    pub(super) fn field(&'a self, name: &'a str) -> Self {
        self.step(Step::Field(name))
    }

    pub(super) fn key(&'a self, key: &'a str) -> Self {
        self.step(Step::Key(key))
    }

    pub(super) fn index(&'a self, at: usize) -> Self {
        self.step(Step::Index(at))
    }

    fn step(&'a self, step: Step<'a>) -> Self {
        Self { parent: Some(self), step, is_default: self.is_default }
    }

    pub(super) fn is_default(&self) -> bool {
        self.is_default
    }

    pub(super) fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    /// `above.field[key][0]`.
    pub(super) fn path(&self) -> FieldPath {
        let parent = self.parent.map(ValuePath::path);
        match (self.step, parent.unwrap_or_default()) {
            (Step::Root(above), _) => above.clone(),
            (Step::Field(name), parent) => parent.child(name),
            (Step::Key(key), parent) => parent.key(key),
            (Step::Index(at), parent) => parent.index(at),
        }
    }

    /// The path as messages of schema validation print it: `field.key[0]`, from the root of the
    /// object. A key at the root has a leading dot.
    pub(super) fn dotted(&self) -> String {
        let mut text = self.parent.map(ValuePath::dotted).unwrap_or_default();
        match self.step {
            Step::Root(_) => {}
            Step::Field(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Step::Key(key) => {
                text.push('.');
                text.push_str(key);
            }
            Step::Index(at) => text.push_str(&format!("[{at}]")),
        }
        text
    }
}
