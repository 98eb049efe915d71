"""Trains ResNet-20 on CIFAR-100 with augmentation, in ata and in PyTorch, and prints the test accuracy over the samples seen.

    pip install torch numpy
    python tools/pytorch/resnet20.py target/release/ata cifar-100-binary [--minutes 20] [--norm batch]

Both train at the same time, on one core each: random crops of the image padded by 4 black pixels, mirroring, batches of 128, Adam with a
constant learning rate of 1e-3, an evaluation of the whole test set after each epoch. ata has one worker, and tasks of 16 samples, each of which
batch normalisation normalises by itself. It needs Linux and two cores, and nothing else should run meanwhile.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from speed import ResNet20

RECORD = 2 + 3 * 32 * 32
BATCH, TASK_BATCH = 128, 16
# Steps between two evaluations: an epoch.
EVERY = 390
# How the built-in model normalises CIFAR-100.
MEAN, DEVIATION = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)


def read(path):
    records = np.fromfile(path, np.uint8).reshape(-1, RECORD)
    return torch.from_numpy(records[:, 2:].reshape(-1, 3, 32, 32).copy()), torch.from_numpy(records[:, 1].astype(np.int64))


def normalised(images):
    mean, deviation = (torch.tensor(values).reshape(1, 3, 1, 1) for values in (MEAN, DEVIATION))
    return (images.float() / 255 - mean) / deviation


def augmented(images):
    padded = F.pad(images, (4, 4, 4, 4))
    right, down = torch.randint(9, (2, len(images)))
    rows = (down[:, None] + torch.arange(32))[:, None, :, None]
    columns = (right[:, None] + torch.arange(32))[:, None, None, :]
    cropped = padded[torch.arange(len(images))[:, None, None, None], torch.arange(3)[None, :, None, None], rows, columns]
    mirrored = torch.rand(len(images)) < 0.5
    return torch.where(mirrored[:, None, None, None], cropped.flip(3), cropped)


def of_pytorch(data, norm, seconds, found):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    (images, labels), (test_images, test_labels) = read(data / "train.bin"), read(data / "test.bin")
    test_images = normalised(test_images)
    net = ResNet20(norm)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    began, step, order = time.monotonic(), 0, torch.empty(0, dtype=torch.int64)
    while True:
        if len(order) < BATCH:
            order = torch.randperm(len(images))
        now, order = order[:BATCH], order[BATCH:]
        optimizer.zero_grad()
        F.cross_entropy(net(normalised(augmented(images[now]))), labels[now]).backward()
        optimizer.step()
        step += 1
        at = time.monotonic() - began
        if step % EVERY == 0 or at >= seconds:
            net.eval()
            with torch.no_grad():
                right = sum((net(part).argmax(1) == of_part).sum().item() for part, of_part in zip(test_images.split(250), test_labels.split(250)))
            net.train()
            found.append((step, at, right / len(test_labels)))
            if at >= seconds:
                return


def of_ata(program, data, norm, seconds, core):
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "up", "--data", data, "--model", f"resnet20:norm={norm}", "--augment", "crop,flip", "--workers", "1", "--threads", "1"]
        command += ["--task-time", "none", "--budget", BATCH // TASK_BATCH, "--task-batch", TASK_BATCH, "--lr", "1e-3"]
        command += ["--iterations", "1000000", "--max-runtime-s", seconds, "--eval-every", EVERY, "--checkpoint-every", "never"]
        command += ["--dashboard", "off", "--out", Path(folder) / "run", "--seed", "1"]
        with open(Path(folder) / "log", "w") as log:
            process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        if process.wait():
            sys.exit((Path(folder) / "log").read_text())
        with open(Path(folder) / "run/metrics.csv") as file:
            rows = [row for row in csv.DictReader(file) if row["test_accuracy"]]
        return [(int(row["iteration"]), float(row["time_s"]), float(row["test_accuracy"])) for row in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ata", type=lambda text: Path(text).resolve())
    parser.add_argument("data", type=Path)
    parser.add_argument("--norm", choices=["group", "batch"], default="group")
    parser.add_argument("--minutes", type=float, default=20)
    options = parser.parse_args()
    first, second = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {first})
    seconds, ours, theirs = 60 * options.minutes, [], []
    training = threading.Thread(target=lambda: ours.extend(of_ata(options.ata, options.data, options.norm, seconds, second)))
    training.start()
    of_pytorch(options.data, options.norm, seconds, theirs)
    training.join()
    print("samples    ata: minutes, accuracy    PyTorch: minutes, accuracy")
    steps = sorted({step for step, *_ in ours + theirs})
    for step in steps:
        def cell(curve):
            return next((f"{at / 60:6.1f}  {100 * accuracy:5.1f} %" for of, at, accuracy in curve if of == step), "")
        print(f"{step * BATCH:8}   {cell(ours):24}  {cell(theirs)}")


if __name__ == "__main__":
    main()
