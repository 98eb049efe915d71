//! Steps over shared links: what the engine counts with, and what the simulation makes of it.

use ata_scheduler::policy::{Round, SchedulerRng};
use ata_scheduler::{
    Decision, Effect, Engine, EngineConfig, Exchange, Policy, PolicyContext, Rule, StepOutcome, build_policy,
};
use ata_simulator::{Change, LawTimes, Links, Moment, Observer, Simulation, Step, TimeLaws};
use ata_types::WorkerId;

/// Tasks of a step.
const BUDGET: u64 = 23;

/// Times of a task of up to four workers.
const TASK: [f64; 4] = [20.0, 40.0, 80.0, 160.0];

/// Iterations in which `ata-auto` learns the times, and those after them.
const LEARNING: usize = 40;
const MEASURED: usize = 40;

/// An upload takes 10 alone and 5 on the coordinator's link, a download half as long.
const LINKS: Links = Links { worker_rate: 10.0, head_rate: 20.0, up_bytes: 100.0, down_bytes: 50.0 };

/// Takes the time of each iteration.
#[derive(Default)]
struct Clock(Vec<f64>);

impl Observer for Clock {
    fn step(&mut self, _step: &Step<'_>) -> StepOutcome {
        StepOutcome::default()
    }

    fn effect(&mut self, _now: f64, effect: &Effect) {
        if let Effect::Committed { cost } = effect {
            self.0.push(cost.runtime_s);
        }
    }
}

/// Gives each worker the same share in each iteration.
struct Fixed(Vec<u64>);

impl Policy for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn decide(&mut self, round: &Round<'_>, _rng: &mut SchedulerRng) -> Decision {
        Decision::barrier(self.0[..round.workers.len()].to_vec(), Vec::new(), Rule::Uniform)
    }
}

/// The times of the iterations of workers whose tasks take these times.
fn run(
    policy: Box<dyn Policy>,
    (budget, iterations): (u64, usize),
    times: &[f64],
    links: Option<Links>,
    changes: Vec<(Moment, Change)>,
) -> Vec<f64> {
    let workers = times.len() as u32;
    let law: Vec<String> = times.iter().map(|time| format!("const({time})")).collect();
    let laws: TimeLaws = law.join("; ").parse().unwrap();
    let times = LawTimes::new(&laws, workers, 1).unwrap();
    let mut simulation = Simulation { links, changes, ..Simulation::new(workers, times) };
    let min_workers = simulation.present_at_first();
    let config =
        EngineConfig { budget, iterations: iterations as u64, min_workers, rest_s: 1.0, ..EngineConfig::default() };
    let mut clock = Clock::default();
    simulation.run(&mut Engine::new(config, policy), &mut clock).unwrap();
    clock.0
}

fn fixed(shares: &[u64], times: &[f64], links: Option<Links>, changes: Vec<(Moment, Change)>) -> Vec<f64> {
    run(Box::new(Fixed(shares.to_vec())), (shares.iter().sum(), 3), times, links, changes)
}

fn named(policy: &str, iterations: usize, times: &[f64], links: Option<Links>) -> Vec<f64> {
    let context = PolicyContext { workers: Some(times.len() as u32), ..PolicyContext::default() };
    run(build_policy(policy, &context).unwrap(), (BUDGET, iterations), times, links, Vec::new())
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    let is_close = found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9);
    assert!(is_close, "{what}: {found:?}, expected {expected:?}");
}

/// The first iteration begins with a download.
#[test]
fn a_step_ends_with_its_last_vector() {
    let broad_down = Links { up_bytes: 1.0, down_bytes: 100.0, ..LINKS };
    for (links, shares, times, expected) in [
        (LINKS, &[1][..], &[20.0][..], [35.0, 30.0, 30.0]),
        (LINKS, &[2, 1], &[10.0, 20.0], [35.0, 30.0, 30.0]),
        (LINKS, &[1, 1, 1, 1], &[20.0; 4], [45.0, 40.0, 40.0]),
        // The slower one begins when the other has sent.
        (LINKS, &[1, 1], &[20.0, 60.0], [75.0, 70.0, 70.0]),
        // Four sets of parameters follow the last gradient.
        (broad_down, &[1, 1, 1, 1], &[20.0; 4], [50.0, 40.0, 40.0]),
    ] {
        assert_close(&fixed(shares, times, Some(links), Vec::new()), &expected, &format!("{shares:?}"));
    }
    assert_close(&fixed(&[2, 1], &[10.0, 20.0], None, Vec::new()), &[20.0; 3], "without links");
}

