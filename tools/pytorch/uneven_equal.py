"""Measures what Uneven costs where it has nothing to gain: two ranks of equal speed, one thread each, over gloo.

    pip install torch numpy ata
    python tools/pytorch/uneven_equal.py [--width 640] [--budget 1152] [--turns 60]

Three loops take turns of 20 steps in the same two processes, in an order that changes: plain DistributedDataParallel, the same once more, which
shows the noise, and Uneven. Each has a model of its own. Prints the milliseconds of a step of plain DDP, and the median over the turns of
what the other two take in proportion to it, with its quartiles. Run it on an idle machine.
"""

import argparse
import itertools
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import ata.torch

STEPS = 20
FEATURES, CLASSES = 64, 10


def contestant(data, options, is_uneven):
    """Steps forever, an epoch after the other."""
    width = options.width
    layers = (nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES))
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer, loss_function = torch.optim.Adam(model.parameters()), nn.CrossEntropyLoss()
    if is_uneven:
        uneven = ata.torch.Uneven(model, budget=options.budget)
        loader = DataLoader(data, batch_sampler=uneven.sampler(data))
    else:
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=options.budget // 2, sampler=sampler)
    for epoch in itertools.count():
        if not is_uneven:
            sampler.set_epoch(epoch)
        for inputs, labels in uneven.batches(loader) if is_uneven else loader:
            optimizer.zero_grad()
            loss = loss_function(model(inputs), labels)
            if is_uneven:
                uneven.backward(loss)
            else:
                loss.backward()
            optimizer.step()
            yield


def rank(number, folder, options):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", f"file://{folder}/store", world_size=2, rank=number)
    samples = 100 * options.budget
    data = TensorDataset(torch.randn(samples, FEATURES), torch.randint(CLASSES, (samples,)))
    loops = [contestant(data, options, is_uneven) for is_uneven in (False, False, True)]
    times = [[] for _ in loops]
    orders = itertools.cycle(itertools.permutations(range(len(loops))))
    # The first turn warms up.
    for order in itertools.islice(orders, 1 + options.turns):
        for loop in order:
            dist.barrier()
            began = time.perf_counter()
            for _ in range(STEPS):
                next(loops[loop])
            times[loop].append(1e3 * (time.perf_counter() - began) / STEPS)
    plain, *others = (each[1:] for each in times)
    if number == 0:
        print(f"DDP: {statistics.median(plain):.2f} ms a step")
        for name, theirs in zip(("DDP once more", "Uneven"), others):
            ratios = [one / other for one, other in zip(theirs, plain)]
            low, median, high = statistics.quantiles(ratios, n=4)
            print(f"{name}: {median:.3f} x DDP (quartiles {low:.3f} and {high:.3f}), {statistics.median(theirs):.2f} ms")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=640, help="of the two hidden layers")
    parser.add_argument("--budget", type=int, default=1152, help="samples of a step, an even number")
    parser.add_argument("--turns", type=int, default=60)
    options = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank, (folder, options), nprocs=2)


if __name__ == "__main__":
    main()
