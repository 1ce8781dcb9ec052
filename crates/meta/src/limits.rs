//! Bounds of everything that is made from a client's or webhook's bytes. A bound that has one user is
//! beside it; these have several.

use std::borrow::Cow;

use crate::{ApiError, Str, Value, cancel::Steps};

/// Containers inside of containers in an object that a client or webhook sends, or that a patch makes.
/// Every later walk over the tree (copy, compare, prune, drop) recurses on a thread's stack, and no
/// real object comes near.
pub const OBJECT_DEPTH_MAX: usize = 1_000;

/// Containers inside of containers that a decoder builds. Above [`OBJECT_DEPTH_MAX`], because
/// `metadata.managedFields` repeats the fields of an object some levels further down, and what is
/// stored must be readable again.
pub const TREE_DEPTH_MAX: usize = OBJECT_DEPTH_MAX + 24;

/// The stack of every thread that handles requests. The deepest tree fits into 2 MiB of it in a
/// debug build, apply into 8 MiB; memory that is not used is not taken.
pub const THREAD_STACK_BYTES: usize = 8 * 1024 * 1024;

/// Memory that the lists and maps of one decoded tree may take. A value takes 32 to 104 bytes of memory
/// and as little as two bytes of a body. The densest object that can be stored (1.5 MiB of one-digit
/// numbers or empty objects) takes 25 MB; a body that takes more is refused.
pub const TREE_BYTES_MAX: usize = 26 * 1024 * 1024;

/// Objects in the lists of a built-in kind (containers, rules, addresses). Each may get defaults that take
/// ten times its memory, and no object that can be stored has as many.
pub const LIST_OBJECTS_MAX: usize = 50_000;

/// JSON of an object after a patch or defaults, at least and without `managedFields`: as much as a request
/// body may have. No store takes as much.
pub const OBJECT_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The memory of a tree that is being decoded, without its texts: those are as long as in the body.
#[derive(Clone, Copy, Debug)]
pub struct TreeSize {
    bytes: usize,
    bytes_max: usize,
    /// Objects that are items of lists; counted by [`TreeSize::of`] only.
    list_objects: usize,
    /// Of the JSON, at least; counted by [`TreeSize::of`] only.
    json_bytes: usize,
    steps: Steps,
}

impl TreeSize {
    /// What a list takes for each item, and a map for each value.
    const VALUE_BYTES: usize = size_of::<Value>();
    /// What a map takes for each key.
    const KEY_BYTES: usize = size_of::<Str>();
    /// What the allocator takes for each list and map, on average.
    const CONTAINER_BYTES: usize = 16;

    /// Of a request body.
    pub const fn bounded() -> Self {
        Self::bounded_by(TREE_BYTES_MAX)
    }

    /// Of an answer whose size depends on what was asked.
    pub const fn bounded_by(bytes_max: usize) -> Self {
        Self { bytes: 0, bytes_max, list_objects: 0, json_bytes: 0, steps: Steps::NONE }
    }

    /// Of a tree that is there already, and may grow by defaults.
    pub fn of(tree: &Value) -> Result<Self, TooLarge> {
        let (mut size, mut json_bytes, mut of_managed_fields) = (Self::bounded(), 0, 0);
        size.add_tree(tree, &mut json_bytes)?;
        size.json_bytes = json_bytes;
        if json_bytes <= OBJECT_BYTES_MAX {
            return Ok(size);
        }
        // They repeat the names of all fields, and are the server's own.
        if let Some(managed) = tree.at(&["metadata", "managedFields"]) {
            Self::unbounded().add_tree(managed, &mut of_managed_fields)?;
        }
        if json_bytes - of_managed_fields > OBJECT_BYTES_MAX { Err(TooLarge) } else { Ok(size) }
    }

    /// Refuses more than [`LIST_OBJECTS_MAX`].
    pub fn check_list_objects(&self) -> Result<(), TooLarge> {
        if self.list_objects > LIST_OBJECTS_MAX { Err(TooLarge) } else { Ok(()) }
    }

