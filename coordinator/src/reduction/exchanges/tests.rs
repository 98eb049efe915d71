use ata_wire::MemberReport;

use super::*;

fn worker(slot: usize) -> WorkerId {
    WorkerId::from_slot(slot)
}

fn all(members: usize) -> Vec<WorkerId> {
    (0..members).map(worker).collect()
}

/// Returns exchanges of members on different machines that all reach each other.
fn exchanges(members: usize) -> Exchanges {
    let mut exchanges = Exchanges::new(ExchangeChoice::Shards);
    while let Some(Probe { id, from, .. }) = exchanges.next_probe(0.0, Iteration(1), &all(members), |_, _| true) {
        assert!(exchanges.next_probe(0.0, Iteration(1), &all(members), |_, _| true).is_none(), "one at a time");
        exchanges.reached(Iteration(1), from, id, true);
    }
    exchanges
}

fn begin(exchanges: &mut Exchanges, iteration: u64, members: usize) {
    let member = |worker: WorkerId| {
        let (machine, vector) = (MachineId::from(worker), id(iteration, worker));
        ExchangeMember { worker, machine, vector, has_parameters: false }
    };
    exchanges.begin(Iteration(iteration), all(members).into_iter().map(member).collect(), 1.0, 1.0);
}

fn id(iteration: u64, worker: WorkerId) -> VectorId {
    VectorId(100 * iteration + worker.slot() as u64)
}

/// Reports from member `from` that another one is at fault, or that the exchange succeeded.
fn hear(exchanges: &mut Exchanges, iteration: u64, from: usize, fault: Option<(usize, PairFault)>) -> Option<Heard> {
    let said = |(place, fault)| {
        let fault = Some((fault, "why".into()));
        MemberReport { place, bytes: 0, seconds: 0.0, waiting_s: 0.0, fault }
    };
    let report = ExchangeReport {
        vector: id(iteration, worker(from)),
        has_failed: fault.is_some(),
        members: fault.map(said).into_iter().collect(),
    };
    exchanges.heard(10.0, Iteration(iteration), worker(from), &report)
}

#[test]
fn all_accusations_of_an_exchange_count() {
    let mut exchanges = exchanges(4);
    begin(&mut exchanges, 2, 4);
    let heard = hear(&mut exchanges, 2, 0, Some((2, PairFault::Late))).unwrap();
    assert_eq!(heard, Heard { fails: Some(Iteration(2)), proven: None });
    assert_eq!(exchanges.fail(Iteration(2), Iteration(2)).len(), 4);
    assert_eq!(exchanges.fail(Iteration(2), Iteration(2)).len(), 0, "it has failed");
    // Members that leave break their connections.
    assert_eq!(hear(&mut exchanges, 2, 1, Some((0, PairFault::Broken))), Some(Heard::default()));
    assert_eq!(hear(&mut exchanges, 2, 3, Some((2, PairFault::Late))), Some(Heard::default()));
    assert_eq!(exchanges.able_members(Iteration(3), &all(4)), [0, 1, 3].map(worker));
    assert_eq!(hear(&mut exchanges, 7, 3, None), None, "there is no such exchange");
}

#[test]
fn a_proven_fault_names_the_member() {
    let mut exchanges = exchanges(3);
    begin(&mut exchanges, 2, 3);
    let garbage = Some((1, PairFault::Undecodable));
    assert_eq!(hear(&mut exchanges, 2, 0, garbage).unwrap().proven, None);
    assert_eq!(hear(&mut exchanges, 2, 2, garbage).unwrap().proven, Some((worker(1), "why".into())));
}

