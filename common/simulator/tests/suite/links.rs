//! Steps over shared links: the engine's prediction compared with the simulation.

use ata_scheduler::policy::{Round, SchedulerRng};
use ata_scheduler::{Decision, LinkTimes, OwnTimes, Policy, Rule, Topology};
use ata_simulator::{Bandwidth, Change, Links, Moment, Simulation};
use ata_types::WorkerId;

use crate::{mean, policy, times, times_of};

const BUDGET: u64 = 23;

/// The task times of up to four workers.
const TASK: [f64; 4] = [20.0, 40.0, 80.0, 160.0];

/// The number of iterations in which `ata-auto` learns the times, and of those after them.
const LEARNING: usize = 40;
const MEASURED: usize = 40;

/// Links on which an upload takes 10 alone and 5 on the coordinator's link, and a download half as long.
const LINKS: Links = Links {
    worker: Bandwidth::both(10.0),
    head: Bandwidth::both(20.0),
    latency: 0.0,
    up_bytes: 100.0,
    down_bytes: 50.0,
    topology: Topology::Star,
    whole: false,
    chunk: 0.0,
};

/// Returns links of which each carries a byte in a unit of time.
fn slow_links(topology: Topology, up_bytes: f64, down_bytes: f64) -> Links {
    Links { worker: Bandwidth::both(1.0), head: Bandwidth::both(1.0), up_bytes, down_bytes, topology, ..LINKS }
}

/// A policy that gives each worker the same share in each iteration.
struct Fixed(Vec<u64>);

impl Policy for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn decide(&mut self, round: &Round<'_>, _rng: &mut SchedulerRng) -> Decision {
        Decision::barrier(self.0[..round.workers.len()].to_vec(), Vec::new(), Rule::Uniform)
    }
}

fn run(
    policy: Box<dyn Policy>,
    (budget, iterations): (u64, usize),
    laws: &[String],
    links: Option<Links>,
    changes: Vec<(Moment, Change)>,
) -> Vec<f64> {
    let workers = laws.len() as u32;
    let times = times(&laws.join("; "), workers, 1);
    times_of(policy, Simulation { links, changes, ..Simulation::new(workers, times) }, budget, iterations)
}

fn constant(times: &[f64]) -> Vec<String> {
    times.iter().map(|time| format!("const({time})")).collect()
}

/// Returns the times of three iterations with these shares.
fn fixed(shares: &[u64], times: &[f64], links: Option<Links>, changes: Vec<(Moment, Change)>) -> Vec<f64> {
    run(Box::new(Fixed(shares.to_vec())), (shares.iter().sum(), 3), &constant(times), links, changes)
}

fn named(name: &str, sizes: (u64, usize), times: &[f64], links: Links) -> Vec<f64> {
    run(policy(name, times.len() as u32), sizes, &constant(times), Some(links), Vec::new())
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    let is_close = found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9);
    assert!(is_close, "{what}: {found:?}, expected {expected:?}");
}

/// Links on which a gradient takes 10 on any link, and the parameters 5.
const SHARDS: Links = Links { head: Bandwidth::both(10.0), topology: Topology::Shards, ..LINKS };

