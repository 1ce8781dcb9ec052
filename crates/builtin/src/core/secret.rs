//! Secrets.

use registry::{Cell, Column, Strategy};

use crate::format::{keys, text};

pub(crate) struct Secret;

impl Strategy for Secret {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Type", |secret, _| text(secret, &["type"])),
            Column::new("Data", |secret, _| Cell::Integer(keys(secret, &["data"]))),
            Column::AGE,
        ]
    }
}