/// The step time that the formulas predict: RAS with the windows of the fastest workers, for the best number of them.
fn predicted(times: &[f64], exchange: Exchange) -> f64 {
    let of = |workers: usize| {
        let windows: Vec<f64> = (1..=workers).map(|rank| exchange.window_s(rank, workers)).collect();
        let ends =
            |(time, window): (&f64, &f64)| (1..=BUDGET).map(|tasks| window + tasks as f64 * time).collect::<Vec<_>>();
        let mut ends: Vec<f64> = times.iter().zip(&windows).flat_map(ends).collect();
        ends.sort_by(f64::total_cmp);
        ends[BUDGET as usize - 1]
    };
    (1..=times.len()).map(of).fold(f64::INFINITY, f64::min)
}

/// Steps of whole tasks may be a little longer than those that the best split would take.
#[test]
fn steps_take_as_long_as_predicted() {
    for workers in [1, 2, 4] {
        for up_bytes in [1.0, 10.0, 50.0, 178.0, 356.0] {
            for (down, head_rate) in [(1.0, 1.0), (0.5, 1.0), (0.5, 4.0), (1.0, 10.0)] {
                let links = Links { worker_rate: 1.0, head_rate, up_bytes, down_bytes: down * up_bytes };
                let times = &TASK[..workers];
                let found = named("ata-auto", LEARNING + MEASURED, times, Some(links));
                let found = found[LEARNING..].iter().sum::<f64>() / MEASURED as f64;
                let expected = predicted(times, links.exchange());
                let ratio = found / expected;
                assert!((0.99..1.05).contains(&ratio), "{workers} workers, {links:?}: {found} for {expected}");
            }
        }
    }
}

/// The workers that `ata-auto` employs are worth their vectors, and those of a fixed allocation may not be.
#[test]
fn a_narrow_link_is_worth_fewer_workers() {
    let links = Links { worker_rate: 1.0, head_rate: 1.0, up_bytes: 356.0, down_bytes: 356.0 };
    let all = fixed(&[13, 6, 3, 1], &TASK, Some(links), Vec::new())[2];
    let best = *named("ata-auto", LEARNING, &TASK, Some(links)).last().unwrap();
    assert!(best < 0.6 * all, "{best} and {all}");
}

/// A greedy policy's workers wait until each gradient has arrived.
#[test]
fn gradients_that_are_sent_alone_take_time_each() {
    for (policy, tasks) in [("gta", 23.0), ("asgd", 1.0)] {
        let found = named(policy, 3, &TASK[..1], Some(LINKS));
        let expected = tasks * (20.0 + 10.0);
        assert_close(&found[1..], &[expected; 2], policy);
    }
}

#[test]
fn a_worker_that_did_not_contribute_waits_for_the_parameters() {
    let join = vec![(Moment::Iteration(2), Change::Join(WorkerId::from_slot(1)))];
    assert_close(&fixed(&[1, 1], &[20.0; 2], Some(LINKS), join), &[35.0, 30.0, 35.0], "worker 2 from iteration 3 on");
}

/// Both have computed their tasks by 7, and would have sent the gradients by 27.
#[test]
fn the_gradient_of_a_lost_worker_is_computed_again() {
    let links = Links { head_rate: 10.0, ..LINKS };
    let leave = vec![(Moment::Time(9.0), Change::Leave(WorkerId::from_slot(1)))];
    let found = fixed(&[1, 1], &[2.0; 2], Some(links), leave);
    assert_close(
        &found,
        &[28.0, 12.0, 12.0],
        "worker 1 sends its own by 18, as it has the link alone, and the other by 28",
    );
}
