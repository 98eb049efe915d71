"""Measures ata against PyTorch's DistributedDataParallel (DDP, over gloo) on this machine's CPU, in turns.

    pip install torch numpy
    python tools/pytorch/ddp.py unequal target/release/ata cifar-100-binary [--widths 32/64/128/256]
    python tools/pytorch/ddp.py overhead target/release/ata [--workers 2] [--batch 32]

`unequal`: one process with one thread per CPU quota trains the same network, with Adam and as many samples a step, in three ways:
DDP with even batches, DDP with batches set by hand in proportion to the quotas, and ata, which knows neither speeds nor quotas.
ata's coordinator has no quota; DDP's images are in memory and normalised before the clock starts. It needs Linux and root, for
cgroups. The workers' seconds are those that they spend on gradients; DDP keeps each process for all of the step.

`overhead`: what a step costs beyond its gradient, with equal workers of one thread each. DDP: forward, backward with all-reduce,
and Adam, less forward and backward alone, in the same processes, by turns. ata: an iteration, optimizer step included, less the
seconds for which its slowest worker was busy.

A line per contestant: medians over the rounds. Nothing else should run meanwhile. Quotas are enforced per 100 ms: where a step
takes less, count many steps.
"""

import argparse
import csv
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

try:
    import numpy as np
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch.nn import functional as F
    from torch.nn.parallel import DistributedDataParallel

    from cnn import CLASSES, Cnn
except ImportError as error:
    sys.exit(f"{Path(__file__).name} needs PyTorch and NumPy ({error}): pip install torch numpy")

# A record of CIFAR-100's binary layout: coarse label, fine label, red, green and blue plane.
RECORD_BYTES = 2 + 3 * 32 * 32
MEAN, DEVIATION = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
# A step of `unequal`: as many samples for DDP as for ata.
TASKS, TASK_BATCH = 23, 16
SAMPLES = TASKS * TASK_BATCH
LEARNING_RATE = 1e-3
# Steps that are not counted: PyTorch's buffers and buckets take shape in them, and ata learns the speeds.
DDP_FIRST, ATA_FIRST = 2, 5
# A DDP process of `unequal` holds at most this many batches in memory, and goes through them again and again.
PREPARED = 32
PERIOD_US = 100_000
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Quotas:
    """A control group per CPU quota, in whichever version of cgroups has the cpu controller here."""

    def __init__(self, quotas):
        self.enabled = None
        self.root, self.is_v2 = self.find()
        self.groups = [self.root / f"ata-ddp-{os.getpid()}-{number}" for number in range(len(quotas))]
        self.quotas = quotas

    @staticmethod
    def find():
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        for _, folder, kind, options, *_ in mounts:
            if kind == "cgroup" and "cpu" in options.split(","):
                return Path(folder), False
        for _, folder, kind, *_ in mounts:
            if kind == "cgroup2" and "cpu" in (Path(folder) / "cgroup.controllers").read_text().split():
                return Path(folder), True
        sys.exit("no cgroup file system with the cpu controller is mounted, so that CPU quotas cannot be set")

    def __enter__(self):
        try:
            self.create()
        except OSError as error:
            self.remove()
            sys.exit(f"cannot set CPU quotas, which needs root and a writable cgroup file system: {error}")
        except BaseException:
            self.remove()
            raise
        return self.groups

    def create(self):
        control = self.root / "cgroup.subtree_control"
        if self.is_v2 and "cpu" not in control.read_text().split():
            control.write_text("+cpu")
            self.enabled = control
        for group, quota in zip(self.groups, self.quotas):
            group.mkdir()
            quota_us = round(quota * PERIOD_US)
            if self.is_v2:
                (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(str(quota_us))

    def __exit__(self, *_):
        self.remove()

    def remove(self):
        """Kills what is left in the groups: nobody else knows of them."""
        left = [group for group in self.groups if group.is_dir()]
        deadline = time.monotonic() + 10
        while left and time.monotonic() < deadline:
            for group in left:
                for process in (group / "cgroup.procs").read_text().split():
                    try:
                        os.kill(int(process), signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                try:
                    group.rmdir()
                except OSError:
                    time.sleep(0.05)
            left = [group for group in left if group.is_dir()]
        for group in left:
            print(f"could not remove {group}", file=sys.stderr)
        if self.enabled:
            try:
                self.enabled.write_text("-cpu")
            except OSError as error:
                print(f"{self.enabled} keeps +cpu: {error}", file=sys.stderr)


def enter(group, process):
    (group / "cgroup.procs").write_text(str(process))


def parts(total, weights):
    """Splits samples in proportion to weights, by largest remainders; nobody gets none."""
    exact = [total * weight / sum(weights) for weight in weights]
    shares = [max(1, int(share)) for share in exact]
    while sum(shares) != total:
        step = 1 if sum(shares) < total else -1
        candidates = [i for i, share in enumerate(shares) if share + step >= 1]
        shares[max(candidates, key=lambda i: step * (exact[i] - shares[i]))] += step
    return shares


# DDP


def run_ranks(function, ranks, *arguments):
    """Runs function(rank, port, folder, …) in as many processes, and returns what they wrote."""
    with tempfile.TemporaryDirectory() as folder:
        # The processes find each other through this one, at a port that the system chose.
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        try:
            context = mp.start_processes(
                function, (ranks, store.port, folder, *arguments), ranks, join=False, daemon=True, start_method="spawn"
            )
            while not context.join():
                pass
        except (mp.ProcessRaisedException, mp.ProcessExitedException) as error:
            sys.exit(f"DDP failed: {error}")
        finally:
            for process in multiprocessing.active_children():
                process.kill()
                process.join()
        return [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(ranks)]


@contextmanager
def process_group(rank, ranks, port):
    torch.set_num_threads(1)
    torch.manual_seed(1 + rank)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    yield
    dist.destroy_process_group()


def write_result(folder, rank, result):
    (Path(folder) / f"{rank}.json").write_text(json.dumps(result))


def prepare(train, batch, count):
    """Batches of random training samples, as tensors."""
    records = np.memmap(train, np.uint8, "r").reshape(-1, RECORD_BYTES)
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))
    batches = []
    for _ in range(count):
        chosen = records[torch.randint(len(records), (batch,)).numpy()]
        pixels = torch.from_numpy(chosen[:, 2:].reshape(-1, 3, 32, 32).copy())
        batches.append(((pixels / 255 - mean) / deviation, torch.from_numpy(chosen[:, 1].astype(np.int64))))
    return batches


