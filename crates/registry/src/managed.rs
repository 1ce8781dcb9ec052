//! Who owns which field: `metadata.managedFields`, kept on every write.

use http::header::USER_AGENT;
use meta::{ApiError, Value, time::Time};
use patch::apply::{self, Filter, Manager, OneVersion, Set, Typing};
use schema::{Schema, TypeId};

use crate::{options::WriteOptions, rest::Rest};

/// The fields that a request may own, by what it writes to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filters {
    main: Filter,
    status: Filter,
}

impl Filters {
    /// A write to the object can't own its status where that has an endpoint of its own, and a
    /// write to the status nothing else.
    pub(crate) fn of(schema: &Schema, ty: TypeId, has_status: bool) -> Self {
        if !has_status {
            return Self::default();
        }
        let others = schema.get(ty).fields.iter().map(|field| field.name.as_str());
        let others =
            others.filter(|name| !matches!(*name, "status" | "metadata" | "apiVersion" | "kind"));
        let others: Vec<[&str; 1]> = others.map(|name| [name]).collect();
        let others: Vec<&[&str]> = others.iter().map(<[&str; 1]>::as_slice).collect();
        Self {
            main: Filter::Except(Set::of(&[&["status"]])),
            status: Filter::Except(Set::of(&others)),
        }
    }

    /// The same for custom resources, whose other fields nobody knows beforehand.
    pub(crate) fn of_custom(has_status: bool) -> Self {
        if !has_status {
            return Self::default();
        }
        Self {
            main: Filter::Except(Set::of(&[&["status"]])),
            status: Filter::Except(Set::of(&[&["metadata"], &["spec"]])),
        }
    }

    fn for_subresource(&self, subresource: &str) -> &Filter {
        match subresource {
            "" => &self.main,
            "status" => &self.status,
            _ => &Filter::All,
        }
    }
}

/// Notes who changed what between `live` and `new`.
pub(crate) fn track(
    rest: &Rest<'_>,
    options: &WriteOptions,
    live: Option<&Value>,
    new: &mut Value,
) {
    // An apply has noted it already.
    if options.applied {
        return;
    }
    with_manager(rest, options, |typing, manager| apply::update(live, new, typing, manager));
}

/// Merges an applied configuration into what is there.
pub(crate) fn merge(
    rest: &Rest<'_>,
    options: &WriteOptions,
    live: Option<&Value>,
    config: &Value,
) -> Result<Value, ApiError> {
    let (version, name) = (config.str_at(&["apiVersion"]), config.str_at(&["kind"]));
    if version == rest.kind.group_version().to_string() && name != rest.kind.gvk().kind {
        let slash = if version.contains('/') { "" } else { "/" };
        let why = format!("invalid object type: {slash}{version}, Kind={name}");
        return Err(ApiError::BadRequest(why));
    }
    let force = options.force.unwrap_or_default();
    with_manager(rest, options, |typing, manager| {
        Ok(apply::apply(live, config, typing, manager, force)?)
    })
}

fn with_manager<T>(
    rest: &Rest<'_>,
    options: &WriteOptions,
    run: impl FnOnce(&Typing<'_>, &Manager<'_>) -> T,
) -> T {
    let kind = rest.kind;
    let versions: &dyn apply::Versions = match &kind.custom {
        Some(custom) => &*custom.versions,
        None => &OneVersion,
    };
    let typing = Typing {
        schema: &kind.schema,
        ty: kind.apply_type(),
        fields: kind.filters.for_subresource(&rest.info.subresource),
        versions,
    };
    let manager = Manager {
        name: &manager_name(rest, options),
        api_version: &kind.group_version().to_string(),
        subresource: &rest.info.subresource,
        now: &Time::now().to_rfc3339(),
    };
    run(&typing, &manager)
}

/// What a client calls itself: its `fieldManager`, or the program in its user agent.
fn manager_name(rest: &Rest<'_>, options: &WriteOptions) -> String {
    if !options.field_manager.is_empty() {
        return options.field_manager.clone();
    }
    let agent = rest.headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
    let program = agent.unwrap_or_default().split('/').next().unwrap_or_default();
    let mut name = String::new();
    for c in program.chars().filter(|c| !c.is_control()) {
        if name.len() + c.len_utf8() > MANAGER_BYTES_MAX {
            break;
        }
        name.push(c);
    }
    name
}

const MANAGER_BYTES_MAX: usize = 128;
