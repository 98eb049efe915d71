//! Tests of the commands that show runs: the dashboard, `ata status`, `ata explain` and `ata report`.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::{Sandbox, TINY, until};
use serde_json::Value;

const SHORT: [&str; 8] =
    ["up", "--workers=2", "--iterations=8", "--budget=6", "--policy=ata-empirical", "--out", "run", "--eval-every=0"];

/// Makes a run with prices and TensorBoard's files, and returns its summary.
fn finished() -> (Sandbox, Value) {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("run.toml"), "[workers.worker-1]\nprice_per_hour = 3600.0\nwatts = 100\n").unwrap();
    let summary = sandbox.summary(&[&SHORT[..], &TINY, &["--config", "run.toml", "--tensorboard"]].concat());
    (sandbox, summary)
}

#[test]
fn a_finished_run_is_read_from_its_folder() {
    let (sandbox, summary) = finished();
    let state = sandbox.summary(&["status", "run"]);
    assert_eq!((&state["phase"], &state["totals"]["iterations"]), (&"finished".into(), &8.into()));
    assert_eq!(state["totals"]["tasks_applied"], summary["tasks_applied"]);
    assert_eq!(state["steps"]["points"].as_array().unwrap().len(), 8);
    // The price is one unit of money per second of the worker's presence.
    let price = state["totals"]["price"].as_f64().unwrap();
    assert!(price >= summary["runtime_s"].as_f64().unwrap() && state["totals"]["energy_wh"].as_f64().unwrap() > 0.0);
    let status = sandbox.text(&["status", "run"]);
    assert!(status.contains("iteration 8 of 8") && status.contains("2 worker-2"), "{status}");
    assert!(
        status.contains("release         worker 1: a step costs 100 % less"),
        "the other one costs nothing: {status}"
    );

    let last = sandbox.summary(&["explain", "run"]);
    assert_eq!((&last["iteration"], last["workers"].as_array().unwrap().len()), (&8.into(), 2));
    let second = sandbox.summary(&["explain", "run", "--iteration", "2", "--worker", "2"]);
    assert_eq!((&second["iteration"], &second["workers"][0]["number"]), (&2.into(), &2.into()));
    assert!(second["workers"][0]["observed"].as_u64() < last["workers"][1]["observed"].as_u64());
    for (args, code) in [
        (&["explain", "run", "--iteration", "9"][..], 65),
        (&["explain", "run", "--worker", "3"], 64),
        (&["status", "nowhere"], 64),
        (&["status", "http://127.0.0.1:1"], 69),
        (&["status", "ftp://head"], 64),
        (&["status", "run", "--watch"], 64),
        (&["report", "nowhere"], 64),
        (&["report", "run", "--serve", "0.0.0.0:0"], 64),
        (&["health", "http://127.0.0.1:1"], 69),
    ] {
        assert_eq!(sandbox.run(args).status.code(), Some(code), "{args:?}");
    }

    let report = std::fs::read_to_string(sandbox.path("run/report.html")).unwrap();
    assert!(report.contains(summary["run_id"].as_str().unwrap()) && report.contains("\"live\":false"));
    assert_eq!(sandbox.text(&["report", "run", "run", "--out", "both.html"]).trim(), "both.html");
    let both = std::fs::read_to_string(sandbox.path("both.html")).unwrap();
    assert!(both.contains("\"index\":0") && both.contains("\"index\":1"));
    let boards: Vec<_> = std::fs::read_dir(sandbox.path("run/tensorboard")).unwrap().collect();
    assert!(boards.len() == 1 && boards[0].as_ref().unwrap().metadata().unwrap().len() > 500);
}

#[test]
fn a_run_is_watched_while_it_goes_on_and_after() {
    let sandbox = Sandbox::new();
    let args = ["--dashboard", "127.0.0.1:0", "--stay", "--iterations", "8", "--task-time", "const(5)"];
    let mut process = sandbox.start(&[&SHORT[..2], &SHORT[3..], &TINY, &args].concat());
    let line = process.wait_for("dashboard: ");
    let url = line.trim().split("dashboard: ").nth(1).unwrap().to_owned();
    assert_eq!(sandbox.text(&["health", &url]), "ok\n");
    process.wait_for("the dashboard stays");
    assert_eq!(sandbox.summary(&["status", &url])["phase"], "finished");
    assert_eq!(sandbox.summary(&["explain", &url, "--iteration", "3"])["iteration"], 3);
    let metrics = get(&url, "/metrics");
    assert!(metrics.contains("\nata_iterations_total 8\n") && metrics.contains("ata_test_accuracy"), "{metrics}");
    process.signal("TERM");
    assert_eq!(process.end().0, Some(0));
}