/// The first iteration begins with a download. In shards, four workers need 10 + 3/4 · 5, and two need 10 + 1/2 · 5.
#[test]
fn a_step_ends_with_its_last_vector() {
    let broad_down = Links { up_bytes: 1.0, down_bytes: 100.0, ..LINKS };
    let broad_shards = Links { up_bytes: 50.0, down_bytes: 100.0, ..SHARDS };
    let narrow_head = Links { head: Bandwidth::both(5.0), ..SHARDS };
    let wide_head = Links { head: Bandwidth::both(20.0), ..SHARDS };
    for (links, shares, times, expected) in [
        (LINKS, &[1][..], &[20.0][..], [35.0, 30.0, 30.0]),
        (LINKS, &[2, 1], &[10.0, 20.0], [35.0, 30.0, 30.0]),
        (LINKS, &[1, 1, 1, 1], &[20.0; 4], [45.0, 40.0, 40.0]),
        // The slower worker begins to send when the other one has finished.
        (LINKS, &[1, 1], &[20.0, 60.0], [75.0, 70.0, 70.0]),
        // Four sets of parameters follow the last gradient.
        (broad_down, &[1, 1, 1, 1], &[20.0; 4], [50.0, 40.0, 40.0]),
        (SHARDS, &[1], &[20.0], [35.0, 30.0, 30.0]),
        (SHARDS, &[1, 1], &[20.0, 20.0], [37.5, 32.5, 32.5]),
        (SHARDS, &[2, 1], &[20.0, 60.0], [77.5, 72.5, 72.5]),
        (SHARDS, &[1, 1, 1, 1], &[20.0; 4], [38.75, 33.75, 33.75]),
        (SHARDS, &[1, 1, 1, 1], &[20.0, 5.0, 90.0, 40.0], [108.75, 103.75, 103.75]),
        (broad_shards, &[1, 1, 1, 1], &[20.0; 4], [43.75, 33.75, 33.75]),
        // The coordinator's link takes 20 for one gradient, and 10 for a download.
        (narrow_head, &[1, 1, 1, 1], &[20.0; 4], [50.0, 40.0, 40.0]),
        // A star takes 20, and 10 if the workers finish in turn.
        (wide_head, &[1, 1, 1, 1], &[20.0; 4], [45.0, 40.0, 40.0]),
    ] {
        assert_close(&fixed(shares, times, Some(links), Vec::new()), &expected, &format!("{shares:?}, {links:?}"));
    }
    assert_close(&fixed(&[2, 1], &[10.0, 20.0], None, Vec::new()), &[20.0; 3], "without links");
}

/// The vector and the parameters each take 3 more, and so do a report and the request that follows it, if it is open who computes what.
#[test]
fn messages_take_time() {
    let far = Links { latency: 3.0, ..LINKS };
    assert_close(&fixed(&[1, 1], &[20.0; 2], Some(far), Vec::new())[..2], &[41.0, 36.0], "equal shares");
    assert_close(&named("gta", (1, 3), &[20.0, 30.0], far)[1..], &[42.0; 2], "pull");
}

/// Vectors take 10 after local steps, and then parameters 5, while workers go on. The next vectors wait for the parameters. Between two rounds,
/// workers wait for a report and for their next leases.
#[test]
fn local_steps_go_on_while_vectors_travel() {
    let whole = Links { whole: true, ..LINKS };
    for (links, task, expected) in [
        (whole, 20.0, [40.0, 20.0, 20.0]),
        (whole, 5.0, [25.0, 15.0, 15.0]),
        (Links { latency: 3.0, ..whole }, 20.0, [46.0, 26.0, 26.0]),
    ] {
        assert_close(&fixed(&[1, 1], &[task; 2], Some(links), Vec::new()), &expected, &format!("{task}, {links:?}"));
    }
}

/// Two workers have computed their tasks by 7. In shards, the sums arrive by 17, and parameters would arrive by 19.5; in a star, both
/// gradients arrive by 27.
#[test]
fn a_worker_that_leaves_or_joins_changes_when_a_step_ends() {
    let star = Links { head: Bandwidth::both(10.0), ..LINKS };
    let leave = |at, slot| vec![(Moment::Time(at), Change::Leave(WorkerId::from_slot(slot)))];
    for (links, leaves_at, expected) in [
        // Worker 1 computes the other task by 9, and sends it after its own, which it does by 17.
        (SHARDS, 4.0, 27.0),
        // Worker 1 sends its own by 19, and the other by 29.
        (SHARDS, 9.0, 29.0),
        // Everything has arrived.
        (SHARDS, 18.0, 19.5),
        // Worker 1 sends its own by 18, as it has the link alone, and the other by 28.
        (star, 9.0, 28.0),
    ] {
        let found = fixed(&[1, 1], &[2.0; 2], Some(links), leave(leaves_at, 1));
        assert_close(&found, &[expected, 12.0, 12.0], &format!("{links:?}, {leaves_at}"));
    }
    // Workers 1 and 2 share the two tasks of worker 3 at 9. Their own vectors arrive by 29, and those of the two tasks by 49.
    let found = fixed(&[1, 1, 2], &[2.0, 2.0, 20.0], Some(SHARDS), leave(9.0, 2));
    assert_close(&found[..1], &[49.0], "a star of two, twice");
    let join = vec![(Moment::Iteration(2), Change::Join(WorkerId::from_slot(1)))];
    let found = fixed(&[1, 1], &[20.0; 2], Some(LINKS), join);
    assert_close(&found, &[35.0, 30.0, 35.0], "worker 2 waits for the parameters in iteration 3");
}

