//! Admission configurations from files (`staticManifestsDir`): read at start, where a wrong one ends the
//! server, and again when they change, where a wrong one leaves those that count as they are.

use std::{path::PathBuf, sync::Arc, time::Duration};

use admission::{
    DynamicAdmission,
    static_manifests::{self, ManifestDecoder, ManifestMetrics, ManifestPlugin},
};
use background::Tasks;
use meta::{ApiError, User, Value, Warnings, field::quote, time::Time};
use registry::{Kind, WriteContext, prepare_create};

/// The directories of all plugins that have one.
pub(crate) struct AdmissionManifests {
    directories: Vec<(ManifestPlugin, PathBuf)>,
    decoder: Arc<Decoder>,
    dynamic: Arc<DynamicAdmission>,
    pub(crate) metrics: Arc<ManifestMetrics>,
}

/// What a client is told who writes such an object, a file is told too.
struct Decoder(Vec<Kind>);

impl ManifestDecoder for Decoder {
    fn decode(&self, kind: &str, object: &Value) -> Result<Value, String> {
        let kind = self.0.iter().find(|own| own.gvk().kind == kind);
        let kind = kind.ok_or_else(|| "the kind is not known".to_owned())?;
        let mut object = object.clone();
        // An item of a list need not say what it is.
        object.set_at(&["kind"], kind.gvk().kind.clone());
        object.set_at(&["apiVersion"], kind.group_version().to_string());
        let json = meta::json::to_string(&object);
        let plain = |error: ApiError| match error {
            ApiError::Internal(why) => why,
            ApiError::Invalid { errors, .. } => errors.to_string(),
            other => other.to_string(),
        };
        let mut object = kind.decode_changed(json.as_bytes(), true).map_err(plain)?;
        let (user, warnings) = (User::default(), Warnings::default());
        let cx = WriteContext {
            kind,
            user: &user,
            now: Time::now(),
            warnings: &warnings,
            has_sent_labels: false,
            sent_generation: None,
        };
        prepare_create(kind, &mut object, &cx).map_err(plain)?;
        Ok(object)
    }
}

/// Compat: kube-apiserver is told by the kernel, and looks once a minute if it is not.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

impl AdmissionManifests {
    pub(crate) fn new(
        directories: Vec<(ManifestPlugin, PathBuf)>,
        kinds: Vec<Kind>,
        dynamic: &Arc<DynamicAdmission>,
        server: &str,
    ) -> Self {
        Self {
            directories,
            decoder: Arc::new(Decoder(kinds)),
            dynamic: dynamic.clone(),
            metrics: Arc::new(ManifestMetrics::new(server)),
        }
    }

    /// Reads all directories and follows them from then on.
    pub(crate) fn start(&self, tasks: &Tasks) -> Result<(), String> {
        for (plugin, directory) in &self.directories {
            let mut followed = Followed {
                plugin: *plugin,
                directory: directory.clone(),
                decoder: self.decoder.clone(),
                dynamic: self.dynamic.clone(),
                metrics: self.metrics.clone(),
                last_read: None,
            };
            let count = followed.reload().map_err(|why| {
                let what = match plugin {
                    ManifestPlugin::MutatingAdmissionWebhook
                    | ManifestPlugin::ValidatingAdmissionWebhook => "webhook",
                    _ => "policy",
                };
                let directory = quote(&directory.display().to_string());
                let name = quote(plugin.name());
                format!(
                    "couldn't init admission plugin {name}: failed to load static {what} manifests \
                     from {directory}: {why}"
                )
            })?;
            tracing::info!(
                plugin = plugin.name(),
                count = count.unwrap_or_default(),
                "Loaded manifest-based admission configurations"
            );
            // Frozen rules would let pass what they are there to refuse.
            tasks.critical("admission-manifests", followed.run());
        }
        Ok(())
    }
}

/// The directory of one plugin.
struct Followed {
    plugin: ManifestPlugin,
    directory: PathBuf,
    decoder: Arc<Decoder>,
    dynamic: Arc<DynamicAdmission>,
    metrics: Arc<ManifestMetrics>,
    /// The hash of the files, or why they could not be read: the same is not decoded and told again.
    last_read: Option<Result<String, String>>,
}

impl Followed {
    async fn run(mut self) {
        loop {
            tokio::time::sleep(RELOAD_INTERVAL).await;
            // Files and expressions may be many.
            let reload = tokio::task::spawn_blocking(move || {
                let outcome = self.reload();
                (self, outcome)
            });
            let (this, outcome) = match reload.await {
                Ok(reloaded) => reloaded,
                Err(stopped) => match stopped.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => return,
                },
            };
            self = this;
            let (plugin, directory) = (self.plugin.name(), self.directory.display());
            match outcome {
                Ok(None) => {}
                Ok(Some(count)) => {
                    tracing::info!(plugin, %directory, count, "reloaded admission manifest config");
                }
                Err(error) => {
                    self.metrics.failed(self.plugin);
                    tracing::error!(plugin, %directory, %error, "reloading admission manifest config");
                }
            }
        }
    }

    /// Reads the files and takes over what they configure, and says how much that is; None: they are as
    /// they were.
    fn reload(&mut self) -> Result<Option<usize>, String> {
        let manifests = static_manifests::read(&self.directory);
        let read = manifests.as_ref().map(|own| own.hash.clone()).map_err(Clone::clone);
        if self.last_read.as_ref() == Some(&read) {
            return Ok(None);
        }
        self.last_read = Some(read);
        let manifests = manifests?;
        let loaded = static_manifests::load(self.plugin, &manifests, &*self.decoder)?;
        self.dynamic.replace_from_files(&loaded.configurations);
        self.metrics.reloaded(self.plugin, &manifests.hash);
        Ok(Some(loaded.count))
    }
}
