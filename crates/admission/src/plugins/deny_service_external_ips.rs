//! No service gets external IPs that it did not have: they take over traffic to addresses of others.

use meta::{ApiError, Value};

use crate::{Attributes, BoxFuture, Cluster, Operation, Phases, Plugin};

pub struct DenyServiceExternalIPs;

impl Plugin for DenyServiceExternalIPs {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is("", "services", "")
    }

    fn phases(&self) -> Phases {
        Phases::Validating
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let ips = |service: Option<&'a Value>| {
            service.map(|service| service.items_at(&["spec", "externalIPs"])).unwrap_or_default()
        };
        let old = ips(attributes.old);
        let result = if ips(object).iter().all(|ip| old.contains(ip)) {
            Ok(())
        } else {
            let why = "Use of external IPs is denied by admission control";
            Err(attributes.forbidden(object, why))
        };
        Box::pin(std::future::ready(result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::{cluster, create, update, yaml},
        resources,
    };

    #[test]
    fn external_ips_only_go_away() {
        let service =
            |ips: &str| yaml(&format!("{{metadata: {{name: s}}, spec: {{externalIPs: [{ips}]}}}}"));
        let denied =
            "services \"s\" is forbidden: Use of external IPs is denied by admission control";
        let cases = [
            (None, "", ""),
            (None, "1.1.1.1", denied),
            (Some("1.1.1.1, 2.2.2.2"), "2.2.2.2", ""),
            (Some("1.1.1.1"), "1.1.1.1, 2.2.2.2", denied),
            (Some(""), "1.1.1.1", denied),
        ];
        for (old, new, expected) in cases {
            let request = match old {
                None => create(&resources::SERVICES),
                Some(old) => update(&resources::SERVICES, service(old)),
            };
            let outcome =
                request.validate(&DenyServiceExternalIPs, &service(new), &cluster(&[], &[]));
            assert_eq!(outcome.message(), expected, "{old:?} {new}");
        }
    }
}
