//! Which strategy a kind has. A kind that is not listed has nothing special.

use std::sync::Arc;

use registry::{Plain, Strategy};

use crate::core;

pub(crate) fn of(group: &str, kind: &str) -> Arc<dyn Strategy> {
    match (group, kind) {
        ("", "Namespace") => Arc::new(core::namespace::Namespace),
        ("", "Pod") => Arc::new(core::pod::Pod),
        _ => Arc::new(Plain),
    }
}
