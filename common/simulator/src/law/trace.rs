//! Recorded task times, as a law: `trace(FILE)`, `trace(FILE, own)`, `trace(FILE, wall)`, each also with `block=L`.
//!
//! A file has a line per task and a column per worker (or one for all), separated by white space or commas; `#` begins a comment.
//! The meaning of a line depends on what the file records:
//!
//! - `own`, which is also the default: each worker's column is its own sequence of tasks. A worker that computes little is
//!   still at the top of its column when another worker starts over.
//! - `wall`: a line is a moment, the same for all. Every task of iteration k takes the time in line k, so that a slow spell
//!   passes whether or not the worker computes.
//!
//! Either is replayed exactly, in a loop. With `block=L`, seeds after an experiment's first one replay a resample: see
//! [`Trace::resample`].

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::parser::Parser;
use super::{LONGEST, LawError};

#[derive(Clone, Debug)]
pub(super) struct TraceArguments {
    path: PathBuf,
    by_iteration: bool,
    block: Option<NonZeroUsize>,
    /// The file, read once for all workers.
    rows: Arc<OnceLock<Result<Vec<TraceRow>, LawError>>>,
}

impl TraceArguments {
    /// Parses the arguments after the opening parenthesis.
    pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Self, LawError> {
        let path = parser.until(&[',', ')']).trim().into();
        let (mut order, mut block) = (None, None);
        while parser.accept(',') {
            let at = parser.position();
            match parser.word() {
                found @ ("own" | "wall") if order.is_none() => order = Some(found),
                "block" if block.is_none() => {
                    parser.expect('=')?;
                    let at = parser.position();
                    // Larger numbers of lines than a file can have are refused together with the file.
                    let lines = parser.number()?.filter(|lines| lines.fract() == 0.0).map(|lines| lines as usize);
                    block = lines.and_then(NonZeroUsize::new);
                    block.ok_or_else(|| parser.error_at(at, "a whole number of lines"))?;
                }
                _ => return Err(parser.error_at(at, "own, wall (one of them) or block=LINES")),
            }
        }
        Ok(Self { path, by_iteration: order == Some("wall"), block, rows: Arc::default() })
    }

    pub(super) fn of_worker(&self, worker: u32) -> Result<Trace, LawError> {
        let error = |reason: String| error(&self.path, reason);
        let rows = self.rows.get_or_init(|| read(&self.path)).as_ref().map_err(Clone::clone)?;
        let of_row = |(line, fields): &TraceRow| {
            let place = if fields.len() == 1 { 0 } else { worker as usize - 1 };
            let missing = || error(format!("line {line} has no column {worker} for worker {worker}"));
            time(&self.path, *line, fields.get(place).ok_or_else(missing)?)
        };
        let times = rows.iter().map(of_row).collect::<Result<Vec<f64>, _>>()?;
        if let Some(block) = self.block
            && block.get() >= times.len()
        {
            return Err(error(format!("block={block}: expected fewer lines than the file's {}", times.len())));
        }
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        if !(mean.is_finite() && mean > 0.0) {
            return Err(error(format!("its mean, {mean}, cannot be represented")));
        }
        Ok(Trace { times: times.into(), by_iteration: self.by_iteration, block: self.block, mean, next: 0 })
    }
}

/// The fields of a line, after its number: times, or what is none.
type TraceRow = (usize, Vec<Result<f64, String>>);

/// Returns all columns of a file of times that has one for each of `workers` workers.
pub fn columns(path: &Path, workers: u32) -> Result<Vec<Vec<f64>>, LawError> {
    let mut columns = vec![Vec::new(); workers as usize];
    for (line, fields) in read(path)? {
        let found = fields.len();
        if found != columns.len() {
            let reason = format!("line {line} has {found} columns, expected one for each of {workers} workers");
            return Err(error(path, reason));
        }
        for (column, field) in columns.iter_mut().zip(&fields) {
            column.push(time(path, line, field)?);
        }
    }
    Ok(columns)
}

fn error(path: &Path, reason: impl Display) -> LawError {
    LawError::Trace(format!("{}: {reason}", path.display()))
}

/// Returns the lines of a file that have any fields.
fn read(path: &Path) -> Result<Vec<TraceRow>, LawError> {
    let text = std::fs::read_to_string(path).map_err(|cause| error(path, format!("cannot be read: {cause}")))?;
    // Some editors begin a file with a byte order mark.
    let lines = text.strip_prefix('\u{feff}').unwrap_or(&text).lines();
    let rows: Vec<TraceRow> = (1..).zip(lines.map(fields)).filter(|(_, fields)| !fields.is_empty()).collect();
    if rows.is_empty() { Err(error(path, "holds no times")) } else { Ok(rows) }
}

fn fields(row: &str) -> Vec<Result<f64, String>> {
    let row = row.split('#').next().unwrap_or_default();
    let is_time = |time: &f64| *time > 0.0 && *time <= LONGEST;
    let parsed = |field: &str| field.parse().ok().filter(is_time).ok_or_else(|| field.to_owned());
    row.split([',', ' ', '\t']).filter(|field| !field.is_empty()).map(parsed).collect()
}

fn time(path: &Path, line: usize, field: &Result<f64, String>) -> Result<f64, LawError> {
    let refused = |field| error(path, format!("line {line}: '{field}' is not a positive time of at most 1e100"));
    field.clone().map_err(refused)
}

#[derive(Clone, Debug)]
pub(super) struct Trace {
    /// The times, which are shared because a law that is looked up ahead is cloned.
    times: Arc<[f64]>,
    /// Whether a line stands for an iteration, and not for a task.
    pub(super) by_iteration: bool,
    block: Option<NonZeroUsize>,
    /// The mean of the file, even for a resample.
    pub(super) mean: f64,
    next: usize,
}

