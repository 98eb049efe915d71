"""Checks that ata and PyTorch compute the same with the same parameters, in both directions.

    pip install torch safetensors numpy
    python tools/pytorch/check.py target/release/ata [--data cifar-100-binary] [--infer target/release/examples/infer]

Everything runs on the CPU, in a temporary folder. A line per comparison; the exit code is 1 if one failed.
"""

import argparse
import hashlib
import json
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from cnn import CLASSES, Cnn

# A record of CIFAR-100's binary layout: coarse label, fine label, red, green and blue plane.
RECORD_BYTES = 2 + 3 * 32 * 32
# Of losses and log-probabilities, in nats. Both sides sum the same f32 products in different orders.
LOSS_TOLERANCE = 1e-5
# Of percentages that were printed with one decimal.
PERCENT_TOLERANCE = 0.051
# The iteration that is repeated in PyTorch takes each of this many training records once.
TASKS, TASK_BATCH = 10, 20
SLIM = "cnn:widths=8/12/20/40"


class Checks:
    """Prints comparisons and counts those that fail."""

    def __init__(self):
        self.done = self.failed = 0

    def within(self, what, found, expected, tolerance):
        difference = float(np.max(np.abs(np.asarray(found, np.float64) - np.asarray(expected, np.float64))))
        self.report(what, f"difference {difference:.1e}, at most {tolerance:g}", difference <= tolerance)

    def equal(self, what, found, expected):
        is_equal = found == expected
        self.report(what, "equal" if is_equal else f"{found} is not {expected}", is_equal)

    def report(self, what, detail, is_good):
        self.done += 1
        self.failed += not is_good
        print(f"{'ok' if is_good else 'FAILED':6}  {what}: {detail}", flush=True)


