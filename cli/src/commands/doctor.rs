//! The command `ata doctor`: checks this machine, or its connection to a coordinator, with [`ata_doctor`].

use std::iter;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ata_data::{DataError, Split, default_cache_dir, hex};
use ata_doctor::capacity::{self, Memory, Needs};
use ata_doctor::coordinator::{self, Reached};
use ata_doctor::disk::{self, RunSpace};
use ata_doctor::gradient::{self, Gradient};
use ata_doctor::machine::MachineReport;
use ata_doctor::{Finding, Status, certificates, devices, ports};
use ata_learn::{DeviceChoice, Model, OpenDevice};
use ata_objects::is_url;
use ata_wire::{DataSpec, RunSpec};
use serde::Serialize;

use super::joining;
use crate::Extensions;
use crate::args::{DoctorArgs, JoinArgs};
use crate::escape::escaped;
use crate::failure::{Exit, Failure, require};
use crate::inputs::{FoundInputs, find};
use crate::output::print;
use crate::run::resume::RUNS;
use crate::settings::{DEFAULT_DASHBOARD, Settings, credentials_folder, flags};

/// The largest number of samples: more take minutes and give no further information.
const MOST_SAMPLES: u32 = 4096;

#[derive(Serialize)]
struct Examination {
    devices: Vec<Device>,
    /// The checked gradient; `None` if the device or the model could not be opened.
    gradient: Option<Gradient>,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct Device {
    device: String,
    name: String,
}

pub(crate) async fn run(args: DoctorArgs, extensions: Extensions) -> Result<Exit, Failure> {
    let settings = settings(&args, extensions.defaults()?)?;
    let JoinArgs { coordinator, join, join_file, .. } = &args.joining;
    let examination = if coordinator.is_some() || join.is_some() || join_file.is_some() {
        let endpoint = joining::endpoint(&args.joining, Duration::ZERO).await?;
        let (reached, way) = coordinator::check(&endpoint).await;
        Subject::new(&args, settings, extensions, reached.as_ref())?.examine_worker(reached.as_ref(), way)
    } else {
        Subject::new(&args, settings, extensions, None)?.examine_cluster()?
    };
    print(args.json, &examination, || text(&examination))?;
    let is_bad = examination.findings.iter().any(|finding| finding.status == Status::Problem);
    Ok(Exit(u8::from(is_bad)))
}

fn text(examination: &Examination) -> String {
    let device = |found: &Device| format!("  --device {:<8} {}\n", found.device, escaped(&found.name));
    let devices: String = examination.devices.iter().map(device).collect();
    format!("devices of this build on this machine:\n{devices}{}", render(&examination.findings))
}

fn settings(args: &DoctorArgs, defaults: toml::Table) -> Result<Settings, Failure> {
    let settings = Settings::extended(defaults, args.config.as_deref(), &[flags(&args.subject)?])?;
    let JoinArgs { tls_cert, tls_key, .. } = &args.joining;
    require(tls_cert.is_some() == tls_key.is_some(), || "--tls-cert and --tls-key go together")?;
    require(settings.task_batch <= MOST_SAMPLES, || format!("--task-batch: expected 1 to {MOST_SAMPLES} samples"))?;
    Ok(settings)
}

struct Subject<'a> {
    args: &'a DoctorArgs,
    settings: Settings,
    device: Option<OpenDevice>,
    model: Option<Arc<dyn Model>>,
    findings: Vec<Finding>,
}

