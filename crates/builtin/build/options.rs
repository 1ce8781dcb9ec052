//! The options of `pintle.proto`, read by name.

use std::borrow::Cow;

use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage, Value};

/// The options of a file, message or field, or an option that is a message itself.
pub(super) struct Options {
    message: DynamicMessage,
    /// Options are extensions; what is inside of them are fields.
    extensions: Option<DescriptorPool>,
}

impl Options {
    pub(super) fn of(pool: &DescriptorPool, message: DynamicMessage) -> Self {
        Self { message, extensions: Some(pool.clone()) }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn string(&self, name: &str) -> Option<String> {
        Some(self.get(name)?.as_str().expect("an option of type string").to_owned())
    }

    pub(super) fn strings(&self, name: &str) -> Vec<String> {
        self.list(name)
            .iter()
            .map(|value| value.as_str().expect("an option of type string").to_owned())
            .collect()
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.as_bool().expect("an option of type bool"))
    }

    pub(super) fn int(&self, name: &str) -> i32 {
        self.get(name).map_or(0, |value| value.as_i32().expect("an option of type int32"))
    }

    /// The name of an enum value.
    pub(super) fn name(&self, name: &str) -> Option<String> {
        let value = self.get(name)?;
        let number = value.as_enum_number().expect("an option of an enum type");
        let kind = match &self.extensions {
            Some(pool) => extension(pool, name).kind(),
            None => {
                self.message.descriptor().get_field_by_name(name).expect("a known field").kind()
            }
        };
        let prost_reflect::Kind::Enum(values) = kind else { panic!("{name} is no enum") };
        Some(values.get_value(number).expect("a value of the enum").name().to_owned())
    }

    pub(super) fn message(&self, name: &str) -> Option<Options> {
        Some(Self::nested(self.get(name)?.as_ref()))
    }

    pub(super) fn messages(&self, name: &str) -> Vec<Options> {
        self.list(name).iter().map(Self::nested).collect()
    }

    fn nested(value: &Value) -> Options {
        let message = value.as_message().expect("an option that is a message").clone();
        Self { message, extensions: None }
    }

    fn list(&self, name: &str) -> Vec<Value> {
        self.get(name)
            .map(|value| value.as_list().expect("a repeated option").to_vec())
            .unwrap_or_default()
    }

    /// `None` if it isn't there.
    fn get(&self, name: &str) -> Option<Cow<'_, Value>> {
        if let Some(pool) = &self.extensions {
            let extension = extension(pool, name);
            return self
                .message
                .has_extension(&extension)
                .then(|| self.message.get_extension(&extension));
        }
        let field = self
            .message
            .descriptor()
            .get_field_by_name(name)
            .unwrap_or_else(|| panic!("pintle.proto has no {name}"));
        self.message
            .has_field(&field)
            .then(|| Cow::Owned(self.message.get_field(&field).into_owned()))
    }
}

fn extension(pool: &DescriptorPool, name: &str) -> prost_reflect::ExtensionDescriptor {
    pool.all_extensions()
        .find(|extension| extension.full_name() == format!("pintle.{name}"))
        .unwrap_or_else(|| panic!("pintle.proto has no {name}"))
}