class Ata:
    """Runs the program."""

    def __init__(self, program):
        self.program = program

    def run(self, *arguments):
        return subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True)

    def json(self, *arguments):
        done = self.run(*arguments, "--device", "cpu", "--log", "error", "--json")
        if done.returncode:
            sys.exit(f"{self.program} {' '.join(map(str, arguments))}: exit code {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout)

    def train(self, out, data, *more):
        one_worker = ("--workers", 1, "--task-time", "none", "--policy", "uta")
        return self.json("up", "--out", out, "--data", data, *one_worker, *more)

    def eval(self, model, data):
        return self.json("eval", model, "--data", data)


def find_split(folder, name):
    return next(path for path in (folder / name, folder / "cifar-100-binary" / name) if path.is_file())


def read_records(path):
    return np.fromfile(path, np.uint8).reshape(-1, RECORD_BYTES)


def normalisation_of(model):
    """The mean and standard deviation of each channel, from the metadata of a file that ata wrote."""
    with safe_open(model, "pt") as file:
        text = file.metadata()["normalisation"]
    fields = dict(field.split("=") for field in text.split())
    return [torch.tensor([float(x) for x in fields[key].split("/")]).view(3, 1, 1) for key in ("mean", "std")]


def images_of(records, normalisation):
    mean, deviation = normalisation
    pixels = torch.from_numpy(records[:, 2:].reshape(-1, 3, 32, 32).copy())
    return (pixels / 255 - mean) / deviation


@torch.no_grad()
def log_probabilities(model, records, normalisation):
    batches = np.array_split(records, -(-len(records) // 250))
    return torch.cat([F.log_softmax(model(images_of(batch, normalisation)), 1) for batch in batches]).double()


def labels_of(records):
    return records[:, 1].astype(np.int64)


def mean_loss(model, records, normalisation):
    scores = log_probabilities(model, records, normalisation)
    return float(F.nll_loss(scores, torch.from_numpy(labels_of(records))))


def flat_sha256(model):
    """ata's order: the tensors as the module declares them, the weights of Linear as [in, out]."""
    digest = hashlib.sha256()
    for layer in model.children():
        weight = layer.weight.T if isinstance(layer, nn.Linear) else layer.weight
        for tensor in (weight, layer.bias):
            digest.update(tensor.detach().contiguous().numpy().astype("<f4").tobytes())
    return digest.hexdigest()


def compare_eval(checks, title, model, evaluation, records, normalisation):
    """Holds PyTorch's figures on test records against those of `ata eval`."""
    labels = labels_of(records)
    hits = log_probabilities(model, records, normalisation).argmax(1).numpy() == labels
    checks.equal(f"{title}, sha256 of the parameters", flat_sha256(model), evaluation["parameters_sha256"])
    loss = mean_loss(model, records, normalisation)
    checks.within(f"{title}, test loss", loss, evaluation["loss"], LOSS_TOLERANCE)
    checks.equal(f"{title}, test accuracy", float(hits.mean()), evaluation["accuracy"])
    found = [[row["samples"], row["correct"]] for row in evaluation["classes"]]
    expected = [[int((labels == c).sum()), int(hits[labels == c].sum())] for c in range(len(found))]
    checks.equal(f"{title}, samples and hits of {len(found)} classes", expected, found)


def compare_one_image(checks, ata, folder, file, model, record, normalisation):
    """The loss on one image with label c is minus the log-probability of c, which makes all of them visible."""
    folder.mkdir()
    found = []
    for label in range(CLASSES):
        labelled = record.copy()
        labelled[1] = label
        for name in ("train.bin", "test.bin"):
            labelled.tofile(folder / name)
        found.append(-ata.eval(file, folder)["loss"])
    expected = log_probabilities(model, record[None], normalisation)[0]
    checks.within("one image, log-probabilities of 100 classes", found, expected, LOSS_TOLERANCE)


def write_png(path, record):
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = record[2:].reshape(3, 32, 32).transpose(1, 2, 0).reshape(32, 96)
    # Each row begins with the number of its filter: 0, none.
    pixels = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    header = struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))


def compare_top_five(checks, infer, folder, file, model, records, normalisation):
    with safe_open(file, "pt") as opened:
        names = opened.metadata()["classes"].split(",")
    for at, scores in enumerate(log_probabilities(model, records, normalisation)):
        image = folder / f"image-{at}.png"
        write_png(image, records[at])
        printed = subprocess.run([infer, file, image], capture_output=True, text=True, check=True).stdout
        rows = [(name, float(percent)) for percent, name in (line.split(" %  ") for line in printed.splitlines())]
        top = scores.exp().topk(5)
        title = f"image {at}, the five likeliest classes"
        checks.equal(title, [name for name, _ in rows], [names[index] for index in top.indices])
        checks.within(f"{title}, percent", [percent for _, percent in rows], top.values * 100, PERCENT_TOLERANCE)


def check_refusals(checks, ata, folder, data, model):
    state = model.state_dict()
    variants = {
        "another shape": Cnn((16, 32, 64, 121)).state_dict(),
        "another name": {f"module.{name}": tensor for name, tensor in state.items()},
        "one tensor more": {**state, "extra": torch.zeros(1)},
        "one tensor less": {name: tensor for name, tensor in state.items() if name != "output.bias"},
        "float16": {name: tensor.half() for name, tensor in state.items()},
        "float64": {name: tensor.double() for name, tensor in state.items()},
    }
    for what, tensors in variants.items():
        file = folder / "refused.safetensors"
        save_file(tensors, file)
        done = (
            ata.run("eval", file, "--data", data),
            ata.run("up", "--init", file, "--data", data, "--out", folder / "refused"),
        )
        found = [(result.returncode, f"{file}: " in result.stderr) for result in done]
        checks.equal(f"{what}: refused by eval and up, exit code 65, names the file", found, [(65, True)] * 2)


def check_trained(checks, ata, folder, data, infer):
    """From ata to PyTorch. Returns the normalisation."""
    file, test = folder / "run" / "model.safetensors", read_records(find_split(data, "test.bin"))
    ata.train(folder / "run", data, "--iterations", 30, "--lr", 3e-3)
    normalisation = normalisation_of(file)
    model = Cnn()
    model.load_state_dict(load_file(file), strict=True)
    compare_eval(checks, "trained by ata", model, ata.eval(file, data), test, normalisation)
    compare_one_image(checks, ata, folder / "one", file, model, test[0], normalisation)
    if infer:
        compare_top_five(checks, infer, folder, file, model, test[:5], normalisation)
    return normalisation


def check_init(checks, ata, folder, file, model, few, normalisation, *more):
    """A run that begins with PyTorch's parameters: one iteration at a rate too small to change them much."""
    out, title = folder / f"begun-{file.stem}", f"up --init {file.name}"
    step = ("--iterations", 1, "--lr", 1e-12, "--budget", TASKS, "--task-batch", TASK_BATCH)
    summary = ata.train(out, few, "--init", file, *step, *more)
    train, test = (mean_loss(model, read_records(few / name), normalisation) for name in ("train.bin", "test.bin"))
    checks.within(f"{title}, loss of the first iteration", summary["first_loss"], train, LOSS_TOLERANCE)
    written = out / "model.safetensors"
    checks.within(f"{title}, test loss afterwards", ata.eval(written, few)["loss"], test, LOSS_TOLERANCE)
    tensors, state = load_file(written), model.state_dict()
    change = max(float((tensors[name] - state[name]).abs().max()) for name in state)
    # Adam's first step is the rate at most; rounding the sum to f32 can double it.
    checks.within(f"{title}, change of the parameters by a step of rate 1e-12", change, 0, 2e-12)


def check_made(checks, ata, folder, data, normalisation):
    """From PyTorch to ata."""
    test = read_records(find_split(data, "test.bin"))
    # The first iteration takes each of these training records once, so that its loss is known.
    few = folder / "few"
    few.mkdir()
    read_records(find_split(data, "train.bin"))[: TASKS * TASK_BATCH].tofile(few / "train.bin")
    test.tofile(few / "test.bin")

    model, mine = Cnn(), folder / "mine.safetensors"
    save_file(model.state_dict(), mine)
    compare_eval(checks, "made by PyTorch", model, ata.eval(mine, data), test, normalisation)
    check_init(checks, ata, folder, mine, model, few, normalisation)
    check_refusals(checks, ata, folder, data, model)

    model, slim = Cnn((8, 12, 20, 40)), folder / "slim.safetensors"
    save_file(model.state_dict(), slim, metadata={"format": "pt", "model": SLIM})
    compare_eval(checks, "of other widths", model, ata.eval(slim, data), test, normalisation)
    check_init(checks, ata, folder, slim, model, few, normalisation, "--model", SLIM)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ata", help="the program")
    parser.add_argument("--data", type=Path, help="a folder with train.bin and test.bin [default: synthetic images]")
    parser.add_argument("--infer", help="the example of that name, built; compares the likeliest classes too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    ata, checks = Ata(arguments.ata), Checks()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = arguments.data or folder / "data"
        if not arguments.data:
            ata.run("data", "synth", data, "--train", 1000, "--test", 500).check_returncode()
        normalisation = check_trained(checks, ata, folder, data, arguments.infer)
        check_made(checks, ata, folder, data, normalisation)
    print(f"{checks.failed} of {checks.done} comparisons failed")
    sys.exit(checks.failed > 0)


if __name__ == "__main__":
    main()
