//! AlwaysAdmit and AlwaysDeny, which upstream keeps for old command lines.

use meta::{ApiError, Value};

use crate::{Attributes, BoxFuture, Cluster, Operation, Plugin};

pub struct AlwaysAdmit;

impl Plugin for AlwaysAdmit {
    fn name(&self) -> &'static str {
        "AlwaysAdmit"
    }

    fn handles(&self, _operation: Operation) -> bool {
        true
    }

    fn concerns(&self, _attributes: &Attributes<'_>) -> bool {
        false
    }
}

pub struct AlwaysDeny;

const DENIED: &str = "admission control is denying all modifications";

impl Plugin for AlwaysDeny {
    fn name(&self) -> &'static str {
        "AlwaysDeny"
    }

    fn handles(&self, _operation: Operation) -> bool {
        true
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        let denied = attributes.forbidden(object.as_deref(), DENIED);
        Box::pin(std::future::ready(Err(denied)))
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a Value>,
        _cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(std::future::ready(Err(attributes.forbidden(object, DENIED))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        harness::{cluster, create, delete, yaml},
        resources,
    };

    #[test]
    fn one_admits_and_one_denies() {
        let pod = yaml("{metadata: {name: p}}");
        let denied = "pods \"p\" is forbidden: admission control is denying all modifications";
        for request in [create(&resources::PODS), delete(&resources::PODS, pod.clone())] {
            let cluster = cluster(&[], &[]);
            assert_eq!(request.admit(&AlwaysDeny, &mut pod.clone(), &cluster).message(), denied);
            assert_eq!(request.validate(&AlwaysDeny, &pod, &cluster).message(), denied);
            assert_eq!(request.admit(&AlwaysAdmit, &mut pod.clone(), &cluster).message(), "");
            assert_eq!(request.validate(&AlwaysAdmit, &pod, &cluster).message(), "");
        }
    }
}
