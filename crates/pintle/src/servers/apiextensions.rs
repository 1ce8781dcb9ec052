//! The last server of the chain: CustomResourceDefinitions and the kinds that they define.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use apiextensions::{CrdController, CrdEventHandler};
use endpoints::{LoopbackClient, Resources};
use serve::{Claims, Delegate, health::Check};

use super::{Config, GenericApiServer, delegate, generic::caches_synced};
use crate::egress;

pub(crate) struct ApiExtensionsServer {
    /// `apiextensions.k8s.io`, and the groups of custom resources as they come and go.
    pub(crate) resources: Arc<Resources>,
    /// From [`Self::serve_definitions`] to its hook.
    controller: Rc<RefCell<Option<CrdController>>>,
}

impl ApiExtensionsServer {
    pub(super) fn new(config: &Config) -> Self {
        let own = |group: &str| group == apiextensions::GROUP;
        Self {
            resources: config.resources("apiextensions-apiserver", &own),
            controller: Rc::default(),
        }
    }

    pub(super) fn delegates(&self) -> Vec<(Arc<dyn Delegate>, Claims)> {
        vec![delegate(&self.resources)]
    }

    pub(super) fn install(&self, config: &Config, server: &mut GenericApiServer) {
        let kinds = config.kinds.iter().filter(|kind| kind.gvk().group == apiextensions::GROUP);
        let kinds = kinds.cloned().collect();
        let controller = self.controller.clone();
        server.add_post_start_hook("start-apiextensions-informers", async |_| Ok(()));
        // Names, establishing, conditions, finalizing, discovery and OpenAPI are one controller here.
        server.add_post_start_hook("start-apiextensions-controllers", async move |cx| {
            if let Some(controller) = controller.take() {
                cx.tasks.critical("crd-controller", controller.run());
            }
            Ok(())
        });
        let synced = caches_synced(kinds);
        server.add_check(Check::new("poststarthook/crd-informer-synced", synced).boot_sequence());
    }

    /// Serves the custom resources that are defined already: from the first request on, a 404 means that
    /// there is no such resource.
    pub(crate) async fn serve_definitions(
        &self,
        config: &Config,
        local: LoopbackClient,
        event_handler: Arc<dyn CrdEventHandler>,
    ) {
        let mut kinds = config.kinds.iter();
        let definitions = kinds
            .find(|kind| kind.gvk().kind == "CustomResourceDefinition")
            .and_then(|kind| kind.storage.clone());
        // `--runtime-config` may have turned them off: there are no custom resources then.
        let Some(definitions) = definitions else { return };
        let controller = CrdController::start(apiextensions::Options {
            definitions,
            resources: self.resources.clone(),
            local,
            backend: config.backend.clone(),
            prefix: config.options.storage_prefix.clone(),
            from_store: config.bypasses_cache(),
            schema: config.schema.clone(),
            event_handler,
            establish_after: if config.options.servers > 1 {
                ESTABLISH_AFTER
            } else {
                Duration::ZERO
            },
            webhook_dials: egress::of_webhooks(&config.node_connections.egress),
            tasks: config.tasks.clone(),
        });
        self.controller.replace(Some(controller.await));
    }
}

/// Compat: what kube-apiserver gives the other servers to serve a new definition.
const ESTABLISH_AFTER: Duration = Duration::from_secs(5);
