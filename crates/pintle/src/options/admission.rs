//! The admission plugins that are on, and their configuration.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use admission::{
    Configurations, Plugin,
    order::{self, KnownPlugin, PLUGINS, Settings},
    quota::{Evaluators, QuotaAccessor},
    static_manifests::{self, ManifestPlugin},
    webhook::AuthInfos,
};

use crate::flags::{Parsed, quote};

/// Which plugins are on, and what they are built from.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdmissionPlugins {
    on: Vec<&'static str>,
    configurations: Configurations,
    not_ready_toleration_seconds: i64,
    unreachable_toleration_seconds: i64,
}

impl AdmissionPlugins {
    #[cfg(test)]
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.on.contains(&name)
    }

    pub(crate) fn build(
        &self,
        feature: &dyn Fn(&str) -> bool,
        quota_evaluators: Arc<Evaluators>,
        quotas: Arc<dyn QuotaAccessor>,
    ) -> Result<Vec<Box<dyn Plugin>>, String> {
        let settings = Settings {
            configurations: &self.configurations,
            feature,
            not_ready_toleration_seconds: self.not_ready_toleration_seconds,
            unreachable_toleration_seconds: self.unreachable_toleration_seconds,
            quota_evaluators,
            quotas,
        };
        order::plugins(&|name| self.on.contains(&name), &settings)
    }
}

impl AdmissionPlugins {
    /// The credentials that a webhook plugin's calls are made with.
    pub(crate) fn webhook_credentials(&self, plugin: &str) -> Result<AuthInfos, String> {
        self.configurations.of(plugin).map_or_else(
            || Ok(AuthInfos::default()),
            |given| AuthInfos::of_configuration(&given.value).map_err(|why| given.wrong(&why)),
        )
    }

    /// The directories of configurations in files, of the plugins that are on.
    pub(crate) fn manifest_directories(
        &self,
        feature: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<(ManifestPlugin, PathBuf)>, String> {
        let gate_is_on = feature(static_manifests::FEATURE_GATE);
        let mut directories = Vec::new();
        let on = ManifestPlugin::ALL.into_iter().filter(|plugin| self.on.contains(&plugin.name()));
        for plugin in on {
            let Some(given) = self.configurations.of(plugin.name()) else { continue };
            let directory = static_manifests::directory_of(plugin, given, gate_is_on)?;
            directories.extend(directory.map(|directory| (plugin, directory)));
        }
        Ok(directories)
    }
}

pub(super) fn plugins(
    parsed: &Parsed,
    errors: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> AdmissionPlugins {
    let (enabled, disabled) =
        (parsed.texts("enable-admission-plugins"), parsed.texts("disable-admission-plugins"));
    for (flag, names) in [("enable", &enabled), ("disable", &disabled)] {
        for name in names.iter().filter(|name| order::find(name).is_none()) {
            let name = quote(name);
            errors.push(format!("{flag}-admission-plugins plugin {name} is unknown"));
        }
    }
    let mut overlapped: Vec<&str> =
        enabled.iter().filter(|name| disabled.contains(name)).map(String::as_str).collect();
    if !overlapped.is_empty() {
        overlapped.sort_unstable();
        overlapped.dedup();
        let names = overlapped.join(" ");
        errors.push(format!(
            "[{names}] in enable-admission-plugins and disable-admission-plugins overlapped"
        ));
    }
    // Compat: the deprecated flag names all plugins that are on.
    let only = parsed.is_changed("admission-control").then(|| parsed.texts("admission-control"));
    if let Some(only) = &only {
        if !enabled.is_empty() || !disabled.is_empty() {
            errors.push(
                "admission-control and enable-admission-plugins/disable-admission-plugins flags are \
                 mutually exclusive"
                    .to_owned(),
            );
        }
        for name in only.iter().filter(|name| order::find(name).is_none()) {
            errors.push(format!("admission-control plugin {} is unknown", quote(name)));
        }
    }
    let is_on = |known: &&KnownPlugin| {
        let named = |names: &[String]| names.iter().any(|name| name == known.name);
        match &only {
            Some(only) => named(only),
            None => (known.on_by_default || named(&enabled)) && !named(&disabled),
        }
    };
    let on: Vec<&str> = PLUGINS.iter().filter(is_on).map(|known| known.name).collect();
    for name in on.iter().filter(|name| ["AlwaysAdmit", "AlwaysDeny"].contains(name)) {
        warnings.push(format!(
            "{name} admission controller is deprecated. Please remove this controller from your \
             configuration files and scripts."
        ));
    }
    let file = parsed.text("admission-control-config-file");
    let configurations = configurations(&file, &on, errors, warnings);
    AdmissionPlugins {
        on,
        configurations,
        not_ready_toleration_seconds: parsed.int("default-not-ready-toleration-seconds"),
        unreachable_toleration_seconds: parsed.int("default-unreachable-toleration-seconds"),
    }
}

fn configurations(
    file: &str,
    on: &[&str],
    errors: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> Configurations {
    if file.is_empty() {
        return Configurations::default();
    }
    let configurations = match Configurations::read(Path::new(file)) {
        Ok(configurations) => configurations,
        Err(why) => {
            errors.push(why);
            return Configurations::default();
        }
    };
    for name in configurations.names() {
        let quoted = quote(name);
        match order::find(name) {
            None => errors.push(format!("{file}: unknown admission plugin: {name}")),
            Some(known) if !known.takes_configuration => {
                errors.push(format!("{file}: admission plugin {quoted} takes no configuration"));
            }
            Some(_) if !on.contains(&name) => warnings.push(format!(
                "{file}: the configuration of admission plugin {quoted} has no effect: the plugin \
                 is off"
            )),
            Some(_) => {}
        }
    }
    configurations
}
