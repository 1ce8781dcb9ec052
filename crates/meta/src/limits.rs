//! Bounds of everything that is made from a client's or webhook's bytes. A bound that has one user is
//! beside it; these have several.

use std::borrow::Cow;

use crate::Value;

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

/// Values in one decoded tree. A value takes 32 to 80 bytes of memory and as little as two bytes of a
/// body; more is refused, so that a body of 3 MiB takes some 60 MB at most.
pub const TREE_NODES_MAX: usize = 1_000_000;

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
