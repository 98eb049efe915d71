//! Tests that events are written as they are read, and that any journal is either refused, or has events that add up to a state.

use std::path::Path;

use ata_mutator::{Mutator, feed, write_file};
use ata_record::{JOURNAL_FILE, RunEvent, RunState, read_journal, resume_journal, steps_after};
use ata_types::Iteration;

const COUNT: u64 = 40_000;

/// One in this many journals is also resumed, which waits for the disk.
const PER_RESUMED: u64 = 200;

/// The journal of a short run with every kind of event that has something to check.
const JOURNAL: &str = r#"{"event":"run","version":4,"written_by":"0.1.0","run_id":"r","policy":"uta","budget":3,"most_tasks":9,"iterations":9,"task_batch":2,"seed":18446744073709551615,"model":"cnn","samples":50000,"labels":{"name":"baseline","tags":{"team":"vision"}}}
{"event":"wait","time_s":0.0,"present":0,"needed":2}
{"event":"join","time_s":0.1,"worker":1,"name":"a-1","device":"CPU","machine":"10.0.0.1"}
{"event":"join","time_s":0.30000000000000004,"worker":2,"name":"a-1","device":"CPU","machine":""}
{"event":"allocation","iteration":1,"time_s":0.4,"workers":[1,2],"allocation":[2,1],"probes":[2],"scores_s":[0.5,1.0],"finish_s":[[0.5,1.0,null],[0.0,0.0,0.0]],"rule":"uniform"}
{"event":"task","iteration":1,"task":0,"worker":1,"lease":7,"time_s":0.5,"busy_s":0.25,"outcome":"applied"}
{"event":"task","iteration":1,"task":1,"worker":1,"lease":7,"time_s":0.5,"busy_s":0.25,"overhead_s":0.1,"ahead":true,"outcome":"applied"}
{"event":"task","iteration":1,"task":2,"worker":2,"lease":8,"time_s":0.5,"busy_s":null,"censored_s":0.3,"outlasted":1,"outcome":"lost"}
{"event":"refusal","time_s":0.5,"worker":2,"kind":"not finite","reason":"value 3 is NaN\n","count":2}
{"event":"rest","time_s":0.5,"worker":2,"rest_s":1.0,"strikes":1}
{"event":"step","iteration":1,"time_s":0.7,"loss":4.5,"runtime_s":0.5,"total_worker_time_s":1.5,"tasks":3,"wasted":1,"employments":2,"results":3,"learning_rate":0.5,"gradient_norm":0.25,"noise_scale":7.5,"saturated":1,"vanished":2,"shards":2}
{"event":"links","time_s":0.7,"up_s":0.1,"down_s":0.05,"own_s":0.1,"workers":[{"worker":1,"up_s":0.1,"bytes_per_s":1000.0}]}
{"event":"resources","time_s":0.7,"workers":[{"worker":2,"cpu_cores":1.5,"bytes_per_s":1000000.0}]}
{"event":"evaluation","time_s":0.8,"iteration":1,"loss":4.0,"accuracy":0.1,"metrics":{"top 5":0.5},"skipped":3}
{"event":"checkpoint","time_s":0.9,"iteration":1,"path":"step-000001","seconds":0.01}
{"event":"loss","time_s":1.0,"worker":2,"why":"it left"}
{"event":"resume","time_s":1.0,"version":3,"epoch":1,"iteration":1,"policy":"uta","iterations":9}
{"event":"allocation","iteration":2,"time_s":1.1,"workers":[1,2],"allocation":[2,1],"scores_s":[0.5,1.0],"rule":"uniform"}
{"event":"step","iteration":2,"time_s":1.7,"loss":4.5,"runtime_s":0.5,"total_worker_time_s":1.5,"tasks":3,"wasted":1,"employments":2,"results":3,"learning_rate":0.5}
{"event":"evaluation","time_s":1.8,"iteration":2,"loss":4.0}
{"event":"expulsion","time_s":2.0,"worker":2,"why":"it failed"}
{"event":"forgive","time_s":2.0,"name":"rig"}
{"event":"end","time_s":2.0,"state":"finished","reason":"iterations"}
"#;

/// Other programs read these lines as well. They are of this version and, from the resumption on, of the oldest that is read.
#[test]
fn events_are_written_as_they_were_read() {
    let folder = tempfile::tempdir().unwrap();
    write_file(&folder.path().join(JOURNAL_FILE), JOURNAL.as_bytes());
    let mut lines = Vec::new();
    let gap = read_journal(folder.path(), |event| lines.push(serde_json::to_string(&event).unwrap())).unwrap();
    assert_eq!((lines, gap), (JOURNAL.lines().map(str::to_owned).collect(), None));
}

/// Returns whether the journal in a folder can be read. If so, a run can be resumed from it, after which it can be read again.
fn reads(folder: &Path, is_resumed: bool) -> bool {
    let mut state = RunState::default();
    let is_read = read_journal(folder, |event| state.apply(&event)).is_ok();
    steps_after(folder, Iteration(1)).unwrap();
    if is_read && is_resumed {
        let run: RunEvent = serde_json::from_str(JOURNAL.lines().next().unwrap()).unwrap();
        let RunEvent::Run(start) = &run else { unreachable!() };
        // The run may have another id by now.
        let is_same = state.run_id == start.run_id;
        let resumed = resume_journal(folder, &run, Iteration(1), &RunState::default());
        if is_same {
            resumed.unwrap();
            read_journal(folder, |event| state.apply(&event)).unwrap();
        }
    }
    is_read
}

#[test]
fn mutated_journals_are_refused_or_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(JOURNAL_FILE);
    let tokens = ["null", "-1", "1e308", "18446744073709551615", "[", "{\"a\":", "\"", "\n", "NaN", "\\ud800"];
    write_file(&path, JOURNAL.as_bytes());
    assert!(reads(folder.path(), true), "it is valid");
    let mutator = Mutator::new(1, vec![JOURNAL.as_bytes().to_vec()]).with_tokens(&tokens);
    let mut count = 0;
    feed(mutator, COUNT, |bytes| {
        write_file(&path, bytes);
        count += 1;
        reads(folder.path(), count % PER_RESUMED == 0)
    });
}
