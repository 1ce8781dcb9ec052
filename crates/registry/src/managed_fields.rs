//! `metadata.managedFields`, updated on every write.

use http::header::USER_AGENT;
use meta::{ApiError, Value, time::Time};
use patch::apply::{self, Filter, Manager, Set, SingleVersion, TypeContext};
use schema::{Schema, TypeId};

use crate::{
    managed_fields_conversions::ConvertedVersions, options::WriteOptions,
    resource_request::ResourceRequest, strategy::Fields,
};

/// The fields that a request may own, by subresource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filters {
    main: Filter,
    status: Filter,
    /// Subresources with rules of the kind.
    own: Vec<(&'static str, Filter)>,
}

impl Filters {
    /// A write to the object cannot own the status where that has an endpoint of its own, and a
    /// write to the status can own nothing else.
    pub(crate) fn of(
        schema: &Schema,
        ty: TypeId,
        has_status: bool,
        resets: &'static [(&'static str, Fields)],
    ) -> Self {
        let own = resets.iter().map(|(subresource, fields)| (*subresource, all_but(fields)));
        let own = own.collect();
        if !has_status {
            return Self { own, ..Self::default() };
        }
        let others = schema.get(ty).fields.iter().map(|field| field.name.as_str());
        let others =
            others.filter(|name| !matches!(*name, "status" | "metadata" | "apiVersion" | "kind"));
        let others: Vec<[&str; 1]> = others.map(|name| [name]).collect();
        let others: Vec<&[&str]> = others.iter().map(<[&str; 1]>::as_slice).collect();
        Self {
            main: Filter::Except(Set::of(&[&["status"]])),
            status: Filter::Except(Set::of(&others)),
            own,
        }
    }

    /// The same for custom resources, whose other fields are not known beforehand.
    pub(crate) fn of_custom(has_status: bool) -> Self {
        if !has_status {
            return Self::default();
        }
        Self {
            main: Filter::Except(Set::of(&[&["status"]])),
            status: Filter::Except(Set::of(&[&["metadata"], &["spec"]])),
            own: Vec::new(),
        }
    }

    fn for_subresource(&self, subresource: &str) -> &Filter {
        if let Some((_, filter)) = self.own.iter().find(|(of, _)| *of == subresource) {
            return filter;
        }
        match subresource {
            "" => &self.main,
            "status" => &self.status,
            _ => &Filter::All,
        }
    }
}

fn all_but(fields: Fields) -> Filter {
    let paths: Vec<Vec<&str>> = fields.iter().map(|field| field.split('.').collect()).collect();
    Filter::Except(Set::of(&paths.iter().map(Vec::as_slice).collect::<Vec<_>>()))
}

/// Updates managedFields with the changes between `live` and `new`.
pub(crate) fn track(
    request: &ResourceRequest<'_>,
    options: &WriteOptions,
    live: Option<&Value>,
    new: &mut Value,
) {
    // An apply has updated them already.
    if options.managed_fields_tracked {
        return;
    }
    with_manager(request, options, |typing, manager| apply::update(live, new, typing, manager));
}

/// Server-side apply: merges a configuration into the live object.
pub(crate) fn merge(
    request: &ResourceRequest<'_>,
    options: &WriteOptions,
    live: Option<&Value>,
    config: &Value,
) -> Result<Value, ApiError> {
    let (version, name) = (config.str_at(&["apiVersion"]), config.str_at(&["kind"]));
    if version == request.kind.group_version().to_string() && name != request.kind.gvk().kind {
        let slash = if version.contains('/') { "" } else { "/" };
        let why = format!("invalid object type: {slash}{version}, Kind={name}");
        return Err(ApiError::BadRequest(why));
    }
    let force = options.force.unwrap_or_default();
    with_manager(request, options, |typing, manager| {
        Ok(apply::apply(live, config, typing, manager, force)?)
    })
}

/// As [`track`], for a scale, whose managers are those of the replicas of its parent.
pub(crate) fn track_scale(
    request: &ResourceRequest<'_>,
    options: &WriteOptions,
    live: &Value,
    new: &mut Value,
) -> Result<(), ApiError> {
    with_scale_manager(request, options, |typing, manager| {
        // Clients cannot set managedFields through a scale.
        new.remove_at(&MANAGED_FIELDS);
        apply::update(Some(live), new, typing, manager);
        Ok(())
    })
}

/// As [`merge`], for a scale.
pub(crate) fn merge_scale(
    request: &ResourceRequest<'_>,
    options: &WriteOptions,
    live: &Value,
    config: &Value,
) -> Result<Value, ApiError> {
    let force = options.force.unwrap_or_default();
    with_scale_manager(request, options, |typing, manager| {
        Ok(apply::apply(Some(live), config, typing, manager, force)?)
    })
}

/// As [`track`], for the body of a subresource that acts.
pub(crate) fn track_sent(
    request: &ResourceRequest<'_>,
    options: &WriteOptions,
    ty: TypeId,
    new: &mut Value,
) {
    let api_version = new.str_at(&["apiVersion"]).to_owned();
    with_manager_of(request, options, ty, &api_version, |typing, manager| {
        apply::update(None, new, typing, manager);
    });
}

const MANAGED_FIELDS: [&str; 2] = ["metadata", "managedFields"];

fn with_scale_manager<T>(
    request: &ResourceRequest<'_>,
    options: &WriteOptions,
    run: impl FnOnce(&TypeContext<'_>, &Manager<'_>) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    let schema = &request.engine.schema;
    let ty = schema.by_name("io.k8s.api.autoscaling.v1.Scale");
    let ty = ty.ok_or_else(|| ApiError::internal("no schema for Scale"))?;
    with_manager_of(request, options, ty, "autoscaling/v1", run)
}

/// For objects of another kind than the request's.
fn with_manager_of<T>(
    request: &ResourceRequest<'_>,
    options: &WriteOptions,
    ty: TypeId,
    api_version: &str,
    run: impl FnOnce(&TypeContext<'_>, &Manager<'_>) -> T,
) -> T {
    let schema = &request.engine.schema;
    let typing = TypeContext { schema, ty, fields: &Filter::All, versions: &SingleVersion };
    let manager = Manager {
        name: &manager_name(request, options),
        api_version,
        subresource: &request.info.subresource,
        now: &Time::now().to_rfc3339(),
    };
    run(&typing, &manager)
}

fn with_manager<T>(
    request: &ResourceRequest<'_>,
    options: &WriteOptions,
    run: impl FnOnce(&TypeContext<'_>, &Manager<'_>) -> T,
) -> T {
    let kind = request.kind;
    let converted;
    let versions: &dyn apply::VersionConverter = match &kind.custom {
        Some(custom) if kind.is_remote() => {
            converted = ConvertedVersions {
                versions: &*custom.versions,
                conversions: &options.conversions,
            };
            &converted
        }
        _ => &*kind.versions,
    };
    let (schema, ty) = kind.apply_type();
    let typing = TypeContext {
        schema,
        ty,
        fields: kind.filters.for_subresource(&request.info.subresource),
        versions,
    };
    let manager = Manager {
        name: &manager_name(request, options),
        api_version: &kind.group_version().to_string(),
        subresource: &request.info.subresource,
        now: &Time::now().to_rfc3339(),
    };
    run(&typing, &manager)
}

/// The name of the manager: `fieldManager`, or the program in the user agent.
fn manager_name(request: &ResourceRequest<'_>, options: &WriteOptions) -> String {
    if !options.field_manager.is_empty() {
        return options.field_manager.clone();
    }
    let agent = request.headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
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
