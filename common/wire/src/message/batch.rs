//! Splits lists that are too long for one message.

use super::{WireError, at_most, in_range};
use crate::limits::{MAX_BATCH, MAX_BATCH_ENTRIES};

/// Splits items into messages of at most [`MAX_BATCH`] items and [`MAX_BATCH_ENTRIES`] entries. An item with more entries than that gets
/// a message of its own.
pub(super) fn batches<T>(mut items: Vec<T>, entries: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut batches = Vec::new();
    while !items.is_empty() {
        batches.push(first_batch(&mut items, &entries));
    }
    batches
}

/// Removes the items of the first message, and returns them.
pub(super) fn first_batch<T>(items: &mut Vec<T>, entries: impl Fn(&T) -> usize) -> Vec<T> {
    let mut sum = 0;
    let fits = |item: &&T| {
        sum += entries(item);
        sum <= MAX_BATCH_ENTRIES
    };
    let most = items.iter().take(MAX_BATCH).take_while(fits).count();
    items.drain(..most.max(1).min(items.len())).collect()
}

/// Checks that a message holds items within these limits.
pub(super) fn check_batch<T>(field: &'static str, items: &[T], entries: impl Fn(&T) -> usize) -> Result<(), WireError> {
    in_range(field, items.len() as u64, MAX_BATCH as u64)?;
    at_most("number of entries", items.iter().map(entries).sum::<usize>() as u64, MAX_BATCH_ENTRIES as u64)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn batches_are_full_and_within_the_limits(
            items in prop::collection::vec(prop_oneof![Just(0), 0..20_usize, 0..=MAX_BATCH_ENTRIES], 0..50),
            empty in prop_oneof![Just(0), MAX_BATCH - 2..2 * MAX_BATCH],
        ) {
            let items: Vec<usize> = items.into_iter().chain(std::iter::repeat_n(0, empty)).collect();
            let split = batches(items.clone(), |entries| *entries);
            prop_assert_eq!(split.concat(), items);
            for batch in &split {
                prop_assert_eq!(check_batch("items", batch, |entries| *entries), Ok(()));
            }
            for pair in split.windows(2) {
                let joined = [&pair[0][..], &pair[1][..1]].concat();
                prop_assert!(check_batch("items", &joined, |entries| *entries).is_err(), "an item had room");
            }
        }
    }
}
