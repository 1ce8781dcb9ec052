//! Component statuses: what the server found when it asked a component for its health.

use meta::Value;
use registry::{Column, Strategy};

use crate::format::text;

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

/// The condition that tells; null where there is none.
fn healthy(component: &Value) -> &Value {
    let conditions = component.items_at(&["conditions"]).iter();
    let mut healthy = conditions.filter(|condition| condition.str_at(&["type"]) == "Healthy");
    healthy.next().unwrap_or(&Value::Null)
}
