//! `apiservice-status-local-available-controller`: what this server answers itself is available.

use std::sync::Arc;

use controllers::{ApiClient, BoxFuture, Informer, Key, ObjectEvent, ReconcileResult, Reconciler};
use meta::ApiError;

use crate::{
    api_service::{ApiService, Availability},
    availability_metrics::AvailabilityMetrics,
    registration::api_services,
};

pub struct LocalAvailableController {
    pub api: Arc<dyn ApiClient>,
    pub metrics: AvailabilityMetrics,
}

impl LocalAvailableController {
    /// Runs until the server stops. `events` are those of APIServices.
    pub async fn run(self, events: impl Informer) {
        controllers::run_workqueue(self, events).await;
    }
}

impl Reconciler for LocalAvailableController {
    const QUEUE: &'static str = "LocalAvailabilityController";

    fn keys_for(&self, event: &ObjectEvent) -> Vec<Key> {
        vec![("".into(), event.name.clone())]
    }

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<ReconcileResult, ApiError>> {
        Box::pin(async move {
            let object = match self.api.get(&api_services().named(&key.1)).await {
                Err(error @ ApiError::NotFound { .. }) => {
                    self.metrics.forget(&key.1);
                    return Err(error);
                }
                other => other?,
            };
            if ApiService::read(&object).service.is_none() {
                write_condition(&*self.api, object, &Availability::local(), &self.metrics).await?;
            }
            Ok(ReconcileResult::Done)
        })
    }
}

/// Writes the condition if it differs, and counts it in any case.
pub(crate) async fn write_condition(
    api: &dyn ApiClient,
    mut object: meta::Value,
    availability: &Availability,
    metrics: &AvailabilityMetrics,
) -> Result<(), ApiError> {
    let name = object.str_at(&["metadata", "name"]).to_owned();
    let was_available = crate::api_service::is_available(&object);
    let is_available = availability.status == "True";
    metrics.set(&name, is_available);
    if !availability.set_in(&mut object) {
        return Ok(());
    }
    tracing::info!(
        name,
        status = availability.status,
        reason = availability.reason,
        message = availability.message,
        "changing APIService availability"
    );
    let target = controllers::ResourceRef { subresource: "status", ..api_services().named(&name) };
    api.update(&target, &object).await?;
    if was_available && !is_available {
        metrics.count_unavailable(&name, availability.reason);
    }
    Ok(())
}
