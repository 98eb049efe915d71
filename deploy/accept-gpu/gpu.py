"""What the system says about GPUs: drivers, utilization and memory."""

import os
import platform
import shutil
import statistics
import subprocess
import time
from pathlib import Path

# The driver's own figures are means over a sixth of a second or more.
SAMPLE_S = 0.2


def query(*fields, about="gpu"):
    """Rows of nvidia-smi, or none."""
    if not shutil.which("nvidia-smi"):
        return []
    command = ["nvidia-smi", f"--query-{about}={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (subprocess.SubprocessError, OSError):
        return []
    return [[field.strip() for field in line.split(",")] for line in printed.splitlines() if line.strip()]


def drivers():
    """Drivers of this machine's GPUs, each in a few words."""
    found = [f"{name}: NVIDIA {version}" for name, version in query("name", "driver_version")]
    if not found and Path("/proc/driver/nvidia/version").exists():
        found = [Path("/proc/driver/nvidia/version").read_text().splitlines()[0]]
    for card in sorted(Path("/sys/class/drm").glob("card?/device/driver")):
        if (name := card.resolve().name) != "nvidia":
            found.append(f"{card.parts[4]}: {name}, Linux {platform.release()}")
    return found


def nvidia_index(device):
    """Where nvidia-smi lists a device of ata, if that is known: not for wgpu, which counts in an order of its own."""
    kind, _, index = device.partition(":")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    numbers = visible.split(",") if visible else [str(number) for number in range(len(query("index")))]
    if kind != "cuda" or int(index or 0) >= len(numbers) or not numbers[int(index or 0)].isdigit():
        return None
    return int(numbers[int(index or 0)])


class Utilization:
    """Samples how busy GPUs are."""

    def __init__(self, device):
        self.index = nvidia_index(device)
        self.files = sorted(Path("/sys/class/drm").glob("card?/device/gpu_busy_percent"))
        self.by_nvidia = bool(query("utilization.gpu"))
        self.next_s, self.percents = 0.0, {}

    def sample(self):
        """To be called again and again."""
        if time.monotonic() < self.next_s:
            return
        self.next_s = time.monotonic() + SAMPLE_S
        if self.by_nvidia:
            rows = [(int(row[0]), row[1]) for row in query("index", "utilization.gpu")]
        else:
            rows = [(path.parts[4], path.read_text()) for path in self.files]
        for gpu, percent in rows:
            # NVIDIA's GPUs that are divided by MIG have no such figure.
            if percent.strip().isdigit():
                self.percents.setdefault(gpu, []).append(int(percent))

    def share(self):
        """The mean from 0 to 1 and who measured it, or None twice."""
        if not self.percents:
            return None, None
        means = {gpu: statistics.mean(percents) / 100 for gpu, percents in self.percents.items()}
        gpu = self.index if self.index in means else max(means, key=means.get)
        which = "" if len(means) == 1 else f", GPU {gpu}" if gpu == self.index else f", GPU {gpu}, the busiest"
        return means[gpu], ("nvidia-smi" if self.by_nvidia else "gpu_busy_percent") + which


def resident_mib(pid):
    """Memory of a process in MiB, or None."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        lines = [line for line in status.read_text().splitlines() if line.startswith("VmRSS:")]
        return int(lines[0].split()[1]) / 1024 if lines else None
    printed = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], check=False, capture_output=True, text=True).stdout
    return int(printed) / 1024 if printed.strip() else None


def device_mib(pid, device):
    """Memory of the GPU in MiB that a process uses, and the words for it; or None twice.

    A container has other process ids than the driver; there, it is the memory that all programs use.
    """
    of_processes = [row for row in query("pid", "used_memory", about="compute-apps") if row[0] == str(pid)]
    if of_processes and of_processes[0][1].isdigit():
        return sum(int(row[1]) for row in of_processes), "of the process"
    index = nvidia_index(device)
    rows = query("memory.used")
    if index is None or index >= len(rows) or not rows[index][0].isdigit():
        return None, None
    return int(rows[index][0]), "of all programs"
