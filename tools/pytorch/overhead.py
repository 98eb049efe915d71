"""Measures what a task costs a worker in Python, in Rust, and in PyTorch alone, for a small and a large network.

    pip install torch numpy ata
    python tools/pytorch/overhead.py [--iterations 40]

The networks are ata's CNN with 0.16 M and with 10.7 M parameters, a task has 16 random images, and all compute with one thread. PyTorch
alone computes forward, loss and backward. A worker also makes the batch and adds the gradient to the exact sum. Prints the mean
milliseconds of a task.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
from torch.nn import functional as F

import ata
import ata.torch
from cnn import Cnn
from ddp import Ata
from fleet import Pairs

TASK_BATCH, BUDGET = 16, 4
WIDTHS = [(16, 32, 64, 120), (16, 16, 640, 1024)]
# Gradients of PyTorch's that are not counted.
FIRST = 5


def of_worker(program, model, iterations):
    """The mean milliseconds of a task of the only worker."""
    limits = ("--budget", BUDGET, "--task-batch", TASK_BATCH, "--iterations", iterations, "--eval-every", 0)
    with Ata(*program) as cluster:
        flags = ("--listen", "127.0.0.1:0", "--out", cluster.run, "--ready-file", cluster.ready, "--checkpoint-every", "never")
        cluster.start("coordinator", *limits, *flags, *model)
        cluster.start("worker", "--coordinator", f"http://{cluster.address()}", "--device", "cpu", "--threads", 1)
        cluster.finish()
        (mean_s,) = json.loads((cluster.run / "summary.json").read_text())["task_mean_s"]
    return 1e3 * mean_s


def of_pytorch(widths, gradients):
    torch.set_num_threads(1)
    net, images = Cnn(widths), Pairs()
    times = []
    for gradient in range(FIRST + gradients):
        inputs, labels = images.__getitems__(range(gradient * TASK_BATCH, (gradient + 1) * TASK_BATCH))
        net.zero_grad()
        began = time.perf_counter()
        F.cross_entropy(net(inputs), labels).backward()
        times.append(time.perf_counter() - began)
    return 1e3 * statistics.mean(times[FIRST:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=40)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    for widths in WIDTHS:
        name = "/".join(map(str, widths))
        parameters = sum(tensor.numel() for tensor in Cnn(widths).parameters()) / 1e6
        os.environ["OVERHEAD_WIDTHS"] = name
        alone = of_pytorch(widths, BUDGET * options.iterations)
        in_python = of_worker([sys.executable, __file__], (), options.iterations)
        in_rust = of_worker([sys.executable, "-m", "ata"], ("--model", f"cnn:widths={name}"), options.iterations)
        print(
            f"{parameters:5.2f} M parameters: PyTorch alone {alone:5.1f} ms, worker in Python {in_python:5.1f} ms,"
            f" worker in Rust {in_rust:5.1f} ms"
        )


if __name__ == "__main__":
    if sys.argv[1:2] in (["coordinator"], ["worker"]):
        torch.manual_seed(0)
        widths = map(int, os.environ["OVERHEAD_WIDTHS"].split("/"))
        problem = ata.torch.Problem(Cnn(tuple(widths)), Pairs(), F.cross_entropy, collate=lambda batch: batch, device="cpu")
        ata.main(problem)
    main()