/// Returns the time of vectors on equal links.
fn known(links: Links) -> LinkTimes {
    let Links { worker, head, up_bytes, down_bytes, topology, chunk, .. } = links;
    let others = OwnTimes { up_s: up_bytes / worker.up, down_s: down_bytes / worker.down };
    LinkTimes {
        up_s: up_bytes / head.down,
        down_s: down_bytes / head.up,
        others,
        topology,
        chunk,
        ..LinkTimes::default()
    }
}

/// Returns the step time that the formulas predict: RAS with the windows of the fastest workers, for the best number of them.
fn predicted(times: &[f64], budget: u64, links: &LinkTimes) -> f64 {
    let of = |workers: usize| {
        let windows = links.windows_s(&vec![links.others; workers]);
        let ends =
            |(time, window): (&f64, &f64)| (1..=budget).map(|tasks| window + tasks as f64 * time).collect::<Vec<_>>();
        let mut ends: Vec<f64> = times.iter().zip(&windows).flat_map(ends).collect();
        ends.sort_by(f64::total_cmp);
        ends[budget as usize - 1]
    };
    (1..=times.len()).map(of).fold(f64::INFINITY, f64::min)
}

/// Steps of whole tasks may take a little longer than those of the best split.
#[test]
fn steps_take_as_long_as_predicted() {
    for topology in [Topology::Star, Topology::Shards] {
        for workers in [1, 2, 4] {
            for up_bytes in [1.0, 10.0, 50.0, 178.0, 356.0] {
                for (down, head) in [(1.0, 1.0), (0.5, 1.0), (0.5, 4.0), (1.0, 10.0)] {
                    let links = slow_links(topology, up_bytes, down * up_bytes);
                    let links = Links { head: Bandwidth::both(head), ..links };
                    check_prediction(&TASK[..workers], BUDGET, links);
                }
            }
        }
    }
}

fn check_prediction(times: &[f64], budget: u64, links: Links) -> f64 {
    let found = named("ata-auto", (budget, LEARNING + MEASURED), times, links);
    let found = mean(&found[LEARNING..]);
    let expected = predicted(times, budget, &known(links));
    let ratio = found / expected;
    assert!((0.99..1.05).contains(&ratio), "{} workers, {links:?}: {found} for {expected}", times.len());
    found
}

/// Sixteen workers of 20 ms have links on which a gradient takes 178 ms and the parameters 89 ms.
#[test]
fn shards_make_use_of_more_workers_than_a_star() {
    let both = [Topology::Star, Topology::Shards].map(|topology| slow_links(topology, 178.0, 89.0));
    for (budget, in_star, in_shards) in [(23, 498.0, 299.6), (64, 816.0, 341.4)] {
        let found = both.map(|links| check_prediction(&[20.0; 16], budget, links));
        assert!((found[0] - in_star).abs() < 1.0 && (found[1] - in_shards).abs() < 1.0, "{budget} tasks: {found:?}");
    }
}

/// One of four hangs, and there is no lease timeout: others compute its tasks, and the step ends as a star.
#[test]
fn shards_do_not_wait_for_a_worker_that_is_overtaken() {
    let hang = vec![(Moment::Iteration(LEARNING as u64), Change::Hang(WorkerId::from_slot(0)))];
    let policy = policy("ata-auto", 4);
    let found = run(policy, (BUDGET, LEARNING + MEASURED), &constant(&[20.0; 4]), Some(SHARDS), hang);
    let (before, hung) = (found[LEARNING - 2], found[LEARNING - 1]);
    assert!((before - (6.0 * 20.0 + 13.75)).abs() < 1e-9, "{before}");
    assert!(hung > before + 20.0 && hung < 4.0 * before, "{hung} after {before}");
}

/// Noisy workers of unequal speeds are often late. If one is overtaken, the step falls back to a star of 24 workers.
#[test]
fn shards_are_not_given_up_for_little() {
    let mean_of = |topology| {
        let links = slow_links(topology, 40.0, 20.0);
        let laws = (1..=24).map(|i| format!("gamma(0, 4, {})", [5, 10, 20, 40][i % 4])).collect::<Vec<_>>();
        mean(&run(policy("ata-auto", 24), (256, 100), &laws, Some(links), Vec::new())[LEARNING..])
    };
    let (star, shards) = (mean_of(Topology::Star), mean_of(Topology::Shards));
    assert!(shards < 0.9 * star, "{shards} and {star}");
}

