//! Tests of `ata doctor` on the command line.

use std::net::TcpListener;

use crate::support::{Process, Sandbox, TINY};
use ata_fault_proxy::{Condition, FaultProxy};
use serde_json::Value;

/// The flags for the smallest check of a gradient.
const SMALL: [&str; 6] = ["--json", "--device", "cpu", "--model", "cnn:widths=4/4/8/16", "--task-batch=2"];

/// Runs `ata doctor`, and returns the exit code and the printed JSON.
fn doctor(sandbox: &Sandbox, args: &[&str]) -> (Option<i32>, Value) {
    let output = sandbox.run(&[&["doctor"], &SMALL[..], args].concat());
    let printed = serde_json::from_slice(&output.stdout);
    (output.status.code(), printed.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr))))
}

/// Returns the findings of a check: the status, the description and the fix of each.
fn of<'a>(printed: &'a Value, check: &str) -> Vec<(&'a str, &'a str, &'a str)> {
    let text = |finding: &'a Value, field: &str| finding[field].as_str().unwrap_or_default();
    let findings = printed["findings"].as_array().unwrap().iter().filter(|finding| finding["check"] == check);
    findings.map(|finding| (text(finding, "status"), text(finding, "found"), text(finding, "fix"))).collect()
}

fn problems(printed: &Value) -> Vec<&Value> {
    printed["findings"].as_array().unwrap().iter().filter(|finding| finding["status"] == "problem").collect()
}

#[test]
fn a_machine_as_it_should_be_has_no_problems() {
    let sandbox = Sandbox::new();
    let (code, printed) = doctor(&sandbox, &["--listen", "127.0.0.1:0", "--dashboard", "off"]);
    assert_eq!((code, problems(&printed).len()), (Some(0), 0), "{printed:#}");
    assert_eq!(printed["devices"][0]["device"], "cpu");
    let gradient = &printed["gradient"];
    assert_eq!((&gradient["device"], gradient["relative_l2_difference"].as_f64()), (&"cpu".into(), Some(0.0)));
    for check in ["devices", "gradient", "memory", "open files", "disk", "cache", "ports", "certificates"] {
        assert!(!of(&printed, check).is_empty(), "{check}: {printed:#}");
    }
    assert!(of(&printed, "reachability").is_empty(), "there is no coordinator to reach");
    assert!(!sandbox.path("runs").exists() && !sandbox.path("xdg").exists(), "it leaves nothing");

    let text = sandbox.text(&["doctor", "--device", "cpu", "--listen", "127.0.0.1:0", "--dashboard", "off"]);
    assert!(text.contains("--device cpu") && text.contains("\nok       ports        "), "{text}");
    assert!(text.lines().last().unwrap().starts_with("no problems found"), "{text}");
}

