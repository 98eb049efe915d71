"""Runs `ata`, and reads the journals of its runs."""

import json
import os
import signal
import statistics
import subprocess
import time
from collections import defaultdict
from pathlib import Path

POLL_S = 0.05
# How long a process may take to end by itself before it is killed.
GOODBYE_S = 10
# Settings of every run. `eval-every 0` leaves one evaluation, at the end, which runs that are stopped do not reach.
FLAGS = ("--iterations", 10_000_000, "--eval-every", 0, "--checkpoint-every", "never")


class Failure(Exception):
    """A check failed; the text says why."""


class Clock:
    """The time that is left for everything."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left_s(self):
        return max(0.0, self.end - time.monotonic())

    def limit(self, seconds):
        """The moment by which something must be over."""
        return min(time.monotonic() + seconds, self.end)


class Processes:
    """Processes, each with a log, which are all ended with this."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.started = []
        # Settings come from the command line only. In this order, CUDA numbers GPUs as nvidia-smi does. Graphics libraries
        # complain without the folder.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ATA_")}
        self.environment = {"XDG_RUNTIME_DIR": str(folder), **kept, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    def start(self, *command):
        log = self.folder / f"{len(self.started)}.log"
        with open(log, "w") as errors, open(log.with_suffix(".out"), "w") as output:
            # In a session of its own, so that Ctrl-C reaches this script alone, which ends the others in order.
            process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=self.environment, start_new_session=True,
            )  # fmt: skip
        process.log = log
        self.started.append(process)
        return process

    def output(self, clock, seconds, *command):
        """Exit code and standard output of a command; fails if it takes longer."""
        process = self.start(*command)
        try:
            code = process.wait(max(0.0, clock.limit(seconds) - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Failure(f"{words(command)} took longer than {seconds} s, or there was no time left") from None
        finally:
            end(process)
        return code, process.log.with_suffix(".out").read_text()

    def end(self):
        for process in reversed(self.started):
            end(process)


def end(process):
    """Ends a process, and those that it started."""
    if process.poll() is not None:
        return
    children = children_of(process.pid)
    process.terminate()
    try:
        process.wait(GOODBYE_S)
        return
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in children:
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            pass


def children_of(pid):
    """Where there is no /proc, `ata up` alone ends its workers."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in lists for child in path.read_text().split()]


def words(command):
    return " ".join(Path(str(word)).name if number == 0 else str(word) for number, word in enumerate(command))


class Ata:
    """The program."""

    def __init__(self, program, processes, clock):
        self.program, self.processes, self.clock = program, processes, clock
        self.runs = 0

    def version(self):
        code, text = self.processes.output(self.clock, 10, self.program, "--version")
        if code:
            raise Failure(f"{self.program} --version: exit code {code}")
        return text.strip()

    def doctor(self, seconds, *flags):
        """What `ata doctor` found. Port 0, because whether a coordinator could listen is not the question."""
        command = (self.program, "doctor", "--json", "--listen", "127.0.0.1:0", "--dashboard", "off", *flags)
        code, text = self.processes.output(self.clock, seconds, *command)
        if code not in (0, 1) or not text:
            raise Failure(f"{words(command)}: exit code {code}: {tail(self.processes.started[-1])}")
        return json.loads(text)

    def summary(self, process, seconds):
        """What a run prints with --json at its end."""
        try:
            code = process.wait(max(0.0, self.clock.limit(seconds) - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Failure(f"the run did not end in {seconds:.0f} s: {tail(process)}") from None
        finally:
            end(process)
        if code:
            raise Failure(f"the run ended with exit code {code}: {tail(process)}")
        return json.loads(process.log.with_suffix(".out").read_text())

    def up(self, *flags):
        """Begins a run of `ata up`."""
        folder = self.new_folder()
        process = self.processes.start(self.program, "up", "--out", folder, "--task-time", "none", *FLAGS, *flags)
        return Run(self, folder, process)

    def coordinator(self, *flags):
        """Begins a run for workers that are started one by one."""
        folder = self.new_folder()
        ready = folder.with_suffix(".ready")
        listen = ("--listen", "127.0.0.1:0", "--ready-file", ready, "--dashboard", "off")
        run = Run(self, folder, self.processes.start(self.program, "coordinator", "--out", folder, *listen, *FLAGS, *flags))
        run.wait(lambda: ready.exists() and ready.read_text().strip(), "the coordinator's address", 20)
        run.url = f"http://{json.loads(ready.read_text())['address']}"
        return run

    def new_folder(self):
        self.runs += 1
        return self.processes.folder / f"run-{self.runs}"


class Run:
    """A run that goes on until it is ended, and its journal so far."""

    def __init__(self, ata, folder, process):
        self.ata, self.process = ata, process
        self.journal, self.position, self.rest = folder / "events.jsonl", 0, ""
        self.events, self.workers = defaultdict(list), []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.process)
        for worker in self.workers:
            end(worker)

    def worker(self, name, device, *flags):
        command = ("worker", "--coordinator", self.url, "--name", name, "--device", device, "--log", "error", *flags)
        process = self.ata.processes.start(self.ata.program, *command)
        self.workers.append(process)
        return process

    def read(self):
        """Reads what was added to the journal."""
        if self.journal.exists():
            with open(self.journal) as journal:
                journal.seek(self.position)
                added = journal.read()
                self.position = journal.tell()
            *lines, self.rest = (self.rest + added).split("\n")
            for event in map(json.loads, lines):
                self.events[event["event"]].append(event)
        return self.events

    def wait(self, condition, what, seconds):
        """Waits until the condition holds; fails if the run ends first, or if it takes longer."""
        limit = self.ata.clock.limit(seconds)
        while not condition():
            if self.process.poll() is not None:
                raise Failure(f"the run ended before {what} (exit code {self.process.returncode}): {tail(self.process)}")
            if time.monotonic() > limit:
                over = "no time was left" if self.ata.clock.left_s() == 0 else f"waited {seconds} s in vain"
                raise Failure(f"{over} for {what}: {tail(*self.workers, self.process)}")
            time.sleep(POLL_S)

    def steps(self):
        return self.read()["step"]

    def reach(self, count, seconds):
        """Waits until so many steps were taken."""
        self.wait(lambda: len(self.steps()) >= count, f"step {count}", seconds)

    def joined(self, name):
        """How often a worker of this name has joined."""
        return sum(event["name"] == name for event in self.read()["join"])

    def window(self, seconds, least, limit_s, meanwhile=lambda: None):
        """The steps of the next seconds, at least so many."""
        first = len(self.steps())
        until = time.monotonic() + seconds

        def is_over():
            meanwhile()
            return len(self.steps()) > first + least and time.monotonic() > until

        self.wait(is_over, f"{least} steps", limit_s)
        return Window(self, self.steps()[first:])


class Window:
    """Consecutive steps of a run."""

    def __init__(self, run, steps):
        times = [step["time_s"] for step in steps]
        self.began_s, self.ended_s, self.count = times[0], times[-1], len(times) - 1
        self.step_s = statistics.median(after - before for before, after in zip(times, times[1:]))
        inside = lambda event: self.began_s < event["time_s"] <= self.ended_s and event.get("busy_s") is not None
        self.tasks = [event for event in run.events["task"] if inside(event)]

    def busy_share(self, worker=1):
        """Share of the time for which a worker was computing, by its own clock."""
        return sum(task["busy_s"] for task in self.tasks if task["worker"] == worker) / (self.ended_s - self.began_s)

    def steps_per_s(self):
        return self.count / (self.ended_s - self.began_s)

    def task_s(self):
        return statistics.median(task["busy_s"] for task in self.tasks)


def tail(*processes):
    """The last line that one of these has logged."""
    lines = [line for process in processes for line in process.log.read_text(errors="replace").splitlines()[-1:]]
    return lines[0] if lines else "its log is empty"
