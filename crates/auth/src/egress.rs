//! The ways of the egress selector that authentication and authorization use.

use std::sync::Arc;

use client::Dial;

/// Without a configuration all connections are direct.
#[derive(Clone, Default)]
pub struct Egress {
    /// Whether there is a configuration.
    pub is_configured: bool,
    /// Feature gate `StructuredAuthenticationConfigurationEgressSelector`.
    pub issuers_may_choose: bool,
    /// Of webhooks, and of issuers that say so. None: the configuration does not name it.
    pub control_plane: Option<Arc<dyn Dial>>,
    /// Of issuers that say so.
    pub cluster: Option<Arc<dyn Dial>>,
}

impl Egress {
    /// The way to an issuer. Compat: unlike webhooks, an issuer that names a way needs it to be
    /// configured.
    pub(crate) fn of_issuer(&self, selector: &str) -> Result<Option<Arc<dyn Dial>>, String> {
        let dial = match selector {
            "" => return Ok(None),
            "cluster" => &self.cluster,
            _ => &self.control_plane,
        };
        if !self.issuers_may_choose {
            return Err("egress selector is not supported when \
                 StructuredAuthenticationConfigurationEgressSelector feature gate is disabled"
                .to_owned());
        }
        if !self.is_configured {
            return Err(format!(
                "oidc: egress lookup required with egress selector type {selector:?}"
            ));
        }
        match dial {
            Some(dial) => Ok(Some(dial.clone())),
            None => Err(format!("oidc: egress lookup for {selector:?} is not configured")),
        }
    }
}

#[cfg(test)]
mod tests {
    use client::TcpDial;

    use super::*;

    #[test]
    fn an_issuer_needs_the_way_that_it_names() {
        let direct = || Some(Arc::new(TcpDial::default()) as Arc<dyn Dial>);
        let none = Egress { issuers_may_choose: true, ..Egress::default() };
        let some = Egress { is_configured: true, control_plane: direct(), ..none.clone() };
        let off = Egress { issuers_may_choose: false, ..some.clone() };
        let cases = [
            (Egress::default(), "", Ok(false)),
            (some.clone(), "", Ok(false)),
            (some.clone(), "controlplane", Ok(true)),
            (some, "cluster", Err("oidc: egress lookup for \"cluster\" is not configured")),
            (
                off,
                "controlplane",
                Err("egress selector is not supported when \
                     StructuredAuthenticationConfigurationEgressSelector feature gate is disabled"),
            ),
            (
                none,
                "cluster",
                Err("oidc: egress lookup required with egress selector type \"cluster\""),
            ),
        ];
        for (egress, selector, expected) in cases {
            let found = egress.of_issuer(selector).map(|dial| dial.is_some());
            assert_eq!(found, expected.map_err(str::to_owned), "{selector}");
        }
    }
}