#[test]
fn what_stops_a_coordinator_is_a_problem() {
    let sandbox = Sandbox::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    std::fs::write(sandbox.path("file"), "").unwrap();
    let args = ["--listen", &address, "--dashboard", &address, "--out", "file/run", "--keep", "1000000"];
    let (code, printed) = doctor(&sandbox, &[&args[..], &["--tls-cert", "file", "--tls-key", "file"]].concat());
    assert_eq!(code, Some(1));
    let [(a, _, fix), (b, ..)] = of(&printed, "ports")[..] else { panic!("{printed:#}") };
    assert_eq!((a, b, fix.contains("--listen")), ("problem", "problem", true));
    let [("problem", found, fix)] = of(&printed, "disk")[..] else { panic!("{printed:#}") };
    assert!(found.contains("file/run") && fix.contains("--out"), "{found}; {fix}");
    let certificate = of(&printed, "certificates")[1];
    assert!(certificate.0 == "problem" && certificate.2.contains("a certificate in PEM"), "{certificate:?}");

    // A settings file is used as for a run.
    let settings = "model = \"resnet20:width=512\"\nkeep = 1000000\nworkers = 10000\nlisten = \"127.0.0.1:0\"\n";
    std::fs::write(sandbox.path("run.toml"), settings).unwrap();
    let output = sandbox.run(&["doctor", "--config", "run.toml", "--model", "cnn", "--device", "cpu", "--json"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(of(&printed, "open files")[0].1.contains("10000 workers"), "{printed:#}");
    assert!(of(&printed, "disk")[0].1.contains("1000000 checkpoints"), "{printed:#}");
}

#[test]
fn wrong_flags_are_told() {
    let sandbox = Sandbox::new();
    for (args, said) in [
        (&["--task-batch", "0"][..], "task_batch = 0"),
        (&["--task-batch", "5000"], "1 to 4096 samples"),
        (&["--device", "gpu"], "unknown device"),
        (&["--model", "none"], "unknown model"),
        (&["--listen", "7070"], "ADDRESS:PORT"),
        (&["--dashboard", "7071"], "or off"),
        (&["--join", "ata1-x"], "whole, as `ata token show` prints it"),
        (&["--tls-cert", "a.pem"], "--tls-key"),
    ] {
        sandbox.fails(&[&["doctor"], args].concat(), 64, said);
    }
}

#[cfg(not(feature = "gpu"))]
#[test]
fn a_device_that_is_not_there_is_a_problem() {
    let output = Sandbox::new().run(&["doctor", "--listen", "127.0.0.1:0", "--device", "wgpu", "--json"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &printed["gradient"]), (Some(1), &Value::Null));
    let ("problem", found, fix) = of(&printed, "devices")[0] else { panic!("{printed:#}") };
    assert!(found.contains("no wgpu device") && fix.contains("--features gpu"), "{found}; {fix}");
}

/// Starts a coordinator on an open address, and returns the token for it.
fn open_coordinator(sandbox: &Sandbox) -> (Process, String) {
    let head = ["coordinator", "--listen", "0.0.0.0:0", "--advertise", "127.0.0.1", "--json", "--iterations", "5"];
    let mut coordinator = sandbox.start(&[&head[..], &TINY].concat());
    coordinator.port();
    (coordinator, sandbox.text(&["token", "show"]).trim().to_owned())
}

#[test]
fn the_way_to_a_coordinator_is_measured() {
    let sandbox = Sandbox::new();
    let (_coordinator, token) = open_coordinator(&sandbox);
    std::fs::write(sandbox.path("join.txt"), &token).unwrap();
    // The model is taken from the run.
    let output = sandbox.run(&["doctor", "--join-file", "join.txt", "--device", "cpu", "--json"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), problems(&printed).len()), (Some(0), 0), "{printed:#}");
    assert_eq!(printed["gradient"]["task_batch"], 2);
    for (check, found) in [
        ("reachability", "accepts a connection"),
        ("trust", "the secret lets this machine in"),
        ("version", "at both ends"),
        ("latency", "a round trip takes"),
        ("bandwidth", "an assignment moves"),
        ("memory", "a worker"),
    ] {
        let findings = of(&printed, check);
        assert!(findings.len() == 1 && findings[0].1.contains(found), "{check}: {printed:#}");
    }
    assert!(of(&printed, "ports").is_empty(), "a worker listens nowhere");
    assert!(!printed.to_string().contains(&token[token.len() - 26..]), "a secret is printed");

    let address = token.strip_prefix("ata1-").unwrap().rsplitn(3, '-').nth(2).unwrap();
    let wrong = format!("{}{}", &token[..token.len() - 26], "a".repeat(26));
    for (flags, said) in
        [(["--coordinator", &format!("http://{address}")], "speaks TLS only"), (["--join", &wrong], "not let in")]
    {
        let (code, printed) = doctor(&sandbox, &flags);
        assert!(code == Some(1) && of(&printed, "trust")[0].1.contains(said), "{printed:#}");
    }
}

/// A way on which small packets pass and large ones do not, as through a tunnel.
#[test]
fn a_way_that_loses_large_packets_is_named() {
    let sandbox = Sandbox::new();
    let (mut coordinator, address) = sandbox.coordinator(&["--insecure", "--lease-timeout-s", "1", "--json"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let tunnel = runtime.block_on(FaultProxy::to(address.strip_prefix("http://").unwrap().parse().unwrap()));
    tunnel.set(Condition { lost_from: Some(1 << 12), ..Condition::default() });
    let address = format!("http://{}", tunnel.address);
    let (code, printed) = doctor(&sandbox, &["--coordinator", &address]);
    assert_eq!((code, of(&printed, "latency")[0].0), (Some(1), "ok"), "{printed:#}");
    let findings = of(&printed, "bandwidth");
    let lower = "lower the MTU at both ends: ip link set dev DEVICE mtu 1280";
    assert!(findings[0].0 == "problem" && findings[0].2.contains(lower), "{findings:?}");
    let mut worker = sandbox.worker(&address, &[]);
    worker.wait_for(lower);
    coordinator.wait_for("if large packets are lost on the way, `ata doctor` there says so");
}
