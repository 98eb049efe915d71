"""Measures how many samples a second PyTorch eager trains of ata's built-in networks, on a GPU or a CPU.

    pip install torch
    python tools/pytorch/eager.py [--device cuda] [--models cnn,resnet20] [--batches 32,256] [--seconds 0.5]

Prints a line of JSON per network and batch. `samples_per_s`: forward, cross-entropy and backward, with PyTorch's own settings,
which on NVIDIA GPUs compute convolutions in TF32; `float32_samples_per_s`: the same without TF32; `training_samples_per_s`: with
Adam's step. The images are in the device's memory, gradients stay there, and the device is waited for only at the end of each
measurement.
"""

import argparse
import json
import sys
import time

try:
    import torch
    from torch.nn import functional as F
except ImportError as error:
    sys.exit(f"eager.py needs PyTorch ({error}): pip install torch")

from cnn import CLASSES, Cnn
from speed import ResNet20

NETWORKS = {"cnn": Cnn, "resnet20": ResNet20}
# Steps before the measurement: memory is allocated in them, and libraries choose their kernels.
FIRST = 3


def best_device():
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def wait_for(device):
    if device.type in ("cuda", "mps"):
        getattr(torch, device.type).synchronize()


def rate(step, batch, device, seconds):
    """Samples a second of a step, over so many seconds."""
    for _ in range(FIRST):
        step()
    wait_for(device)
    started = time.perf_counter()
    step()
    wait_for(device)
    count = max(1, round(seconds / (time.perf_counter() - started)))
    started = time.perf_counter()
    for _ in range(count):
        step()
    wait_for(device)
    return count * batch / (time.perf_counter() - started)


def measure(model, batch, device, seconds):
    network = NETWORKS[model]().to(device)
    images = torch.randn(batch, 3, 32, 32, device=device)
    labels = torch.randint(CLASSES, (batch,), device=device)
    adam = torch.optim.Adam(network.parameters())

    def gradient():
        network.zero_grad()
        F.cross_entropy(network(images), labels).backward()

    def step():
        gradient()
        adam.step()

    measured = {
        "model": model,
        "batch": batch,
        "samples_per_s": rate(gradient, batch, device, seconds),
        "training_samples_per_s": rate(step, batch, device, seconds),
    }
    if device.type == "cuda":
        settings = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        measured["float32_samples_per_s"] = rate(gradient, batch, device, seconds)
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = settings
    return measured


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=best_device())
    parser.add_argument("--models", default="cnn,resnet20")
    parser.add_argument("--batches", default="32,64,128,256,512,1024")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement [default: 0.5]")
    options = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device(options.device)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    for model in options.models.split(","):
        for batch in map(int, options.batches.split(",")):
            measured = measure(model, batch, device, options.seconds)
            print(json.dumps({"torch": torch.__version__, "device": where, **measured}), flush=True)


if __name__ == "__main__":
    main()