def unequal_rank(rank, ranks, port, folder, batches, widths, steps, train, groups):
    """One process of DDP in `unequal`: the seconds per step, and those until its own gradient is complete."""
    with process_group(rank, ranks, port):
        prepared = prepare(train, batches[rank], min(steps + DDP_FIRST, PREPARED))
        network = Cnn(widths)
        # The first layer's gradient is the last one to be computed.
        computed = []
        network.conv1.weight.register_hook(lambda _: computed.append(time.perf_counter()))
        model = DistributedDataParallel(network)
        adam = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
        # DDP takes the mean over processes; every sample is to weigh the same.
        weight = batches[rank] * ranks / sum(batches)
        # Start-up is not limited, as it is not measured either.
        enter(groups[rank], os.getpid())
        starts = []
        for step in range(steps + DDP_FIRST):
            images, labels = prepared[step % len(prepared)]
            starts.append(time.perf_counter())
            adam.zero_grad()
            (F.cross_entropy(model(images), labels) * weight).backward()
            adam.step()
        ended = time.perf_counter()
        computing = [end - start for start, end in zip(starts, computed)]
        result = {"step": (ended - starts[DDP_FIRST]) / steps, "computing": statistics.mean(computing[DDP_FIRST:])}
        write_result(folder, rank, result)


def ddp_unequal(options, train, groups, batches):
    ranks = run_ranks(unequal_rank, len(groups), batches, options.widths, options.steps, train, groups)
    return {
        "seconds_per_step": statistics.mean(rank["step"] for rank in ranks),
        "worker_seconds_per_step": sum(rank["computing"] for rank in ranks),
        "samples": batches,
    }


