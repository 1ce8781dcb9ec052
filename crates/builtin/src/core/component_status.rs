//! Component statuses: what the server found when it asked a component for its health.

use std::sync::Arc;

use meta::{ApiError, Value, value};
use registry::{BoxFuture, Column, ComputedResource, Strategy};
use store::Backend;

use crate::printer_cells::text;

/// The components that this server can ask. The scheduler is none of them, and the controllers are
/// part of the server itself, so what remains is the store, under the name that clients know.
pub(crate) struct ComponentStatuses(pub(crate) Arc<dyn Backend>);

impl ComputedResource for ComponentStatuses {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Value>, ApiError>> {
        Box::pin(async move {
            let condition = match self.0.revision().await {
                Ok(_) => value!({"type": "Healthy", "status": "True", "message": "ok"}),
                Err(error) => {
                    value!({"type": "Healthy", "status": "False", "error": (error.to_string())})
                }
            };
            Ok(vec![value!({"metadata": {"name": "etcd-0"}, "conditions": [(condition)]})])
        })
    }
}

pub(crate) struct ComponentStatus;

impl Strategy for ComponentStatus {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Status", |component, _| status(component).into()),
            Column::new("Message", |component, _| text(healthy(component), &["message"])),
            Column::new("Error", |component, _| text(healthy(component), &["error"])),
        ]
    }
}

fn status(component: &Value) -> &'static str {
    match healthy(component).str_at(&["status"]) {
        "True" => "Healthy",
        _ if healthy(component).is_null() => "Unknown",
        _ => "Unhealthy",
    }
}

/// The condition `Healthy`; null where there is none.
fn healthy(component: &Value) -> &Value {
    let conditions = component.items_at(&["conditions"]).iter();
    let mut healthy = conditions.filter(|condition| condition.str_at(&["type"]) == "Healthy");
    healthy.next().unwrap_or(&Value::Null)
}
