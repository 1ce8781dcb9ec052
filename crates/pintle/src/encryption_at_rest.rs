//! Encryption at rest: the providers of `--encryption-provider-config`, their check and their reload.

use std::{path::Path, sync::Arc, time::Duration};

use builtin::Definitions;
use serve::{Tasks, health::Check};
use store::encrypt::{Encryption, EncryptionConfig};

use crate::options::Options;

/// Which providers encrypt which resources; none without a configuration.
pub(crate) fn encryption(
    file: Option<&Path>,
    prefix: &str,
    definitions: &Definitions,
) -> Result<Arc<Encryption>, String> {
    let config = match file {
        Some(file) => EncryptionConfig::load(file, &kms::connect)?,
        None => EncryptionConfig::default(),
    };
    let stored = definitions.resources.iter().filter_map(|facts| {
        let storage = facts.storage.as_ref()?;
        let mut resource = facts.group_version_resource().group_resource();
        // Both groups of events are stored as those of the core group.
        if resource.resource == "events" {
            resource.group = meta::Str::default();
        }
        Some((storage.prefix.clone(), resource))
    });
    Ok(Arc::new(Encryption::new(prefix, stored, config)))
}

/// Compat: one check for all plugins, and one without any where they may come with a reload.
pub(crate) fn kms_check(options: &Options, encryption: &Arc<Encryption>) -> Option<Check> {
    let may_come = options.encryption.as_ref().is_some_and(|config| config.reload);
    let encryption = encryption.clone();
    (may_come || encryption.health().is_some())
        .then(|| Check::new("kms-providers", move || encryption.health().unwrap_or(Ok(()))))
}

/// Reloads the configuration when its file changes, if the flags say so.
pub(crate) fn follow_file(options: &Options, encryption: &Arc<Encryption>, tasks: &Tasks) {
    let Some(config) = options.encryption.as_ref().filter(|config| config.reload) else { return };
    let (encryption, file) = (encryption.clone(), config.file.clone());
    tasks.restarting("encryption-config", move || {
        let connect = Box::new(kms::connect);
        encryption.clone().follow(file.clone(), RELOAD_INTERVAL, connect)
    });
}

/// How often the configuration is looked at.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);
