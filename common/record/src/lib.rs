//! The record of a run: one vocabulary of events, written by the coordinator and read by everything that displays a run.
//!
//! A run's journal, its metrics, the progress display, the final table, the report and the replay are all derived from the
//! same stream of [`RunEvent`]s: live from the coordinator, later from the journal.
//!
//! # Layout
//! - `event`: [`RunEvent`], the vocabulary, and its version
//! - `journal`: writing and reading the journal's lines; `follower`: reading them as they are written
//! - `metrics`: one line of `metrics.csv` per iteration, and one per minute for old ones
//! - `writer`: [`Writer`], which writes both, and calls each [`Listener`]; `output`: their files, whose size is bounded
//! - `resumption`: truncating both to a checkpoint
//! - `limits`: the largest numbers
//! - `labels`: [`Labels`], a run's name and tags
//! - `state`: [`RunState`], the bounded state that the events add up to; a process folds its events only here
//! - `folder`: a run's folder, and atomic writes; `lock`: one writer at a time

mod event;
mod folder;
mod follower;
mod journal;
mod labels;
mod limits;
mod lock;
mod metrics;
mod output;
mod resumption;
mod state;
mod writer;

pub use event::{
    EndState, JOURNAL_VERSION, PROGRAM_VERSION, RefusalKind, RunEvent, RunStart, StepEvent, WorkerLink, WorkerResources,
};
pub use folder::{
    BEST_MODEL_FILE, CONFIG_FILE, EMA_MODEL_FILE, FORGIVE_PREFIX, JOURNAL_FILE, METRICS_FILE, MODEL_FILE, REPORT_FILE,
    RUN_FILES, STATISTICS_FILE, SUMMARY_FILE, create_folder, sync_folder, write_atomically,
};
pub use follower::{Follower, PollStatus};
pub use journal::{Gap, JournalError, read_journal};
pub use labels::Labels;
pub use lock::{CHECKPOINTS_LOCK, FolderLock, LockError, RUN_LOCK, is_abandoned};
pub use output::RecordError;
pub use resumption::{DISCARDED_FILE, check_run, discard_journal, resume_journal, steps_after};
pub use state::{
    Allocation, EvaluationCurve, EvaluationPoint, ExcludedFrom, Exclusion, HeatColumn, HeatMap, LinkFigures, Log,
    LogKind, LogLine, MAX_EXCLUSIONS, Prices, ReadMark, RunPhase, RunState, Spending, StepCurve, StepPoint, StepTotals,
    Usage, WorkerPrice, WorkerState,
};
pub use writer::{Listener, Listeners, PastEvents, Writer};
