//! Measures what policies cost on many laws and cases, in half a minute. Run it after a change of a policy or its constants.
//!
//! ```text
//! cargo run --release -p ata-experiments --example policies -- GROUPS POLICIES SEEDS [FIRST_SEED]
//! cargo run --release -p ata-experiments --example policies -- laws1000,held ata-auto,ema 3
//! ```
//!
//! Groups: laws1000, laws100, hard, held, surprises, margin. For each case, it prints the ratios of each policy's runtime and worker time
//! to those of RAS on the true means, and then their geometric means. All cases have the same weight, although groups differ in size.

use ata_experiments::suite::{Suite, SuiteCase};
use ata_experiments::{BUILTIN_EXPERIMENTS, Experiment, run};
use ata_policies::build_policy;
use rayon::iter::{IntoParallelIterator, IntoParallelRefIterator, ParallelIterator};

const ORACLE: &str = "fta:means=current";

const GROUPS: [&str; 6] = ["laws1000", "laws100", "hard", "held", "surprises", "margin"];

/// Held-out laws, on which no constant was tuned, each with a change during the run.
const HELD: [(&str, &str); 7] = [
    ("lognormal(0, ln(40*i), 0.3); lognormal(0, ln(25*i), 1.5); lognormal(20*i, ln(20*i), 0.8)", ""),
    ("gamma(0, 0.3, 190*i)", ""),
    ("uniform(5*i, 110*i)", ""),
    ("weibull(10*i, 0.8, 40*i)", ""),
    (
        "gamma(5*i, 4, 12*i)",
        "[[change]]\niteration=20\nworkers='1..5'\nfactor=1.01\nevery=5\nuntil=900\n[[change]]\niteration=20\nworkers='6..n'\nfactor=0.995\nevery=5\nuntil=900",
    ),
    ("gamma(5*i, 4, 12*i)", "[[change]]\niteration=100\nworkers='1..4'\nfactor=3.0\nevery=200\nfor=60"),
    (
        "gamma(0, 3, 20*i)",
        "[[change]]\niteration=60\nswap=[1,15]\nevery=120\n[[change]]\niteration=120\nswap=[2,12]\nevery=120",
    ),
];

/// Runtime and worker time, absolute or relative to the oracle's.
#[derive(Clone, Copy)]
struct Costs {
    runtime: f64,
    worker_time: f64,
}

struct Case {
    group: &'static str,
    /// The name of the suite's case.
    name: String,
    experiment: Experiment,
}

fn case(group: &'static str, law: &str, (workers, budget, iterations): (u32, u64, u64), changes: &str) -> Case {
    let text = format!("laws=[\"{law}\"]\nworkers=[{workers}]\nbudget={budget}\niterations={iterations}\n{changes}");
    let experiment = Experiment::parse(&text, group).unwrap_or_else(|error| panic!("{text}: {error}"));
    Case { group, name: String::new(), experiment }
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let suite = Suite::open("comparison", None).expect("a suite").unwrap_or_else(|error| panic!("{error}"));
    for SuiteCase { name, experiment, .. } in suite.cases {
        let group = match experiment.iterations {
            _ if BUILTIN_EXPERIMENTS.iter().any(|(known, _)| *known == name) => "hard",
            100 => "laws100",
            _ => "laws1000",
        };
        for law in &experiment.laws {
            for n in &experiment.workers {
                let experiment = Experiment { laws: vec![law.clone()], workers: vec![*n], ..experiment.clone() };
                all.push(Case { group, name: name.clone(), experiment });
            }
        }
    }
    for (law, changes) in HELD {
        for n in [17, 51] {
            all.extend([100, 1000].map(|iterations| case("held", law, (n, 23, iterations), changes)));
        }
    }
    for (n, budget) in [(8, 8), (8, 64), (16, 64)] {
        let hiccup = "[[change]]\niteration=300\nworkers=3\nfactor=10\nfor=1";
        all.push(case("surprises", "gamma(0, 100, 0.033)", (n, budget, 900), hiccup));
    }
    for (law, n) in [("shifted_exp(29*i, 29*i)", 51), ("gamma(0, 100, 0.58*i)", 17)] {
        let stall = format!(
            "[[change]]\niteration=200\nworkers='1..n'\nfactor=1000\nfor=1\n[[change]]\niteration=400\nswap=[1,{n}]"
        );
        all.push(case("surprises", law, (n, 23, 1400), &stall));
    }
    for mean in ["0.20", "0.24", "0.25", "0.26", "0.28", "0.32"] {
        let law = [["gamma(0, 10, 0.1)"; 7].join("; "), format!("gamma(0, 10, {mean})")].join("; ");
        all.push(case("margin", &law, (8, 15, 3000), ""));
    }
    all
}

