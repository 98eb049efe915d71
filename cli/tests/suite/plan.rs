//! Tests of `ata plan`, compared with a real run and with `ata simulate`.

use crate::support::Sandbox;
use serde_json::Value;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn it_says_what_to_start() {
    let sandbox = Sandbox::new();
    let printed = sandbox.text(&["plan", "gpu1=20ms", "gpu2=50ms", "3xcpu=300ms", "--budget", "64"]);
    for line in [
        "64 tasks per step, 5 machines, a network that takes no time (see --link)",
        "gpu1 alone                 1.28 s        1.28 s         0 %",
        "best fixed shares          840 ms        3.44 s         0 %",
        "gpu2      50.0 ms             16.0                             920 ms         28 %",
        "Start gpu1, gpu2, all 3 cpu: 840 ms per step, 1.52 times as fast as gpu1 alone, and",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    assert!(printed.lines().count() < 20, "{printed}");

    // 16 tasks take 320 ms for 3.60 an hour, and 240 ms for 4.50.
    let printed = sandbox.text(&["plan", "gpu1=20ms@3.6", "gpu2=50ms@0.9"]);
    for line in [
        "step with it and the faster ones   shorter by   1000 such steps cost",
        "gpu1      20.0 ms             12.0                             320 ms                              0.3200",
        "gpu2      50.0 ms              4.0                             240 ms         25 %                 0.3000",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }

    let machines = ["plan", "a=20ms", "b=40ms", "c=80ms", "d=160ms", "--budget", "60", "--noise-scale", "30"];
    let printed = sandbox.text(&machines);
    let says = "achieves 0.65 times what the best one alone does: 34 % of the sum of speeds, 1.88. With --budget 15, it is 1.29 times.";
    assert!(printed.contains(says), "{printed}");
}

#[test]
fn a_slow_network_takes_the_gain() {
    let sandbox = Sandbox::new();
    let machines = ["a=20ms", "b=40ms", "c=80ms", "d=160ms", "--budget", "23"];
    let links = ["--link", "200Mbit", "--model-bytes", "8.9MB", "--wire", "f32-exact"];
    let plan = sandbox.summary(&[&["plan"], &machines[..], &links].concat());
    let laws =
        ["--task-time", "const(20); const(40); const(80); const(160)", "--workers", "4", "--policy", "ata-auto,uta"];
    let runs = sandbox.summary(&[&["simulate", "--budget", "23"], &laws[..], &links].concat());
    for (of_plan, of_run) in [(&plan["ata"], &runs[0]), (&plan["equal"], &runs[1])] {
        assert_eq!(number(&of_plan["step_s"]) * 1e3, number(&of_run["mean_iteration_time"]), "the same simulation");
    }
    assert!(number(&plan["ata"]["transfer_share"]) > 0.4, "{plan}");
    let printed = sandbox.text(&[&["plan"], &machines[..], &links].concat());
    let says = "ata does not help here with gradients: a step takes 460 ms on a alone, and 816 ms with ata on a.\n--local-steps";
    assert!(
        printed.contains(says) && printed.contains("links of 200Mbit, a model of 8.9MB, --wire f32-exact"),
        "{printed}"
    );
    // In the default format of a run on a network, the vectors are small enough for ata to help.
    assert!(sandbox.text(&[&["plan"], &machines[..], &links[..4]].concat()).contains("--wire compact"));
}

#[test]
fn it_says_what_local_steps_are_worth() {
    let sandbox = Sandbox::new();
    let plan = |more: &str| {
        let machines = "plan a=20ms b=40ms --budget 23 --head-link 1Gbit --model-bytes 8.9MB";
        sandbox.text(&machines.split(' ').chain(more.split(' ')).collect::<Vec<_>>())
    };
    let far = plan("--link 20Mbit:100Mbit --round-trip 60ms");
    for says in [
        "links of 20Mbit:100Mbit (the coordinator's 1Gbit), round trips of 60ms, a model of 8.9MB",
        "\n--local-steps auto: 74.",
        "ata does not help here with gradients:",
    ] {
        assert!(far.contains(says), "{says}: {far}");
    }
    let fixed = plan("--link 20Mbit:100Mbit --round-trip 60ms --local-steps 60");
    assert!(fixed.contains("--local-steps 60: ") && fixed.contains(" in rounds of 60 steps and "), "{fixed}");
    let near = plan("--link 1Gbit --local-steps auto");
    assert!(near.contains("\nStart a, b: ") && near.contains("More is learned from each task"), "{near}");
    assert!(!plan("--link 1Gbit").contains("--local-steps"), "they are not worth it");
}

#[test]
fn machines_are_read_from_what_doctor_measured() {
    let sandbox = Sandbox::new();
    let doctor = |name: &str, task_batch: &str| {
        let args =
            ["doctor", "--json", "--device", "cpu", "--model", "cnn:widths=4/4/8/16", "--task-batch", task_batch];
        let printed = sandbox.text(&args);
        std::fs::write(sandbox.path(name), &printed).unwrap();
        serde_json::from_str::<Value>(&printed).unwrap()
    };
    let measured = doctor("here.json", "8");
    doctor("there.json", "8");
    doctor("other.json", "4");
    let args = ["plan", "slow=10s", "--link", "1Gbit", "--budget", "8", "--from", "here.json"];
    let plan = sandbox.summary(&[&args[..], &["there.json"]].concat());
    let here = plan["machines"].as_array().unwrap().iter().find(|machine| machine["name"] == "here").unwrap();
    assert!((number(&here["task_s"]) * 1e3 - number(&measured["gradient"]["device_ms"])).abs() < 1e-9, "{here}");
    assert_eq!((&plan["task_batch"], plan["machines"].as_array().unwrap().len()), (&8.into(), 3));
    let bytes = 4.0 * number(&measured["gradient"]["parameters"]);
    assert_eq!(plan["links"]["model_bytes"], format!("{}MB", bytes / 1e6));
    let other = [&args[..], &["other.json"]].concat();
    sandbox.fails(&other, 64, "run ata doctor with the same --model and --task-batch on all machines");
}

#[test]
fn nonsense_is_refused_with_what_to_type() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("none.json"), r#"{"gradient": null}"#).unwrap();
    std::fs::write(sandbox.path("bad.json"), "{}}").unwrap();
    for (args, code, says) in [
        (&[][..], 64, "machines: none, expected at least one, as in gpu1=20ms"),
        (&["a=1ms", "--budget", "-5"], 64, "-5"),
        (&["a=1ms", "--link", "1Gbit"], 64, "add --model-bytes, as in --model-bytes 100MB"),
        (&["a=1ms", "--model-bytes", "1MB"], 64, "add --link, as in --link 1Gbit"),
        (&["a=1ms", "--head-link", "1Gbit"], 64, "--head-link: it matters only with the rate of a link: add --link"),
        (&["a=1ms", "--local-steps", "8"], 64, "--link <RATE>"),
        (&["a=1ms", "--task-overhead", "-1ms"], 64, "--task-overhead: time unit '-1ms'"),
        (&["--from", "absent.json"], 65, "absent.json"),
        (&["--from", "none.json"], 65, "no task was timed there"),
        (&["--from", "bad.json"], 65, "expected what `ata doctor --json` prints"),
        (&["--from", "none.json", "b=3ms"], 65, "no task was timed there"),
        (&["--from", "b=3ms"], 65, "machines with their times go before --from"),
    ] {
        sandbox.fails(&[&["plan"], args].concat(), code, says);
    }
}
