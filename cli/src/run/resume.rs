//! Finds the run that `--resume` names, and its settings.

use std::path::{Path, PathBuf};

use ata_coordinator::{Checkpoint, Damage, FolderStore, FoundCheckpoint, Store, newest, newest_settings};
use ata_record::{CONFIG_FILE, MODEL_FILE, REPORT_FILE, STATISTICS_FILE, SUMMARY_FILE};
use ata_sums::ParameterTable;
use ata_types::Iteration;
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Table;

use super::place::{self, CHECKPOINTS, Hold, has_checkpoints};
use super::registry::candidates;
use crate::args::CommonArgs;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::output::note;
use crate::settings::{FIXED, Settings, read_file, read_text};
use crate::shell::word;

pub(crate) const RUNS: &str = "runs";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resumption {
    pub(crate) folder: PathBuf,
    /// The place of its checkpoints, if it is not in that folder.
    checkpoint: Option<String>,
    /// The name of the checkpoint, if the user chose one.
    chosen: Option<String>,
}

impl CommonArgs {
    /// Resolves the settings of the run over these defaults, and finds the run to resume, if any.
    pub(crate) fn settings(
        &self,
        mut defaults: Table,
        flags: &[Table],
    ) -> Result<(Settings, Option<Resumption>), Failure> {
        let file = self.config.as_deref();
        let in_file = file.map(read_file).transpose()?;
        // A batch takes the place of a program's own budget and size of tasks.
        if in_file.iter().chain(flags).any(|given| given.contains_key("batch")) {
            defaults.retain(|key, _| key != "budget" && key != "task_batch");
        }
        let fresh = Settings::extended(defaults, file, flags)?;
        let found = match &self.resume {
            Some(resume) => Resumption::find(resume, fresh.out.as_deref(), fresh.checkpoint.as_deref())?,
            None => None,
        };
        let settings = found.as_ref().map_or(Ok(fresh), |resumption| resumption.settings(file, flags))?;
        settings.say_doubts()?;
        Ok((settings, found))
    }
}

impl Resumption {
    /// Finds the run that `text` names; `None` for `auto` if there is none. With `checkpoint`, it may be in a lost folder `out`.
    pub(crate) fn find(text: &str, out: Option<&Path>, checkpoint: Option<&str>) -> Result<Option<Self>, Failure> {
        let path = Path::new(text);
        match text {
            "auto" => match out {
                Some(out) => Self::of_run(out, checkpoint),
                None => first(runs().into_iter().filter(|run| Results::of(run).is_none())),
            },
            "latest" => Self::latest(runs()).map(Some),
            _ => {
                if let Some(run) = first(candidates(path))? {
                    return Ok(Some(run));
                }
                Self::of_checkpoint(path).map(Some).ok_or_else(|| {
                    Failure::usage(format!(
                        "--resume {text}: no checkpoints there; expected auto, latest, the id, name or folder of a \
                         run with checkpoints, or a checkpoint's folder"
                    ))
                })
            }
        }
    }

    /// Returns the newest of some runs, which must be sorted, newest first.
    fn latest(runs: Vec<PathBuf>) -> Result<Self, Failure> {
        let wrong = |why: String| Failure::usage(format!("--resume latest: {why}"));
        let newest = runs.first().cloned().ok_or_else(|| wrong(format!("there is no run in {RUNS}/")))?;
        if let Some(run) = Self::of_run(&newest, None)? {
            return Ok(run);
        }
        let newest = newest.display();
        Err(wrong(match first(runs)? {
            Some(Self { folder, .. }) => format!(
                "{newest}, the newest run, has no checkpoint. Begin a new run, or go on with an older one: --resume {}",
                word(&folder)
            ),
            None => format!("{newest}, the newest run, has no checkpoint, and no other run has one"),
        }))
    }

    /// Returns the run in this folder, if it has checkpoints. If the folder was lost, its settings may be in `checkpoint`.
    fn of_run(folder: &Path, checkpoint: Option<&str>) -> Result<Option<Self>, Failure> {
        if checkpoint.is_none() && !folder.is_dir() {
            return Ok(None);
        }
        let checkpoint = match std::fs::read_to_string(folder.join(CONFIG_FILE)) {
            Ok(text) => text.parse::<Table>().ok().and_then(|own| Some(own.get("checkpoint")?.as_str()?.to_owned())),
            Err(_) => checkpoint.map(str::to_owned),
        };
        let run = Self { folder: folder.into(), checkpoint, chosen: None };
        Ok(has_checkpoints(&*run.store()?)?.then_some(run))
    }

