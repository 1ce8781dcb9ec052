//! Field lookup by name. Every decoder looks up every field that it reads, so this is a hash table
//! over a few bytes of the name that compares one or two names per lookup.

use crate::Field;

/// A hash table of indexes into a list of fields, with at least twice as many slots as fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldIndex {
    slots: Box<[u32]>,
}

const FREE: u32 = u32::MAX;

impl FieldIndex {
    /// If two fields have the same name, the first is found.
    pub(crate) fn of(fields: &[Field]) -> Self {
        let mut slots = vec![FREE; (fields.len() * 2).next_power_of_two()].into_boxed_slice();
        for (at, field) in fields.iter().enumerate() {
            let mut slot = hash(field.name.as_bytes()) & (slots.len() - 1);
            while slots[slot] != FREE {
                slot = (slot + 1) & (slots.len() - 1);
            }
            slots[slot] = at as u32;
        }
        Self { slots }
    }

    pub(crate) fn find(&self, fields: &[Field], name: &str) -> Option<usize> {
        let last = self.slots.len().checked_sub(1)?;
        let mut slot = hash(name.as_bytes()) & last;
        // At least half of the slots are free, so the loop terminates.
        loop {
            let at = self.slots[slot] as usize;
            if fields.get(at)?.name == name {
                return Some(at);
            }
            slot = (slot + 1) & last;
        }
    }
}

/// Length, first and last bytes distinguish the fields of a type well enough.
fn hash(name: &[u8]) -> usize {
    let (first, last) = match name {
        [] => (0, 0),
        _ if name.len() >= 8 => (word(&name[..8]), word(&name[name.len() - 8..])),
        _ => (word(name), 0),
    };
    let mixed = (first ^ last.rotate_left(29) ^ name.len() as u64).wrapping_mul(ODD);
    (mixed >> 40) as usize
}

/// A multiplier that spreads every bit over the upper half (the golden ratio).
const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name_and_others_are_not() {
        let names: Vec<String> = (0..300)
            .map(|n| match n % 3 {
                0 => format!("f{n}"),
                1 => format!("sameBeginning{n}"),
                _ => format!("sameBeginning{n}sameEnding"),
            })
            .chain([String::new(), "a".to_owned(), "abcdefgh".to_owned()])
            .collect();
        let field = |name: &String| Field { name: name.as_str().into(), ..Field::default() };
        let fields: Vec<Field> = names.iter().map(field).collect();
        let index = FieldIndex::of(&fields);
        for (at, name) in names.iter().enumerate() {
            assert_eq!(index.find(&fields, name), Some(at), "{name}");
        }
        for absent in ["b", "abcdefg", "sameBeginning", "sameBeginning1sameEnding"] {
            assert_eq!(index.find(&fields, absent), None, "{absent}");
        }
    }

    #[test]
    fn a_type_without_fields_has_none() {
        assert_eq!(FieldIndex::of(&[]).find(&[], "a"), None);
        assert_eq!(FieldIndex::default().find(&[], "a"), None);
    }
}
