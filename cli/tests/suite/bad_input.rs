//! Tests that bad input leads to a helpful message and the documented exit code, and that nothing is written.

use std::net::TcpListener;

use crate::support::{Sandbox, TINY};

/// Runs a command that must fail with this exit code and message.
fn fails(sandbox: &Sandbox, args: &[&str], code: i32, says: &str) {
    let said = sandbox.fails(args, code, says);
    assert_eq!(said.lines().filter(|line| line.starts_with("ata: ")).count(), 1, "{args:?}: {said}");
    assert!(!sandbox.path("runs").exists(), "{args:?} left a run behind");
}

#[test]
fn wrong_settings_of_the_training() {
    let sandbox = Sandbox::new();
    for (args, says) in [
        (
            &["up", "--optimizer", "adma"][..],
            "optimizer: unknown variant `adma`, expected one of `adam`, `adamw`, `sgd`, `own` (did you mean 'adam'?)",
        ),
        (&["up", "--momentum", "0.5"], "--momentum has no effect: only the optimizer sgd has a momentum"),
        (&["up", "--beta2", "0.9", "--optimizer", "sgd"], "--beta2 has no effect: only the optimizers adam and adamw"),
        (&["up", "--optimizer", "own"], "--optimizer own: 'cnn' has none of its own; expected adam, adamw or sgd"),
        (&["up", "--iterations", "0epochs"], "iterations = 0epochs: expected a number of at least 1, or of epochs"),
        (
            &["up", "--local-steps", "8", "--budget", "4"],
            "--budget has no effect: --local-steps gives the tasks of a round",
        ),
        (&["up", "--batch", "64", "--policy", "asgd"], "--batch has no effect: each step is on one task"),
        (
            &["up", "--batch", "auto:61", "--model", "resnet20:norm=batch"],
            "batch = auto:61 cannot be divided into tasks of 8 samples or more",
        ),
        (&["up", "--local-steps", "auto:"], "'auto:': expected a number of steps, or auto, or auto:240"),
        (&["up", "--outer-lr", "0.5"], "--outer-lr has no effect: it is for --local-steps"),
        (&["coordinator", "--lr-step-every", "5"], "--lr-step-every has no effect: it is for lr_schedule = step"),
        (&["up", "--lr-step-factor", "0.5", "--lr-schedule", "cosine"], "--lr-step-factor has no effect"),
        (&["up", "--lr-warmup", "5", "--lr-schedule", "one-cycle"], "--lr-warmup has no effect"),
        (&["up", "--init-except", "output.*"], "--init-except has no effect: it is for --init"),
        (&["up", "--param-groups", "bias"], "param_groups: 'bias': expected PATTERN"),
        (
            &["up", "--param-groups", "*.bais: weight_decay=0"],
            "param_groups: '*.bais' matches no parameter: the names begin with conv1",
        ),
    ] {
        fails(&sandbox, args, 64, says);
    }
}

#[test]
fn wrong_usage() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("bad.toml"), "budget = 16\nbugdet = 8\n").unwrap();
    for (args, says) in [
        (&[][..], "Commands:\n  up "),
        (&["data"], "Commands:\n  fetch "),
        (&["up", "--policy", "ata-outo"], "unknown policy 'ata-outo' (did you mean 'ata-auto'?)"),
        (&["simulate", "--policy", "gtaa"], "unknown policy 'gtaa' (did you mean 'gta'?)"),
        (&["up", "--model", "resnet21"], "unknown model 'resnet21' (did you mean 'resnet20'?)"),
        (&["up", "--task-time", "lognorm(1, 2, 3)"], "trace (did you mean 'lognormal'?), found 'l'"),
        (&["simulate", "--experiment", "comparision"], "experiment comparision (did you mean 'comparison'?)"),
        (&["simulate", "--show", "ata-cifar10"], "--show ata-cifar10 (did you mean 'ata-cifar100'?)"),
        (&["up", "--keep", "5", "--checkpoint-every", "never"], "--keep has no effect"),
        (&["up", "--overcommit", "0.5", "--policy", "gta"], "--overcommit has no effect"),
        (&["up", "--policy", "fta", "--task-time", "none"], "means"),
        (&["up", "--name", "a", "--name", "b"], "'--name <NAME>' cannot be used multiple times"),
        (&["up", "--precision", "f16"], "f32 or bf16"),
        (&["worker", "--devices", "cpu", "--device", "cpu"], "cannot be used with"),
        (&["up", "--augment", "crop,blur"], "unknown augmentation 'blur': expected crop, flip, mixup, or several"),
        (&["up", "--augment", "flip", "--model", "cnn:augment=crop"], "augment is there twice"),
        (&["up", "--label-smoothing", "-1"], "label_smoothing = -1: expected a number from 0 to below 1"),
        (&["up", "--config", "bad.toml"], "line 2"),
        (&["up", "--config", "absent.toml"], "absent.toml"),
        (&["up", "--checkpoint", ""], "expected a folder"),
        (&["coordinator", "--policy", "fta"], "means"),
        (&["coordinator", "--listen", "nowhere"], "ADDRESS:PORT"),
        (&["worker", "--coordinator", "ftp://head"], "http://HOST:PORT"),
        (&["worker", "--name", "a b"], "a b"),
        (&["train"], "train"),
        (&["up", "--bugdet", "3"], "'--bugdet' found\n\n  tip: a similar argument exists: '--budget'"),
        (
            &["up", "--epochs", "3"],
            "'--epochs' found\n\n  --iterations 30epochs, or --iterations K for K optimizer steps",
        ),
        (&["up", "--batch_size=32"], "A step takes --batch N samples"),
        (&["up", "--workers-per-node", "8"], "`ata up --workers N` starts N workers"),
        (&["coordinator", "--learning-rate", "0.1"], "The learning rate is --lr X"),
        (&["worker", "--rank", "0"], "Workers have no ranks"),
    ] {
        fails(&sandbox, args, 64, says);
    }
}