    /// Whether the defaults of a built-in kind, less than 1 KB for each object in a list, leave it far below the bounds.
    pub fn is_small(&self) -> bool {
        self.json_bytes <= 64 * 1024 && self.list_objects <= 1_000
    }

    /// Whether nothing was counted since the other one was copied.
    pub fn is_same(&self, before: &Self) -> bool {
        self.bytes == before.bytes
    }

    /// Counts a value that is about to be copied into the tree.
    pub fn add_copy(&mut self, value: &Value) -> Result<(), TooLarge> {
        self.add_member()?;
        self.add_tree(value, &mut 0)
    }

    fn add_tree(&mut self, tree: &Value, json_bytes: &mut usize) -> Result<(), TooLarge> {
        // Plain loops, because adapters would take stack on every level.
        match tree {
            Value::Array(items) => {
                self.add_container()?;
                *json_bytes += 2 + items.len();
                for item in items {
                    self.add_value()?;
                    self.list_objects += usize::from(matches!(item, Value::Object(_)));
                    self.add_tree(item, json_bytes)?;
                }
            }
            Value::Object(map) => {
                self.add_container()?;
                *json_bytes += 2 + 4 * map.len();
                for (key, value) in map.iter() {
                    self.add_member()?;
                    *json_bytes += key.len();
                    self.add_tree(value, json_bytes)?;
                }
            }
            Value::Raw(raw) => {
                *json_bytes += raw.text().len();
                self.add_tree(raw.tree(), &mut 0)?;
            }
            Value::String(text) => *json_bytes += text.len() + 2,
            Value::Number(_) => *json_bytes += 1,
            Value::Null | Value::Bool(_) => *json_bytes += 4,
        }
        Ok(())
    }

    /// Of bytes that were a tree before.
    pub const fn unbounded() -> Self {
        Self::bounded_by(usize::MAX)
    }

    /// Counts a value of a list or map. A cancelled request ends here: every decoder counts.
    #[inline]
    pub fn add_value(&mut self) -> Result<(), TooLarge> {
        self.steps.step();
        self.add(Self::VALUE_BYTES)
    }

    /// Counts a value of a map with its key.
    #[inline]
    pub fn add_member(&mut self) -> Result<(), TooLarge> {
        self.steps.step();
        self.add(Self::VALUE_BYTES + Self::KEY_BYTES)
    }

    #[inline]
    pub fn add_container(&mut self) -> Result<(), TooLarge> {
        self.add(Self::CONTAINER_BYTES)
    }

    #[inline]
    fn add(&mut self, bytes: usize) -> Result<(), TooLarge> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.bytes_max { Err(TooLarge) } else { Ok(()) }
    }
}

/// A tree takes more than [`TREE_BYTES_MAX`], or its JSON more than [`OBJECT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("exceeded max size of an object ({OBJECT_BYTES_MAX} bytes, or {TREE_BYTES_MAX} decoded)")]
pub struct TooLarge;

impl From<TooLarge> for ApiError {
    fn from(error: TooLarge) -> Self {
        Self::TooLarge(error.to_string())
    }
}

/// Unknown and duplicate fields that are listed for one request; the rest is counted. Each may be a
/// `Warning` header, and there are clients that read no more than 100 headers.
pub const STRICT_ERRORS_MAX: usize = 64;

/// Bytes of a value or path that an error message quotes; longer text is cut by [`cut`].
pub const QUOTED_BYTES_MAX: usize = 16 * 1024;

/// Bytes of a field path or key that is one of many in a message.
pub const FIELD_PATH_BYTES_MAX: usize = 1024;

/// A tree is nested deeper than [`OBJECT_DEPTH_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("exceeded max depth of {OBJECT_DEPTH_MAX}")]
pub struct TooDeep;

/// Checks the depth of a tree, wherever it comes from.
pub fn check_depth(tree: &Value) -> Result<(), TooDeep> {
    if fits(tree, OBJECT_DEPTH_MAX, &mut 0) { Ok(()) } else { Err(TooDeep) }
}