impl Trace {
    /// Prepares for iteration `iteration`, counted from 1, which is about to begin.
    pub(super) fn begins(&mut self, iteration: u64) {
        if self.by_iteration {
            self.next = (iteration.saturating_sub(1) % self.times.len() as u64) as usize;
        }
    }

    pub(super) fn draw(&mut self) -> f64 {
        let time = self.times[self.next];
        if !self.by_iteration {
            self.next = (self.next + 1) % self.times.len();
        }
        time
    }

    /// Replaces the trace by another one that could have been recorded as well, if the law has `block=L`. The same seed replaces
    /// the same lines for every worker.
    ///
    /// This is the local block bootstrap (Paparoditis and Politis, C. R. Acad. Sci. Paris 335, 2002): the trace is cut
    /// into blocks of L lines, and each is replaced by L consecutive lines that begin at most L lines before or after it.
    /// Workers stay aligned and lines within a block keep their order, which preserves what depends on them; blocks stay
    /// near their place, which preserves the drift.
    pub(super) fn resample(&mut self, seed: u64) {
        let Some(block) = self.block.map(NonZeroUsize::get) else { return };
        // This is stream 0; the streams from 1 on belong to the workers.
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let lines = self.times.len();
        let mut resampled = Vec::with_capacity(lines);
        for first in (0..lines).step_by(block) {
            let count = block.min(lines - first);
            let latest = (first + block).min(lines - count);
            let from = rng.random_range(first.saturating_sub(block)..=latest);
            resampled.extend_from_slice(&self.times[from..from + count]);
        }
        self.times = resampled.into();
    }
}

#[cfg(test)]
mod tests {
    use super::super::TimeLaws;
    use super::*;
    use crate::WorkerLaw;
    use proptest::prelude::*;

    fn law(content: &str, worker: u32, arguments: &str) -> Result<WorkerLaw, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let laws: Result<TimeLaws, _> = format!("trace({}{arguments})", file.path().display()).parse();
        laws.and_then(|laws| laws.of_worker(worker, 2)).map_err(|error| error.to_string())
    }

    fn draws<const N: usize>(law: &mut WorkerLaw) -> [f64; N] {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        [(); N].map(|()| law.sample(0.0, &mut rng))
    }

    #[test]
    fn a_trace_is_played_in_a_loop() {
        for arguments in ["", ", own"] {
            let mut law = law("# seconds\n1, 10\n2, 20 # the second\n\n", 2, arguments).unwrap();
            assert_eq!(law.mean(), 15.0);
            law.begins(2);
            assert_eq!(draws(&mut law), [10.0, 20.0, 10.0], "whatever the iteration");
        }
        for content in ["7\n", "\u{feff}7\n"] {
            assert_eq!(law(content, 2, "").unwrap().mean(), 7.0, "one column serves every worker");
        }
    }

    #[test]
    fn a_bad_trace_is_refused_with_its_line() {
        for (content, message) in [
            ("", "holds no times"),
            ("1\nNaN\n", "line 2: 'NaN' is not a positive time"),
            ("1\n-3\n", "line 2: '-3'"),
            ("1 2\n1 x\n", "line 2: 'x'"),
        ] {
            let error = law(content, 2, "").unwrap_err();
            assert!(error.contains(message), "{content:?}: {error}");
        }
        assert!(law("1 2 3\n1,2\n", 2, "").is_ok(), "the other columns do not matter");
        assert!(law("1 2 3\n1 2\n", 3, "").unwrap_err().contains("line 2 has no column 3"));
        assert!(law("1\n2\n", 1, ", block=2").unwrap_err().contains("block=2: expected fewer lines than the file's 2"));
        for arguments in [", wal", ", own, wall", ", own, own", ", block=0", ", block=1.5", ", block", ", block=-1"] {
            let error = law("1\n2\n3\n", 1, arguments).unwrap_err();
            assert!(error.contains("expected"), "{arguments}: {error}");
        }
    }

    #[test]
    fn a_file_is_read_once_for_all_workers() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "1 2\n3 4\n").unwrap();
        let laws: TimeLaws = format!("trace({})", file.path().display()).parse().unwrap();
        assert_eq!(laws.of_worker(1, 2).unwrap().mean(), 2.0);
        std::fs::write(file.path(), "5 6\n").unwrap();
        assert_eq!(laws.clone().of_worker(2, 2).unwrap().mean(), 3.0);
    }

    proptest! {
        /// Each line of a resample comes from at most a block's length away, in runs of a block that are the same for each worker.
        #[test]
        fn a_resample_keeps_order_alignment_and_drift(lines in 3usize..200, block in 1usize..20, seed: u64) {
            let block = block.min(lines - 1);
            let content = (1..=lines).map(|line| format!("{line} {}\n", 1000 + line)).collect::<Vec<_>>().concat();
            let resampled = |worker| {
                let mut law = law(&content, worker, &format!(", own, block={block}")).unwrap();
                let mean = law.mean();
                law.resample(seed);
                assert_eq!(law.mean(), mean);
                let mut rng = ChaCha8Rng::seed_from_u64(0);
                (0..lines).map(|_| law.sample(0.0, &mut rng)).collect::<Vec<f64>>()
            };
            let (first, second) = (resampled(1), resampled(2));
            for (at, (a, b)) in first.iter().zip(&second).enumerate() {
                prop_assert_eq!(a + 1000.0, *b, "aligned");
                prop_assert!((a - (at + 1) as f64).abs() <= block as f64, "line {} at {}", a, at + 1);
                prop_assert!(at % block == 0 || *a == first[at - 1] + 1.0, "in order within a block");
            }
        }
    }
}
