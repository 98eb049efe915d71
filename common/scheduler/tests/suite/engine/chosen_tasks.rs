//! Iterations whose number of tasks is chosen by the time that is not computation.

use ata_scheduler::{Effect, Engine, EngineConfig, TaskChoice};

use crate::engine::support::{BUSY_S, Cluster, assigned, policy};

fn config() -> EngineConfig {
    EngineConfig { budget: 4, choice: Some(TaskChoice::of_rounds(4, 60)), iterations: 50, ..EngineConfig::default() }
}

fn began(effects: &[Effect]) -> Option<u64> {
    effects.iter().find_map(|effect| if let Effect::Start { position, .. } = effect { Some(*position) } else { None })
}

/// Lets one worker compute, until the run is over or so many iterations are committed, each of which takes as long as two more tasks. Returns
/// the position and the number of tasks of each.
fn run(cluster: &mut Cluster, iterations: usize) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut effects = cluster.join(1);
    while found.len() < iterations
        && let Some(position) = began(&effects)
    {
        let (iteration, mut tasks) = (cluster.engine.iteration().number(), 0);
        let mut leases = assigned(&effects);
        while let Some((number, lease)) = leases.pop() {
            tasks += lease.tasks.count;
            cluster.now_s += lease.tasks.count as f64 * BUSY_S;
            leases.extend(assigned(&cluster.done(number, &lease).unwrap()));
        }
        found.push((position, tasks));
        cluster.now_s += 2.0 * BUSY_S;
        effects = cluster.commit(iteration);
        assert_eq!(cluster.engine.last_tasks(), position..position + tasks);
    }
    found
}

/// With 18 tasks, two more would be a tenth. The run has 200 tasks, also if it goes on in another process.
#[test]
fn an_iteration_is_as_long_as_hides_the_exchange() {
    let chosen = [(0, 4), (4, 8), (12, 16), (28, 18), (46, 18), (64, 18), (82, 18), (100, 18), (118, 18), (136, 18)];
    let end = [(154, 18), (172, 18), (190, 10)];
    for name in ["uta", "ata-auto", "pull"] {
        let mut cluster = Cluster::with(name, config());
        assert_eq!(run(&mut cluster, 10), chosen, "{name}");
        let saved = cluster.engine.save();
        assert_eq!((saved.finished(&config()), saved.next_iteration().number()), (None, 11));
        let mut again = Cluster::of(Engine::restore(config(), policy(name), saved.clone()).unwrap());
        again.now_s = cluster.now_s;
        assert_eq!(run(&mut again, 10), end, "{name}");
        assert!(again.engine.save().finished(&config()).is_some());
        let more = EngineConfig { iterations: 51, ..config() };
        assert_eq!(again.engine.save().finished(&more), None, "four tasks are left");
        let fixed = Engine::restore(EngineConfig { choice: None, ..config() }, policy(name), saved);
        assert_eq!(fixed.unwrap().iteration().number(), 11);
    }
}
