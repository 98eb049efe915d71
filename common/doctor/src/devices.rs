//! Checks adapters and drivers: which devices this build finds here, and why a device is missing.

use std::io;

use ata_learn::{DeviceChoice, DeviceError, GPU_ARCHIVE};

use crate::finding::{Finding, Status};
use crate::machine::MachineReport;

const CHECK: &str = "devices";

/// The folders in which the Vulkan loader finds drivers, each as a JSON file.
const DRIVER_FOLDERS: [&str; 3] = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"];

/// The environment variables that name other drivers.
const DRIVER_VARIABLES: [&str; 2] = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"];

/// The path of the library of CUDA's compiler, below the toolkit's folder.
const LIBDEVICE: &str = "nvvm/libdevice/libdevice.10.bc";

/// The devices that a build finds on a machine.
#[derive(Debug)]
pub struct Found {
    /// Whether the build supports wgpu.
    pub wgpu: bool,
    /// Whether the build supports CUDA.
    pub cuda: bool,
    /// The requested device.
    pub wanted: DeviceChoice,
    /// The name of the requested device, or the reason why it cannot be used.
    pub opened: Result<String, DeviceError>,
    /// The devices of `--devices all`.
    pub gpus: Result<Vec<DeviceChoice>, DeviceError>,
}

/// Checks devices and drivers.
pub fn check(machine: &MachineReport, found: &Found) -> Vec<Finding> {
    let visible = Visible::on(machine);
    let mut findings = vec![wanted(found), all(machine, found, &visible)];
    let wgpu = |choice: &DeviceChoice| matches!(choice, DeviceChoice::Wgpu(_));
    let cuda = |choice: &DeviceChoice| matches!(choice, DeviceChoice::Cuda(_));
    let has = |kind: fn(&DeviceChoice) -> bool| found.gpus.as_ref().is_ok_and(|gpus| gpus.iter().any(kind));
    // Missing files of the requested device are a problem, and those of another device are a warning.
    let status = |wanted: bool| if wanted && found.opened.is_err() { Status::Problem } else { Status::Warning };
    // Where CUDA works, wgpu is not needed.
    let needs_wgpu = wgpu(&found.wanted) && found.opened.is_err() || visible.any() && found.gpus.is_err();
    if found.wgpu && needs_wgpu {
        findings.extend(vulkan(machine, &visible, status(wgpu(&found.wanted))));
    }
    let needs_cuda = cuda(&found.wanted) || !visible.nvidia.is_empty();
    if found.cuda && needs_cuda {
        findings.extend(cuda_files(machine, &visible, has(cuda), status(cuda(&found.wanted))));
    }
    findings
}

/// The GPUs that the system lists, whether or not a driver can use them.
struct Visible {
    /// The device files of NVIDIA's driver: `/dev/nvidia0` and so on.
    nvidia: Vec<String>,
    /// The render nodes: `/dev/dri/renderD128` and so on.
    render: Vec<String>,
}

impl Visible {
    fn on(machine: &MachineReport) -> Self {
        let is_numbered = |path: &String| path.trim_start_matches("/dev/nvidia").parse::<u32>().is_ok();
        let nvidia = machine.list("/dev", "nvidia").into_iter().filter(is_numbered).collect();
        Self { nvidia, render: machine.list("/dev/dri", "renderD") }
    }

    fn any(&self) -> bool {
        !self.nvidia.is_empty() || !self.render.is_empty()
    }