/// Returns the sums over seeds. Stalls of all workers, which cost every policy the same, are included.
fn costs(case: &Case, policy: &str, first_seed: u64, seeds: u64) -> Costs {
    let experiment =
        Experiment { policies: vec![policy.to_owned()], seed: first_seed, seeds, ..case.experiment.clone() };
    let results = run(&experiment, build_policy, None, &|_| ()).unwrap_or_else(|error| panic!("{policy}: {error}"));
    Costs {
        runtime: results.iter().map(|result| result.mean_iteration_time).sum(),
        worker_time: results.iter().map(|result| result.mean_total_worker_time).sum(),
    }
}

fn geometric_mean(ratios: &[Costs], of: impl Fn(&Costs) -> f64) -> f64 {
    (ratios.iter().map(|ratio| of(ratio).ln()).sum::<f64>() / ratios.len() as f64).exp()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [groups, policies, seeds, rest @ ..] = arguments.as_slice() else {
        eprintln!("policies GROUPS POLICIES SEEDS [FIRST_SEED], with groups among {}", GROUPS.join(","));
        std::process::exit(64);
    };
    let seeds: u64 = seeds.parse().expect("SEEDS is a number");
    let first_seed: u64 = rest.first().map_or(1, |seed| seed.parse().expect("FIRST_SEED is a number"));
    let groups: Vec<&str> = groups.split(',').collect();
    let policies: Vec<&str> = policies.split(',').collect();
    let cases: Vec<Case> = cases().into_iter().filter(|case| groups.contains(&case.group)).collect();
    let ratios: Vec<Vec<Costs>> = cases
        .par_iter()
        .map(|case| {
            let oracle = costs(case, ORACLE, first_seed, seeds);
            let ratio = |policy: &&str| {
                let Costs { runtime, worker_time } = costs(case, policy, first_seed, seeds);
                Costs { runtime: runtime / oracle.runtime, worker_time: worker_time / oracle.worker_time }
            };
            policies.clone().into_par_iter().map(|policy| ratio(&policy)).collect()
        })
        .collect();
    for (i, policy) in policies.iter().enumerate() {
        for (Case { group, name, experiment }, ratios) in cases.iter().zip(&ratios) {
            let Experiment { laws, workers, iterations, .. } = experiment;
            let Costs { runtime, worker_time } = ratios[i];
            println!(
                "{policy}\t{group}\t{name} {} n={} K={iterations}\t{runtime:.3}\t{worker_time:.3}",
                laws[0], workers[0]
            );
        }
        for group in groups.iter().copied().chain(["all"]) {
            let of_group =
                |(case, ratios): (&Case, &Vec<Costs>)| (group == "all" || case.group == group).then(|| ratios[i]);
            let some: Vec<Costs> = cases.iter().zip(&ratios).filter_map(of_group).collect();
            let [runtime, worker_time] =
                [geometric_mean(&some, |costs| costs.runtime), geometric_mean(&some, |costs| costs.worker_time)];
            println!("{policy}\t{group}\tgeometric mean\t{runtime:.3}\t{worker_time:.3}");
        }
    }
}
