use super::*;

pub(super) fn worker(number: u32) -> WorkerId {
    WorkerId::new(number).unwrap()
}

fn roster(workers: u32) -> Roster {
    let mut roster = Roster::default();
    for number in 1..=workers {
        roster.add(worker(number));
        roster.join(0.0, worker(number), MachineId::from(worker(number)));
    }
    roster
}

fn available(roster: &mut Roster) -> Vec<u32> {
    roster.available().iter().map(|worker| worker.number()).collect()
}

/// A worker cannot shorten its rest by rejoining.
#[test]
fn a_rest_goes_on_while_its_worker_is_away() {
    let mut roster = roster(2);
    roster.strike(0.0, worker(1), 0.0, 4.0);
    roster.leave(worker(1));
    assert_eq!(roster.next_rest_end_s(), None, "an absent worker's rest is not waited for");
    roster.join(3.0, worker(1), MachineId::from(worker(1)));
    assert_eq!(available(&mut roster), [2]);
    assert_eq!((roster.end_rests(3.9), roster.end_rests(4.0)), (vec![], vec![worker(1)]));
}

#[test]
fn if_all_rest_they_are_there_all_the_same() {
    let mut roster = roster(2);
    roster.strike(0.0, worker(1), 0.0, 4.0);
    roster.strike(0.0, worker(2), 0.0, 4.0);
    assert_eq!(available(&mut roster), [1, 2]);
    assert_eq!((roster.idle(false), roster.idle(true)), (vec![], vec![worker(1), worker(2)]));
    let may_begin = [(1, false), (1, true), (3, true)].map(|(i, none)| roster.may_begin(worker(i), none));
    assert_eq!(may_begin, [false, true, false]);
}

#[test]
fn who_has_something_to_do_is_not_idle() {
    let mut roster = roster(3);
    roster.employ(worker(1));
    roster.await_step(worker(2));
    roster.employ(worker(2));
    roster.release(worker(2));
    assert_eq!(roster.idle(false), [worker(3)]);
    roster.stepped(worker(2));
    roster.release(worker(2));
    roster.leave(worker(3));
    assert_eq!((roster.idle(false), roster.present.len()), (vec![worker(2)], 2));
}
