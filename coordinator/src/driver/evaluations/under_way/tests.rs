//! Tests of an evaluation in progress.

use super::*;
use ata_learn::ClassCount;
use ata_types::WorkerId;
use std::sync::mpsc;

const BATCHES: EvaluationBatches = EvaluationBatches { samples: 50, batch_samples: 10 };

fn worker(number: u32) -> CrewMember {
    CrewMember::Worker(WorkerId::new(number).unwrap())
}

/// Returns an evaluation in which two members must agree on the batches from `checked_from` on, and on the first one if the data
/// is not agreed on.
fn evaluation(is_agreed: bool, checked_from: u64) -> UnderWay {
    let parameters = TrainedParameters::new(Iteration(3), mpsc::sync_channel(1).1);
    let data = is_agreed.then(|| MeasuredData { batches: BATCHES, metrics: BTreeSet::new() });
    UnderWay::new(0.0, parameters, data, Some(BATCHES.samples), move |batch| batch >= checked_from)
}

fn measured(under_way: &mut UnderWay, member: CrewMember, batch: u64, loss: f64) -> Vec<CrewMember> {
    let wrong = under_way.measured(1.0, member, batch, Ok((BATCHES, Measurement::of_loss(loss))));
    wrong.into_iter().map(|(member, _)| member).collect()
}

/// Lets workers be present, each on its own machine.
fn meet(under_way: &mut UnderWay, machines: &[u64], now_s: f64) {
    let candidate = |(number, machine): (u32, &u64)| CrewCandidate {
        worker: WorkerId::new(number).unwrap(),
        machine: MachineId(*machine),
        is_idle: true,
        mean_s: None,
    };
    let candidates: Vec<CrewCandidate> = (1..).zip(machines).map(candidate).collect();
    under_way.meet(now_s, &candidates, false);
}

/// Returns an evaluation with workers on these machines, the first of which has measured the first batch.
fn measured_once(machines: &[u64], checked_from: u64) -> UnderWay {
    let mut under_way = evaluation(false, checked_from);
    meet(&mut under_way, machines, 1.0);
    under_way.hand_out(worker(1));
    measured(&mut under_way, worker(1), 0, 1.0);
    under_way
}

/// Checks that a worker gets the first two batches, in any order.
fn takes_two(under_way: &mut UnderWay, member: CrewMember) {
    let mut taken = under_way.hand_out(member);
    taken.sort_unstable();
    assert_eq!(taken, [0, 1]);
}

#[test]
fn each_batch_is_measured_once_whoever_measures_it() {
    let mut under_way = evaluation(false, u64::MAX);
    assert_eq!(under_way.hand_out(worker(1)), [0], "their number is not known yet");
    assert!(under_way.hand_out(worker(2)) == [0], "the first may hang");
    assert!(under_way.hand_out(CrewMember::Head).is_empty(), "two are enough");
    measured(&mut under_way, worker(1), 0, 1.0);
    assert!(under_way.hand_out(worker(1)).is_empty(), "another one must confirm it");
    measured(&mut under_way, worker(2), 0, 1.0);
    assert_eq!(under_way.hand_out(worker(1)), [1, 2]);
    assert_eq!(under_way.hand_out(CrewMember::Head), [3]);
    // Worker 2 was not asked to measure this batch.
    measured(&mut under_way, worker(2), 3, 9.0);
    under_way.leave(worker(1));
    assert_eq!(under_way.hand_out(worker(2)), [2, 1]);
    for (member, batch) in [(CrewMember::Head, 3), (worker(2), 1), (worker(2), 2)] {
        assert!(under_way.outcome(1.0, false, true).is_none());
        measured(&mut under_way, member, batch, batch as f64 + 1.0);
    }
    assert_eq!(under_way.hand_out(worker(2)), [4]);
    measured(&mut under_way, worker(2), 4, 5.0);
    assert_eq!(under_way.outcome(1.0, false, true).unwrap().unwrap().loss, 3.0);
}