/// The worker of a greedy policy sends one sum per step; the worker of an asynchronous policy waits until its gradient has arrived.
#[test]
fn a_step_of_one_worker_takes_one_vector() {
    for (policy, tasks) in [("gta", 23.0), ("asgd", 1.0)] {
        let found = named(policy, (BUDGET, 3), &TASK[..1], LINKS);
        assert_close(&found[1..], &[tasks * 20.0 + 10.0; 2], policy);
    }
}

/// Greedy workers have 13, 6, 3 and 1 of the first 23 results by 260, and the first two results arrive by 40. Then each worker
/// sends its sum.
#[test]
fn workers_send_once_it_is_known_who_was_first() {
    let links = slow_links(Topology::Star, 30.0, 15.0);
    for (policy, expected) in [("gta", 260.0 + 4.0 * 30.0), ("k-sync:k=2", 40.0 + 2.0 * 30.0)] {
        assert_close(&named(policy, (BUDGET, 3), &TASK, links)[1..], &[expected; 2], policy);
    }
}

/// The first gradient arrives at 30.1, and its step lasts until 40. The second one arrives meanwhile, and its step follows until 45,
/// 10 after its upload began. The third arrives at 60.1.
#[test]
fn a_gradient_that_waits_for_its_step_does_not_change_the_one_before() {
    let broad_down = Links { up_bytes: 1.0, down_bytes: 100.0, ..LINKS };
    assert_close(&named("asgd", (BUDGET, 4), &[20.0, 25.0], broad_down), &[30.1, 9.9, 20.1, 10.0], "asgd");
}

/// A worker that did not contribute to the last step waits once for its parameters, which take 71.2 here. This does not count against it.
#[test]
fn a_worker_that_was_idle_is_not_dearer() {
    let links = slow_links(Topology::Shards, 71.2, 71.2);
    let times: Vec<f64> = (1..=16).map(|i| f64::from(20 * i)).collect();
    let found = named("ata-auto", (BUDGET, LEARNING + MEASURED), &times, links);
    let best = fixed(&[9, 4, 3, 2, 1, 1, 1, 1, 1], &times[..9], Some(links), Vec::new());
    let (found, best) = (found.last().unwrap(), best.last().unwrap());
    assert!(*found <= 1.01 * best, "{found} is over {best}");
}

/// Three workers of 20 ms have links on which the gradient takes a millisecond or two. The link of the third becomes slow at step 20 and
/// recovers at 150. In a star or in shards, and at any rate, the slow link must be found within three steps; then steps are no slower than
/// without the worker, and it is in use again after the recovery.
#[test]
fn a_worker_with_a_slow_link_is_left_out_until_it_recovers() {
    let slow = WorkerId::from_slot(2);
    for topology in [Topology::Star, Topology::Shards] {
        for (head, rate) in [(1e6, 200.0), (1e6, 20.0), (125e3, 200.0), (125e3, 20.0), (1e6, 1.0)] {
            let links = Links {
                worker: Bandwidth::both(125e3),
                head: Bandwidth::both(head),
                up_bytes: 270e3,
                down_bytes: 135e3,
                topology,
                ..LINKS
            };
            let of = |workers: usize, iterations, changes| {
                let laws = constant(&[20.0; 3][..workers]);
                run(policy("ata-auto", workers as u32), (24, iterations), &laws, Some(links), changes)
            };
            let factor = links.worker.up / rate;
            let changes = [(20, factor), (150, 1.0 / factor)];
            let change = |(iteration, factor)| (Moment::Iteration(iteration), Change::SlowLink(slow, factor));
            let found = of(3, 300, changes.map(change).to_vec());
            let without = *of(2, 20, Vec::new()).last().unwrap();
            let (before, what) = (found[18], format!("{topology:?}, {head}, {rate}"));
            assert!(found[19] > 2.0 * before, "{what}: the link is slow: {found:?}");
            let left_out = &found[22..149];
            assert!(left_out.iter().all(|step| *step <= 1.05 * without), "{what}: {left_out:?} for {without}");
            let recovered = found[150..].iter().position(|step| *step <= 1.01 * before);
            assert!(recovered.is_some_and(|steps| steps <= 70), "{what}: {recovered:?}");
            assert!(found[290..].iter().all(|step| *step <= 1.01 * before), "{what}: {:?}", &found[290..]);
        }
    }
}
