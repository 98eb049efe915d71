//! Failures that a machine inherits when it comes back under another name.

use super::{Roster, RosterEntry, Strikes};
use ata_types::{MachineId, Time, WorkerId};

/// The longest rest that is inherited, in rests after a first failure. A machine that hangs whenever it gets work, under
/// ever new names, then costs a run a fortieth of its time, and a correct worker at its address gets its first task after 40
/// minutes at most with the default limit on a lease. At twice this value, the cost halves and the wait doubles.
const LONGEST_REST: f64 = 2.0;

/// The same in seconds, if that is more: a machine that fails at once then does so once a minute.
const LONGEST_REST_S: f64 = 60.0;

/// Returns the longest rest that is inherited, if `single_rest_s` is the length of a rest after a first failure.
pub(super) fn longest_s(single_rest_s: f64) -> f64 {
    (LONGEST_REST * single_rest_s).max(LONGEST_REST_S)
}

impl Roster {
    /// Lets a worker that is about to join, and has never delivered anything, inherit the failures of a worker of its
    /// machine that has left: it is probably the same worker under another name. But it may be a correct worker at the same
    /// address, so it inherits only a part of a long rest, and is not expelled for failures that are not its own. Returns
    /// the length of its rest and the number of failures, if it rests.
    pub(crate) fn inherit(&mut self, now_s: f64, worker: WorkerId, machine: MachineId) -> Option<(f64, u32)> {
        if self.members[worker.slot()].strikes.count > 0 {
            return None;
        }
        let of_machine =
            self.struck_absent.range((machine, WorkerId::from_slot(0))..).take_while(|(of, _)| *of == machine);
        let rests_until_s = |worker: WorkerId| Time(self.members[worker.slot()].strikes.rests_until_s);
        let struck_absent = of_machine.map(|(_, worker)| *worker).max_by_key(|worker| rests_until_s(*worker))?;
        self.struck_absent.remove(&(machine, struck_absent));
        self.struck.remove(struck_absent);
        self.struck.insert(worker);
        let RosterEntry { strikes, inherited, single_rest_s, .. } = &mut self.members[struck_absent.slot()];
        let (count, single_rest_s) = (std::mem::take(&mut strikes.count), *single_rest_s);
        let contested = strikes.contested;
        *inherited = 0;
        let inherited_until_s = strikes.rests_until_s.min(now_s + longest_s(single_rest_s));
        let member = &mut self.members[worker.slot()];
        let rests_until_s = inherited_until_s.max(member.strikes.rests_until_s);
        (member.inherited, member.single_rest_s) = (count, single_rest_s);
        member.strikes = Strikes { count, rests_until_s, contested, ..member.strikes };
        (rests_until_s > now_s).then_some((rests_until_s - now_s, count))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::worker;
    use super::*;

    const MACHINE: MachineId = MachineId(7);

    /// Lets a newcomer join; returns the length of its rest.
    fn join(roster: &mut Roster, now_s: f64, number: u32, machine: MachineId) -> Option<f64> {
        roster.add(worker(number));
        let inherited = roster.inherit(now_s, worker(number), machine);
        roster.join(now_s, worker(number), machine);
        assert_eq!(roster.fit.contains(worker(number)), inherited.is_none());
        inherited.map(|(rest_s, _)| rest_s)
    }

    /// Returns a roster whose worker 1 failed and left.
    fn struck_absent(lost_s: f64) -> Roster {
        let mut roster = Roster::default();
        join(&mut roster, 0.0, 1, MACHINE);
        roster.strike(0.0, worker(1), lost_s, 1.0);
        roster.leave(worker(1));
        roster
    }

    #[test]
    fn a_new_name_does_not_shorten_a_rest() {
        let mut roster = struck_absent(0.5);
        assert_eq!(join(&mut roster, 4.0, 2, MACHINE), Some(6.0));
        assert_eq!(roster.end_rests(10.0), [worker(2)]);
        assert_eq!(roster.strike(10.0, worker(2), 0.5, 1.0), Some((20.0, 2)), "it is the second failure");
        assert_eq!(roster.strikes_of(worker(2)), 1, "one is its own");
        let restored = Roster::restored(&roster.strikes(), &[]);
        assert_eq!(restored.strikes_of(worker(2)), 1, "only that one is saved");
        roster.leave(worker(2));
        assert_eq!(join(&mut roster, 30.0, 3, MACHINE), None, "the rest is over");
        assert_eq!(roster.strike(30.0, worker(3), 0.5, 1.0), Some((40.0, 3)));
        roster.proven.insert(worker(3));
        roster.forgive(worker(3));
        assert_eq!(roster.strike(99.0, worker(3), 0.5, 1.0), Some((10.0, 1)), "a result proves that it is sound");
    }

    #[test]
    fn others_at_the_same_address_are_left_alone() {
        let mut roster = struck_absent(0.5);
        assert_eq!(join(&mut roster, 1.0, 2, MachineId(8)), None, "another address");
        assert_eq!(join(&mut roster, 1.0, 3, MACHINE), Some(9.0));
        assert_eq!(join(&mut roster, 1.0, 4, MACHINE), None, "one failed, and one came back");
        roster.leave(worker(1));
        assert_eq!(join(&mut roster, 1.0, 5, MACHINE), None, "nor does its own name count any more");
        let mut roster = struck_absent(0.5);
        roster.forget(worker(1));
        assert_eq!(join(&mut roster, 1.0, 2, MACHINE), None, "it is forgotten");
    }

    /// Lets a machine whose failures take `lost_s` seconds return under new names; returns the rests that these begin with, and the rest
    /// after the failure of the last one.
    fn returns(lost_s: f64, names: u32) -> (Vec<f64>, f64) {
        let (mut roster, mut now_s, mut last_s) = (struck_absent(lost_s), 0.0, 0.0);
        let rests = (2..2 + names).map(|name| {
            let rest_s = join(&mut roster, now_s, name, MACHINE).unwrap_or(0.0);
            now_s += rest_s;
            roster.end_rests(now_s);
            last_s = roster.strike(now_s, worker(name), lost_s, 1.0).unwrap().0;
            roster.leave(worker(name));
            rest_s
        });
        (rests.collect(), last_s)
    }

    /// A correct worker at the address of a machine that failed thirteen times fails once: that costs it a minute and not a day.
    #[test]
    fn a_long_rest_is_not_taken_over_whole() {
        assert_eq!(returns(60.0, 4).0, [1200.0, 2400.0, 2400.0, 2400.0]);
        assert_eq!(returns(1.27, 13).1, 60.0);
    }
}
