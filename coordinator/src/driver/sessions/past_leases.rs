//! Which leases a session had, to tell a gradient that is late from one that no honest worker sends.

use std::collections::VecDeque;

use ata_record::RefusalKind;
use ata_types::LeaseId;

/// Leases that are remembered as delivered. A gradient that is repeated later than that counts as late.
const DELIVERED: usize = 64;

/// The leases that one session had.
#[derive(Debug, Default)]
pub(crate) struct PastLeases {
    /// The first and the last lease that it was given.
    given: Option<(LeaseId, LeaseId)>,
    /// The last leases whose gradients were accepted.
    delivered: VecDeque<LeaseId>,
}

impl PastLeases {
    /// Records that a lease was given.
    pub(crate) fn given(&mut self, lease: LeaseId) {
        self.given = Some((self.given.map_or(lease, |(first, _)| first), lease));
    }

    /// Records that the gradient of a lease was accepted.
    pub(crate) fn delivered(&mut self, lease: LeaseId) {
        self.delivered.truncate(DELIVERED - 1);
        self.delivered.push_front(lease);
    }

    /// Classifies a gradient for a lease that neither this worker nor another one holds now.
    pub(crate) fn kind_of(&self, lease: LeaseId) -> RefusalKind {
        match self.given {
            Some(_) if self.delivered.contains(&lease) => RefusalKind::Replayed,
            Some((first, last)) if (first..=last).contains(&lease) => RefusalKind::Stale,
            _ => RefusalKind::Foreign,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_that_are_not_held_are_classified() {
        let mut past = PastLeases::default();
        assert_eq!(past.kind_of(LeaseId(5)), RefusalKind::Foreign, "it was given none");
        for id in 100..300 {
            past.given(LeaseId(id));
            if id % 2 == 0 {
                past.delivered(LeaseId(id));
            }
        }
        for (id, kind) in [
            (99, RefusalKind::Foreign),
            (101, RefusalKind::Stale),
            (298, RefusalKind::Replayed),
            (299, RefusalKind::Stale),
            (300, RefusalKind::Foreign),
            (100, RefusalKind::Stale),
        ] {
            assert_eq!(past.kind_of(LeaseId(id)), kind, "{id}");
        }
        assert_eq!(past.delivered.len(), DELIVERED, "memory is bounded");
    }
}