/// Returns the response of a server to a path.
fn get(url: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// On a non-loopback address, the dashboard requires the status token, which the coordinator writes to its folder.
#[test]
fn elsewhere_the_dashboard_takes_the_status_token() {
    let sandbox = Sandbox::new();
    let args = ["--credentials", "credentials", "--advertise", "127.0.0.1", "--dashboard", "0.0.0.0:0"];
    let (mut head, _) = sandbox.coordinator(&args);
    let line = head.wait_for("dashboard: ");
    let url = line.split("dashboard: ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    assert_eq!(sandbox.summary(&["status", "--token-file", "credentials/status-token"])["phase"], "waiting");
    let here = url.replace("127.0.0.1", "localhost");
    let tunnelled = ["status", &here, "--token-file", "credentials/status-token"];
    assert_eq!(sandbox.summary(&tunnelled)["phase"], "waiting");
    assert_eq!(sandbox.run(&["status", &url]).status.code(), Some(77));
    assert_eq!(sandbox.text(&["health", &url, "--ready"]), "ready\n");
    head.signal("TERM");
    assert_eq!(head.end().0, Some(75), "nothing was trained");
}

#[test]
fn a_page_is_served_from_a_folder() {
    let (sandbox, _) = finished();
    let mut server = sandbox.start(&["report", "run", "--serve", "127.0.0.1:0"]);
    let line = server.wait_for("dashboard: ");
    let url = line.trim().split("dashboard: ").nth(1).unwrap();
    assert!(get(url, "/").contains("\"live\":true"));
    server.signal("INT");
    assert_eq!(server.end().0, Some(0));
}

/// A journal of one iteration, with links and clamped values.
const JOURNAL: &str = r#"{"event":"run","version":3,"run_id":"r","policy":"uta","budget":1,"iterations":2,"task_batch":1,"seed":1,"model":"cnn"}
{"event":"join","time_s":0.1,"worker":1,"name":"rig","device":"cpu"}
{"event":"allocation","iteration":1,"time_s":10,"workers":[1],"allocation":[1],"scores_s":[],"rule":"uniform"}
{"event":"task","iteration":1,"task":0,"worker":1,"lease":1,"time_s":11,"busy_s":0.5,"overhead_s":0.01,"outcome":"applied"}
{"event":"step","iteration":1,"time_s":19,"loss":4.0,"runtime_s":9.0,"total_worker_time_s":9.0,"tasks":1,"wasted":0,"employments":1,"results":1,"learning_rate":0.1,"saturated":24,"vanished":40}
{"event":"links","time_s":90,"up_s":0.178,"down_s":0.089,"own_s":0.2}
"#;

#[test]
fn links_and_clamped_values_are_printed() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("run")).unwrap();
    std::fs::write(sandbox.path("run/events.jsonl"), JOURNAL).unwrap();
    let links = "a vector takes 178 ms up and 89.0 ms down on the coordinator's link, 200 ms on a worker's own link\n";
    for (command, lines) in
        [("explain", vec![links]), ("status", vec![links, "cut-off values  24\n", "rounded to 0    40\n"])]
    {
        let printed = sandbox.text(&[command, "run"]);
        assert!(lines.iter().all(|line| printed.contains(line)), "{printed}");
    }
}

/// A run carries out the operator's requests while it goes on; one that was stopped does so when it is resumed.
#[test]
fn the_operator_forgives_workers() {
    let sandbox = Sandbox::new();
    let endless = ["up", "--workers=2", "--iterations=100000", "--policy=uta", "--checkpoint-every=1s", "--out", "run"];
    let run = [&endless[..], &TINY].concat();
    let process = sandbox.start(&run);
    until("a step", || sandbox.has_event("step"));
    for (args, says) in [
        (&["workers", "forgive", "rig-9", "run"][..], "expected one of worker-1, worker-2"),
        (&["workers", "forgive", "..", "run"], "has no worker '..'"),
        (&["workers", "forgive", "worker-1"], "no run in runs/"),
        (&["workers", "forgive", "worker-1", "nowhere"], "nowhere"),
    ] {
        sandbox.fails(args, 64, says);
    }
    let forgiven = sandbox.summary(&["workers", "forgive", "worker-1", "run"]);
    assert_eq!((&forgiven["name"], &forgiven["is_pending"]), (&"worker-1".into(), &false.into()), "{forgiven}");
    until("the event", || sandbox.has_event("forgive"));
    process.signal("TERM");
    assert_eq!(process.end().0, Some(75));

    assert_eq!(sandbox.summary(&["workers", "forgive", "worker-2", "run"])["is_pending"], true);
    let process = sandbox.start(&["up", "--workers=2", "--out", "run", "--resume", "auto"]);
    until("the event", || sandbox.journal().contains(r#""name":"worker-2"}"#));
    until("a checkpoint with it", || !sandbox.path("run/forgiven-worker-2").exists());
    process.signal("TERM");
    assert_eq!(process.end().0, Some(75));
}

#[test]
fn excluded_workers_are_listed_with_their_machines() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("run")).unwrap();
    let (begin, _) = JOURNAL.split_once('\n').unwrap();
    let events = r#"
{"event":"join","time_s":0.1,"worker":1,"name":"rig","device":"cpu","machine":"10.0.0.7"}
{"event":"expulsion","time_s":0.2,"worker":1,"why":"it failed \u001b 8 times"}
{"event":"join","time_s":0.3,"worker":2,"name":"rag","device":"cpu","machine":"certificate of rag"}
{"event":"refusal","time_s":0.4,"worker":2,"kind":"wrong measurement","reason":"it has 9 samples","count":1}
{"event":"rest","time_s":0.5,"worker":2,"rest_s":60.0,"strikes":3}
"#;
    std::fs::write(sandbox.path("run/events.jsonl"), [begin, events].concat()).unwrap();
    let status = sandbox.text(&["status", "run"]);
    for text in
        ["10.0.0.7", "certificate of rag", "failures in a row: 3", "it failed \\u{1b} 8 times", "workers forgive NAME"]
    {
        assert!(status.contains(text), "{text}: {status}");
    }
    let listed = sandbox.summary(&["status", "run"])["exclusions"].clone();
    let of: Vec<&str> = listed.as_array().unwrap().iter().map(|of| of["from"].as_str().unwrap()).collect();
    assert_eq!(of, ["tasks", "run", "evaluations"]);
    let forgiven = sandbox.summary(&["workers", "forgive", "rag", "run"]);
    assert_eq!((forgiven["lifted"].as_array().unwrap().len(), &forgiven["is_pending"]), (2, &true.into()));
}
