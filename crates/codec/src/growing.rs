//! How the lists and maps of a decoded tree grow.

/// Appends to a list whose length is not known. A long list grows eightfold and not twofold: memory that is
/// reserved and not used costs nothing, but the allocator keeps the smaller ones for a while after they
/// were copied, which together are as large as the list.
#[inline]
pub(crate) fn push<T>(items: &mut Vec<T>, item: T) {
    if items.len() == items.capacity() && items.len() >= LONG {
        items.reserve_exact(7 * items.len());
    }
    items.push(item);
}

/// Shorter lists are left to `Vec`.
const LONG: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_copied_rarely() {
        let (mut items, mut copies) = (Vec::new(), 0);
        for item in 0..1_000_000_u32 {
            let capacity = items.capacity();
            push(&mut items, item);
            copies += usize::from(items.len() > LONG && items.capacity() != capacity);
        }
        assert!(items.iter().copied().eq(0..1_000_000));
        assert_eq!(copies, 2);
    }
}
