"""Checks GPUs for ata; see ../accept-gpu.sh."""

import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import checks
from ata import Ata, Clock, Failure, Processes

USAGE = 64
# Time in which everything that is running can be ended, so that MINUTES are kept.
CLEANUP_S = 10


def number(name, default):
    try:
        return float(os.environ.get(name) or default)
    except ValueError:
        refuse(f"{name}: expected a number, found '{os.environ[name]}'")


def refuse(message):
    print(f"accept-gpu.sh: {message}", file=sys.stderr)
    sys.exit(USAGE)


def program(name):
    """A program by its path or name, since it is started in this folder."""
    found = shutil.which(name)
    if not found:
        refuse(f"there is no program {name}")
    return os.path.abspath(found)


class Table:
    """The lines so far, which are printed at once."""

    def __init__(self):
        self.lines = []

    def add(self, line):
        self.lines.append(line)
        print(f"{line.verdict:11}  {line.check:9}  {line.subject:42}  {line.text}", flush=True)

    def of(self, verdict):
        return [line for line in self.lines if line.verdict == verdict]


def run_check(table, name, lines):
    """Adds the lines of a check, or one that says how it failed."""
    try:
        for line in lines:
            table.add(line)
    except Failure as failure:
        table.add(checks.Line(name, "", checks.FAILED, str(failure)))


def check_all(table, ata, arguments):
    try:
        machine = checks.Machine(ata, *arguments)
    except Failure as failure:
        table.add(checks.Line("devices", "", checks.FAILED, str(failure)))
        return None
    # What takes longest and may be cut short comes last.
    for check in (checks.devices, checks.gradients, checks.busy, checks.fleet, checks.killed, checks.memory):
        run_check(table, check.__name__, check(machine))
    run_check(table, "rates", checks.rates(machine, checks.reserve_s(machine)))
    run_check(table, "training", checks.training(machine))
    return machine


def stop(number, _):
    # Once; the second signal would interrupt the end of the processes.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def main():
    began = time.monotonic()
    ata_path, python = program(sys.argv[1]), program(sys.argv[2]) if len(sys.argv) > 2 else None
    minutes, train_s = number("MINUTES", 40), number("TRAIN_S", 600)
    data, wanted = os.environ.get("DATA"), os.environ.get("DEVICE")
    if data and not Path(data).exists():
        refuse(f"DATA: there is no {data}")
    plan = checks.SHORT if os.environ.get("SHORT") not in (None, "", "0") else checks.Plan()
    if plan is checks.SHORT:
        # Trying out every kernel would take minutes on a software adapter.
        os.environ.setdefault("CUBECL_AUTOTUNE_LEVEL", "minimal")
    out = Path(os.environ.get("OUT") or "accept-gpu.json")
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, stop)

    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        processes = Processes(folder)
        try:
            ata = Ata(ata_path, processes, Clock(60 * minutes - CLEANUP_S))
            version = ata.version()
            machine = check_all(table, ata, (plan, wanted, python, data and os.path.abspath(data), train_s))
        except Failure as failure:
            refuse(failure)
        finally:
            processes.end()
    failed = table.of(checks.FAILED)
    report = {
        "ata": version,
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "device": machine and machine.device,
        "is_gpu": bool(machine and machine.is_gpu),
        "short": plan is checks.SHORT,
        "seconds": round(time.monotonic() - began, 1),
        "passed": not failed,
        "lines": [asdict(line) for line in table.lines],
    }
    out.write_text(json.dumps(report, indent=2) + "\n")
    counts = ", ".join(
        f"{len(table.of(verdict))} {verdict}" for verdict in (checks.PASSED, checks.FAILED, checks.MEASURED, checks.NOT_CHECKED)
    )
    print(f"\n{counts}, in {report['seconds']:.0f} s; {out}")
    for line in failed:
        print(f"failed: {line.check} {line.subject}: {line.text}")
    if table.of(checks.NOT_CHECKED):
        print("not checked: " + "; ".join(f"{line.check} {line.subject}".strip() for line in table.of(checks.NOT_CHECKED)))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