def overhead_rank(rank, ranks, port, folder, widths, batch, steps):
    """One process of DDP in `overhead`: the seconds of whole steps and of bare gradients."""
    with process_group(rank, ranks, port):
        images, labels = torch.randn(batch, 3, 32, 32), torch.randint(CLASSES, (batch,))
        model = DistributedDataParallel(Cnn(widths))
        adam = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)

        def whole():
            adam.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            adam.step()

        def bare():
            adam.zero_grad()
            with model.no_sync():
                F.cross_entropy(model(images), labels).backward()

        times = {"whole": [], "bare": []}
        for step in range(DDP_FIRST + steps):
            for work in (whole, bare):
                dist.barrier()
                started = time.perf_counter()
                work()
                if step >= DDP_FIRST:
                    times[work.__name__].append(time.perf_counter() - started)
        write_result(folder, rank, times)


def ddp_overhead(options):
    ranks = run_ranks(overhead_rank, options.workers, options.widths, options.batch, options.steps)
    # As for ata, it is the slowest worker that counts.
    whole, bare = ([max(times) for times in zip(*(rank[kind] for rank in ranks))] for kind in ("whole", "bare"))
    beyond = [step - gradient for step, gradient in zip(whole, bare)]
    return {"seconds_per_step": statistics.median(whole), "overhead_seconds": statistics.median(beyond)}


# ata


