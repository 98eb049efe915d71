//! Finding the run that `--resume` names, and its settings.

use std::path::{Path, PathBuf};

use ata_coordinator::{Checkpoint, Damage, FolderStore, Found, Store, newest};
use ata_learn::{Optimizer, ParameterTable};
use ata_record::{CONFIG_FILE, JOURNAL_FILE, METRICS_FILE, RunEvent, SUMMARY_FILE, read_journal, resume_journal};
use toml::Table;

use crate::failure::Failure;
use crate::settings::{FIXED, Flags, Settings};

/// The folder of a run's checkpoints.
pub(crate) const CHECKPOINTS: &str = "checkpoints";

/// The folder of runs without `--out`.
pub(crate) const RUNS: &str = "runs";

/// A run that is to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resumption {
    /// The run's folder.
    pub(crate) folder: PathBuf,
    /// The name of one checkpoint, if the user chose it.
    chosen: Option<String>,
}

impl Resumption {
    /// Finds the run that `text` names; `None` for `auto` if there is nothing to go on from.
    pub(crate) fn find(text: &str, out: Option<&Path>) -> Result<Option<Self>, Failure> {
        let path = Path::new(text);
        let candidates = [path.to_owned(), Path::new(RUNS).join(text)];
        match text {
            "auto" => match out {
                Some(out) if has_checkpoints(out) => Ok(Some(Self::of_run(out))),
                Some(out) => begin_again(out).map(|()| None),
                None => Ok(runs().into_iter().find(|run| has_checkpoints(run) && !is_finished(run)).map(Self::of_run)),
            },
            "latest" => match runs().into_iter().find(|run| has_checkpoints(run)) {
                Some(run) => Ok(Some(Self::of_run(run))),
                None => Err(Failure::usage(format!("--resume latest: no run in {RUNS}/ has a checkpoint"))),
            },
            _ => {
                if let Some(run) = candidates.iter().find(|run| has_checkpoints(run)) {
                    return Ok(Some(Self::of_run(run)));
                }
                Self::of_checkpoint(path).map(Some).ok_or_else(|| {
                    Failure::usage(format!(
                        "--resume {text}: no checkpoints there; expected auto, latest, the name or folder of a run \
                         with checkpoints, or a checkpoint's folder"
                    ))
                })
            }
        }
    }

    fn of_run(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), chosen: None }
    }

    /// `RUN/checkpoints/step-NNNNNN`
    fn of_checkpoint(path: &Path) -> Option<Self> {
        let chosen = path.file_name()?.to_str()?.to_owned();
        let store = path.parent().filter(|store| store.file_name().is_some_and(|name| name == CHECKPOINTS))?;
        let is_one = FolderStore::new(store).names().ok()?.contains(&chosen);
        is_one.then(|| Self { folder: store.parent().unwrap_or(Path::new("")).into(), chosen: Some(chosen) })
    }

    pub(crate) fn store(&self) -> FolderStore {
        FolderStore::new(self.folder.join(CHECKPOINTS))
    }

    /// The run's settings, extended by a file and flags.
    pub(crate) fn settings(&self, file: Option<&Path>, flags: &[&dyn Flags]) -> Result<Settings, Failure> {
        let own = self.folder.join(CONFIG_FILE);
        let before = Settings::resolve(&[&own], &[])?;
        let files: Vec<&Path> = std::iter::once(&*own).chain(file).collect();
        let settings = Settings::resolve(&files, flags)?;
        let (was, is) = (table(&before)?, table(&settings)?);
        if let Some(key) = FIXED.into_iter().find(|key| was.get(*key) != is.get(*key)) {
            let show = |table: &Table| table.get(key).map_or("unset".into(), ToString::to_string);
            return Err(Failure::usage(format!(
                "{key} = {}: the run that is resumed has {key} = {}, which cannot change. Leave it out, or begin a new \
                 run (--init takes the parameters of this one)",
                show(&is),
                show(&was)
            )));
        }
        Ok(Settings { out: None, ..settings })
    }

    /// How many steps after an iteration the run's journal holds.
    pub(crate) fn steps_after(&self, iteration: u64) -> Result<u64, Failure> {
        let mut later = 0;
        if self.folder.join(JOURNAL_FILE).exists() {
            read_journal(&self.folder, |event| {
                later += u64::from(matches!(event, RunEvent::Step { iteration: at, .. } if at > iteration));
            })?;
        }
        Ok(later)
    }

    /// Reads the newest checkpoint that is whole, or the chosen one. Damaged ones are reported on standard error.
    pub(crate) fn load(&self, table: &ParameterTable, optimizer: Optimizer) -> Result<Checkpoint, Failure> {
        let store = self.store();
        let damaged = |name: &str, damage: &Damage| format!("{} is damaged: {damage}", store.describe(name));
        if let Some(name) = &self.chosen {
            return Checkpoint::decode(table, optimizer, |file| store.get(name, file))
                .map_err(|damage| Failure::data(damaged(name, &damage)));
        }
        match newest(&store, table, optimizer) {
            Ok(Some(Found { checkpoint, damaged: skipped, .. })) => {
                for (name, damage) in &skipped {
                    eprintln!("{}; using the one before it", damaged(name, damage));
                }
                Ok(checkpoint)
            }
            Ok(None) => Err(Failure::data(format!("{} holds no checkpoint", store.describe("")))),
            Err(all) => {
                let all: Vec<String> = all.iter().map(|(name, damage)| damaged(name, damage)).collect();
                Err(Failure::data(format!("no checkpoint is whole: {}", all.join("; "))))
            }
        }
    }
}