#[cfg(not(any(feature = "gpu", feature = "cuda")))]
#[test]
fn gpus_without_the_feature() {
    for (args, feature) in [
        (&["worker", "--devices", "all"][..], "--features gpu"),
        (&["up", "--device", "wgpu"], "--features gpu"),
        (&["up", "--device", "cuda"], "--features cuda"),
    ] {
        fails(&Sandbox::new(), args, 64, feature);
        fails(&Sandbox::new(), args, 64, "the release's archive whose name ends in -gpu (`sh install.sh --gpu`)");
    }
}

/// These settings are doubtful, but not refused.
#[test]
fn doubts_are_said() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("ours.toml"), "momentum = 0.5\n").unwrap();
    let up = ["up", "--workers", "1", "--iterations", "2", "--task-time", "none", "--name", "twice"];
    let says = |more: &[&str], says: &str| {
        let said = sandbox.said(&[&up[..], &TINY, more].concat());
        assert!(said.contains(says), "{more:?}: {said}");
        said
    };
    // The file of a run has the settings of all optimizers.
    let said = says(&["--config", "ours.toml", "--out", "a"], "momentum has no effect: only the optimizer sgd");
    assert!(!said.contains("has that name, too") && !said.contains("lr_warmup"), "{said}");
    says(&["--out", "b"], &format!("--name twice: the run in {} has that name, too", sandbox.path("a").display()));
    says(&["--lr-warmup", "3"], "lr_warmup = 3: the run ends after 2 iterations");
}

#[test]
fn no_run_is_there() {
    // The address is the default one of a coordinator, which may run on this machine.
    if TcpListener::bind("127.0.0.1:7071").is_ok() {
        for command in ["status", "explain"] {
            fails(
                &Sandbox::new(),
                &[command],
                69,
                "there is no run in runs/ here, and no coordinator at 127.0.0.1:7071",
            );
        }
    }
}

#[cfg(not(feature = "object-store"))]
#[test]
fn an_object_store_without_the_feature() {
    for flag in ["--checkpoint", "--data"] {
        fails(&Sandbox::new(), &["up", flag, "s3://bucket/folder"], 64, "--features object-store");
    }
}

#[cfg(feature = "object-store")]
#[test]
fn no_object_store() {
    fails(&Sandbox::new(), &["up", "--checkpoint", "memory:///"], 64, "would end with the process");
}

#[test]
fn a_port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    fails(&Sandbox::new(), &["coordinator", "--listen", &address], 64, "choose another --listen");
}

#[test]
fn nobody_at_the_address() {
    // The port was free a moment ago.
    let address = format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let worker = ["worker", "--coordinator", &address, "--retry-for", "0"];
    fails(&Sandbox::new(), &worker, 69, "refuses connections: nothing listens there");
}

#[test]
fn bad_data() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("empty")).unwrap();
    std::fs::write(sandbox.path("corrupt.tar.gz"), b"\x1f\x8b not an archive").unwrap();
    std::fs::create_dir(sandbox.path("short")).unwrap();
    std::fs::write(sandbox.path("short/train.bin"), [0; 3075]).unwrap();
    std::fs::create_dir(sandbox.path("label")).unwrap();
    std::fs::write(sandbox.path("label/train.bin"), [200; 3074]).unwrap();
    for (data, says) in [
        ("absent", "absent"),
        ("empty", "train.bin"),
        ("corrupt.tar.gz", "corrupt.tar.gz"),
        ("short", "3074"),
        ("label", "label"),
    ] {
        fails(&sandbox, &["up", "--data", data], 65, says);
        fails(&sandbox, &["data", "verify", data], 65, says);
    }
}

#[test]
fn a_worker_with_other_data_is_told_so() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let other = sandbox.path("other").to_str().unwrap().to_owned();
    sandbox.text(&["data", "synth", &other, "--seed", "2", "--train", "100", "--test", "100"]);
    let (_coordinator, address) = sandbox.coordinator(&["--data", &data]);
    fails(&sandbox, &["worker", "--coordinator", &address, "--data", &other], 65, "train.bin");
    fails(&sandbox, &["worker", "--coordinator", &address, "--data", "absent"], 65, "absent");
}
