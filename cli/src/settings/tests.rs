//! Tests of settings from files and flags.

use ata_types::WireFormat;

use super::*;

fn resolve(file: &str, flags: &str) -> Result<Settings, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("settings.toml");
    std::fs::write(&path, file).unwrap();
    let flags: Table = toml::from_str(flags).unwrap();
    Settings::extended(Table::new(), Some(&path), &[flags]).map_err(|failure| format!("{failure:?}"))
}

#[test]
fn flags_override_the_file_which_overrides_the_defaults() {
    let settings = resolve("budget = 8\nseed = 5\n", "seed = 6").unwrap();
    assert_eq!((settings.budget.first(), settings.seed, settings.iterations), (8, 6, Settings::default().iterations));
}

#[test]
fn emulated_times_come_with_small_tasks_unless_told() {
    let task_batch = |flags: &str| resolve("", flags).unwrap().task_batch;
    let default = Settings::default().task_batch;
    assert_eq!(task_batch("task_time = 'scale(1); scale(2)'"), default);
    assert_eq!(task_batch("task_time = 'exp(3)'"), 1);
    assert_eq!(task_batch("task_time = 'exp(3)'\ntask_batch = 8"), 8);
}

#[test]
fn what_is_written_is_read_back() {
    let settings = Settings { out: Some("somewhere".into()), wire: Some(WireFormat::Compact), ..Settings::default() };
    assert_eq!(resolve(&settings.to_toml().unwrap(), "").unwrap(), settings);
}

#[test]
fn vectors_are_compact_on_a_network_unless_told() {
    for (flags, expected) in [
        ("listen = '127.0.0.1:7070'", WireFormat::F32Exact),
        ("listen = '[::1]:0'", WireFormat::F32Exact),
        ("listen = '0.0.0.0:7070'", WireFormat::Compact),
        ("listen = '0.0.0.0:7070'\nwire = 'f32-exact'", WireFormat::F32Exact),
    ] {
        assert_eq!(resolve("", flags).unwrap().wire, Some(expected), "{flags}");
    }
}

#[test]
fn nonsense_is_refused_with_its_place() {
    for (file, flags, message) in [
        ("\nbugdet = 8\n", "", "line 2: unknown setting `bugdet`: did you mean `budget`?"),
        ("task-batch = 'x'", "", "line 1: invalid type"),
        ("budget = \n", "", "line 1"),
        ("", "budget = 0", "budget = 0: expected a whole number from 1 to"),
        ("", "lr = -1.0", "lr = -1: expected a positive number"),
        ("", "beta1 = 1.0", "beta1 = 1: expected a number from 0 to below 1"),
        ("", "epsilon = 0.0", "epsilon = 0: expected a positive number"),
        ("", "outer_lr = 0", "outer_lr = 0: expected a positive number"),
        ("", "difference_bits = 1", "difference_bits = 1: expected a whole number from 2 to 16"),
        ("", "time_price = 0.0", "expected a positive number"),
        ("", "policy = 'uta'\ntime_price = 2.0", "is for policy ata-auto"),
        ("", "overcommit = -0.1", "expected a number from 0 to 10"),
        ("", "target_loss = -1.0", "target_loss = -1: expected a positive number"),
        ("", "max_employments = 0", "max_employments = 0"),
        ("", "device = 'tpu'", "unknown device 'tpu'"),
        ("", "devices = 'wgpu:0,tpu'", "unknown device 'tpu'"),
        ("fuse = 'maybe'\n", "", "line 1: unknown variant `maybe`"),
        ("", "task_time = 'exp(x)'", "at character 5"),
        ("", "time_unit = '3 fortnights'", "time unit '3 fortnights'"),
        ("heartbeat_timeout_ms = 1", "", "expected a whole number from 100"),
        ("", "lease_timeout_s = 1e20", "expected a number of seconds above 0, and at most 1000000000"),
        ("", "lease_timeout_s = 0.0", "expected a number of seconds above 0"),
    ] {
        let error = resolve(file, flags).unwrap_err();
        assert!(error.contains(message), "{file}{flags}: {error}");
    }
}

/// Every file is refused, or its settings can be written and read back.
#[test]
fn mutated_files_do_no_harm() {
    let file = Settings { out: Some("somewhere".into()), task_time: "exp(29*i)".into(), ..Settings::default() };
    let valid = vec![file.to_toml().unwrap().into_bytes(), b"budget = 8\nseed = 5\n".to_vec()];
    let tokens = ["nan", "-1", "'", "\"\"\"", "[", "{a = ", "\n", "1e999", "99999999999999999999", "= true", "é"];
    let mutator = ata_mutator::Mutator::new(1, valid).with_tokens(&tokens);
    let read = |text: &str| Settings::of(&read_text(text, "file").ok()?).ok();
    ata_mutator::feed(mutator, 30_000, |bytes| {
        let Some(settings) = std::str::from_utf8(bytes).ok().and_then(read) else { return false };
        assert_eq!(read(&settings.to_toml().unwrap()).as_ref(), Some(&settings));
        true
    });
}

#[test]
fn hyphens_are_underscores() {
    assert_eq!(resolve("task-batch = 9\nlr_schedule = 'cosine'", "").unwrap().task_batch, 9);
    assert!(resolve("task-batch = 9\ntask_batch = 8", "").unwrap_err().contains("duplicate key"));
}

#[test]
fn time_units() {
    for (text, nanoseconds) in [("1ms", 1_000_000), ("0.1ms", 100_000), ("2 s", 2_000_000_000), ("10us", 10_000)] {
        assert_eq!(parse_time_unit(text).unwrap(), Duration::from_nanos(nanoseconds));
    }
    for text in ["", "1", "ms", "-1ms", "0s", "1 h", "NaNs", "1e999s", "1e10s"] {
        assert!(parse_time_unit(text).is_err(), "{text}");
    }
}
