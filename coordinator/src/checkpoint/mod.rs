//! Checkpoints, which hold everything that a run needs to resume where it stopped.
//!
//! A checkpoint is a folder `step-NNNNNN` of three files. `model.safetensors` holds the parameters, as PyTorch loads them;
//! `optimizer.safetensors` holds the optimizer's vectors; `state.json` holds everything else, with the SHA-256 of the other two and, in
//! front, its own. A checkpoint is accepted only if every byte is as it was written.
//!
//! # Layout
//! - here: [`Checkpoint`], and its conversion to files and back
//! - `store`: the places where checkpoints are kept: a folder or, with the feature `object-store`, an object store
//!   (`object`). It finds the newest checkpoint that is whole
//! - `cadence`: when a checkpoint is due, and which ones are kept
//! - `saver`: the thread that writes them

mod cadence;
#[cfg(feature = "object-store")]
mod object;
mod saver;
mod store;

pub use cadence::{Cadence, Retention};
pub use store::{FolderStore, FoundCheckpoint, Store, go_on_from, newest, newest_settings, open_store};

pub(crate) use saver::{SaveJob, SaveResult, Saver};

use crate::report::RunError;
use ata_data::hex;
use ata_net::limits::MAX_WORKERS;
use ata_record::{Exclusion, PROGRAM_VERSION, RunState};
use ata_scheduler::SavedEngine;
use ata_sums::{
    Metadata, ParameterTable, TensorSizes, TrainingConfig, TrainingState, Units, decode_metadata, decode_model,
    decode_own_state, decode_vectors, encode_model, encode_vectors, sha256_of_parameters,
};
use ata_types::{Iteration, WorkerId};
use ata_wire::limits::MAX_TIME;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};

/// The version of [`Progress`] that this release writes and reads.
pub(crate) const VERSION: u32 = 6;

const MODEL: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
/// The file that is written last.
const STATE: &str = "state.json";

/// The beginning of `state.json`. The SHA-256 of everything after the digest follows, as 64 hexadecimal digits.
const PREFIX: &str = "{\"sha256\":\"";

/// The state of a run between two iterations.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The parameters, the optimizer's state and its number of steps.
    pub training: TrainingState,
    /// What the run's events add up to.
    pub past: RunState,
    /// The rest of the state.
    pub progress: Progress,
}

/// The state of a run between two iterations, except parameters, optimizer and the sum of its events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// The version of this format.
    pub version: u32,
    /// The version of the program that wrote it.
    pub written_by: String,
    /// The run's name.
    pub run_id: String,
    /// The last iteration whose step is included.
    pub iteration: Iteration,
    /// The number of times that the run was resumed before.
    pub epoch: u64,
    /// The time of the run's clock in seconds, from which the clock continues.
    pub time_s: f64,
    /// The number of samples of the tasks that entered a step so far.
    pub samples: u64,
    /// The training data: the SHA-256 of its file, or the seed it is generated from.
    pub data: String,
    /// The best accuracy of an evaluation so far.
    pub best_accuracy: Option<f64>,
    /// The workers' numbers, names and machines, the longest absent first.
    pub workers: Vec<(WorkerId, String, String)>,
    /// What workers are excluded from.
    pub excluded: Vec<Exclusion>,
    /// The saved state of the engine.
    pub engine: SavedEngine,
    /// The run's settings, as in `config.toml`.
    pub settings: String,
}

impl Progress {
    /// Checks that the data is the data that the run began with.
    pub fn check_data(&self, data: &str) -> Result<(), RunError> {
        if self.data == data { Ok(()) } else { Err(RunError::OtherData(self.data.clone(), data.into())) }
    }

