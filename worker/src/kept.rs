//! The gradients that a worker keeps until their sum is collected.

use std::sync::Arc;

use ata_learn::{GradientSum, TensorSizes, Units};
use ata_types::{Iteration, LeaseId};

/// Sums that are kept apart: the last lease may be cancelled because another worker was faster, and the sum of those before it is
/// all that may be asked for then.
const APART: usize = 2;

/// Sums that are not in use, which are kept for the next leases.
const SPARE: usize = 2;

/// The gradients of one iteration's leases.
#[derive(Debug, Default)]
pub(crate) struct KeptGradients {
    iteration: Iteration,
    sums: Vec<KeptSum>,
    spare: Vec<GradientSum>,
}

/// The sum of some leases' gradients.
#[derive(Debug)]
pub(crate) struct KeptSum {
    leases: Vec<LeaseId>,
    /// How often sums had been asked for when they were assigned. Those assigned before and after are in different sums.
    round: u64,
    sum: Arc<GradientSum>,
    units: Units,
}

impl KeptSum {
    /// The gradients of one lease.
    pub(crate) fn new(lease: LeaseId, round: u64, sum: GradientSum, units: Units) -> Self {
        Self { leases: vec![lease], round, sum: Arc::new(sum), units }
    }

    /// Whether the sum of both may be kept in place of them. The units of the first iteration may change within it.
    fn joins(&self, other: &Self) -> bool {
        (self.round, &self.units) == (other.round, &other.units)
    }
}

/// What is kept of the leases that a collection asks for.
#[derive(Debug)]
pub(crate) enum Selection {
    /// The sums that make it up, and their units.
    Sums(Vec<Arc<GradientSum>>, Units),
    /// Some were not computed. They were cancelled or failed, and the coordinator will ask for the others.
    Incomplete,
    /// They were added to others, or have different units.
    Inseparable,
}

impl KeptGradients {
    /// An empty sum.
    pub(crate) fn empty_sum(&mut self, sizes: &TensorSizes) -> GradientSum {
        let Some(mut sum) = self.spare.pop() else { return GradientSum::new(sizes) };
        sum.clear();
        sum
    }

    /// Takes back a sum that is not needed.
    pub(crate) fn give_back(&mut self, sum: GradientSum) {
        if self.spare.len() < SPARE {
            self.spare.push(sum);
        }
    }

    /// Keeps a sum. Those of other iterations are dropped.
    pub(crate) fn add(&mut self, iteration: Iteration, sum: KeptSum) {
        if self.iteration != iteration {
            self.iteration = iteration;
            for kept in std::mem::take(&mut self.sums) {
                if let Some(sum) = Arc::into_inner(kept.sum) {
                    self.give_back(sum);
                }
            }
        }
        self.sums.push(sum);
        if self.sums.len() > APART {
            self.join();
        }
    }

    /// Adds a sum to the one before, if they fit, and none of them is the last one or being sent.
    fn join(&mut self) {
        let pairs = self.sums.windows(2).take(self.sums.len() - APART);
        let Some(at) = pairs.into_iter().position(|pair| pair[0].joins(&pair[1])) else { return };
        let [first, second, ..] = &mut self.sums[at..] else { return };
        let Some(sum) = Arc::get_mut(&mut first.sum) else { return };
        sum.merge(&second.sum);
        first.leases.append(&mut second.leases);
        if let Some(sum) = Arc::into_inner(self.sums.remove(at + 1).sum) {
            self.give_back(sum);
        }
    }

    /// Drops the sum of a lease that is not needed.
    pub(crate) fn discard(&mut self, lease: LeaseId) {
        for kept in self.sums.extract_if(.., |kept| kept.leases == [lease]).collect::<Vec<_>>() {
            if let Some(sum) = Arc::into_inner(kept.sum) {
                self.give_back(sum);
            }
        }
    }

