//! An ingress without a class gets the default one.

use meta::{ApiError, Value};

use super::newest_default;
use crate::{Attributes, BoxFuture, Cluster, Operation, Phases, Plugin, resources};

pub struct DefaultIngressClass;

const IS_DEFAULT: [&str; 1] = ["ingressclass.kubernetes.io/is-default-class"];

impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Create
    }

    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is("networking.k8s.io", "ingresses", "")
    }

    fn phases(&self) -> Phases {
        Phases::Mutating
    }

    fn admit<'a>(
        &'a self,
        _attributes: &'a Attributes<'a>,
        object: Option<&'a mut Value>,
        cluster: &'a Cluster,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(ingress) = object.filter(|ingress| !has_class(ingress)) else {
                return Ok(());
            };
            let class = newest_default(cluster, &resources::INGRESS_CLASSES, &IS_DEFAULT).await?;
            if let Some(class) = class {
                ingress.set_at(&["spec", "ingressClassName"], class.str_at(&["metadata", "name"]));
            }
            Ok(())
        })
    }
}

fn has_class(ingress: &Value) -> bool {
    let field = ingress.at(&["spec", "ingressClassName"]).and_then(Value::as_str);
    let annotation = ["metadata", "annotations", "kubernetes.io/ingress.class"];
    field.is_some() || ingress.at(&annotation).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{cluster, create, yaml};

    #[test]
    fn the_newest_default_class_is_filled_in() {
        let class = |name: &str, year: u32, default: bool| {
            format!(
                "{{metadata: {{name: {name}, creationTimestamp: '{year}-01-01T00:00:00Z', \
                 annotations: {{ingressclass.kubernetes.io/is-default-class: '{default}'}}}}}}"
            )
        };
        let (old, new, other) =
            (class("old", 2020, true), class("new", 2021, true), class("other", 2022, false));
        let cases: [(&[&str], &str, &str); 5] = [
            (&[&old, &new, &other], "{spec: {}}", "{spec: {ingressClassName: new}}"),
            (&[&other], "{spec: {}}", "{spec: {}}"),
            (&[], "{spec: {}}", "{spec: {}}"),
            (&[&old], "{spec: {ingressClassName: x}}", "{spec: {ingressClassName: x}}"),
            (
                &[&old],
                "{metadata: {annotations: {kubernetes.io/ingress.class: x}}}",
                "{metadata: {annotations: {kubernetes.io/ingress.class: x}}}",
            ),
        ];
        for (classes, ingress, expected) in cases {
            let classes: Vec<_> =
                classes.iter().map(|class| (&resources::INGRESS_CLASSES, *class)).collect();
            let mut object = yaml(ingress);
            let request = create(&resources::INGRESSES);
            request.admit(&DefaultIngressClass, &mut object, &cluster(&classes, &[]));
            assert_eq!(object, yaml(expected));
        }
    }
}
