//! `statistics.json`: what a run learned about its workers' speeds, for `--warm-start`.

use std::collections::BTreeMap;
use std::path::Path;

use ata_record::STATISTICS_FILE;
use ata_scheduler::{BatchStatistics, WorkerStatistics};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// One worker's entry, with the fields of [`WorkerStatistics`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    observed: u64,
    total_s: f64,
    squares_s2: f64,
    #[serde(default)]
    censored_s: f64,
    assignments: u64,
    overhead_s: f64,
    #[serde(default)]
    batches: BatchStatistics,
}

/// The content of `statistics.json`, from what a run learned by the workers' names.
pub(crate) fn to_json(statistics: &BTreeMap<String, WorkerStatistics>) -> Result<String, Failure> {
    let entry = |(name, of): (&String, &WorkerStatistics)| {
        let WorkerStatistics { observed, total_s, squares_s2, censored_s, assignments, overhead_s, batches } = *of;
        Entry { name: name.clone(), observed, total_s, squares_s2, censored_s, assignments, overhead_s, batches }
    };
    let entries: Vec<Entry> = statistics.iter().map(entry).collect();
    Ok(serde_json::to_string_pretty(&entries).map_err(Failure::internal)? + "\n")
}

/// What the run in `folder` learned, by the workers' names.
pub(crate) fn read(folder: &Path) -> Result<BTreeMap<String, WorkerStatistics>, Failure> {
    let path = folder.join(STATISTICS_FILE);
    let wrong = |reason: String| Failure::data(format!("--warm-start: {}: {reason}", path.display()));
    let text = std::fs::read_to_string(&path)
        .map_err(|cause| wrong(format!("{cause}; expected the folder of a run that ended, as in runs/RUN_ID")))?;
    parse(&text).map_err(wrong)
}

fn parse(text: &str) -> Result<BTreeMap<String, WorkerStatistics>, String> {
    let entries: Vec<Entry> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut known = BTreeMap::new();
    for Entry { name, observed, total_s, squares_s2, censored_s, assignments, overhead_s, batches } in entries {
        let statistics =
            WorkerStatistics { observed, total_s, squares_s2, censored_s, assignments, overhead_s, batches };
        if !statistics.is_valid() {
            return Err(format!("worker '{name}' cannot have such times: {statistics:?}"));
        }
        if known.insert(name.clone(), statistics).is_some() {
            return Err(format!("worker '{name}' appears twice"));
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        r#"{"name": "a", "observed": 2, "total_s": 3.0, "squares_s2": 5.0, "assignments": 1, "overhead_s": 0.5}"#;

    #[test]
    fn what_was_written_is_read() {
        let known = parse(&format!("[{GOOD}]")).unwrap();
        assert_eq!((known["a"].observed, known["a"].mean_s(), known["a"].censored_s), (2, Some(1.5), 0.0));
        let cut = BTreeMap::from([("b".to_owned(), WorkerStatistics { censored_s: 0.1 + 0.2, ..known["a"] })]);
        assert_eq!(parse(&to_json(&cut).unwrap()).unwrap(), cut);
        let mut device = WorkerStatistics::default();
        device.observe_batch(7, 0.1 + 0.2);
        let device = BTreeMap::from([("gpu".to_owned(), device)]);
        assert_eq!(parse(&to_json(&device).unwrap()).unwrap(), device);
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        for (text, message) in [
            (String::new(), "line 1"),
            (format!("[{GOOD}, {GOOD}]"), "worker 'a' appears twice"),
            (format!("[{}]", GOOD.replace("3.0", "-3.0")), "worker 'a' cannot have such times"),
            (format!("[{}]", GOOD.replace("\"observed\": 2", "\"observed\": 0")), "cannot have such times"),
            (format!("[{}]", GOOD.replace("\"assignments\"", "\"censored_s\": -1.0, \"assignments\"")), "such times"),
            (format!("[{}]", GOOD.replace("total_s", "total")), "unknown field `total`"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
