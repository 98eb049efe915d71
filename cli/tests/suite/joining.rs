//! Tests of joining with the command that the coordinator prints.
#![cfg(unix)]

use crate::support::{Process, Sandbox, TINY};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// Starts a coordinator on an open address, which workers reach on this machine.
fn open_coordinator(sandbox: &Sandbox, port: &str, args: &[&str]) -> (Process, String) {
    let listen = format!("0.0.0.0:{port}");
    let head = ["coordinator", "--listen", &listen, "--advertise", "127.0.0.1", "--json", "--iterations", "5"];
    let args = &[&["--print-join"], args].concat();
    let mut coordinator = sandbox.start(&[&head[..], args, &TINY].concat());
    let line = coordinator.wait_for("start workers with: ata worker ");
    let join = line.split("ata worker ").nth(1).unwrap().trim().to_owned();
    (coordinator, join)
}

fn worker(sandbox: &Sandbox, join: &str) -> (Option<i32>, String) {
    let args = ["worker", "--device", "cpu", "--retry-for", "20"];
    let output = sandbox.run(&args.into_iter().chain(join.split(' ')).collect::<Vec<_>>());
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn token(sandbox: &Sandbox, args: &[&str]) -> String {
    sandbox.text(&[&["token"], args].concat()).trim().to_owned()
}

#[test]
fn the_printed_line_joins_and_nothing_else_does() {
    let sandbox = Sandbox::new();
    let (mut coordinator, join) = open_coordinator(&sandbox, "0", &[]);
    let current = join.strip_prefix("--join ").unwrap();
    assert_eq!(token(&sandbox, &["show"]), current);

    sandbox.fails(&["status", current], 64, "this is the token for them; expected the status token");

    // These tokens have another key, as of a man in the middle, another secret, or no secret.
    let elsewhere = token(&sandbox, &["show", "--credentials", "other", "--advertise", "127.0.0.1:1"]);
    let [address, other_key, other_secret] = parts(&elsewhere);
    assert_eq!(address, "127.0.0.1:1");
    let [address, key, secret] = parts(current);
    for (join, said) in [
        (format!("--join ata1-{address}-{other_key}-{secret}"), "holds another key"),
        (format!("--join ata1-{address}-{key}-{other_secret}"), "join token is not valid"),
        (format!("--coordinator http://{address}"), "speaks TLS only"),
    ] {
        let (code, log) = worker(&sandbox, &join);
        assert_eq!((code, log.contains(said)), (Some(77), true), "{join}: {log}");
    }
    coordinator.wait_for("a connection ");
    let old = join.clone();
    assert_ne!(token(&sandbox, &["rotate"]), current);
    coordinator.wait_for("read again");
    let (code, log) = worker(&sandbox, &old);
    assert_eq!((code, log.contains("not valid (any more)")), (Some(77), true), "{log}");

    let (code, log) = worker(&sandbox, "--join-file xdg/ata/credentials/join-token");
    assert_eq!(code, Some(0), "{log}");
    let (_, log) = coordinator.ends_with(0);
    let printed: Vec<&str> = log.lines().filter(|line| line.contains(&secret)).collect();
    assert!(printed.len() == 1 && printed[0].starts_with("start workers with: "), "secrets are not logged: {log}");
}

/// A log is read by more people than a terminal.
#[test]
fn the_secret_is_not_in_a_log() {
    let sandbox = Sandbox::new();
    let head = ["coordinator", "--listen", "0.0.0.0:0", "--advertise", "127.0.0.1", "--dashboard", "0.0.0.0:0"];
    let mut coordinator = sandbox.start(&[&head[..], &["--iterations", "5"], &TINY].concat());
    let line = coordinator.wait_for("start workers with: ata worker --join-file ");
    let join = line.split("ata worker ").nth(1).unwrap().trim();
    let secrets = ["worker.secret", "status.secret"];
    let secrets = secrets.map(|name| std::fs::read_to_string(sandbox.path("xdg/ata/credentials").join(name)).unwrap());
    let (code, log) = worker(&sandbox, join);
    assert_eq!(code, Some(0), "{log}");
    let (out, all) = coordinator.ends_with(0);
    for secret in secrets {
        assert!(!(out.clone() + &all + &log).contains(secret.trim()), "{all}");
    }
}

fn parts(token: &str) -> [String; 3] {
    let mut parts: Vec<String> = token.strip_prefix("ata1-").unwrap().rsplitn(3, '-').map(str::to_owned).collect();
    parts.reverse();
    parts.try_into().unwrap()
}

/// Writes certificates of an authority for the coordinator and for a worker called rig.
fn make_certificates(sandbox: &Sandbox) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let write = |name: &str, text: String| std::fs::write(sandbox.path(name), text).unwrap();
    write("ca.pem", authority.pem());
    for (name, host) in [("head", "127.0.0.1"), ("rig", "rig")] {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![host.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        write(&format!("{name}.pem"), certificate.pem());
        write(&format!("{name}.key"), key.serialize_pem());
    }
}

#[test]
fn own_certificates_join_under_their_names() {
    let sandbox = Sandbox::new();
    make_certificates(&sandbox);
    let tls = ["--tls-cert", "head.pem", "--tls-key", "head.key", "--tls-client-ca", "ca.pem"];
    let (mut coordinator, join) = open_coordinator(&sandbox, "0", &tls);
    let with = join.replace("--tls-ca CA", "--tls-ca ca.pem").replace("CERT", "rig.pem").replace("KEY", "rig.key");
    let without = with.split(" --tls-cert").next().unwrap().to_owned();
    for (join, code, said) in [
        (format!("{without} --name rig"), 77, "TLS alert CertificateRequired"),
        (format!("{with} --name other"), 77, "certificate is for [rig], and not for 'other'"),
        (format!("{with} --name rig-gpu0"), 0, "connected to https://127.0.0.1"),
    ] {
        let (ended, log) = worker(&sandbox, &join);
        assert_eq!((ended, log.contains(said)), (Some(code), true), "{join}: {log}");
    }
    coordinator.wait_for("peer sent no certificates");
    coordinator.ends_with(0);
}

#[test]
fn wrong_flags_are_told() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("not-pem"), "x").unwrap();
    for (args, said) in [
        (&["worker", "--join", "ata1-head:7070-x"][..], "whole, as `ata token show` prints it"),
        (&["worker", "--join-file", "missing", "--retry-for", "0"], "missing: "),
        (&["worker", "--join", "x", "--coordinator", "http://head:1"], "exclude each other"),
        (&["worker", "--tls-ca", "not-pem"], "expected --coordinator, too"),
        (&["worker", "--coordinator", "https://head:1"], "https:// with --tls-ca"),
        (&["worker", "--coordinator", "https://127.0.0.1:1", "--tls-cert", "not-pem"], "go together"),
        (&["coordinator", "--tls-cert", "not-pem"], "both, or neither"),
        (&["coordinator", "--tls-client-ca", "not-pem"], "tls_cert and tls_key, too"),
        (&["coordinator", "--tls-cert", "not-pem", "--tls-key", "not-pem", "--insecure"], "contradict"),
        (&["coordinator", "--listen", "127.0.0.1:0", "--tls-cert", "not-pem", "--tls-key", "not-pem"], "expected PEM"),
        (&["coordinator", "--listen", "0.0.0.0:0", "--advertise", "http://x"], "expected HOST or HOST:PORT"),
        (&["token", "rotate", "--key", "--status"], "cannot be used with"),
        (&["token", "show", "--credentials", "none"], "add --advertise HOST:PORT"),
    ] {
        sandbox.fails(args, 64, said);
    }
    assert!(!sandbox.path("none").exists(), "nothing is made for a coordinator that is not there");
}
