"""The checks, each of which yields lines of the table."""

import json
import math
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import gpu
from ata import Failure

PASSED, FAILED, MEASURED, NOT_CHECKED = "passed", "failed", "measured", "not checked"

# Built-in models of ata, each of which tools/pytorch/eager.py has as well.
MODELS = ("cnn", "resnet20")
# All built-in models, whose gradients are compared.
BUILT_IN = (*MODELS, "resnet18")
# From this batch on, a GPU is to compute at least as fast as PyTorch eager.
COMPARED_FROM = 256
# The share of the time for which a GPU is to be busy.
LEAST_BUSY = 0.8
# Speeds that differ by less count as equal: this is how far measurements of a few seconds differ from one another.
NOISE = 0.05
# Memory may grow by this much between the first and the second look, for what allocators keep.
GROWTH, GROWTH_MIB = 0.05, 20
# Slowness of the four CPU workers, as that of `ata up`.
SLOWNESS = (1, 2, 4, 8)
# Parts of the names of Vulkan adapters that compute on the CPU.
SOFTWARE = ("llvmpipe", "lavapipe", "swiftshader", "basic render")
EAGER = Path(__file__).resolve().parents[2] / "tools/pytorch/eager.py"


def is_gpu(name):
    """By the name of an adapter; ata lists software adapters, too."""
    return name != "cpu" and not any(word in name.lower() for word in SOFTWARE)


@dataclass
class Line:
    """A line of the table."""

    check: str
    subject: str
    verdict: str
    text: str
    data: dict = field(default_factory=dict)


@dataclass
class Plan:
    """How much is measured."""

    gradients: tuple = (6, 64)
    # Those that are compared come first, in case that time runs out.
    batches: tuple = (256, 512, 1024, 128, 64, 32)
    # Tasks of a step, and samples of a task, where the batch is not the subject.
    budget: int = 32
    task_batch: int = 32
    window_s: float = 3
    # Steps between which memory is compared.
    iterations: tuple = (100, 1000)
    eager_s: float = 0.4
    # Time for a process to compile and tune its kernels, and to take the first steps.
    ready_s: float = 600


# For software adapters too, which take long to compile.
SHORT = Plan(
    gradients=(1,), batches=(32, 64), budget=8, task_batch=8, window_s=1, iterations=(5, 25), eager_s=0.2, ready_s=300
)


class Machine:
    """What is checked."""

    def __init__(self, ata, plan, wanted, python, data, train_s):
        self.ata, self.plan, self.python, self.data, self.train_s = ata, plan, python, data, train_s
        doctor = ata.doctor(plan.ready_s, *(("--device", wanted) if wanted else ()), "--task-batch", 1)
        self.listed = {device["device"]: device["name"] for device in doctor["devices"]}
        if not doctor["gradient"]:
            problems = [found["found"] for found in doctor["findings"] if found["status"] == "problem"]
            raise Failure("; ".join(problems) or "ata doctor computed no gradient")
        # The doctor names the adapter, and the list has its number.
        name = doctor["gradient"]["device"]
        first = wanted if wanted and wanted in self.listed else next(key for key in self.listed if self.listed[key] == name)
        kind = first.split(":")[0]
        others = [device for device, name in self.listed.items() if device.split(":")[0] == kind and is_gpu(name)]
        if first == wanted or not is_gpu(name):
            others = []
        self.device, self.devices = first, [first, *(device for device in others if device != first)]
        self.is_gpu = is_gpu(name)

    def verdict(self, is_good):
        """A criterion is one for GPUs; what a CPU does is only measured."""
        return (PASSED if is_good else FAILED) if self.is_gpu else MEASURED

    def flags(self, model, budget=None, task_batch=None):
        plan = self.plan
        return ("--model", model, "--budget", budget or plan.budget, "--task-batch", task_batch or plan.task_batch)

    def up(self, *flags):
        return self.ata.up("--device", self.device, "--workers", 1, *flags)


def devices(machine):
    """Adapters and drivers."""
    for device, name in machine.listed.items():
        role = "checked" if device in machine.devices else "not used here"
        yield Line("devices", device, MEASURED, f"{name} ({role})", {"name": name, "used": device in machine.devices})
    drivers = gpu.drivers()
    text = "; ".join(drivers) or "found neither nvidia-smi nor a driver in /sys/class/drm"
    yield Line("devices", "drivers", MEASURED if drivers else NOT_CHECKED, text, {"drivers": drivers})
    if not machine.is_gpu:
        text = f"{machine.listed[machine.device]} is no GPU, and the lines below say nothing about one"
        yield Line("devices", "GPU", NOT_CHECKED, text)


def gradients(machine):
    """Each model's gradients against the CPU's, by `ata doctor`: of a task, and of a lease as one batch."""
    for device in machine.devices:
        for model in BUILT_IN:
            for batch in machine.plan.gradients:
                yield gradient(machine, device, model, batch)