impl<'a> Subject<'a> {
    /// Creates a subject for the run of the reached coordinator or, without one, for the settings.
    fn new(
        args: &'a DoctorArgs,
        mut settings: Settings,
        extensions: Extensions,
        reached: Option<&Reached>,
    ) -> Result<Self, Failure> {
        if let Some(Reached { run, .. }) = reached
            && args.subject.model.is_none()
        {
            settings.model.clone_from(&run.model);
            settings.task_batch = args.subject.task_batch.unwrap_or(run.task_batch).min(MOST_SAMPLES);
        }
        let wanted = settings.device_choice()?;
        let opened = wanted.open();
        let found = devices::Found {
            wgpu: cfg!(feature = "gpu"),
            cuda: cfg!(feature = "cuda"),
            wanted,
            opened: opened.as_ref().map(|device| device.name.clone()).map_err(Clone::clone),
            gpus: DeviceChoice::gpus(),
        };
        let mut findings = devices::check(&MachineReport::this(), &found);
        let model = match ((extensions.models)(&settings.model), reached) {
            (Ok(model), _) => Some(model),
            (Err(error), None) => return Err(error.into()),
            (Err(error), Some(_)) => {
                let fix = "start workers from the coordinator's program, of the same release";
                findings.push(Finding::problem("model", format!("the run's model is not known here: {error}"), fix));
                None
            }
        };
        Ok(Self { args, settings, device: opened.ok(), model, findings })
    }

    fn gradient(&mut self) -> Option<Gradient> {
        let (Some(device), Some(model)) = (&self.device, &self.model) else { return None };
        let Settings { data, seed, task_batch, .. } = &self.settings;
        let (model, data) = match find(model.clone(), data, *seed, self.settings.folder_options()) {
            Ok(FoundInputs { model, data, .. }) => (model.clone(), data.open(&*model, Split::Train)),
            Err(failure) => (model.clone(), Err(DataError::Problem(failure.to_string()))),
        };
        let (gradient, findings) = gradient::check(&self.settings.model, &*model, data, *task_batch, device);
        self.findings.extend(findings);
        self.model = Some(model);
        gradient
    }

    fn needs(&self, run: Option<&RunSpec>, gradient: Option<&Gradient>) -> Needs {
        let of_model = self.model.as_ref().map_or(0, |model| model.parameter_count() as u64);
        Needs {
            parameters: run.map_or(of_model, |run| run.parameters),
            workers: self.settings.workers.count.into(),
            data_bytes: run.map_or(0, |run| data_bytes(&run.data)),
            computing_bytes: gradient.and_then(|_| capacity::most_resident_bytes()),
        }
    }

    /// Checks everything that a worker needs. `way` contains the findings about the connection to its coordinator.
    fn examine_worker(mut self, reached: Option<&Reached>, way: Vec<Finding>) -> Examination {
        let gradient = self.gradient();
        let run = reached.map(|reached| &reached.run);
        let needs = self.needs(run, gradient.as_ref());
        self.findings.extend(capacity::worker_memory(needs, Memory::of_this_machine()));
        let cache = default_cache_dir();
        self.findings.push(disk::cache(&cache, run.map_or(0, |run| bytes_to_fetch(&run.data, &cache))));
        if self.args.subject.listen.is_some() {
            self.findings.extend(self.settings.listen().ok().map(ports::workers));
        }
        self.findings.extend(certificates::own(self.own_certificates()));
        self.findings.extend(way);
        if let Some(Reached { run, speed: Some(speed) }) = reached {
            let task_s = gradient.as_ref().map(|gradient| gradient.device_ms / 1e3);
            self.findings.push(speed.finding(run.parameters, task_s));
        }
        self.into_examination(gradient)
    }

    fn examine_cluster(mut self) -> Result<Examination, Failure> {
        let gradient = self.gradient();
        let needs = self.needs(None, gradient.as_ref());
        self.findings.extend(capacity::cluster_memory(needs, Memory::of_this_machine()));
        self.findings.push(capacity::open_files(self.settings.workers.count as usize));
        for space in self.run_spaces(needs.parameters) {
            self.findings.extend(space.check());
        }
        self.findings.push(disk::cache(&default_cache_dir(), 0));
        self.findings.push(ports::workers(self.settings.listen()?));
        let dashboard = self.settings.dashboard_or(DEFAULT_DASHBOARD)?;
        self.findings.push(ports::dashboard(dashboard, self.settings.dashboard.is_none()));
        let own = self.own_certificates();
        let needs_secrets = own.pair.is_none() || own.authorities == [None; 2];
        let certificates = certificates::own(own);
        self.findings.extend(certificates);
        if needs_secrets {
            let folder = credentials_folder(self.settings.credentials.as_ref())?;
            self.findings.push(certificates::credentials(&folder));
        }
        Ok(self.into_examination(gradient))
    }

