use ata_record::RunEvent;
use ata_types::TaskOutcome;

use super::*;
use crate::tests as testing;

/// Returns a run with three workers of 1, 2 and 10 s per task, and a budget of 4.
fn state(allocation: &[u64], probes: &[u32]) -> RunState {
    let mut run = testing::begun("ata-auto", 4);
    for (worker, task_s) in [(1, 1.0), (2, 2.0), (3, 10.0)] {
        run.apply(&testing::join(worker));
        for _ in 0..4 {
            run.apply(&testing::task(0, worker, Some(task_s), TaskOutcome::Applied));
        }
    }
    let mut event = testing::allocation(7, allocation, &[1.0, 2.0, 0.0], "for a test");
    if let RunEvent::Allocation { probes: of_event, .. } = &mut event {
        // Without the policy's forecasts, expected times follow from the measured ones.
        of_event.extend(probes.iter().copied().map(testing::worker));
    }
    run.apply(&event);
    run
}

/// The expected values are computed by hand for shares of 3 s and 2 s. With (4, 0) worker 1 ends after 4 s; with (2, 2)
/// worker 2 does; any task of worker 3 takes 10 s.
#[test]
fn a_task_more_or_less() {
    let explanation = explain(&state(&[3, 1, 0], &[3]), None);
    assert_eq!((explanation.iteration.number(), explanation.expected_s, explanation.budget), (7, Some(3.0), 4));
    let found: Vec<_> = explanation.workers.iter().map(|of| (of.finish_s, of.one_more_s, of.one_less_s)).collect();
    assert_eq!(found, [(Some(3.0), Some(4.0), Some(4.0)), (Some(2.0), Some(4.0), Some(4.0)), (None, Some(10.0), None)]);
    let why = |at: usize| explanation.workers[at].share.why.as_str();
    assert_eq!(
        why(0),
        "3 tasks of 1.00 s each, expected to be done after 3.00 s, as the last. With one more the iteration would take 4.00 s; \
         with one less, done by worker 2 in its place, 4.00 s."
    );
    assert!(
        why(2).starts_with("No task: with one, the iteration would take 10.00 s in place of 3.00 s."),
        "{}",
        why(2)
    );
    assert!(why(2).ends_with("the step does not wait for it."));
}

/// The policy's forecasts have the last word, whatever was measured: shares of 5 s and 4 s, of which worker 1 could take one more until 9 s
/// and worker 2 until 6 s. Worker 3, which it knows nothing of or plans nothing for, takes no task, although it was timed.
#[test]
fn the_policys_own_forecast_is_used() {
    for of_third in [[Some(0.0); 3], [Some(0.0), Some(0.0), None]] {
        let mut run = state(&[3, 1, 0], &[]);
        let mut event = testing::allocation(8, &[3, 1, 0], &[1.0, 2.0, 0.0], "ras");
        let RunEvent::Allocation { finish_s, .. } = &mut event else { panic!("{event:?}") };
        *finish_s = vec![[3.0, 5.0, 9.0].map(Some), [0.0, 4.0, 6.0].map(Some), of_third];
        run.apply(&event);
        let explanation = explain(&run, None);
        assert_eq!((explanation.expected_s, explanation.by_policy), (Some(5.0), true));
        let found: Vec<_> = explanation.workers.iter().map(|of| (of.finish_s, of.one_more_s, of.one_less_s)).collect();
        assert_eq!(found, [(Some(5.0), Some(9.0), Some(6.0)), (Some(4.0), Some(6.0), Some(9.0)), (None, None, None)]);
    }
}

/// If only it is asked for, it is explained alone.
#[test]
fn a_worker_without_times_has_no_figures_and_a_race_needs_no_reasons() {
    let mut run = state(&[3, 1, 0], &[]);
    run.apply(&testing::join(4));
    let [of] = &explain(&run, Some(&BTreeSet::from([testing::worker(4)]))).workers[..] else { panic!("one") };
    assert_eq!((of.share.number, of.share.why.as_str()), (testing::worker(4), "No task: it was never timed."));
    assert_eq!((of.share.mean_s, of.finish_s, of.one_more_s), (None, None, None));
    run.apply(&testing::allocation(8, &[], &[0.0; 3], "racing"));
    let explanation = explain(&run, None);
    assert_eq!(explanation.expected_s, None);
    assert!(explanation.workers.iter().all(|of| of.share.why == "All workers compute, and the first results count."));
}

/// The times are 1 and 3 in turn, four in all: mean 2, standard deviation 2/√3, so the interval is 2 ± 1.96·(2/√3)/2.
#[test]
fn means_have_intervals() {
    let mut worker = WorkerState::default();
    worker.times_s.extend([1.0, 3.0, 1.0, 3.0]);
    let of = MeanTaskTime::of(&worker);
    let margin_s = 1.96 / 3.0_f64.sqrt();
    assert_eq!(of.mean_s, Some(2.0));
    assert!(
        (of.low_s.unwrap() - (2.0 - margin_s)).abs() < 1e-12 && (of.high_s.unwrap() - (2.0 + margin_s)).abs() < 1e-12
    );
}

/// Three workers have computed for 2 s. In a step of 1 s, they wait for a third of it; for a tenth if there are 4.5 times as many tasks.
#[test]
fn the_utilization_and_the_budget_that_hides_what_is_not_computation() {
    for (runtime_s, expected) in [(1.0, (Some(2.0 / 3.0), Some(18))), (0.5, (Some(1.0), None))] {
        let mut run = state(&[3, 1, 0], &[]);
        assert_eq!(explain(&run, None).utilization, None, "no step was taken");
        run.apply(&testing::step(7, 7.0 + runtime_s));
        let Explanation { utilization, hiding_budget, .. } = explain(&run, None);
        assert_eq!((utilization, hiding_budget), expected);
    }
}
