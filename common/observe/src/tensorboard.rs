//! Writes TensorBoard's event files: TFRecord records, each an `Event` of `tensorflow/core/util/event.proto`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ata_record::{Listener, RunEvent};
use ata_types::Iteration;
use crc_fast::{CrcAlgorithm, checksum};
use prost::Message;

/// The content of the first record, by which readers recognize the format.
const FILE_VERSION: &str = "brain.Event:2";

/// The maximum age of records in the buffer.
const FLUSH_INTERVAL: Duration = Duration::from_secs(2);

/// The value `SessionLog.START`: an earlier file's records from this step on do not count.
const START: i32 = 1;

#[derive(Clone, PartialEq, Message)]
struct TensorboardEvent {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(oneof = "What", tags = "3, 5, 7")]
    what: Option<What>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(TensorboardSummary),
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

#[derive(Clone, PartialEq, Message)]
struct TensorboardSummary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<TensorboardValue>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorboardValue {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

#[derive(Clone, PartialEq, Message)]
struct SessionLog {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// Writes scalars of each step and evaluation to an event file.
pub struct TensorBoard {
    path: PathBuf,
    /// The open file; `None` after a failed write.
    file: Option<BufWriter<File>>,
    failed: Arc<OnceLock<String>>,
    flushed: Instant,
}

impl TensorBoard {
    /// Creates a file in this folder, which is created if it is missing.
    pub fn create(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let (seconds, process) = (now_s() as u64, std::process::id());
        let path = folder.join(format!("events.out.tfevents.{seconds:010}.ata.{process}.0"));
        let file = Some(BufWriter::new(File::create_new(&path)?));
        let mut this = Self { path, file, failed: Arc::default(), flushed: Instant::now() };
        this.write(Iteration::default(), What::FileVersion(FILE_VERSION.into()));
        Ok(this)
    }

    /// Returns the cell that gets the message if the file can no longer be written.
    pub fn failed(&self) -> Arc<OnceLock<String>> {
        self.failed.clone()
    }

    fn scalars(&mut self, step: Iteration, scalars: &[(&str, Option<f64>)]) {
        let value = |(tag, value): &(&str, Option<f64>)| {
            Some(TensorboardValue { tag: (*tag).into(), simple_value: Some((*value)? as f32) })
        };
        self.write(step, What::Summary(TensorboardSummary { value: scalars.iter().filter_map(value).collect() }));
    }

    fn write(&mut self, step: Iteration, what: What) {
        let Some(file) = &mut self.file else { return };
        let event = TensorboardEvent { wall_time: now_s(), step: step.number().cast_signed(), what: Some(what) };
        let mut written = file.write_all(&record(&event.encode_to_vec()));
        if self.flushed.elapsed() >= FLUSH_INTERVAL {
            self.flushed = Instant::now();
            written = written.and_then(|()| file.flush());
        }
        self.check(written);
    }

    /// Closes the file after a failed write, for example on a full disk, and lets the run continue.
    fn check(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            let message = format!("cannot write {}: {error}", self.path.display());
            tracing::warn!("{message}; no more scalars for TensorBoard");
            self.failed.get_or_init(|| message);
            self.file = None;
        }
    }
}

impl Listener for TensorBoard {
    fn on_event(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Step(step) => {
                self.scalars(
                    step.iteration,
                    &[
                        ("loss/training", Some(step.loss)),
                        ("optimizer/learning_rate", Some(step.learning_rate)),
                        ("optimizer/gradient_norm", step.gradient_norm),
                        ("optimizer/noise_scale", step.noise_scale),
                        ("time/iteration_s", Some(step.runtime_s)),
                        ("time/worker_time_s", Some(step.total_worker_time_s)),
                        ("tasks/wasted", Some(step.wasted as f64)),
                    ],
                );
            }
            RunEvent::Evaluation { iteration, loss, accuracy, metrics, .. } => {
                let names: Vec<String> = metrics.keys().map(|name| format!("metrics/{name}")).collect();
                let metrics = names.iter().zip(metrics.values()).map(|(name, value)| (name.as_str(), Some(*value)));
                let figures = [("loss/test", Some(*loss)), ("accuracy/test", *accuracy)];
                self.scalars(*iteration, &figures.into_iter().chain(metrics).collect::<Vec<_>>());
            }
            RunEvent::Resume { iteration, .. } => {
                self.write(iteration.next(), What::SessionLog(SessionLog { status: START }));
            }
            RunEvent::End { .. } => {
                let flushed = self.file.as_mut().map_or(Ok(()), Write::flush);
                self.check(flushed);
            }
            _ => {}
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "TensorBoard shows when things were")]
fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Encodes a record: the length, its checksum, the data, and their checksum.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut record = length.to_vec();
    record.extend(masked_crc(&length).to_le_bytes());
    record.extend(data);
    record.extend(masked_crc(data).to_le_bytes());
    record
}

/// Masks a CRC-32C as TensorFlow does, so that data that contains checksums has a reliable checksum.
fn masked_crc(data: &[u8]) -> u32 {
    let crc = checksum(CrcAlgorithm::Crc32Iscsi, data) as u32;
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::step;

    /// Checks the first record of every event file that TensorFlow writes: its length is 24, followed by the length's checksum.
    #[test]
    fn records_are_framed_as_tensorflow_does() {
        let event = TensorboardEvent { wall_time: 1.0, step: 0, what: Some(What::FileVersion(FILE_VERSION.into())) };
        let record = record(&event.encode_to_vec());
        assert_eq!(record[..12], [0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22]);
        assert_eq!(record.len(), 8 + 4 + 24 + 4);
    }

    /// `/dev/full` accepts nothing.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let mut board = TensorBoard::create(folder.path()).unwrap();
        board.file = Some(BufWriter::new(File::options().write(true).open("/dev/full").unwrap()));
        board.on_event(&step(3, 1.0));
        assert_eq!(board.failed().get(), None);
        board.on_event(&RunEvent::End { time_s: 1.0, state: ata_record::EndState::Finished, reason: String::new() });
        assert!(board.failed().get().is_some_and(|message| message.contains("No space left")));
    }

    #[test]
    fn scalars_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut board = TensorBoard::create(folder.path()).unwrap();
        board.on_event(&step(3, 1.0));
        board.on_event(&RunEvent::Evaluation {
            time_s: 1.0,
            iteration: Iteration(3),
            loss: 2.0,
            accuracy: Some(0.5),
            metrics: [("top 5".into(), 0.75)].into(),
            skipped: 0,
        });
        board.on_event(&RunEvent::End { time_s: 1.0, state: ata_record::EndState::Finished, reason: String::new() });
        let bytes = std::fs::read(&board.path).unwrap();
        let (mut rest, mut found) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            let data = &rest[12..12 + length];
            assert_eq!(record(data), &rest[..16 + length]);
            let event = TensorboardEvent::decode(data).unwrap();
            if let Some(What::Summary(summary)) = event.what {
                found.extend(
                    summary.value.into_iter().map(|value| (event.step, value.tag, value.simple_value.unwrap())),
                );
            }
            rest = &rest[16 + length..];
        }
        for (tag, value) in
            [("loss/training", 4.0 / 3.0), ("loss/test", 2.0), ("accuracy/test", 0.5), ("metrics/top 5", 0.75)]
        {
            assert!(found.contains(&(3, tag.to_owned(), value)), "{tag}: {found:?}");
        }
        assert_eq!(found.len(), 5 + 3, "unknown values are left out");
    }
}