class Ata:
    """Runs the program in a folder of its own, and ends what it started."""

    def __init__(self, *program):
        self.program = program

    def __enter__(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.run = self.folder / "run"
        self.ready = self.folder / "ready.json"
        self.processes = []
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        self.temporary.cleanup()

    def start(self, *arguments):
        # Settings come from the command line only.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ATA_")}
        command = [*self.program, *map(str, arguments)]
        with open(self.log(len(self.processes)), "w") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        self.processes.append(process)
        return process

    def log(self, number):
        return self.folder / f"{number}.log"

    def check(self):
        """Fails if a process has."""
        for number, process in enumerate(self.processes):
            if process.poll():
                command = " ".join(process.args)
                tail = self.log(number).read_text(errors="replace")[-2000:]
                sys.exit(f"{command}: exit code {process.returncode}\n{tail}")

    def address(self):
        """Where the coordinator listens."""
        while True:
            self.check()
            if self.ready.exists():
                return json.loads(self.ready.read_text())["address"]
            time.sleep(0.05)

    def finish(self):
        while self.processes[0].poll() is None:
            self.check()
            time.sleep(0.2)
        self.check()

    def events(self):
        with open(self.run / "events.jsonl") as file:
            return [json.loads(line) for line in file]

    def iterations(self):
        """The rows of metrics.csv, less those of evaluations."""
        with open(self.run / "metrics.csv", newline="") as file:
            return [row for row in csv.DictReader(file) if row["loss"]]


def settings(options, samples):
    """The flags that both experiments share."""
    model = "cnn:widths=" + "/".join(map(str, options.widths))
    flags = {"model": model, "optimizer": "adam", "lr": LEARNING_RATE, "task-batch": samples, "device": "cpu"}
    flags |= {"iterations": options.steps + ATA_FIRST, "eval-every": 0, "checkpoint-every": "never"}
    return [part for name, value in flags.items() for part in (f"--{name}", value)]


def ata_unequal(options, groups):
    with Ata(options.ata) as ata:
        limits = ("--policy", "ata-auto", "--budget", TASKS, "--min-workers", len(groups))
        flags = ("--listen", "127.0.0.1:0", "--data", options.data, "--out", ata.run, "--ready-file", ata.ready)
        ata.start("coordinator", *flags, *limits, *settings(options, TASK_BATCH))
        url = f"http://{ata.address()}"
        for number, group in enumerate(groups, 1):
            who = ("--name", f"worker-{number}", "--number", number)
            how = ("--data", options.data, "--device", "cpu", "--threads", 1)
            enter(group, ata.start("worker", "--coordinator", url, *who, *how).pid)
        ata.finish()
        rows = ata.iterations()
        counted = rows[ATA_FIRST:]
        seconds = float(rows[-1]["time_s"]) - float(rows[ATA_FIRST - 1]["time_s"])
        allocations = [e["allocation"] for e in ata.events() if e["event"] == "allocation" and e["iteration"] > ATA_FIRST]
        return {
            "seconds_per_step": seconds / len(counted),
            "worker_seconds_per_step": statistics.mean(float(row["total_worker_time_s"]) for row in counted),
            "samples": [TASK_BATCH * statistics.mean(tasks) for tasks in zip(*allocations)],
        }


def ata_overhead(options):
    with Ata(options.ata) as ata:
        flags = ("--workers", options.workers, "--threads", 1, "--task-time", "none", "--out", ata.run, "--json")
        policy = ("--policy", "uta", "--budget", options.workers)
        ata.start("up", *flags, *policy, *settings(options, options.batch))
        ata.finish()
        busy, ends = {}, {}
        for event in ata.events():
            if event["event"] == "task":
                of_workers = busy.setdefault(event["iteration"], {})
                of_workers[event["worker"]] = of_workers.get(event["worker"], 0) + event["busy_s"]
            elif event["event"] == "step":
                ends[event["iteration"]] = event["time_s"]
        counted = range(ATA_FIRST + 1, max(ends) + 1)
        walls = [ends[k] - ends[k - 1] for k in counted]
        beyond = [wall - max(busy[k].values()) for wall, k in zip(walls, counted)]
        return {"seconds_per_step": statistics.median(walls), "overhead_seconds": statistics.median(beyond)}


# Experiments


def take_turns(rounds, contestants):
    """Runs each contestant once per round. Returns their results, by name."""
    results = {name: [] for name in contestants}
    for number in range(1, rounds + 1):
        for name, measure in contestants.items():
            print(f"round {number} of {rounds}: {name} …", file=sys.stderr, flush=True)
            results[name].append(measure())
    return results


def medians(results):
    """The median over the rounds of each figure, or of each worker's."""

    def median(values):
        return [statistics.median(each) for each in zip(*values)] if isinstance(values[0], list) else statistics.median(values)

    return {name: {key: median([run[key] for run in runs]) for key in runs[0]} for name, runs in results.items()}


def report(options, settings_used, results, ratios, title, columns):
    """Prints the medians: a line per contestant, or JSON."""
    found = medians(results)
    if options.json:
        shared = {"widths": options.widths, "steps": options.steps, "rounds": options.rounds}
        print(json.dumps(settings_used | shared | {"median": found, "ratios": ratios(found), "runs": results}, indent=2))
        return
    print(f"{title}; medians of {options.rounds} round(s) of {options.steps} steps")
    table = [["", *columns]] + [[name, *(show(row) for show in columns.values())] for name, row in found.items()]
    sizes = [max(map(len, column)) for column in zip(*table)]
    for first, *others in table:
        print("  ".join([first.ljust(sizes[0]), *(text.rjust(size) for text, size in zip(others, sizes[1:]))]).rstrip())
    print(", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios(found).items()))


def unequal(options):
    if sys.platform != "linux" or os.geteuid():
        sys.exit("unequal sets CPU quotas with cgroups, which needs Linux and root")
    candidates = [options.data / "train.bin", options.data / "cifar-100-binary" / "train.bin"]
    train = next((path for path in candidates if path.is_file()), None)
    if not train:
        sys.exit(f"{options.data}: no train.bin there")
    if sum(options.quotas) > len(os.sched_getaffinity(0)):
        print("the quotas exceed this machine's cores: no worker will get all of its own", file=sys.stderr)
    even, by_hand = parts(SAMPLES, [1] * len(options.quotas)), parts(SAMPLES, options.quotas)
    with Quotas(options.quotas) as groups:
        contestants = {
            "DDP": lambda: ddp_unequal(options, train, groups, even),
            "DDP by hand": lambda: ddp_unequal(options, train, groups, by_hand),
            "ata": lambda: ata_unequal(options, groups),
        }
        results = take_turns(options.rounds, contestants)

    def ratios(found):
        step = {name: row["seconds_per_step"] for name, row in found.items()}
        return {"DDP/ata": step["DDP"] / step["ata"], "by hand/ata": step["DDP by hand"] / step["ata"]}

    columns = {
        "s per step": lambda row: f"{row['seconds_per_step']:.4f}",
        "worker s per step": lambda row: f"{row['worker_seconds_per_step']:.4f}",
        "workers × step": lambda row: f"{row['seconds_per_step'] * len(options.quotas):.4f}",
        "samples of each worker": lambda row: " ".join(f"{samples:.0f}" for samples in row["samples"]),
    }
    widths, quotas = ("/".join(map(str, options.widths)), " ".join(f"{quota:g}" for quota in options.quotas))
    title = f"CNN {widths}, {SAMPLES} samples a step, CPU quotas {quotas}"
    report(options, {"quotas": options.quotas, "samples": SAMPLES}, results, ratios, title, columns)


def overhead(options):
    contestants = {"DDP": lambda: ddp_overhead(options), "ata": lambda: ata_overhead(options)}
    results = take_turns(options.rounds, contestants)

    def ratios(found):
        return {"DDP/ata": found["DDP"]["overhead_seconds"] / found["ata"]["overhead_seconds"]}

    columns = {
        "ms per step": lambda row: f"{row['seconds_per_step'] * 1e3:.3f}",
        "ms beyond the gradient": lambda row: f"{row['overhead_seconds'] * 1e3:.3f}",
    }
    widths = "/".join(map(str, options.widths))
    title = f"CNN {widths}, {options.workers} workers of one thread, batches of {options.batch}"
    report(options, {"workers": options.workers, "batch": options.batch}, results, ratios, title, columns)


def quotas_of(text):
    quotas = [float(part) for part in text.split(",")]
    if not all(0.01 <= quota <= 1 for quota in quotas):
        raise argparse.ArgumentTypeError("quotas are from 0.01 to 1: each process has one thread")
    if len(quotas) > TASKS:
        raise argparse.ArgumentTypeError(f"at most {TASKS} quotas: a step has as many tasks")
    return quotas


def widths_of(text):
    widths = [int(part) for part in text.split("/")]
    if len(widths) != 4 or min(widths) < 1:
        raise argparse.ArgumentTypeError("give four widths: C1/C2/C3/H")
    return widths


def count(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def stop(number, _):
    # What cleans up is not to be interrupted.
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="unequal | overhead")

    def command(function, summary, steps):
        sub = commands.add_parser(function.__name__, help=summary, description=summary, allow_abbrev=False)
        sub.set_defaults(function=function)
        sub.add_argument("ata", help="the program")
        if function is unequal:
            sub.add_argument("data", type=Path, help="a folder with CIFAR-100's train.bin and test.bin")
        sub.add_argument("--widths", type=widths_of, default="16/32/64/120", help="the network's [default: 16/32/64/120]")
        sub.add_argument("--steps", type=count, default=steps, help=f"steps counted in a run [default: {steps}]")
        sub.add_argument("--rounds", type=count, default=3, help="how often all are measured [default: 3]")
        sub.add_argument("--json", action="store_true", help="print the medians and every run's figures as JSON")
        return sub

    sub = command(unequal, "Seconds per step with workers of unequal speed.", 20)
    sub.add_argument("--quotas", type=quotas_of, default="0.8,0.4,0.2,0.1", help="CPUs of each [default: 0.8,0.4,0.2,0.1]")
    sub = command(overhead, "What a step costs beyond its gradient.", 60)
    sub.add_argument("--workers", type=count, default=2, help="processes of one thread each [default: 2]")
    sub.add_argument("--batch", type=count, default=32, help="samples of each worker in a step [default: 32]")
    return parser.parse_args()


def main():
    options = arguments()
    for each in SIGNALS:
        signal.signal(each, stop)
    # For DDP's processes: as torchrun sets it, and connections that do not leave this machine.
    os.environ["OMP_NUM_THREADS"] = "1"
    if sys.platform == "linux":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    try:
        options.function(options)
    except FileNotFoundError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