fn table(settings: &Settings) -> Result<Table, Failure> {
    Table::try_from(settings).map_err(Failure::internal)
}

fn has_checkpoints(run: &Path) -> bool {
    FolderStore::new(run.join(CHECKPOINTS)).names().is_ok_and(|names| !names.is_empty())
}

fn is_finished(run: &Path) -> bool {
    let summary = std::fs::read_to_string(run.join(SUMMARY_FILE)).unwrap_or_default();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap_or_default();
    summary.get("state").is_some_and(|state| state == "finished")
}

/// The runs in the folder of runs, the newest first.
fn runs() -> Vec<PathBuf> {
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

/// A run in this folder that ended before its first checkpoint begins again: its events are kept aside.
fn begin_again(out: &Path) -> Result<(), Failure> {
    if !out.join(JOURNAL_FILE).exists() {
        return Ok(());
    }
    resume_journal(out, 0)?;
    let remove = |name: &str| match std::fs::remove_file(out.join(name)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::disk(format!("cannot remove {}: {error}", out.join(name).display())))
        }
        _ => Ok(()),
    };
    [CONFIG_FILE, JOURNAL_FILE, METRICS_FILE, SUMMARY_FILE].into_iter().try_for_each(remove)
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

    #[test]
    fn a_run_and_a_checkpoint_are_found_by_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        let of = |path: &Path| Resumption::find(path.to_str().unwrap(), None);
        let (good, bare) = (folder.path().join("good"), folder.path().join("bare"));
        run(&good, &["step-000010", "step-000020"]);
        run(&bare, &[]);
        assert_eq!(of(&good).unwrap(), Some(Resumption { folder: good.clone(), chosen: None }));
        let chosen = of(&good.join(CHECKPOINTS).join("step-000010")).unwrap().unwrap();
        assert_eq!((chosen.folder, chosen.chosen.as_deref()), (good.clone(), Some("step-000010")));
        assert!(of(&bare).is_err() && of(&good.join(CHECKPOINTS).join("step-000030")).is_err());
        let auto = |out: &Path| Resumption::find("auto", Some(out)).unwrap();
        assert_eq!(auto(&good), of(&good).unwrap());
        assert_eq!((auto(&bare), auto(&folder.path().join("new"))), (None, None));
    }

    #[test]
    fn what_cannot_change_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), &["step-000010"]);
        let resumption = Resumption::of_run(folder.path());
        let settings = |flags: &str| {
            let flags: Table = toml::from_str(flags).unwrap();
            resumption.settings(None, &[&flags]).map_err(|failure| format!("{failure:?}"))
        };
        let extended = settings("iterations = 500\npolicy = 'uta'\nlr = 0.1").unwrap();
        assert_eq!((extended.iterations, &*extended.policy, extended.budget), (500, "uta", 16));
        assert!(settings("budget = 16").is_ok(), "the same value is no change");
        for key in ["budget = 8", "seed = 2", "task_batch = 3", "model = 'other'", "optimizer = 'sgd'"] {
            let error = settings(key).unwrap_err();
            let name = key.split(' ').next().unwrap();
            assert!(error.contains(&format!("{name} = ")) && error.contains("which cannot change"), "{error}");
        }
    }

    #[test]
    fn a_run_without_checkpoints_begins_again() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), &[]);
        std::fs::write(folder.path().join(JOURNAL_FILE), "").unwrap();
        assert_eq!(Resumption::find("auto", Some(folder.path())).unwrap(), None);
        assert!(!folder.path().join(CONFIG_FILE).exists());
    }
}