    fn of_checkpoint(path: &Path) -> Option<Self> {
        let chosen = path.file_name()?.to_str()?.to_owned();
        let store = path.parent().filter(|store| store.file_name().is_some_and(|name| name == CHECKPOINTS))?;
        let is_one = FolderStore::new(store).names().ok()?.contains(&chosen);
        let folder = store.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new(".")).into();
        is_one.then_some(Self { folder, checkpoint: None, chosen: Some(chosen) })
    }

    fn store(&self) -> Result<Box<dyn Store>, Failure> {
        place::open(self.checkpoint.as_deref(), &self.folder)
    }

    /// Reads the settings in the run's folder or, if it has none, in its checkpoints.
    fn own_settings(&self) -> Result<Table, Failure> {
        let file = self.folder.join(CONFIG_FILE);
        if file.exists() {
            return read_file(&file);
        }
        let store = self.store()?;
        let place = store.describe("");
        let text = newest_settings(&*store).map_err(|cause| Failure::data(format!("{place}: {cause}")))?;
        let text = text.ok_or_else(|| Failure::data(format!("no checkpoint in {place} is whole")))?;
        let mut own = read_text(&text, &format!("the settings in {place}"))?;
        // The checkpoints may have been moved since then.
        own.remove("checkpoint");
        own.extend(self.checkpoint.iter().map(|place| ("checkpoint".to_owned(), place.as_str().into())));
        Ok(own)
    }

    pub(crate) fn settings(&self, file: Option<&Path>, flags: &[Table]) -> Result<Settings, Failure> {
        let own = self.own_settings()?;
        let before = Settings::of(&own)?;
        let settings = Settings::extended(own, file, flags)?;
        if let Some((key, was, is)) = first_change(&before, &settings, |_| true)? {
            return Err(Failure::usage(format!(
                "{key} = {is}: the run that is resumed has {key} = {was}, which cannot change. Leave it out, or begin a new \
                 run (--init takes the parameters of this one)"
            )));
        }
        Ok(Settings { out: None, ..settings })
    }

    pub(crate) fn hold(&self) -> Result<Hold, Failure> {
        Hold::take(&self.folder, self.checkpoint.as_deref())
    }

    pub(crate) fn go_on_from(&self, iteration: Iteration) -> Result<(), Failure> {
        let store = self.store()?;
        let failed = |cause| Failure::disk(format!("cannot write to {}: {cause}", store.describe("")));
        ata_coordinator::go_on_from(&*store, iteration).map_err(failed)
    }

    /// Reads the newest intact checkpoint, or the chosen one. Damaged ones are reported on standard error.
    pub(crate) fn load(&self, table: &ParameterTable, settings: &Settings) -> Result<Checkpoint, Failure> {
        let (store, config) = (self.store()?, settings.training_config(table)?);
        let damaged = |name: &str, damage: &Damage| {
            let what = if damage.is_of_other_release { "was written by another release" } else { "is damaged" };
            format!("{} {what}: {damage}", store.describe(name))
        };
        let found = match &self.chosen {
            Some(name) => Checkpoint::settings(|file| store.get(name, file)).ok(),
            None => newest_settings(&*store).ok().flatten(),
        };
        // Checkpoints of another model cannot even be decoded.
        found.map_or(Ok(()), |found| check_identity(&store.describe(""), &found, settings))?;
        let (name, checkpoint) = match &self.chosen {
            Some(name) => match Checkpoint::decode(table, &config, |file| store.get(name, file)) {
                Ok(checkpoint) => (name.clone(), checkpoint),
                Err(damage) => return Err(Failure::data(damaged(name, &damage))),
            },
            None => match newest(&*store, table, &config) {
                Ok(Some(FoundCheckpoint { name, checkpoint, damaged: skipped })) => {
                    // A later release has continued the run, and its steps would be lost.
                    if let Some((name, other)) = skipped.iter().find(|(_, damage)| damage.is_of_other_release) {
                        return Err(Failure::data(damaged(name, other)));
                    }
                    for (name, damage) in &skipped {
                        note!("{}; using the one before it", escaped(&damaged(name, damage)));
                    }
                    (name, checkpoint)
                }
                Ok(None) => return Err(Failure::data(format!("{} holds no checkpoint", store.describe("")))),
                Err(all) => {
                    if let Some((name, other)) = all.iter().find(|(_, damage)| damage.is_of_other_release) {
                        return Err(Failure::data(damaged(name, other)));
                    }
                    let all: Vec<String> = all.iter().map(|(name, damage)| damaged(name, damage)).collect();
                    return Err(Failure::data(format!("no checkpoint is whole: {}", all.join("; "))));
                }
            },
        };
        check_identity(&store.describe(&name), &checkpoint.progress.settings, settings)?;
        Ok(checkpoint)
    }
}

fn check_identity(place: &str, found: &str, settings: &Settings) -> Result<(), Failure> {
    let found = Settings::of(&read_text(found, &format!("the settings in {place}"))?)?;
    match first_change(&found, settings, |key| key != "checkpoint")? {
        None => Ok(()),
        Some((key, was, is)) => {
            Err(Failure::data(format!("{place} is of another run: it has {key} = {was}, this one {key} = {is}")))
        }
    }
}