#[test]
fn who_cannot_measure_is_not_asked_again_and_others_take_its_batches() {
    let mut under_way = evaluation(true, u64::MAX);
    assert_eq!(under_way.hand_out(worker(1)), [0, 1]);
    under_way.measured(1.0, worker(1), 1, Err(EvaluationError::Workers("it is broken".into())));
    assert!(!under_way.may_measure(worker(1)) && under_way.may_measure(worker(2)));
    takes_two(&mut under_way, worker(2));
    let other = EvaluationBatches { samples: 51, ..BATCHES };
    under_way.measured(1.0, worker(2), 0, Ok((other, Measurement::of_loss(1.0))));
    assert!(!under_way.may_measure(worker(2)), "it has other test data");
    assert!(under_way.outcome(1.0 + DESERTED_S / 2.0, true, true).is_none(), "another one may come");
    let error = under_way.outcome(1.0, true, false).unwrap().unwrap_err().to_string();
    assert_eq!(error, "it is broken");
}

/// As many names as an evaluation may have.
const NAMES: [&str; MAX_METRICS] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"];

#[test]
fn a_measurement_that_cannot_be_right_costs_the_right_to_evaluate() {
    let of = |metrics: &[&str], samples: &[u32]| Measurement {
        metrics: metrics.iter().map(|name| ((*name).to_owned(), 0.0)).collect(),
        classes: samples.iter().map(|&samples| ClassCount { samples, correct: 0 }).collect(),
        ..Measurement::of_loss(1.0)
    };
    let data = |samples, batch_samples| EvaluationBatches { samples, batch_samples };
    for (found, measurement, expected) in [
        (data(1 << 63, 10), of(&[], &[]), Some("the coordinator has 50")),
        (data(50, 1), of(&[], &[]), Some("in batches of 10")),
        (BATCHES, of(&NAMES, &[]), None),
        (BATCHES, of(&[&NAMES[..], &["new"]].concat(), &[]), Some("at most 16 in all")),
        // A sample may have several classes, such as those of its words.
        (BATCHES, of(&[], &[60, 50]), None),
    ] {
        let mut under_way = evaluation(true, u64::MAX);
        assert_eq!(under_way.hand_out(worker(1)), [0, 1]);
        let wrong = under_way.measured(1.0, worker(1), 0, Ok((found, measurement)));
        match expected {
            None => assert!(wrong.is_empty() && under_way.may_measure(worker(1)), "{wrong:?}"),
            Some(expected) => {
                assert!(wrong.len() == 1 && wrong[0].1.contains(expected), "{wrong:?}");
                takes_two(&mut under_way, worker(2));
            }
        }
    }
    let mut unknown = UnderWay { samples: None, ..evaluation(false, u64::MAX) };
    unknown.hand_out(worker(1));
    let wrong = unknown.measured(1.0, worker(1), 0, Ok((data(1 << 63, 10), of(&[], &[]))));
    assert!(wrong.is_empty() && !unknown.may_measure(worker(1)), "the number of batches is limited");
}

/// A metric that the first batch does not have is taken over once two members agree on it.
#[test]
fn the_names_of_metrics_come_from_batches_that_two_agree_on() {
    let mut under_way = evaluation(true, u64::MAX);
    let named = |name: &str, value| Measurement { metrics: [(name.into(), value)].into(), ..Measurement::of_loss(1.0) };
    let say = |under_way: &mut UnderWay, number, batch, measurement| {
        under_way.measured(1.0, worker(number), batch, Ok((BATCHES, measurement)))
    };
    takes_two(&mut under_way, worker(1));
    assert_eq!(say(&mut under_way, 1, 0, named("error", 0.5)), []);
    assert!(under_way.data.as_ref().unwrap().metrics.is_empty(), "one alone says so");
    assert_eq!(under_way.hand_out(worker(2)), [0, 2]);
    assert_eq!(say(&mut under_way, 2, 0, named("error", 0.501)), []);
    assert!(under_way.data.as_ref().unwrap().metrics.contains("error"));
    assert_eq!(say(&mut under_way, 1, 1, named("error", 7.0)), []);
    assert!(!under_way.unconfirmed.contains_key(&1), "the name is known");
}

