"""Measures a PyTorch model on ata's own cluster, on workers of unequal speed, for comparison with `uneven.py`.

    pip install torch numpy ata
    python tools/pytorch/fleet.py [--quotas 0.8,0.4,0.2,0.1] [--samples 368] [--steps 60] [--script python/examples/lora.py]

The model, the images and the quotas are those of `uneven.py`, in tasks of 16 samples. The coordinator has no quota. Prints the median
seconds per step after 20 steps. It needs Linux and root, for cgroups, and nothing else should run meanwhile.
"""

import argparse
import itertools
import os
import statistics
import sys

import ata
import ata.torch
import torch
from cnn import Cnn
from ddp import Ata, Quotas, enter
from torch.nn import functional as F
from uneven import LEARNING, LEARNING_RATE, Images

TASK_BATCH = 16


def measure(options):
    quotas = [float(quota) for quota in options.quotas.split(",")]
    os.environ["OMP_NUM_THREADS"] = "1"
    own = () if options.script else ("--budget", options.samples // TASK_BATCH)
    with Quotas(quotas) as groups, Ata(sys.executable, options.script or __file__) as cluster:
        limits = ("--min-workers", len(groups), "--iterations", options.steps, *own)
        flags = ("--listen", "127.0.0.1:0", "--out", cluster.run, "--ready-file", cluster.ready, "--policy", options.policy)
        cluster.start("coordinator", *flags, *limits, "--eval-every", 0, "--checkpoint-every", "never")
        url = f"http://{cluster.address()}"
        for number, group in enumerate(groups, 1):
            worker = cluster.start("worker", "--coordinator", url, "--name", f"worker-{number}", "--threads", 1)
            enter(group, worker.pid)
        cluster.finish()
        times = [float(row["time_s"]) for row in cluster.iterations()]
        tasks = [event["allocation"] for event in cluster.events() if event["event"] == "allocation"]
    learned = min(LEARNING, options.steps // 2)
    steps = [after - before for before, after in zip(times[learned:], times[learned + 1 :])]
    tasks = [statistics.mean(of_worker) for of_worker in itertools.zip_longest(*tasks[learned:], fillvalue=0)]
    print(f"{statistics.median(steps):.3f} s per step; tasks of each worker: {' '.join(f'{mean:.1f}' for mean in tasks)}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quotas", default="0.8,0.4,0.2,0.1")
    parser.add_argument("--samples", type=int, default=368)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--script", help="another program that ends with ata.main, with its own budget")
    parser.add_argument("--policy", default="ata-auto")
    return parser.parse_args()


class Pairs(Images):
    """Images as one batch, without a copy of each."""

    def __len__(self):
        return len(self.images)


if __name__ == "__main__":
    if sys.argv[1:2] in (["coordinator"], ["worker"]):
        torch.manual_seed(0)
        problem = ata.torch.Problem(Cnn(), Pairs(), F.cross_entropy, collate=lambda batch: batch, device="cpu")
        ata.main(problem, task_batch=TASK_BATCH, lr=LEARNING_RATE)
    measure(arguments())