/// Returns the name of the first fixed setting that has changed and for which `matters` is true, with both values.
fn first_change(
    was: &Settings,
    is: &Settings,
    matters: impl Fn(&str) -> bool,
) -> Result<Option<(&'static str, String, String)>, Failure> {
    let table = |settings| Table::try_from(settings).map_err(Failure::internal);
    let (was, is) = (table(was)?, table(is)?);
    let key = FIXED.split(' ').find(|key| matters(key) && was.get(*key) != is.get(*key));
    let show = |table: &Table, key| table.get(key).map_or("unset".into(), ToString::to_string);
    Ok(key.map(|key| (key, show(&was, key), show(&is, key))))
}

fn first(folders: impl IntoIterator<Item = PathBuf>) -> Result<Option<Resumption>, Failure> {
    folders.into_iter().find_map(|folder| Resumption::of_run(&folder, None).transpose()).transpose()
}

/// The complete results of a run that is over.
#[derive(Deserialize)]
pub(super) struct Results {
    state: String,
    pub(super) iterations: u64,
    /// The part of the summary that is written last.
    counterfactual: Option<IgnoredAny>,
}

impl Results {
    /// Reads the results in a run's folder; `None` if any are missing or the run is not over.
    pub(super) fn of(run: &Path) -> Option<Self> {
        let found: Self = serde_json::from_slice(&std::fs::read(run.join(SUMMARY_FILE)).ok()?).ok()?;
        let has = |file: &str| run.join(file).exists();
        let is_whole = found.state == "finished"
            && found.counterfactual.is_some()
            && [MODEL_FILE, STATISTICS_FILE, REPORT_FILE].into_iter().all(has);
        is_whole.then_some(found)
    }
}

pub(crate) fn runs() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(RUNS).into_iter().flatten().flatten();
    let mut runs: Vec<_> = entries
        .filter_map(|entry| {
            let began = entry.path().join(CONFIG_FILE).metadata().ok()?.modified().ok()?;
            Some((began, entry.path()))
        })
        .collect();
    runs.sort_by(|a, b| b.cmp(a));
    runs.into_iter().map(|(_, run)| run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(folder: &Path, checkpoints: &[&str]) {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join(CONFIG_FILE), Settings::default().to_toml().unwrap()).unwrap();
        for name in checkpoints {
            std::fs::create_dir_all(folder.join(CHECKPOINTS).join(name)).unwrap();
        }
    }

    /// If the newest run cannot be resumed, no other run is resumed in its place.
    #[test]
    fn the_latest_run_is_the_newest() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
        run(&old, &["step-000010"]);
        run(&new, &[]);
        let latest = |runs: &[&PathBuf]| {
            let found = Resumption::latest(runs.iter().map(|run| (*run).clone()).collect());
            found.map(|run| run.folder).map_err(|failure| failure.to_string())
        };
        assert_eq!(latest(&[&old, &new]), Ok(old.clone()));
        let error = latest(&[&new, &old]).unwrap_err();
        let named = [&new, &old].map(|run| error.contains(run.to_str().unwrap()));
        assert_eq!(named, [true, true], "{error}");
        assert!(latest(&[&new]).is_err() && latest(&[]).is_err());
    }

    #[test]
    fn what_cannot_change_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), &["step-000010"]);
        let resumption = Resumption::of_run(folder.path(), None).unwrap().unwrap();
        let settings = |flags: &str| {
            let flags: Table = toml::from_str(flags).unwrap();
            resumption.settings(None, &[flags]).map_err(|failure| format!("{failure:?}"))
        };
        let extended = settings("iterations = 500\npolicy = 'uta'\nlr = 0.1").unwrap();
        assert_eq!((extended.iterations.count(), &*extended.policy, extended.budget.first()), (500, "uta", 16));
        assert!(settings("budget = 16").is_ok(), "the same value is no change");
        let changed =
            ["budget = 8", "seed = 2", "task_batch = 3", "model = 'other'", "optimizer = 'sgd'", "checkpoint = 'b'"];
        for key in changed {
            let error = settings(key).unwrap_err();
            let name = key.split(' ').next().unwrap();
            assert!(error.contains(&format!("{name} = ")) && error.contains("which cannot change"), "{error}");
        }
    }

    #[test]
    fn a_batch_takes_the_place_of_a_programs_own_tasks() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.toml");
        let settings = |in_file: &str, flags: &str| {
            std::fs::write(&file, in_file).unwrap();
            let common = CommonArgs { config: Some(file.clone()), resume: None, stay: false, json: false };
            let defaults = toml::from_str("budget = 16\ntask_batch = 32").unwrap();
            common.settings(defaults, &[toml::from_str(flags).unwrap()]).unwrap().0
        };
        let own = settings("", "");
        assert_eq!((own.budget.first(), own.task_batch), (16, 32));
        assert!(settings("", "batch = 64").batch.is_some() && settings("batch = 64", "").batch.is_some());
        let divided = settings("batch = 64", "task_batch = 8");
        assert_eq!((divided.budget.first(), divided.task_batch), (8, 8));
    }
}
