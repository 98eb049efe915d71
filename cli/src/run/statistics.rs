//! The file `statistics.json`: the learned speeds of a run's workers, for `--warm-start`.

use std::collections::BTreeMap;
use std::path::Path;

use ata_record::STATISTICS_FILE;
use ata_scheduler::WorkerStatistics;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatisticsEntry {
    name: String,
    #[serde(flatten)]
    statistics: WorkerStatistics,
}

pub(crate) fn to_json(statistics: &BTreeMap<String, WorkerStatistics>) -> Result<String, Failure> {
    let entry = |(name, statistics): (&String, &WorkerStatistics)| StatisticsEntry {
        name: name.clone(),
        statistics: *statistics,
    };
    let entries: Vec<StatisticsEntry> = statistics.iter().map(entry).collect();
    Ok(serde_json::to_string_pretty(&entries).map_err(Failure::internal)? + "\n")
}

pub(crate) fn read(folder: &Path) -> Result<BTreeMap<String, WorkerStatistics>, Failure> {
    let path = folder.join(STATISTICS_FILE);
    let wrong = |reason: String| Failure::data(format!("--warm-start: {}: {reason}", path.display()));
    let text = std::fs::read_to_string(&path)
        .map_err(|cause| wrong(format!("{cause}; expected the folder of a run that ended, as in runs/RUN_ID")))?;
    parse(&text).map_err(wrong)
}

fn parse(text: &str) -> Result<BTreeMap<String, WorkerStatistics>, String> {
    let entries: Vec<StatisticsEntry> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut known = BTreeMap::new();
    for StatisticsEntry { name, statistics } in entries {
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

    /// Returns the statistics of two tasks of 1 and 2 s, and an assignment.
    fn known() -> BTreeMap<String, WorkerStatistics> {
        let mut statistics = WorkerStatistics { assignments: 1, overhead_s: 0.5, ..WorkerStatistics::default() };
        statistics.observe(1.0);
        statistics.observe(2.0);
        BTreeMap::from([("a".to_owned(), statistics)])
    }

    #[test]
    fn statistics_are_read_as_they_were_written() {
        assert_eq!(parse(&to_json(&known()).unwrap()).unwrap(), known());
        let mut device = WorkerStatistics::default();
        device.observe_batch(7, 0.1 + 0.2);
        let device = BTreeMap::from([("gpu".to_owned(), device)]);
        assert_eq!(parse(&to_json(&device).unwrap()).unwrap(), device);
    }

    #[test]
    fn mutated_statistics_do_no_harm() {
        let tokens = ["1e999", "-1", "null", "\"observed\": 0", "18446744073709551616", "[", "{", "\"name\""];
        let mutator = ata_mutator::Mutator::new(1, vec![to_json(&known()).unwrap().into_bytes()]).with_tokens(&tokens);
        ata_mutator::feed(mutator, 20_000, |bytes| {
            let Some(read) = std::str::from_utf8(bytes).ok().and_then(|text| parse(text).ok()) else { return false };
            assert!(read.values().all(WorkerStatistics::is_valid));
            true
        });
    }

    #[test]
    fn impossible_statistics_are_refused_with_their_place() {
        let good = to_json(&known()).unwrap();
        let twice = format!("[{0}, {0}]", good.trim().trim_start_matches('[').trim_end_matches(']'));
        for (text, message) in [
            (String::new(), "line 1"),
            (twice, "worker 'a' appears twice"),
            (good.replace("3.0", "-3.0"), "worker 'a' cannot have such times"),
            (good.replace("\"observed\": 2", "\"observed\": 0"), "cannot have such times"),
            (good.replace("total_s\": 3.0", "total\": 3.0"), "missing field `total_s`"),
            (good.replace("\"name\"", "\"more\": 1, \"name\""), "unknown field `more`"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