/// An exchange is not forgotten when the next one begins.
#[test]
fn an_exchange_lives_until_all_have_its_parameters() {
    let mut exchanges = exchanges(3);
    begin(&mut exchanges, 2, 3);
    assert_eq!(hear(&mut exchanges, 2, 0, None), Some(Heard::default()));
    begin(&mut exchanges, 3, 3);
    assert_eq!([0, 1].map(|slot| exchanges.awaits(worker(slot), Iteration(3))), [false, true]);
    assert_eq!(exchanges.of(worker(1)), [2, 3].map(Iteration));
    assert_eq!(hear(&mut exchanges, 2, 1, Some((2, PairFault::Late))).unwrap().fails, Some(Iteration(2)));
    let have: Vec<bool> = exchanges.fail(Iteration(3), Iteration(2)).iter().map(|it| it.has_parameters).collect();
    assert_eq!(have, [true, false, false]);
    assert_eq!(exchanges.of(worker(1)), [Iteration(3)]);
    (0..3).for_each(|slot| drop(hear(&mut exchanges, 3, slot, None)));
    assert_eq!(exchanges.of(worker(1)), []);
}

/// A member named in a report is to blame. Without a report, the member that owes a chunk is.
#[test]
fn whoever_brings_an_exchange_to_a_halt_is_left_out() {
    for (blamed, others) in [(None, [1, 2]), (Some((2, PairFault::Late)), [0, 1])] {
        let mut exchanges = exchanges(3);
        begin(&mut exchanges, 2, 3);
        let halts = [(0.0, 4), (1.0, 4), (1.4, 5), (2.8, 5), (3.0, 5)];
        let halts = halts.map(|(now_s, chunk)| exchanges.stalls(now_s, Some((chunk, worker(0)))).is_some());
        assert_eq!(halts, [false, false, false, false, true]);
        exchanges.fail(Iteration(2), Iteration(2));
        if blamed.is_some() {
            hear(&mut exchanges, 2, 1, blamed);
        }
        let fit = exchanges.able_members(Iteration(3), &all(3));
        assert_eq!(fit, others.map(worker), "{blamed:?}");
        assert_eq!(exchanges.plan.is_due(Iteration(3)), blamed.is_some());
    }
}

#[test]
fn members_that_do_not_say_they_have_the_parameters_are_not_waited_for() {
    let mut exchanges = exchanges(3);
    begin(&mut exchanges, 2, 3);
    assert_eq!(exchanges.overdue(50.0, Iteration(2), 9), [], "the step is not taken");
    assert_eq!([50.0, 55.9].map(|now_s| exchanges.overdue(now_s, Iteration(3), 9)), [[], []]);
    assert_eq!(exchanges.overdue(56.1, Iteration(3), 9), [Iteration(2)]);
}

#[test]
fn a_connection_that_is_never_reported_counts_as_failed() {
    let mut exchanges = Exchanges::new(ExchangeChoice::Shards);
    let mut next = |now_s, members| exchanges.next_probe(now_s, Iteration(1), &all(members), |_, _| true);
    assert!(next(0.0, 3).is_some() && next(PROBE_TIMEOUT_S, 3).is_none());
    let Probe { from, to, .. } = next(PROBE_TIMEOUT_S + 0.1, 3).unwrap();
    assert_ne!((from, to), (worker(0), worker(1)));
    exchanges.forget(to);
    assert!(exchanges.probe.is_none());
}

#[test]
fn failures_make_exchanges_rarer_until_one_succeeds() {
    let mut exchanges = exchanges(2);
    let mut fail = |iteration| {
        begin(&mut exchanges, iteration, 2);
        exchanges.fail(Iteration(iteration), Iteration(iteration));
        (iteration + 1..iteration + 99).find(|next| exchanges.plan.is_due(Iteration(*next))).unwrap() - iteration
    };
    assert_eq!([fail(1), fail(3), fail(7)], [2, 4, 8]);
    begin(&mut exchanges, 15, 2);
    (0..2).for_each(|slot| drop(hear(&mut exchanges, 15, slot, None)));
    begin(&mut exchanges, 16, 2);
    exchanges.fail(Iteration(16), Iteration(16));
    assert!(!exchanges.plan.is_due(Iteration(17)) && exchanges.plan.is_due(Iteration(18)));
    begin(&mut exchanges, 18, 2);
    assert_eq!(exchanges.end(Iteration(18)).len(), 2);
    assert!(exchanges.plan.is_due(Iteration(19)), "a member was late");
    assert!(!exchanges.plan.is_due(Iteration(64)), "the links are measured");
    assert!(!Exchanges::new(ExchangeChoice::Star).plan.is_due(Iteration(1)));
}