/// Of three that measure the same batch, the one that differs is named, whoever comes first; the coordinator is believed.
#[test]
fn two_that_agree_outvote_a_third() {
    let orders = [[(1, 1.0), (2, 1.001), (3, 0.0)], [(1, 9.0), (2, 1.0), (3, 1.0)], [(1, 1.0), (2, 9.0), (3, 1.0)]];
    for (order, expected) in orders.iter().zip([&[][..], &[1], &[2]]) {
        for (is_agreed, batch) in [(false, 0), (true, 1)] {
            let mut under_way = evaluation(is_agreed, 1);
            meet(&mut under_way, &[1, 2, 3, 3], 1.0);
            let mut wrong = Vec::new();
            for (number, loss) in order {
                assert!(under_way.sum.is_none() || is_agreed);
                if under_way.hand_out(worker(*number)).contains(&batch) {
                    wrong.extend(measured(&mut under_way, worker(*number), batch, *loss));
                }
                if wrong.is_empty() && expected.is_empty() && *number == 2 {
                    break;
                }
            }
            assert_eq!(wrong, expected.iter().map(|number| worker(*number)).collect::<Vec<_>>(), "{order:?}");
            assert!(under_way.unconfirmed.is_empty() && under_way.agreed().is_some());
        }
    }
    let mut believed = evaluation(false, u64::MAX);
    believed.hand_out(worker(1));
    assert_eq!(measured(&mut believed, worker(1), 0, 9.0), []);
    assert_eq!(believed.hand_out(CrewMember::Head), [0]);
    assert_eq!(measured(&mut believed, CrewMember::Head, 0, 1.0), [worker(1)]);
}

#[test]
fn a_machine_does_not_confirm_itself_unless_it_is_alone() {
    for (machines, can_confirm) in [([1, 1, 2], false), ([1, 1, 1], true)] {
        let mut under_way = measured_once(&machines, u64::MAX);
        assert_eq!(under_way.hand_out(worker(2)).contains(&0), can_confirm);
        assert_eq!(under_way.hand_out(worker(3)), [0], "it can, and the other may hang");
    }
    let mut alone = measured_once(&[1], u64::MAX);
    meet(&mut alone, &[1], 1.0);
    assert!(alone.sum.is_some() && alone.agreed().is_none(), "it counts, and proves nothing about others");
    for (checked_from, counts) in [(u64::MAX, true), (0, false)] {
        let mut hangs = measured_once(&[1, 2], checked_from);
        assert_eq!(hangs.hand_out(worker(2)), [0]);
        meet(&mut hangs, &[1, 2], CONFIRMATION_S);
        assert!(hangs.sum.is_none());
        meet(&mut hangs, &[1, 2], CONFIRMATION_S + 1.0);
        assert_eq!(hangs.sum.is_some(), counts, "only a check is worth the time until it is known to hang");
    }
    let mut apart = evaluation(false, u64::MAX);
    for number in [1, 2] {
        meet(&mut apart, &[1, 2], 1.0);
        assert_eq!(apart.hand_out(worker(number)), [0]);
        assert_eq!(measured(&mut apart, worker(number), 0, f64::from(number)), []);
    }
    meet(&mut apart, &[1, 2], 1.0);
    let error = apart.outcome(1.0, true, false).unwrap().unwrap_err().to_string();
    assert_eq!(error, "no two of 2 measurements of batch 0 agree");
}

#[test]
fn nobody_is_waited_for_without_end() {
    let mut deserted = evaluation(true, u64::MAX);
    assert!(deserted.outcome(DESERTED_S - 1.0, true, true).is_none());
    let error = deserted.outcome(DESERTED_S, true, true).unwrap().unwrap_err().to_string();
    assert!(error.contains("no worker is present"), "{error}");
    let mut stalled = evaluation(true, u64::MAX);
    assert_eq!(stalled.hand_out(worker(1)), [0, 1]);
    stalled.check(STALLED_S - 1.0);
    assert!(stalled.may_measure(worker(1)));
    stalled.check(STALLED_S);
    assert!(!stalled.may_measure(worker(1)));
    takes_two(&mut stalled, worker(2));
}
