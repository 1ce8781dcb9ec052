//! NamespaceExists refuses every write in a namespace that is not there; NamespaceAutoProvision creates the
//! namespace instead.

use meta::{ApiError, GroupResource, Value};

use crate::{
    Attributes, BoxFuture, Cluster, Freshness, Operation, Phases, Plugin, is_namespace, resources,
};

pub struct NamespaceExists;

impl Plugin for NamespaceExists {
    fn name(&self) -> &'static str {
        "NamespaceExists"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation != Operation::Connect
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        is_namespaced(attributes)
    }

    fn phases(&self) -> Phases {
        Phases::Validating
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        _object: Option<&'a Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let namespace = attributes.namespace;
            for freshness in [Freshness::Cached, Freshness::Linearizable] {
                let objects = &cluster.objects;
                if objects.get(&resources::NAMESPACES, "", namespace, freshness).await?.is_some() {
                    return Ok(());
                }
            }
            Err(ApiError::not_found(GroupResource::new("", "namespaces"), namespace))
        })
    }
}

pub struct NamespaceAutoProvision;

impl Plugin for NamespaceAutoProvision {
    fn name(&self) -> &'static str {
        "NamespaceAutoProvision"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        is_namespaced(attributes) && !attributes.is_dry_run()
    }

    fn phases(&self) -> Phases {
        Phases::Mutating
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: Option<&'a mut Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let (objects, namespace) = (&cluster.objects, attributes.namespace);
            let cached = Freshness::Cached;
            if objects.get(&resources::NAMESPACES, "", namespace, cached).await?.is_some() {
                return Ok(());
            }
            match objects.create_namespace(namespace).await {
                Ok(()) | Err(ApiError::AlreadyExists { .. }) => Ok(()),
                Err(error @ ApiError::Forbidden { .. }) => Err(error),
                Err(error) => Err(attributes.forbidden(object.as_deref(), error.to_string())),
            }
        })
    }
}

fn is_namespaced(attributes: &Attributes<'_>) -> bool {
    !attributes.namespace.is_empty() && !is_namespace(attributes.gvr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{cluster, create, delete, update, yaml};

    #[test]
    fn writes_need_their_namespace() {
        let cluster = cluster(&[(&resources::NAMESPACES, "{metadata: {name: here}}")], &[]);
        let pod =
            |namespace: &str| yaml(&format!("{{metadata: {{name: p, namespace: '{namespace}'}}}}"));
        let cases = [("here", ""), ("gone", "namespaces \"gone\" not found"), ("", "")];
        for (namespace, expected) in cases {
            let object = pod(namespace);
            let requests = [
                create(&resources::PODS),
                update(&resources::PODS, object.clone()),
                delete(&resources::PODS, object.clone()),
            ];
            for request in requests {
                let outcome = request.validate(&NamespaceExists, &object, &cluster);
                assert_eq!(outcome.message(), expected, "{namespace}");
            }
        }
    }

    #[test]
    fn missing_namespaces_are_created() {
        let cluster = cluster(&[(&resources::NAMESPACES, "{metadata: {name: here}}")], &[]);
        let cases = [
            (create(&resources::PODS), "here", ""),
            // The namespaces of this cluster cannot be created.
            (
                create(&resources::PODS),
                "new",
                "pods \"p\" is forbidden: Internal error occurred: new",
            ),
            (create(&resources::PODS), "raced", ""),
            (create(&resources::PODS).dry_run(), "new", ""),
            (update(&resources::PODS, yaml("{metadata: {name: p, namespace: new}}")), "new", ""),
        ];
        for (request, namespace, expected) in cases {
            let mut pod = yaml(&format!("{{metadata: {{name: p, namespace: {namespace}}}}}"));
            let outcome = request.admit(&NamespaceAutoProvision, &mut pod, &cluster);
            assert_eq!(outcome.message(), expected, "{namespace}");
        }
    }
}
