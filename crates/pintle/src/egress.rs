//! `--egress-selector-config-file`: which way connections leave the server. As in kube-apiserver:
//!
//! | connections | way |
//! |---|---|
//! | nodes, pods, Services, aggregated servers; webhooks behind Services | `cluster` |
//! | webhooks by URL; webhooks of authentication, authorization and audit; the collector of spans | `controlplane` |
//! | OpenID issuers | as `egressSelectorType` of the issuer says, otherwise direct |
//! | etcd | `etcd` |

use std::{io, sync::Arc};

use ::egress::{EgressSelector, EgressType};
use client::{Dial, WebhookDials};

use crate::options::Options;

/// The ways of the configuration; direct ones without a file.
pub(crate) fn selector(options: &Options) -> Result<EgressSelector, String> {
    let Some(file) = &options.egress_selector_config else { return Ok(EgressSelector::default()) };
    EgressSelector::read(file)
        .map_err(|error| format!("--egress-selector-config-file {}: {error}", file.display()))
}

/// Of authentication and authorization.
pub(crate) fn of_auth(selector: &EgressSelector, options: &Options) -> auth::Egress {
    let enabled = |gate| options.feature_gates.enabled(gate);
    auth::Egress {
        issuers_may_choose: enabled("StructuredAuthenticationConfigurationEgressSelector"),
        is_configured: selector.is_configured(),
        control_plane: selector.named(EgressType::ControlPlane),
        cluster: selector.named(EgressType::Cluster),
    }
}

/// Of admission and conversion webhooks.
pub(crate) fn of_webhooks(selector: &EgressSelector) -> WebhookDials {
    WebhookDials {
        service: selector.proxy(EgressType::Cluster),
        url: selector.proxy(EgressType::ControlPlane),
    }
}

/// Of gRPC connections. None: they are direct.
pub(crate) fn dialer(selector: &EgressSelector, egress: EgressType) -> Option<grpc::Dialer> {
    let dial: Arc<dyn Dial> = selector.proxy(egress)?;
    Some(grpc::Dialer::new(move |host, port| {
        let dial = dial.clone();
        Box::pin(async move {
            let stream = dial.dial(&host, port).await.map_err(io::Error::other)?;
            Ok(Box::new(stream) as Box<dyn grpc::Stream>)
        })
    }))
}
