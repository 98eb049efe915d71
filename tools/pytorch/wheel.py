"""Tries a wheel of ata in clean environments: alone, with numpy 1, with numpy 2, with PyTorch, and with JAX.

    python tools/pytorch/wheel.py WHEEL [PYTHON...]

PYTHON: interpreters [default: python3]. Needs Linux, PyPI, and 8 GB of disk for PyTorch. Prints a row per environment, with the last
error line of each command that failed; stderr has all that those printed. The exit code is 1 if anything failed.
"""

import argparse
import os
import re
import signal
import sys
import tempfile
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen, TimeoutExpired, check_output

EXAMPLES = Path(__file__).resolve().parents[2] / "python" / "examples"
# What pip installs; {} is the wheel.
SETS = {"alone": ["{}"], "numpy 1": ["{}", "numpy<2"], "numpy 2": ["{}", "numpy>=2,<3"], "PyTorch": ["{}[torch]"], "JAX": ["{}[jax]"]}


def run(name, folder, command, timeout_s=300):
    """The output and the exit code of a command in the folder's environment. Says every 30 seconds that it still runs."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    env |= {"PATH": f"{folder}/venv/bin:{env['PATH']}", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    # Its own session, so that what it has started can be ended with it.
    process = Popen(command, cwd=folder, env=env, start_new_session=True, errors="replace", stdout=PIPE, stderr=STDOUT)
    try:
        for seconds in range(2, timeout_s + 2, 2):
            try:
                return process.communicate(timeout=2)[0], process.returncode
            except TimeoutExpired:
                if seconds % 30 == 2:
                    print(f"{name}: {seconds} s", file=sys.stderr, flush=True)
    finally:
        if process.returncode is None:  # It took too long, or somebody pressed Ctrl-C.
            os.killpg(process.pid, signal.SIGKILL)
    return process.communicate()[0] + f"\nerror: no end within {timeout_s} s", process.returncode


def error_line(output):
    lines = [line for line in output.splitlines() if line.strip()] or ["no output"]
    return next((line for line in reversed(lines) if "error" in line.lower()), lines[-1])


def checks(packages):
    """Commands, each with the error that it must end in, if any."""
    yield ["python", "-m", "ata", "--version"], None
    yield ["ata", "--help"], None
    yield ["python", EXAMPLES / "scheduler.py"], None
    for module, name in [("torch", "PyTorch"), ("jax", "JAX")]:
        missing = f"ImportError: ata.{module} needs {name}: pip install {module}"
        yield ["python", "-c", f"import ata.{module}"], None if packages == name else missing
    example = {"PyTorch": "spirals.py", "JAX": "jax_spirals.py"}.get(packages, "numpy_problem.py")
    yield ["python", EXAMPLES / example, *"up --workers 2 --iterations 10 --dashboard off".split()], None
    if packages == "PyTorch":
        yield ["torchrun", "--nproc-per-node", "2", EXAMPLES / "ddp.py"], None


def attempt(name, folder, wheel, python, packages):
    """The versions of what was installed, and what failed; None, if there was nothing to try."""
    venv = [python, "-m", "venv", "venv"]
    install = ["pip", "install", "--only-binary", "numpy", *(package.format(wheel) for package in SETS[packages])]
    failures = []
    for command, expected in [(venv, None), (install, None), *checks(packages), (["pip", "freeze"], None)]:
        words = " ".join(word.name if isinstance(word, Path) else word for word in command)
        output, code = run(f"{name}: {words}", folder, command, timeout_s=1800 if command is install else 300)
        if command is install and code and "No matching distribution found for numpy<2" in output:
            return "no wheel of numpy 1", None
        if code != 0 if expected is None else code == 0 or error_line(output) != expected:
            print(output, file=sys.stderr)
            failures.append(f"{words}: exit code {code}, {error_line(output)}")
            if command in (venv, install):
                return "", failures
    return ", ".join(re.findall("^(?:numpy|torch|jax)==.*", output, re.MULTILINE)).replace("==", " "), failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("pythons", nargs="*", default=["python3"], metavar="python")
    options = parser.parse_args()
    about = "import platform, sys; print(sys.executable, platform.python_version(), sep='\\n')"
    row, failed = "{:<8} {:<8} {:<27} {}", False
    print(row.format("Python", "packages", "versions", "result"), flush=True)
    for given in options.pythons:
        python, version = check_output([given, "-c", about], text=True).splitlines()
        for packages in SETS:
            with tempfile.TemporaryDirectory() as folder:
                versions, failures = attempt(f"Python {version}, {packages}", folder, options.wheel.resolve(), python, packages)
            failed = failed or bool(failures)
            result = "not tried" if failures is None else "; ".join(f"failed: {failure}" for failure in failures) or "passed"
            print(row.format(version, packages, versions, result), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