    /// Refuses numbers that no run reaches, with which later computations would overflow.
    fn check(&self) -> Result<(), String> {
        let most = u64::MAX >> 1;
        for (name, value) in [("iteration", self.iteration.number()), ("epoch", self.epoch)] {
            if value > most {
                return Err(format!("{name} is {value}: expected at most {most}"));
            }
        }
        if let Some((worker, ..)) = self.workers.iter().find(|(worker, ..)| worker.slot() >= MAX_WORKERS) {
            return Err(format!("a worker's number is {worker}: expected one from 1 to {MAX_WORKERS}"));
        }
        let longest_s = MAX_TIME.as_secs_f64();
        if !(0.0..=longest_s).contains(&self.time_s) {
            return Err(format!("time_s is {}: expected a time from 0 to {longest_s}", self.time_s));
        }
        self.engine.check().map_err(|error| error.to_string())
    }
}

#[derive(Serialize, Deserialize)]
struct StateFile {
    model_sha256: String,
    optimizer_sha256: String,
    units: Option<SavedUnits>,
    #[serde(deserialize_with = "restored")]
    past: RunState,
    #[serde(flatten)]
    progress: Progress,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedUnits {
    exponents: Vec<i16>,
    /// The bytes of the shifts of blocks, as hexadecimal digits.
    shifts: String,
}

impl SavedUnits {
    fn of(units: &Units) -> Self {
        Self { exponents: units.exponents().to_vec(), shifts: hex(units.shifts()) }
    }

    fn restore(&self, sizes: &TensorSizes) -> Result<Units, String> {
        let digits = self.shifts.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap_or_default());
        let shifts = digits.map(|pair| u8::from_str_radix(pair, 16)).collect::<Result<Vec<u8>, _>>();
        let shifts = shifts.map_err(|error| format!("the shifts of units: {error}"))?;
        Units::new(&self.exponents, &shifts, sizes).map_err(|error| error.to_string())
    }
}

/// Describes why a checkpoint cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {reason}")]
pub struct Damage {
    /// The damaged file.
    pub file: &'static str,
    /// The reason why it cannot be used.
    pub reason: String,
    /// Whether the file was written by another release, rather than changed since it was written.
    pub is_of_other_release: bool,
}

