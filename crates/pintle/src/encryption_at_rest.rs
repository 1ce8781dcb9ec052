//! Encryption at rest: the providers of `--encryption-provider-config`, their check and their reload.

use std::{path::Path, sync::Arc, time::Duration};

use background::Tasks;
use builtin::Definitions;
use serve::health::Check;
use store::encrypt::{Encryption, EncryptionConfig, KmsConfig};

use crate::options::Options;

/// Which providers encrypt which resources; none without a configuration.
pub(crate) fn encryption(
    file: Option<&Path>,
    prefix: &str,
    definitions: &Definitions,
    tasks: &Tasks,
) -> Result<Arc<Encryption>, String> {
    let config = match file {
        Some(file) => {
            let tasks = tasks.clone();
            EncryptionConfig::load(file, &move |plugin| kms::connect(plugin, &tasks))?
        }
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

/// Waits until all KMS plugins can be used: what they encrypt can neither be read nor written before, and
/// the first objects of the server are written before it is ready.
pub(crate) async fn wait_for_plugins(encryption: &Encryption) {
    let mut attempts: u32 = 0;
    while let Err(error) = encryption.prime().await {
        if attempts.is_multiple_of(ATTEMPTS_PER_LINE) {
            tracing::error!(%error, "a KMS plugin cannot be used yet; waiting for it");
        }
        attempts = attempts.wrapping_add(1);
        tokio::time::sleep(PLUGIN_INTERVAL).await;
    }
}

/// How often a KMS plugin that is away at the start is asked again.
const PLUGIN_INTERVAL: Duration = Duration::from_millis(500);
/// The log says so every 10 seconds.
const ATTEMPTS_PER_LINE: u32 = 20;

/// Reloads the configuration when its file changes, if the flags say so.
pub(crate) fn follow_file(options: &Options, encryption: &Arc<Encryption>, tasks: &Tasks) {
    let Some(config) = options.encryption.as_ref().filter(|config| config.reload) else { return };
    let (encryption, file) = (encryption.clone(), config.file.clone());
    let plugins = tasks.clone();
    tasks.restarting("encryption-config", move || {
        let plugins = plugins.clone();
        let connect = Box::new(move |plugin: &KmsConfig| kms::connect(plugin, &plugins));
        encryption.clone().follow(file.clone(), RELOAD_INTERVAL, connect)
    });
}

/// How often the configuration is looked at.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);