/// Whether a tree has at most `levels` containers inside of each other. Adds the values that it looked
/// at to `visited`.
pub fn fits(tree: &Value, levels: usize, visited: &mut usize) -> bool {
    // The recursion ends at `levels`, however deep the tree is. Plain loops, because adapters would
    // take stack on every level.
    *visited += 1;
    match tree {
        Value::Array(items) => {
            for item in items {
                if levels == 0 || !fits(item, levels - 1, visited) {
                    return false;
                }
            }
            levels > 0
        }
        Value::Object(map) => {
            for value in map.values() {
                if levels == 0 || !fits(value, levels - 1, visited) {
                    return false;
                }
            }
            levels > 0
        }
        Value::Raw(raw) => fits(raw.tree(), levels, visited),
        _ => true,
    }
}

/// A text of at most `bytes_max` bytes: what is longer ends in `... (N bytes more)`.
pub fn cut(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let kept = &text[..text.floor_char_boundary(bytes_max)];
    Cow::Owned(format!("{kept}... ({} bytes more)", text.len() - kept.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(Value::Null, |inner, at| match at % 2 {
            0 => Value::Array(vec![inner]),
            _ => Value::Object([("a", inner)].into_iter().collect()),
        })
    }

    #[test]
    fn depth_is_counted_in_containers() {
        let cases = [(0, Ok(())), (OBJECT_DEPTH_MAX, Ok(())), (OBJECT_DEPTH_MAX + 1, Err(TooDeep))];
        for (levels, expected) in cases {
            assert_eq!(check_depth(&nested(levels)), expected, "{levels}");
        }
    }

    #[test]
    fn the_size_of_a_tree_is_bounded_in_memory_and_as_json() {
        let texts = |count: usize, bytes: usize| -> Value {
            let text = Value::from("x".repeat(bytes));
            let texts = (0..count).map(|at| (Str::from(at.to_string()), text.clone()));
            Value::Object(texts.collect())
        };
        // Shared texts take little memory, but not when they are written.
        let cases = [(texts(10, 300_000), true), (texts(11, 300_000), false)];
        for (tree, fits) in cases {
            assert_eq!(TreeSize::of(&tree).is_ok(), fits);
        }
        let items = |count| Value::Array(vec![Value::object(); count]);
        // Of 48 bytes each, in a list of 16.
        let fitting = (TREE_BYTES_MAX - 16) / 48;
        assert!(TreeSize::of(&items(fitting)).is_ok());
        assert_eq!(TreeSize::of(&items(fitting + 1)).unwrap_err(), TooLarge);
        assert!(TreeSize::of(&items(LIST_OBJECTS_MAX)).unwrap().check_list_objects().is_ok());
        assert!(TreeSize::of(&items(LIST_OBJECTS_MAX + 1)).unwrap().check_list_objects().is_err());
        let mut size = TreeSize::of(&items(fitting / 2)).unwrap();
        assert!(size.add_copy(&items(fitting / 2 - 2)).is_ok());
        assert_eq!(size.add_copy(&items(10)), Err(TooLarge));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        for (text, bytes_max, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "abc... (1 bytes more)"),
            ("éé", 3, "é... (2 bytes more)"),
        ] {
            assert_eq!(cut(text, bytes_max), expected);
        }
    }

    /// Every walk over a tree that has no bound of its own.
    #[test]
    fn the_deepest_tree_is_copied_compared_printed_and_dropped_on_a_small_stack() {
        let walk = || {
            let tree = nested(TREE_DEPTH_MAX);
            let copy = tree.clone();
            assert_eq!(tree, copy);
            assert!(fits(&tree, TREE_DEPTH_MAX, &mut 0));
            assert!(!fits(&tree, TREE_DEPTH_MAX - 1, &mut 0));
            let text = crate::json::to_string(&tree);
            assert!(text.len() > 2 * TREE_DEPTH_MAX);
        };
        // Debug builds take several times the stack.
        let stack_bytes = if cfg!(debug_assertions) { 2 << 20 } else { 512 << 10 };
        std::thread::Builder::new().stack_size(stack_bytes).spawn(walk).unwrap().join().unwrap();
    }
}