impl Checkpoint {
    /// Encodes the checkpoint as its files, in the order in which they must be written.
    pub fn encode(&self, table: &ParameterTable, metadata: &Metadata) -> [(&'static str, Vec<u8>); 3] {
        let step = Iteration(self.training.steps());
        let model = model_file(table, metadata, step, self.training.parameters());
        let optimizer = encode_vectors(self.training.vectors(), self.training.own_state(), &step_of(step));
        let state = StateFile {
            model_sha256: sha256(&model),
            optimizer_sha256: sha256(&optimizer),
            units: self.training.units().map(SavedUnits::of),
            past: self.past.clone(),
            progress: self.progress.clone(),
        };
        let json = serde_json::to_string(&state).expect("names and numbers can be written");
        // The JSON object continues after its first member.
        let rest = format!("\",{}", &json[1..]);
        let state = format!("{PREFIX}{}{rest}", sha256(rest.as_bytes()));
        [(MODEL, model), (OPTIMIZER, optimizer), (STATE, state.into_bytes())]
    }

    /// Decodes a checkpoint; `read` returns a file's content.
    pub fn decode(
        table: &ParameterTable,
        config: &TrainingConfig,
        read: impl Fn(&str) -> std::io::Result<Vec<u8>>,
    ) -> Result<Self, Damage> {
        let whole = |file: &'static str| read(file).map_err(|cause| damage(file, cause));
        let state = decode_state(&whole(STATE)?)?;
        let progress = state.progress;
        let checked = |file, expected: &str| {
            let bytes = whole(file)?;
            let same = sha256(&bytes) == expected;
            if same { Ok(bytes) } else { Err(damage(file, "it is not what was written: its SHA-256 differs")) }
        };
        let (model, vectors) = (checked(MODEL, &state.model_sha256)?, checked(OPTIMIZER, &state.optimizer_sha256)?);
        let (parameters, about_model) = decode_model(table, &model).map_err(|error| damage(MODEL, error))?;
        let moments = decode_vectors(&vectors, parameters.len()).map_err(|error| damage(OPTIMIZER, error))?;
        let own_state = decode_own_state(&vectors).map_err(|error| damage(OPTIMIZER, error))?;
        let about_moments = decode_metadata(&vectors).map_err(|error| damage(OPTIMIZER, error))?;
        for (file, about) in [(MODEL, about_model), (OPTIMIZER, about_moments)] {
            let step = about.get(STEP).map_or("no", String::as_str);
            if step != progress.iteration.to_string() {
                let reason = format!("it holds step {step}, and {STATE} step {}", progress.iteration);
                return Err(damage(file, reason));
            }
        }
        let units = state.units.map(|units| units.restore(&config.sizes));
        let units = units.transpose().map_err(|error| damage(STATE, error))?;
        let training = TrainingState::restore(config.clone(), parameters, moments, progress.iteration.number(), units)
            .map_err(|error| damage(OPTIMIZER, error))?
            .with_own_state(own_state);
        Ok(Self { training, past: state.past, progress })
    }

    /// Reads only the run's settings from a checkpoint.
    pub fn settings(read: impl Fn(&str) -> std::io::Result<Vec<u8>>) -> Result<String, Damage> {
        let bytes = read(STATE).map_err(|cause| damage(STATE, cause))?;
        Ok(decode_state(&bytes)?.progress.settings)
    }
}

/// The metadata key for the last step that a file of tensors includes.
const STEP: &str = "step";

fn step_of(step: Iteration) -> Metadata {
    Metadata::from([(STEP.to_owned(), step.to_string())])
}

/// Encodes a model file, whose metadata names the last step included in the parameters, and their SHA-256.
fn model_file(table: &ParameterTable, metadata: &Metadata, step: Iteration, parameters: &[f32]) -> Vec<u8> {
    let mut about = metadata.clone();
    about.extend(step_of(step));
    about.insert("sha256".into(), hex(&sha256_of_parameters(parameters)));
    encode_model(table, parameters, &about)
}

fn restored<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RunState, D::Error> {
    RunState::restored(serde_json::Value::deserialize(deserializer)?).map_err(D::Error::custom)
}

fn decode_state(bytes: &[u8]) -> Result<StateFile, Damage> {
    let (digest, rest) = bytes
        .strip_prefix(PREFIX.as_bytes())
        .and_then(|rest| rest.split_at_checked(64))
        .ok_or_else(|| damage(STATE, "it does not begin with its SHA-256"))?;
    if sha256(rest).as_bytes() != digest {
        return Err(damage(STATE, "it is not what was written: its SHA-256 differs"));
    }
    let mut value: serde_json::Value = serde_json::from_slice(bytes).map_err(|error| damage(STATE, error))?;
    let version = value.get("version").and_then(serde_json::Value::as_u64);
    if version != Some(u64::from(VERSION)) {
        let by = value.get("written_by").and_then(serde_json::Value::as_str).filter(|by| !by.is_empty());
        let by = by.map_or("another release of ata".into(), |by| format!("ata {by}"));
        let version = version.map_or("without a version".into(), |version| format!("in version {version}"));
        let reason = format!(
            "{by} wrote it, {version}; this is ata {PROGRAM_VERSION}, which reads version {VERSION}. Resume the run with the \
             release that wrote it, or begin a new one with its parameters (--init)"
        );
        return Err(Damage { is_of_other_release: true, ..damage(STATE, reason) });
    }
    if let Some(object) = value.as_object_mut() {
        object.remove("sha256");
    }
    let state: StateFile = serde_json::from_value(value).map_err(|error| damage(STATE, error))?;
    state.progress.check().map_err(|reason| damage(STATE, reason))?;
    Ok(state)
}

fn damage(file: &'static str, reason: impl std::fmt::Display) -> Damage {
    Damage { file, reason: reason.to_string(), is_of_other_release: false }
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests;