    fn names(&self) -> String {
        let (first, others) =
            if self.nvidia.is_empty() { (&self.render, &self.nvidia) } else { (&self.nvidia, &self.render) };
        first.iter().chain(others).map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

/// Checks whether the requested device is available.
fn wanted(found: &Found) -> Finding {
    match &found.opened {
        Ok(name) => Finding::ok(CHECK, format!("--device {} is {name}", found.wanted)),
        Err(error @ DeviceError::NotBuilt { feature, .. }) => {
            let fix = format!("{GPU_ARCHIVE}, cargo install --path cli --features {feature}, or --device cpu");
            Finding::problem(CHECK, format!("--device {}: {error}", found.wanted), fix)
        }
        Err(error) => {
            let fix = "choose a device of the list, as in --device cpu, or see below what is missing";
            Finding::problem(CHECK, format!("--device {}: {error}", found.wanted), fix)
        }
    }
}

/// Checks which devices `ata worker --devices all` would use.
fn all(machine: &MachineReport, found: &Found, visible: &Visible) -> Finding {
    const NONE: &str = "--devices all: there is no GPU";
    let has_kind = found.wgpu || found.cuda;
    match &found.gpus {
        Ok(gpus) => {
            let names = gpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            Finding::ok(CHECK, format!("--devices all is {names}: one worker on each, in one process"))
        }
        Err(_) if visible.any() && !has_kind => {
            let found = format!("{} is there, but this build computes on the CPU only", visible.names());
            let how = "cargo install --path cli --features gpu (docs/how-to/gpus.md has the choice)";
            Finding::warning(CHECK, found, format!("{GPU_ARCHIVE}, or {how}"))
        }
        Err(error) if visible.any() => {
            let found = format!("{} is there, but this build cannot use it: {error}", visible.names());
            Finding::warning(CHECK, found, "see the next lines")
        }
        Err(_) if machine.is_container() => {
            let hint = "if the host has one, start this container with --gpus all (NVIDIA) or --device /dev/dri";
            Finding::ok(CHECK, format!("{NONE}; {hint}"))
        }
        Err(_) => Finding::ok(CHECK, NONE),
    }
}

/// Checks the files that wgpu needs on Linux. On other systems its drivers are part of the system.
fn vulkan(machine: &MachineReport, visible: &Visible, status: Status) -> Vec<Finding> {
    if !cfg!(target_os = "linux") {
        return Vec::new();
    }
    let loader = "libvulkan.so.1";
    let missing = (!machine.has_library(loader)).then(|| {
        let fix = "apt-get install libvulkan1 (Debian, Ubuntu), dnf install vulkan-loader (Fedora)";
        Finding::bad("vulkan", status, format!("{loader} is missing: wgpu needs the Vulkan loader"), fix)
    });
    let findings = [
        missing,
        drivers(machine, visible, status),
        permissions(machine, visible, status),
        capabilities(machine, visible, status, "graphics"),
    ];
    findings.into_iter().flatten().collect()
}

/// Checks that there is a driver for Vulkan; if there is an NVIDIA GPU, it must be NVIDIA's.
fn drivers(machine: &MachineReport, visible: &Visible, status: Status) -> Option<Finding> {
    let in_folders = DRIVER_FOLDERS.iter().flat_map(|folder| machine.list(folder, ""));
    let named = DRIVER_VARIABLES.iter().filter_map(|name| machine.variable(name));
    let drivers: Vec<String> = in_folders.chain(named).filter(|path| path.contains(".json")).collect();
    let of_nvidia = drivers.iter().any(|path| path.contains("nvidia"));
    let mesa =
        "apt-get install mesa-vulkan-drivers (AMD, Intel; its software adapter lavapipe has to be named, as in wgpu:0)";
    let nvidia = "install the whole NVIDIA driver (Debian: nvidia-driver; Ubuntu: libnvidia-gl-VERSION); in a container it \
                  comes from the host, see NVIDIA_DRIVER_CAPABILITIES";
    if !visible.nvidia.is_empty() && !of_nvidia {
        let shown = visible.nvidia.join(", ");
        let found = format!("{shown} has no Vulkan driver: expected nvidia_icd.json in {}", DRIVER_FOLDERS[0]);
        return Some(Finding::bad("vulkan", status, found, nvidia));
    }
    let found = || format!("there is no Vulkan driver: expected a file in JSON in {}", DRIVER_FOLDERS.join(" or "));
    drivers.is_empty().then(|| Finding::bad("vulkan", status, found(), mesa))
}

/// Checks whether this user may use the device files.
fn permissions(machine: &MachineReport, visible: &Visible, status: Status) -> Option<Finding> {
    let denied =
        |path: &&String| machine.may_use(path).is_err_and(|cause| cause.kind() == io::ErrorKind::PermissionDenied);
    let path = visible.render.iter().chain(&visible.nvidia).find(denied)?;
    let fix =
        "sudo usermod -aG render,video $USER, then log in again; in a container --group-add with the group's number";
    Some(Finding::bad("permissions", status, format!("this user may not use {path}"), fix))
}

/// Checks a part of NVIDIA's driver. A container gets only those parts that its environment names.
fn capabilities(machine: &MachineReport, visible: &Visible, status: Status, needed: &str) -> Option<Finding> {
    const NAME: &str = "NVIDIA_DRIVER_CAPABILITIES";
    if visible.nvidia.is_empty() || !machine.is_container() {
        return None;
    }
    // The container toolkit uses these defaults if the variable is not set.
    let given = machine.variable(NAME).unwrap_or_else(|| "utility,compute".into());
    let is_there = given.split(',').any(|given| given.trim() == "all" || given.trim() == needed);
    (!is_there).then(|| {
        let found = format!("{NAME} is '{given}': expected {needed}, too");
        Finding::bad("container", status, found, format!("docker run -e {NAME}=all"))
    })
}

/// Checks the files that CUDA needs.
fn cuda_files(machine: &MachineReport, visible: &Visible, works: bool, status: Status) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !works && !machine.has_library("libcuda.so.1") {
        let fix = "install the NVIDIA driver (Debian: libcuda1; Ubuntu: libnvidia-compute-VERSION); in a container it comes \
                    from the host: docker run --gpus all";
        findings.push(Finding::bad("cuda", status, "libcuda.so.1 is missing: CUDA needs NVIDIA's driver", fix));
    }
    if !works {
        findings.extend(capabilities(machine, visible, status, "compute"));
    }
    let chosen = ["CUDA_PATH", "CUDA_HOME"].iter().filter_map(|name| machine.variable(name));
    let folders: Vec<String> = chosen.chain(["/usr/local/cuda".into(), "/opt/cuda".into()]).collect();
    if !folders.iter().any(|folder| machine.exists(&format!("{folder}/{LIBDEVICE}"))) {
        let found = format!("{LIBDEVICE} is missing: looked in {}", folders.join(", "));
        let fix =
            "pip install nvidia-nvvm, and set CUDA_PATH to the folder above its nvvm; or install the CUDA toolkit";
        findings.push(Finding::bad("cuda", status, found, fix));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::MadeUp;

    /// Whether a build supports wgpu, and CUDA.
    type Build = [bool; 2];

    const CPU_ONLY: Build = [false, false];
    const WGPU: Build = [true, false];

    fn found([wgpu, cuda]: Build, wanted: DeviceChoice, gpus: &[DeviceChoice]) -> Found {
        let missing = DeviceError::NotFound { device: "wgpu", wanted: 0, found: 0 };
        let opened = match wanted {
            DeviceChoice::Cpu | DeviceChoice::Auto => Ok("cpu".into()),
            gpu if gpus.contains(&gpu) => Ok(gpu.to_string()),
            _ => Err(missing),
        };
        let gpus = if gpus.is_empty() { Err(DeviceError::NoGpu(0)) } else { Ok(gpus.to_vec()) };
        Found { wgpu, cuda, wanted, opened, gpus }
    }

    /// Returns the findings that are not ok, each as its status, check and fix.
    fn bad(files: &[&str], variables: &[(&str, &str)], found: &Found) -> Vec<(Status, &'static str, String)> {
        let findings = check(&MadeUp::new(files).machine(variables), found);
        let bad = findings.into_iter().filter(|finding| finding.status != Status::Ok);
        bad.map(|finding| (finding.status, finding.check, finding.fix.unwrap())).collect()
    }

    #[test]
    fn a_gpu_that_the_build_leaves_unused_is_named_with_the_feature() {
        assert_eq!(bad(&["/dev/null"], &[], &found(CPU_ONLY, DeviceChoice::Auto, &[])), []);
        assert_eq!(bad(&["/dev/null"], &[], &found(WGPU, DeviceChoice::Auto, &[])), []);
        for device in ["/dev/nvidia0", "/dev/dri/renderD128"] {
            let bad = bad(&[device, "/dev/nvidiactl"], &[], &found(CPU_ONLY, DeviceChoice::Auto, &[]));
            let [(Status::Warning, "devices", fix)] = &bad[..] else { panic!("{bad:?}") };
            assert!(fix.contains("--features gpu"), "{fix}");
        }
    }

    #[test]
    fn all_devices_are_named() {
        let gpus = [DeviceChoice::Wgpu(Some(0)), DeviceChoice::Wgpu(Some(1))];
        let findings = check(&MadeUp::new(&["/dev/nvidia0"]).machine(&[]), &found(WGPU, DeviceChoice::Auto, &gpus));
        assert!(findings[1].found.contains("wgpu:0, wgpu:1: one worker on each"), "{findings:?}");
        assert!(findings.iter().all(|finding| finding.status == Status::Ok), "{findings:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_vulkan_lacks_is_named_with_its_package() {
        let wanted = found(WGPU, DeviceChoice::Wgpu(None), &[]);
        let checks = |bad: &[(Status, &'static str, String)]| -> String {
            let drivers: Vec<_> = bad.iter().filter(|(_, check, _)| *check != CHECK).collect();
            assert!(drivers.iter().all(|(status, ..)| *status == Status::Problem), "{bad:?}");
            drivers.iter().map(|(.., fix)| fix.as_str()).collect::<Vec<_>>().join("; ")
        };
        let nothing = checks(&bad(&["/dev/dri/renderD128"], &[], &wanted));
        assert!(nothing.contains("libvulkan1") && nothing.contains("mesa-vulkan-drivers"), "{nothing}");
        let loader = ["/dev/dri/renderD128", "/usr/lib/libvulkan.so.1"];
        let no_driver = checks(&bad(&loader, &[], &wanted));
        assert!(!no_driver.contains("libvulkan1") && no_driver.contains("mesa-vulkan-drivers"), "{no_driver}");
        let mesa = "/usr/share/vulkan/icd.d/radeon_icd.x86_64.json";
        assert_eq!(checks(&bad(&[&loader[..], &[mesa]].concat(), &[], &wanted)), "");
        let named = [("VK_DRIVER_FILES", "/opt/icd.json")];
        assert_eq!(checks(&bad(&loader, &named, &wanted)), "");

        // NVIDIA's GPU is in a container that has only the parts that CUDA needs.
        let container = ["/.dockerenv", "/dev/nvidia0", "/usr/lib/libvulkan.so.1", mesa];
        let nvidia = checks(&bad(&container, &[], &wanted));
        assert!(nvidia.contains("nvidia-driver") && nvidia.contains("NVIDIA_DRIVER_CAPABILITIES=all"), "{nvidia}");
        let driver = [&container[..], &["/etc/vulkan/icd.d/nvidia_icd.json"]].concat();
        assert_eq!(checks(&bad(&driver, &[("NVIDIA_DRIVER_CAPABILITIES", "compute,graphics")], &wanted)), "");
    }

    #[test]
    fn what_cuda_lacks_is_named() {
        let wanted = found([true, true], DeviceChoice::Cuda(None), &[]);
        let texts = |files: &[&str], variables: &[(&str, &str)]| -> String {
            let bad = bad(files, variables, &wanted).into_iter();
            bad.filter(|(_, check, _)| *check == "cuda").map(|(.., fix)| fix).collect()
        };
        let nothing = texts(&["/dev/null"], &[]);
        assert!(nothing.contains("libcuda1") && nothing.contains("nvidia-nvvm"), "{nothing}");
        let driver = ["/usr/lib/libcuda.so.1", "/opt/nv/nvvm/libdevice/libdevice.10.bc"];
        assert!(texts(&driver, &[]).contains("nvidia-nvvm"));
        assert_eq!(texts(&driver, &[("CUDA_PATH", "/opt/nv")]), "");
    }
}
