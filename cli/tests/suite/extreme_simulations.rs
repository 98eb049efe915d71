//! Tests that a time law or an experiment with any numbers is either refused or simulated in bounded memory.
#![cfg(target_os = "linux")]

use crate::support::Sandbox;
use crate::support::extremes::{changed, ends_well, places};
use serde_json::{Value, json};

/// Whether a simulation is run; it must otherwise be refused.
fn is_simulated(sandbox: &Sandbox, args: &[&str]) -> bool {
    let (status, said) = ends_well(sandbox, args);
    // Without an exit code, the simulation was stopped because it would have taken long; 70 means that the run was aborted, for example
    // because workers hang.
    assert!(matches!(status.code(), Some(0 | 64 | 70) | None), "{args:?} ended with {status}: {said}");
    status.code() != Some(64)
}

#[test]
fn numbers_in_time_laws() {
    let sandbox = Sandbox::new();
    let laws = "const(X) exp(X) shifted_exp(X,X) uniform(0,X) uniform(X,2*X) half_normal(X,X) lognormal(0,X,1) lognormal(0,-X,1) \
                lognormal(X,0,X) gamma(X,X,X) weibull(0,X,1) affine(X,X) affine(1,1,X) const(X);const(1/X)";
    let (mut simulated, mut refused) = (0, 0);
    for law in laws.split(' ') {
        for number in ["0", "1e-308", "1e20", "1e99", "1e100", "1e308", "9007199254740992"] {
            let law = law.replace('X', number);
            let args = ["simulate", "--workers=4", "--budget=6", "--iterations=20", "--policy=uta,gta,ata-auto,asgd"];
            let times = [format!("--task-time={law}"), format!("--overhead={law}")];
            for times in [&times[..1], &times[..]] {
                let times: Vec<&str> = times.iter().map(String::as_str).collect();
                let is_simulated = is_simulated(&sandbox, &[&args[..], &times].concat());
                *(if is_simulated { &mut simulated } else { &mut refused }) += 1;
            }
        }
    }
    println!("{simulated} simulated, {refused} refused");
    assert!(simulated > 50 && refused > 50);
}

#[test]
fn numbers_in_experiments() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("experiment.toml");
    let learning = [
        json!({"problem": "quadratic", "dimension": 9, "sigma": 0.1, "step": 0.5}),
        json!({"problem": "linear-regression", "samples": 30, "dimension": 5, "batch": 4, "step": 0.001}),
        json!({"problem": "cnn", "data": "synthetic", "model": "cnn:widths=1/1/1/1", "task_batch": 1, "lr": 0.001}),
    ];
    for learning in learning {
        let experiment = json!({
            "policies": ["uta", "ata-auto"], "laws": ["exp(i)"], "workers": [3], "budget": 4, "iterations": 5, "seed": 1,
            "seeds": 2, "lease_timeout": 50.0, "overcommit": [0.5], "verify": 0.1, "warm_start": ["exp(i)"], "warm_tasks": 10,
            "limits": {"target_loss": 1e-9, "runtime": 1e9, "total_worker_time": 1e9, "employments": 1000},
            "learning": learning,
            "change": [
                {"iteration": 2, "workers": "1..n", "factor": 2.0, "every": 2, "until": 4, "for": 1},
                {"time": 1.5, "swap": [1, 2]}
            ]
        });
        let written = |experiment: &Value| toml::to_string(experiment).map(|text| std::fs::write(&path, text).unwrap());
        written(&experiment).unwrap();
        let args = ["simulate", "--experiment", path.to_str().unwrap()];
        assert!(is_simulated(&sandbox, &args));
        for changed in changed(&experiment, &places(&experiment)) {
            // TOML has no integers above 2^63.
            if written(&changed).is_ok() {
                is_simulated(&sandbox, &args);
            }
        }
    }
}
