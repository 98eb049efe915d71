"""Measures the gradients of ata's built-in networks on one CPU thread against PyTorch's, in turns.

    pip install torch numpy
    python tools/pytorch/speed.py target/release/ata-dev [--rounds 5]

ata's times are those of `ata-dev bench gradient`: from reading the samples to the flat gradient in host memory. PyTorch's are
forward, cross-entropy and backward of images that are in memory. A line per network and batch: medians over the rounds, and
ata's time as a share of PyTorch's.
"""

import argparse
import json
import re
import statistics
import subprocess
import time

import torch
from torch import nn
from torch.nn import functional as F

from cnn import CLASSES, Cnn

# Gradients of which PyTorch's time in a round is the median; the first ones are not counted.
GRADIENTS, FIRST = 9, 2
ROW = re.compile(r"gradient of ([\w:=]+), batch of (\d+), cpu, 1 thread")


NORMS = {"group": lambda width: nn.GroupNorm(8, width), "batch": nn.BatchNorm2d}


def convolution(inputs, outputs, stride):
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


class Block(nn.Module):
    """A basic block whose shortcut has no parameters."""

    def __init__(self, inputs, width, stride, norm):
        super().__init__()
        self.stride = stride
        self.conv1, self.norm1 = convolution(inputs, width, stride), norm(width)
        self.conv2, self.norm2 = convolution(width, width, 1), norm(width)

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        if self.stride > 1:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, y.shape[1] - x.shape[1]))
        return F.relu(y + x)


class ResNet20(nn.Module):
    """ata's residual network."""

    def __init__(self, norm="group"):
        super().__init__()
        norm = NORMS[norm]
        self.conv1, self.norm1 = convolution(3, 16, 1), norm(16)
        shapes = [(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 + [(32, 64, 2)] + [(64, 64, 1)] * 2
        self.blocks = nn.Sequential(*(Block(*shape, norm) for shape in shapes))
        self.output = nn.Linear(64, CLASSES)

    def forward(self, x):
        x = self.blocks(F.relu(self.norm1(self.conv1(x))))
        return self.output(x.mean((2, 3)))


def ata_times(program):
    """Seconds by network and batch."""
    printed = subprocess.run([program, "bench", "gradient", "--json"], capture_output=True, text=True, check=True).stdout
    found = ((ROW.fullmatch(row["name"]), row["seconds"]) for row in json.loads(printed))
    return {(row[1], int(row[2])): seconds for row, seconds in found if row}


def pytorch_time(network, batch):
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(CLASSES, (batch,))
    times = []
    for _ in range(FIRST + GRADIENTS):
        started = time.perf_counter()
        network.zero_grad()
        F.cross_entropy(network(images), labels).backward()
        times.append(time.perf_counter() - started)
    return statistics.median(times[FIRST:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ata", help="the program")
    parser.add_argument("--rounds", type=int, default=5, help="how often both are measured [default: 5]")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    networks = {"cnn": Cnn(), "resnet20": ResNet20(), "resnet20:norm=batch": ResNet20("batch")}
    rounds = []
    for _ in range(arguments.rounds):
        ata = ata_times(arguments.ata)
        rounds.append({case: (ours, pytorch_time(networks[case[0]], case[1])) for case, ours in ata.items()})
    for name, batch in rounds[0]:
        ours, theirs = (statistics.median(times) for times in zip(*(each[name, batch] for each in rounds)))
        print(f"{name:19} batch {batch:3}: ata {ours * 1e3:8.2f} ms, PyTorch {theirs * 1e3:8.2f} ms, {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
