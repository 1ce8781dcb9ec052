//! The fields of every type by their tags, computed once per schema.

use schema::{Schema, Type, TypeId};

/// TagTarget the transcoder needs to know beyond the schema.
#[derive(Debug)]
pub struct Tables {
    // By type.
    messages: Vec<Message>,
}

/// The fields of a message, sorted by tag.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) entries: Vec<TagEntry>,
}

#[derive(Debug)]
pub(super) struct TagEntry {
    pub(super) tag: u32,
    pub(super) target: TagTarget,
}

#[derive(Debug)]
pub(super) enum TagTarget {
    /// An index into the type's fields.
    Field(usize),
    /// A struct that Go embeds: a message here, fields of its parent in JSON.
    Embedded(Message),
}

impl Tables {
    pub fn new(schema: &Schema) -> Self {
        Self { messages: schema.types().map(|(_, ty)| Message::of(ty)).collect() }
    }

    pub(super) fn get(&self, ty: TypeId) -> &Message {
        &self.messages[ty.0 as usize]
    }
}

impl Message {
    fn of(ty: &Type) -> Self {
        let mut message = Self::default();
        for (index, field) in ty.fields.iter().enumerate() {
            // `kind` and `apiVersion` of an object are in its envelope.
            if field.tag != 0 {
                message.insert(&field.within, field.tag, index);
            }
        }
        message
    }

    fn insert(&mut self, within: &[u32], tag: u32, index: usize) {
        let Some((&outer, within)) = within.split_first() else {
            let at = self.entries.partition_point(|entry| entry.tag < tag);
            self.entries.insert(at, TagEntry { tag, target: TagTarget::Field(index) });
            return;
        };
        let at = self.entries.partition_point(|entry| entry.tag < outer);
        let known = self.entries.get(at).is_some_and(|entry| entry.tag == outer);
        if !known {
            let target = TagTarget::Embedded(Self::default());
            self.entries.insert(at, TagEntry { tag: outer, target });
        }
        if let TagTarget::Embedded(message) = &mut self.entries[at].target {
            message.insert(within, tag, index);
        }
    }

    pub(super) fn find(&self, tag: u32) -> Option<&TagTarget> {
        // Tags mostly count up from one.
        let guess = self.entries.get(tag as usize - 1).filter(|entry| entry.tag == tag);
        let found = guess.or_else(|| {
            let at = self.entries.binary_search_by_key(&tag, |entry| entry.tag).ok()?;
            self.entries.get(at)
        });
        found.map(|entry| &entry.target)
    }
}