def gradient(machine, device, model, batch):
    found = machine.ata.doctor(machine.plan.ready_s, "--device", device, "--model", model, "--task-batch", batch)["gradient"]
    if not found:
        raise Failure(f"ata doctor computed no gradient of {model} on {device}")
    single, fused, whole = (found[f"{what}relative_l2_difference"] for what in ("", "fused_", "batch_"))
    # Not the other way round, because a NaN agrees with nothing; JSON has it as null.
    limit, batch_limit = found["limit"], found["batch_limit"]
    limits = ((single, limit), (fused, limit), (whole, batch_limit))
    is_good = all(difference is not None and difference <= limit for difference, limit in limits)
    shares = ["NaN" if difference is None else f"{difference:.1e}" for difference, _ in limits]
    text = f"differ from the CPU's by {shares[0]} in a sample, {shares[1]} in {found['lease']} as one batch (at most"
    text += f" {limit:.0e}), {shares[2]} in {found['lease']} tasks as one batch (at most {batch_limit:.0e})"
    verdict = PASSED if is_good else FAILED
    if device == "cpu":
        text += "; this compares the CPU with itself"
        verdict = MEASURED if is_good else FAILED
    return Line("gradients", f"{device} {model}, batch {batch}", verdict, text, found)


def busy(machine):
    """The share of the time for which the GPU is busy during `ata up`."""
    with machine.up(*machine.flags("resnet20")) as run:
        run.reach(4, machine.plan.ready_s)
        utilization = gpu.Utilization(machine.device)
        window = run.window(2 * machine.plan.window_s, 3, 60, utilization.sample)
    share, source = utilization.share() if machine.is_gpu else (None, None)
    own = window.busy_share()
    data = {"busy_share": share, "source": source, "worker_busy_share": own, "seconds_per_step": window.step_s}
    text = f"{own:.0%} of the time by the worker's own clock (at least {LEAST_BUSY:.0%}); nothing measures the device itself"
    if share is not None:
        text = f"{share:.0%} of the time by {source} (at least {LEAST_BUSY:.0%}); {own:.0%} by the worker's own clock"
    verdict = machine.verdict((own if share is None else share) >= LEAST_BUSY)
    yield Line("busy", subject("resnet20", machine), verdict, text, data)


def subject(model, machine):
    return f"{model}, {machine.plan.budget} tasks of {machine.plan.task_batch}"


def fleet(machine):
    """The GPU with four unequal CPU workers next to the GPU alone, in one run: alone, together, alone again."""
    for model in MODELS:
        yield mixed(machine, model)