    /// The sums of some leases.
    pub(crate) fn select(&self, iteration: Iteration, leases: &[LeaseId]) -> Selection {
        let is_kept = |lease: &LeaseId| self.sums.iter().any(|kept| kept.leases.contains(lease));
        if self.iteration != iteration || !leases.iter().all(is_kept) {
            return Selection::Incomplete;
        }
        let is_asked = |kept: &&KeptSum| kept.leases.iter().any(|lease| leases.contains(lease));
        let selected: Vec<&KeptSum> = self.sums.iter().filter(is_asked).collect();
        let Some(KeptSum { units, .. }) = selected.first() else { return Selection::Incomplete };
        let fits = |kept: &&KeptSum| kept.units == *units && kept.leases.iter().all(|lease| leases.contains(lease));
        if !selected.iter().all(fits) {
            return Selection::Inseparable;
        }
        Selection::Sums(selected.iter().map(|kept| kept.sum.clone()).collect(), units.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(leases: &[u64]) -> KeptGradients {
        let mut kept = KeptGradients::default();
        for &lease in leases {
            let sum = GradientSum { values: vec![1 << lease], maxima: vec![1.0], saturated: 0, vanished: 0, tasks: 1 };
            kept.add(Iteration(4), KeptSum::new(LeaseId(lease), 0, sum, units(0)));
        }
        kept
    }

    fn units(exponent: i16) -> Units {
        Units::from_exponents(&[exponent], &TensorSizes::new([1])).unwrap()
    }

    /// The sum of what is selected, or why nothing is.
    fn total(kept: &KeptGradients, leases: &[u64]) -> Result<i32, &'static str> {
        let leases: Vec<LeaseId> = leases.iter().copied().map(LeaseId).collect();
        match kept.select(Iteration(4), &leases) {
            Selection::Sums(sums, _) => Ok(sums.iter().map(|sum| sum.values[0]).sum()),
            Selection::Incomplete => Err("incomplete"),
            Selection::Inseparable => Err("inseparable"),
        }
    }

    #[test]
    fn all_leases_or_all_but_the_last_can_be_collected() {
        let kept = kept(&[1, 2, 3, 4]);
        assert_eq!(kept.sums.len(), APART, "memory is bounded");
        assert_eq!(total(&kept, &[4, 1, 2, 3]), Ok(0b11110));
        assert_eq!(total(&kept, &[1, 2, 3]), Ok(0b1110));
        assert_eq!(total(&kept, &[4]), Ok(0b10000));
        assert_eq!(total(&kept, &[1, 2]), Err("inseparable"));
        assert_eq!(total(&kept, &[4, 5]), Err("incomplete"));
    }

    /// The loser of a race is told before its worker has computed its next lease.
    #[test]
    fn a_lease_that_is_not_needed_is_not_added_to_others() {
        let mut kept = kept(&[1, 2]);
        kept.discard(LeaseId(2));
        kept.discard(LeaseId(7));
        for lease in [3, 4] {
            let sum = GradientSum { values: vec![1 << lease], ..kept.sums[0].sum.as_ref().clone() };
            kept.add(Iteration(4), KeptSum::new(LeaseId(lease), 0, sum, units(0)));
        }
        assert_eq!(total(&kept, &[1, 3, 4]), Ok(0b11010));
    }

    /// Its worker was asked for lease 1, and got tasks of a lost worker after that.
    #[test]
    fn what_is_asked_for_apart_is_kept_apart() {
        let mut kept = kept(&[1]);
        for lease in 2..6 {
            let sum = GradientSum { values: vec![1 << lease], ..kept.sums[0].sum.as_ref().clone() };
            kept.add(Iteration(4), KeptSum::new(LeaseId(lease), 1, sum, units(0)));
        }
        assert_eq!((total(&kept, &[1]), total(&kept, &[2, 3, 4, 5])), (Ok(0b10), Ok(0b11_1100)));
    }

    #[test]
    fn another_iteration_begins_anew() {
        let mut kept = kept(&[1, 2]);
        let sum = GradientSum { values: vec![1 << 3], ..kept.sums[0].sum.as_ref().clone() };
        kept.add(Iteration(5), KeptSum::new(LeaseId(3), 0, sum, units(0)));
        assert!(matches!(kept.select(Iteration(4), &[LeaseId(1)]), Selection::Incomplete));
        assert!(matches!(kept.select(Iteration(5), &[LeaseId(3)]), Selection::Sums(sums, _) if sums.len() == 1));
    }

    #[test]
    fn a_sum_that_is_being_sent_stays_as_it_is() {
        let mut kept = kept(&[1, 2]);
        let Selection::Sums(sent, _) = kept.select(Iteration(4), &[LeaseId(1)]) else { panic!() };
        let more = GradientSum { values: vec![1 << 3], ..sent[0].as_ref().clone() };
        kept.add(Iteration(4), KeptSum::new(LeaseId(3), 0, more, units(0)));
        assert_eq!((sent[0].values[0], total(&kept, &[1, 2, 3])), (0b10, Ok(0b1110)));
    }

    /// The first vector to arrive determines the units of the first iteration, and leases after that have them.
    #[test]
    fn sums_with_different_units_are_not_added() {
        let mut kept = kept(&[1, 2]);
        for lease in 3..30 {
            let sum = GradientSum { values: vec![1 << lease], ..kept.sums[0].sum.as_ref().clone() };
            kept.add(Iteration(4), KeptSum::new(LeaseId(lease), 0, sum, units(7)));
            assert!(kept.sums.len() <= APART + 1, "memory is bounded");
        }
        assert_eq!(total(&kept, &[1, 2, 29]), Err("inseparable"));
        assert_eq!(total(&kept, &[1, 2]), Ok(0b110));
        let leases: Vec<LeaseId> = (3..30).map(LeaseId).collect();
        assert!(matches!(kept.select(Iteration(4), &leases), Selection::Sums(_, of_them) if of_them == units(7)));
    }
}
