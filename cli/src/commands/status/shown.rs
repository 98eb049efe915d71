//! What is read of a run's state.

use ata_observe::seconds;
use serde::Deserialize;

use crate::failure::Failure;

/// The parts of the dashboard's message that a terminal has room for.
#[derive(Debug, Deserialize)]
pub(super) struct Shown {
    pub(super) run: Run,
    pub(super) phase: String,
    pub(super) detail: String,
    pub(super) time_s: f64,
    pub(super) totals: Totals,
    pub(super) steps: Steps,
    pub(super) workers: Vec<Worker>,
    pub(super) costs: Vec<Cost>,
    pub(super) allocation: Allocation,
    pub(super) log: Log,
}

#[derive(Debug, Deserialize)]
#[expect(clippy::struct_field_names, reason = "as in the message")]
pub(super) struct Run {
    pub(super) run_id: String,
    pub(super) policy: String,
    pub(super) iterations: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Totals {
    pub(super) iterations: u64,
    pub(super) runtime_s: f64,
    pub(super) total_worker_time_s: f64,
    pub(super) iteration_time_s: f64,
    pub(super) tasks_wasted: u64,
    pub(super) first_loss: Option<f64>,
    pub(super) last_loss: Option<f64>,
    pub(super) test_loss: Option<f64>,
    pub(super) test_accuracy: Option<f64>,
    pub(super) saved: Option<u64>,
    pub(super) price: Option<f64>,
    pub(super) energy_wh: Option<f64>,
}

/// Points of iteration, runtime, worker time, loss and more.
#[derive(Debug, Deserialize)]
pub(super) struct Steps {
    pub(super) points: Vec<Vec<Option<f64>>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Cost {
    pub(super) label: String,
    pub(super) iteration_s: f64,
    pub(super) worker_time_s: f64,
    pub(super) wasted: f64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Allocation {
    pub(super) iteration: u64,
    pub(super) rule: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Log {
    pub(super) lines: Vec<(f64, String, String)>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Worker {
    number: u32,
    name: String,
    device: String,
    pub(super) state: String,
    tasks: u64,
    probe: bool,
    mean_s: Option<f64>,
    low_s: Option<f64>,
    high_s: Option<f64>,
    bound_s: Option<f64>,
    busy_share: f64,
    overhead_share: f64,
    failures: u64,
    losses: u64,
}

impl Shown {
    pub(super) fn read(text: &[u8]) -> Result<Self, Failure> {
        serde_json::from_slice(text).map_err(|error| {
            Failure::data(format!(
                "the state is not what this version of ata expects ({error}): is the coordinator another one?"
            ))
        })
    }

    /// `run R: training, iteration 12 of 200, policy P, 4.9 s`
    pub(super) fn headline(&self) -> String {
        let Self { run, phase, detail, totals, time_s, .. } = self;
        let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
        format!(
            "run {}: {phase}{detail}, iteration {} of {}, policy {}, {}",
            run.run_id,
            totals.iterations,
            run.iterations,
            run.policy,
            seconds(*time_s)
        )
    }

    /// What there is to know in all, by name.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let Totals { iterations, runtime_s, total_worker_time_s, iteration_time_s, tasks_wasted, .. } = self.totals;
        let each = 1.0 / iterations.max(1) as f64;
        let mut facts = vec![
            ("runtime", format!("{}, {} per iteration", seconds(runtime_s), seconds(iteration_time_s * each))),
            (
                "worker time",
                format!("{}, {} per iteration", seconds(total_worker_time_s), seconds(total_worker_time_s * each)),
            ),
            ("wasted tasks", tasks_wasted.to_string()),
        ];
        if let (Some(first), Some(last)) = (self.totals.first_loss, self.totals.last_loss) {
            facts.push(("training loss", format!("{first:.3} in the first iteration, {last:.3} in the last")));
        }
        if let Some(loss) = self.totals.test_loss {
            let accuracy = self.totals.test_accuracy.map(|share| format!(", accuracy {:.1} %", share * 100.0));
            facts.push(("test", format!("loss {loss:.3}{}", accuracy.unwrap_or_default())));
        }
        facts.extend(self.totals.saved.map(|saved| ("saved", format!("iteration {saved}"))));
        facts.extend(self.totals.price.map(|price| ("price", format!("{price:.2}"))));
        facts.extend(self.totals.energy_wh.map(|energy_wh| ("energy", format!("{energy_wh:.1} Wh"))));
        facts
    }
}

impl Worker {
    pub(super) const COLUMNS: [&str; 9] =
        ["worker", "device", "state", "tasks", "mean time (95 %)", "bound", "busy", "overhead", "failed, lost"];

    pub(super) fn cells(&self) -> [String; 9] {
        let time = |value: Option<f64>| value.map_or("-".into(), seconds);
        let mean = match (self.mean_s, self.low_s, self.high_s) {
            (Some(mean_s), Some(low_s), Some(high_s)) => {
                format!("{} ±{:.0} %", seconds(mean_s), 50.0 * (high_s - low_s) / mean_s)
            }
            (mean_s, ..) => time(mean_s),
        };
        [
            format!("{} {}", self.number, self.name),
            self.device.clone(),
            self.state.clone(),
            format!("{}{}", self.tasks, if self.probe { " + probe" } else { "" }),
            mean,
            time(self.bound_s),
            format!("{:.0} %", self.busy_share * 100.0),
            format!("{:.0} %", self.overhead_share * 100.0),
            format!("{}, {}", self.failures, self.losses),
        ]
    }
}
