"""Measures what loader processes are worth, with samples that take 5 ms each to load.

    pip install torch numpy ata
    python tools/pytorch/loaders.py [--loaders 0,1,2,4,8] [--steps 10]

A worker of one thread trains ata's CNN, 16 tasks of 16 samples a step. Prints the seconds per step and the digest of the parameters, which
has to be the same for all numbers of loaders.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import torch
from torch.nn import functional as F

import ata
import ata.torch
from cnn import CLASSES, Cnn

SAMPLE_S = 0.005


class Slow(torch.utils.data.Dataset):
    """Samples that take a while, without using the processor."""

    def __len__(self):
        return 4096

    def __getitem__(self, index):
        time.sleep(SAMPLE_S)
        return torch.full((3, 32, 32), index / len(self)), torch.tensor(index % CLASSES)


def measure(loaders, steps):
    command = [sys.executable, os.path.abspath(__file__), "up", "--workers", "1", "--threads", "1", "--iterations", str(steps)]
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [*command, "--json", "--dashboard", "off"],
            stdout=subprocess.PIPE,
            cwd=folder,
            env=os.environ | {"LOADERS": str(loaders)},
            check=True,
        )
    summary = json.loads(run.stdout)
    print(f"{loaders} loaders: {summary['mean_iteration_s']:.3f} s per step, sha256 {summary['parameters_sha256'][:16]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loaders", default="0,1,2,4,8")
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    for loaders in options.loaders.split(","):
        measure(int(loaders), options.steps)


if __name__ == "__main__":
    if sys.argv[1:2] and not sys.argv[1].startswith("-"):
        torch.manual_seed(0)
        loaders = int(os.environ["LOADERS"])
        problem = ata.torch.Problem(Cnn(), Slow(), F.cross_entropy, evaluate=[Slow()[0]], loaders=loaders, device="cpu")
        ata.main(problem, budget=16, task_batch=16, eval_every=0)
    main()
