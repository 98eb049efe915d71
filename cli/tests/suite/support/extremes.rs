//! Helpers for tests with extreme numbers.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::LazyLock;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::{Value, json};

use super::{Sandbox, within_deadline};

/// The limit of a command's address space: three times what a small run needs, and a fraction of what any of the numbers would take.
const ADDRESS_SPACE: u64 = 1 << 30;
/// The output by which commands are recognized that have accepted their flags and would run for long. They are asked to stop.
const AT_WORK: [&str; 3] = ["listens on", "trying again", "simulated iterations"];

/// The generated reference pages: commands with their flags, and exit codes.
pub(crate) struct Described {
    pub(crate) flags: Vec<(String, String)>,
    pub(crate) exit_codes: BTreeSet<i32>,
}

pub(crate) static DESCRIBED: LazyLock<Described> = LazyLock::new(|| {
    // A test of `ata-dev` compares the pages with the program. The variable is read at run time because several checkouts may share one
    // target directory.
    let folder = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../docs/reference");
    let page = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let mut flags = Vec::new();
    let mut command = String::new();
    for line in page("cli.md").lines() {
        if let Some(name) = line.trim_start_matches('#').strip_prefix(" ata ") {
            name.clone_into(&mut command);
        }
        // Flags are in the rows of a table, and in the list of those that an earlier command also has.
        let usages = line.split("`--").skip(1).filter_map(|rest| rest.split('`').next());
        let shown = if line.starts_with("| `--") { 1 } else { usize::MAX };
        if line.starts_with("| `--") || line.starts_with("As [") {
            let flags_of_line = usages.take(shown).filter_map(|usage| usage.split_once(' '));
            flags.extend(flags_of_line.map(|(flag, _)| (command.clone(), format!("--{flag}"))));
        }
    }
    let codes = page("exit-codes.md");
    let exit_codes = codes.lines().filter_map(|line| line.split('|').nth(1)?.trim().parse().ok()).collect();
    Described { flags, exit_codes }
});

/// Runs a command to completion, or asks it to stop once it is working. Panics if the command panics, hangs, or exits with an undocumented
/// code.
pub(crate) fn ends_well(sandbox: &Sandbox, args: &[&str]) -> (ExitStatus, String) {
    let mut command = sandbox.ata(args);
    // Arenas and thread stacks take address space, and by default their number depends on the number of cores.
    command.env("MALLOC_ARENA_MAX", "2").env("TOKIO_WORKER_THREADS", "2").env("RAYON_NUM_THREADS", "2");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    let limit = Rlimit { current: Some(ADDRESS_SPACE), maximum: Some(ADDRESS_SPACE) };
    // The process may have exited already.
    prlimit(Some(pid), Resource::As, limit).ok();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let (status, said, is_stopped) = within_deadline(child.id(), move || {
        let (mut said, mut is_stopped) = (String::new(), false);
        while let Ok(1..) = lines.read_line(&mut said) {
            let line = said.lines().last().unwrap_or_default();
            if !is_stopped && AT_WORK.iter().any(|text| line.contains(text)) {
                is_stopped = true;
                kill_process(pid, Signal::TERM).ok();
            }
        }
        lines.read_to_string(&mut said).unwrap_or(0);
        (child.wait().unwrap(), said, is_stopped)
    });
    let as_told = is_stopped && status.signal() == Some(Signal::TERM.as_raw());
    let is_documented = status.code().is_some_and(|code| DESCRIBED.exit_codes.contains(&code));
    assert!(is_documented || as_told, "{args:?} ended with {status}: {said}");
    assert!(!said.contains("panicked"), "{args:?}: {said}");
    (status, said)
}

/// Returns the places of numbers in a value.
pub(crate) fn places(value: &Value) -> Vec<String> {
    let within = |(name, value): (String, &Value)| -> Vec<String> {
        places(value).into_iter().map(|place| format!("/{name}{place}")).collect()
    };
    match value {
        Value::Number(_) => vec![String::new()],
        Value::Array(items) => (0..).map(|at: u32| at.to_string()).zip(items).flat_map(within).collect(),
        Value::Object(fields) => fields.iter().map(|(name, field)| (name.clone(), field)).flat_map(within).collect(),
        Value::Null | Value::Bool(_) | Value::String(_) => Vec::new(),
    }
}

/// Returns copies of the value in which the number in one of these places is replaced by one of some others.
pub(crate) fn changed(value: &Value, places: &[String]) -> Vec<Value> {
    let with = |place: &String, number: Value| {
        let mut value = value.clone();
        *value.pointer_mut(place).unwrap_or_else(|| panic!("nothing is at {place}")) = number;
        value
    };
    places.iter().flat_map(|place| numbers().into_iter().map(move |number| with(place, number))).collect()
}

pub(crate) fn numbers() -> Vec<Value> {
    let whole = [0, u32::MAX.into(), 1 << 32, 1 << 53, u64::MAX].map(|number: u64| json!(number));
    whole.into_iter().chain([json!(-1), json!(1e20), json!(1e308)]).collect()
}
