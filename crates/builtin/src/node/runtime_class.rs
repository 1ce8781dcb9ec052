//! Runtime classes.

use registry::{Column, Strategy};

use crate::format::text;

pub(crate) struct RuntimeClass;

impl Strategy for RuntimeClass {
    fn columns(&self) -> Vec<Column> {
        vec![
            Column::NAME,
            Column::new("Handler", |class, _| text(class, &["handler"])),
            Column::AGE,
        ]
    }
}