def mixed(machine, model):
    seconds = machine.plan.window_s
    threads = max(1, (os.cpu_count() or 1) // (2 * len(SLOWNESS)))
    with machine.ata.coordinator("--min-workers", 1, *machine.flags(model)) as run:
        run.worker("gpu", machine.device, *cpu_threads(machine, threads))
        run.reach(4, machine.plan.ready_s)
        before = run.window(seconds, 5, 60).step_s
        slow = [
            run.worker(f"cpu-{slowness}", "cpu", "--threads", threads, "--task-time", f"scale({slowness})")
            for slowness in SLOWNESS
        ]
        run.wait(lambda: all(run.joined(f"cpu-{slowness}") for slowness in SLOWNESS), "the CPU workers", 30)
        # The policy learns the speeds.
        run.window(seconds, 10, 60)
        together = run.window(seconds, 5, 60)
        for worker in slow:
            worker.kill()
        run.wait(lambda: len(run.read()["loss"]) >= len(slow), "the loss of the CPU workers", 30)
        after = run.window(seconds, 5, 60).step_s
    # The faster of the two, so that a machine that is not steady does not pass by chance.
    alone = min(before, after)
    number = next(join["worker"] for join in run.events["join"] if join["name"] == "gpu")
    by_gpu = sum(task["worker"] == number for task in together.tasks) / len(together.tasks)
    text = (
        f"{together.step_s * 1e3:.1f} ms per step together, {before * 1e3:.1f} ms before and {after * 1e3:.1f} ms after alone "
        f"(not slower than the faster one, within {NOISE:.0%}); {machine.device} computed {by_gpu:.0%} of the tasks"
    )
    data = {"together_s": together.step_s, "before_s": before, "after_s": after, "share_of_device": by_gpu}
    return Line("fleet", subject(model, machine), machine.verdict(together.step_s <= alone * (1 + NOISE)), text, data)


def cpu_threads(machine, threads):
    """A CPU that stands for the GPU must not compute with all cores, too."""
    return ("--threads", threads) if machine.device == "cpu" else ()


def killed(machine):
    """A worker on the GPU is killed, and comes back. A worker on the CPU goes on meanwhile."""
    with machine.ata.coordinator("--min-workers", 2, *machine.flags("cnn", budget=8)) as run:
        # Otherwise it leaves a software adapter nothing to do.
        slowed = () if machine.is_gpu or machine.device == "cpu" else ("--task-time", "scale(100)")
        run.worker("cpu", "cpu", "--threads", 1, *slowed)
        process = run.worker("gpu", machine.device, *cpu_threads(machine, 1))
        run.reach(10, machine.plan.ready_s)
        number = next(join["worker"] for join in run.events["join"] if join["name"] == "gpu")
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            raise Failure(f"the worker had ended before it was killed, with exit code {process.returncode}")
        began, killed_at = time.monotonic(), len(run.steps())
        run.wait(lambda: any(loss["worker"] == number for loss in run.read()["loss"]), "the loss of the worker", 30)
        noticed_s = time.monotonic() - began
        lost_at = len(run.steps())
        run.reach(lost_at + 4, 60)
        began = time.monotonic()
        run.worker("gpu", machine.device, *cpu_threads(machine, 1))
        run.wait(lambda: run.joined("gpu") == 2, "the worker's return", machine.plan.ready_s)
        back_s = time.monotonic() - began
        joined_s = [join["time_s"] for join in run.events["join"] if join["name"] == "gpu"][-1]
        is_used = lambda: any(
            task["time_s"] > joined_s and task["worker"] in numbers(run) and task["outcome"] == "applied"
            for task in run.read()["task"]
        )
        run.wait(is_used, "a task of the worker that came back", 60)
        steps = [step["iteration"] for step in run.steps()]
    if steps != list(range(1, len(steps) + 1)):
        raise Failure("a step is missing in the journal, or twice there")
    text = (
        f"noticed after {noticed_s:.1f} s, back after {back_s:.1f} s, its kernels included; {len(steps)} steps in order, "
        f"{lost_at + 4 - killed_at} without it"
    )
    yield Line("killed", "cnn, GPU and CPU worker", PASSED, text, {"noticed_s": noticed_s, "back_s": back_s, "steps": len(steps)})


def numbers(run):
    return {join["worker"] for join in run.events["join"] if join["name"] == "gpu"}


def memory(machine):
    """Memory of the worker, and of the GPU, after many iterations against after few."""
    looks = []
    with machine.ata.coordinator("--min-workers", 1, *machine.flags("resnet20", budget=4)) as run:
        process = run.worker("gpu", machine.device)
        for iteration in machine.plan.iterations:
            run.reach(iteration, machine.plan.ready_s)
            looks.append((gpu.resident_mib(process.pid), *gpu.device_mib(process.pid, machine.device)))
    few, many = machine.plan.iterations
    where = f"resnet20, {many} against {few} iterations"
    for name, at, source in (("worker", 0, None), ("GPU", 1, looks[0][2])):
        before, after = looks[0][at], looks[1][at]
        if before is None or after is None:
            reason = "the system does not say how much memory it has"
            if at:
                reason = "nvidia-smi does not say how much of it is used" if machine.is_gpu else f"{machine.device} is no GPU"
            yield Line("memory", f"{name}, {where}", NOT_CHECKED, reason)
            continue
        is_good = after <= before + max(GROWTH * before, GROWTH_MIB)
        text = f"{after:.0f} MiB against {before:.0f} MiB (not more than {GROWTH:.0%} or {GROWTH_MIB} MiB above)"
        text += f", {source}" if source else ""
        yield Line("memory", f"{name}, {where}", PASSED if is_good else FAILED, text, {"before_mib": before, "after_mib": after})


def eager(machine):
    """Rates of PyTorch by model and batch, or why there are none."""
    if not machine.python:
        return {}, "no PYTHON was named"
    # A CPU that stands for the GPU is compared with the CPU. PyTorch knows nothing of the order in which wgpu counts.
    device = ("--device", machine.device) if machine.device.startswith("cuda") else () if machine.is_gpu else ("--device", "cpu")
    plan = machine.plan
    sizes = ("--models", ",".join(MODELS), "--batches", ",".join(map(str, plan.batches)), "--seconds", plan.eager_s)
    code, printed = machine.ata.processes.output(machine.ata.clock, 120, machine.python, EAGER, *sizes, *device)
    if code:
        log = machine.ata.processes.started[-1].log.read_text().splitlines()
        return {}, log[-1] if log else f"{EAGER.name} ended with {code}"
    rows = [json.loads(line) for line in printed.splitlines()]
    if machine.is_gpu and rows[0]["device"] == "cpu":
        return {}, f"PyTorch {rows[0]['torch']} of {machine.python} finds no GPU"
    return {(row["model"], row["batch"]): row for row in rows}, ""


def rates(machine, reserve_s):
    """Samples a second of each model and batch, next to PyTorch eager on the same device."""
    theirs, why = eager(machine)
    if why:
        yield Line("rates", "PyTorch eager", NOT_CHECKED, why)
    else:
        row = next(iter(theirs.values()))
        yield Line(
            "rates", "PyTorch eager", MEASURED, f"PyTorch {row['torch']} on {row['device']}; the next lines have its figures"
        )
    for batch in machine.plan.batches:
        for model in MODELS:
            where = f"{model}, batch {batch}"
            if machine.ata.clock.left_s() < reserve_s:
                # A figure that has a criterion must not be missing.
                is_needed = machine.is_gpu and theirs and batch >= COMPARED_FROM
                yield Line("rates", where, FAILED if is_needed else NOT_CHECKED, "there was no time left")
                continue
            try:
                yield rate(machine, model, batch, theirs.get((model, batch)), where)
            except Failure:
                # A software adapter may be too slow for the time that there is.
                if machine.is_gpu or machine.ata.clock.left_s() > 1:
                    raise
                yield Line("rates", where, NOT_CHECKED, "there was no time left")


def rate(machine, model, batch, eager, where):
    with machine.up(*machine.flags(model, budget=1, task_batch=batch)) as run:
        run.reach(4, machine.plan.ready_s)
        window = run.window(machine.plan.window_s, 3, 60)
    ours, training = batch / window.task_s(), batch * window.steps_per_s()
    data = {"model": model, "batch": batch, "samples_per_s": ours, "training_samples_per_s": training, "pytorch": eager}
    text = f"gradients of {ours:,.0f} samples/s, training {training:,.0f}"
    if not eager:
        return Line("rates", where, MEASURED, text, data)
    ratio = data["ratio"] = ours / eager["samples_per_s"]
    text += f"; PyTorch {eager['samples_per_s']:,.0f}"
    if "float32_samples_per_s" in eager:
        text += f" (without TF32 {eager['float32_samples_per_s']:,.0f})"
    text += f", training {eager['training_samples_per_s']:,.0f}; {ratio:.2f} times PyTorch"
    if batch < COMPARED_FROM:
        return Line("rates", where, MEASURED, text, data)
    return Line("rates", where, machine.verdict(ratio >= 1 - NOISE), f"{text} (at least 1, within {NOISE:.0%})", data)


# Samples of a step of the training.
TRAINING_BATCH = 256
# Time for the training's start and its last evaluation.
AROUND_TRAINING_S = 45
LEAST_TRAINING_S = 20


def reserve_s(machine):
    """Time that the training needs at least, if there is one."""
    return AROUND_TRAINING_S + LEAST_TRAINING_S if machine.data else 0


def training(machine):
    """Accuracy after a training on CIFAR-100 for a limited time."""
    if not machine.data:
        yield Line("training", "resnet20", NOT_CHECKED, "no DATA was named")
        return
    seconds = min(machine.train_s, machine.ata.clock.left_s() - AROUND_TRAINING_S)
    if seconds < LEAST_TRAINING_S:
        yield Line("training", "resnet20", FAILED, "there was no time left: raise MINUTES")
        return
    # Leases are computed as one batch on GPUs. Later flags replace earlier ones, so FLAGS of every run do not fit here.
    process = machine.ata.processes.start(
        machine.ata.program, "up", "--json", "--out", machine.ata.new_folder(), "--device", machine.device, "--workers", 1,
        "--task-time", "none", *machine.flags("resnet20", budget=8, task_batch=TRAINING_BATCH // 8), "--data", machine.data,
        "--optimizer", "adam", "--lr", 2e-3, "--lr-warmup", 100, "--iterations", 10_000_000, "--max-runtime-s", round(seconds),
        "--eval-every", 10_000_000, "--checkpoint-every", "never", "--dashboard", "off",
    )  # fmt: skip
    summary = machine.ata.summary(process, seconds + AROUND_TRAINING_S)
    accuracy, epochs = summary["test_accuracy"], summary["iterations"] * TRAINING_BATCH / 50_000
    is_finite = accuracy is not None and summary["test_loss"] is not None and math.isfinite(summary["test_loss"])
    said = "no accuracy" if accuracy is None else f"accuracy {accuracy:.1%}"
    text = f"{said} after {summary['runtime_s']:.0f} s of training, {epochs:.1f} epochs at a constant learning rate"
    if seconds < machine.train_s:
        text += f"; {machine.train_s:.0f} s were wanted, for which MINUTES is too short"
    data = {key: summary[key] for key in ("test_accuracy", "test_loss", "iterations", "runtime_s", "parameters_sha256")}
    yield Line("training", f"resnet20 on {Path(machine.data).name}", MEASURED if is_finite else FAILED, text, data)