    /// Returns the run's folder and, if it is a different one, the folder of its checkpoints.
    fn run_spaces(&self, parameters: u64) -> Vec<RunSpace> {
        let Settings { keep, checkpoint, out, .. } = &self.settings;
        let kept = *keep as u64;
        let folder = out.clone().unwrap_or_else(|| RUNS.into());
        match checkpoint {
            None => vec![RunSpace { folder, parameters, kept }],
            Some(place) => {
                let elsewhere = RunSpace { folder: place.into(), parameters, kept };
                // The free space of an object store cannot be queried.
                let elsewhere = (!is_url(place)).then_some(elsewhere);
                [RunSpace { folder, parameters, kept: 0 }].into_iter().chain(elsewhere).collect()
            }
        }
    }

    fn own_certificates(&self) -> certificates::Own<'_> {
        let (joining, settings) = (&self.args.joining, &self.settings);
        let of_settings = settings.tls_cert.as_deref().zip(settings.tls_key.as_deref());
        let client_ca = self.args.subject.tls_client_ca.as_deref().or(settings.tls_client_ca.as_deref());
        certificates::Own {
            pair: joining.tls_cert.as_deref().zip(joining.tls_key.as_deref()).or(of_settings),
            authorities: [joining.tls_ca.as_deref(), client_ca],
        }
    }

    fn into_examination(self, gradient: Option<Gradient>) -> Examination {
        let found = |(choice, name): (DeviceChoice, String)| Device { device: choice.to_string(), name };
        Examination {
            devices: DeviceChoice::list().into_iter().map(found).collect(),
            gradient,
            findings: self.findings,
        }
    }
}

fn data_bytes(data: &DataSpec) -> u64 {
    match data {
        DataSpec::Generated { .. } => 0,
        DataSpec::File { bytes, .. } => *bytes,
    }
}

/// Returns the size of the data that a worker without a copy has to fetch.
fn bytes_to_fetch(data: &DataSpec, cache: &Path) -> u64 {
    match data {
        DataSpec::File { sha256, .. } if cache.join(format!("train/{}.bin", hex(sha256))).exists() => 0,
        data => data_bytes(data),
    }
}

fn render(findings: &[Finding]) -> String {
    let lines = findings.iter().flat_map(|Finding { check, status, found, fix }| {
        let line = format!("{status:<8} {check:<12} {}\n", escaped(found));
        iter::once(line).chain(fix.iter().map(|fix| format!("{:<21} fix: {}\n", "", escaped(fix))))
    });
    lines.collect::<String>() + &in_short(findings) + "\n"
}

fn in_short(findings: &[Finding]) -> String {
    let count = |wanted: Status| findings.iter().filter(|finding| finding.status == wanted).count();
    let number = |count, what| if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") };
    match (count(Status::Problem), count(Status::Warning)) {
        (0, 0) => "no problems found".into(),
        (0, warnings) => format!("no problems found, {}", number(warnings, "warning")),
        (problems, warnings) => format!("{}, {}", number(problems, "problem"), number(warnings, "warning")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_lines_with_their_fixes() {
        let findings = [
            Finding::ok("cache", "2026"),
            Finding::warning("ports", "taken:\n  by another", "choose another"),
            Finding::problem("disk", "full", "delete something"),
        ];
        let expected = "ok       cache        2026\n\
                        warning  ports        taken: by another\n                      fix: choose another\n\
                        problem  disk         full\n                      fix: delete something\n\
                        1 problem, 1 warning\n";
        assert_eq!(render(&findings), expected);
        assert!(render(&findings[..2]).ends_with("no problems found, 1 warning\n"));
        assert!(render(&findings[..1]).ends_with("\nno problems found\n"));
    }
}
