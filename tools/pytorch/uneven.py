"""Measures ata.torch.Uneven against DistributedDataParallel with even and with hand-set shares, on ranks of unequal speed.

    pip install torch numpy ata
    python tools/pytorch/uneven.py [--quotas 0.8,0.4,0.2,0.1] [--samples 368] [--period-ms 10] [--steps 60]

One process with one thread per CPU quota (gloo) trains ata's CNN with Adam on random images, `--samples` of them in a step. The
same processes take all steps: even shares, shares set by hand in proportion to the quotas, and Uneven, which knows neither quotas
nor speeds and has learned for 40 steps. `Uneven's, set by hand` are the mean shares of the last of these, as the best that hand-set
shares could be. These three take turns of ten steps. Then the first and the last rank swap their quotas, and Uneven learns for 40 steps
again, while the first shares set by hand stay as they are.

Last, even, hand-set and Uneven steps on the same samples, in double precision: their final losses.

It needs Linux and root, for cgroups, and four minutes. Nothing else should run meanwhile. A quota is a number of milliseconds in each period:
a rank that waits saves up what it does not use, and then looks faster than it is. So a step should take at least ten periods.
"""

import argparse
import datetime
import itertools
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import ata.torch
import ddp
from cnn import CLASSES, Cnn
from ddp import SIGNALS, Quotas, stop

LEARNING_RATE = 1e-3
IMAGES = 4096
# Steps that are not counted: of fixed shares, and of shares that are learned.
FIRST, LEARNING = 3, 20
# Steps that a contestant takes before the next one's turn.
TURN = 10
# Steps after which Uneven has to have followed the swap.
FOLLOWING = 10
IN_DOUBLE, SAMPLES_IN_DOUBLE = 8, 368


class Images(Dataset):
    """Random images, which repeat."""

    def __init__(self, dtype=torch.float32):
        generator = torch.Generator().manual_seed(1)
        self.images = torch.randn(IMAGES, 3, 32, 32, generator=generator, dtype=dtype)
        self.labels = torch.randint(CLASSES, (IMAGES,), generator=generator)

    def __getitems__(self, numbers):
        numbers = torch.tensor(numbers) % IMAGES
        return self.images[numbers], self.labels[numbers]


class Contestant:
    """A model of its own, which begins like the others'."""

    def __init__(self, dtype=torch.float32):
        torch.manual_seed(0)
        self.net = Cnn().to(dtype)
        self.model = DistributedDataParallel(self.net)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=LEARNING_RATE)

    def loss(self, images):
        with torch.no_grad():
            return F.cross_entropy(self.net(images.images[:512]), images.labels[:512]).item()


class ByHand(Contestant):
    """DistributedDataParallel with fixed shares."""

    def __init__(self, shares, **options):
        super().__init__(**options)
        self.shares = shares

    def train(self, images, steps):
        rank, world, budget = dist.get_rank(), dist.get_world_size(), sum(self.shares)
        begin, mine = sum(self.shares[:rank]), self.shares[rank]
        for step in range(steps):
            first = step * budget + begin
            inputs, labels = images.__getitems__(range(first, first + mine))
            self.optimizer.zero_grad()
            (F.cross_entropy(self.model(inputs), labels) * (mine * world / budget)).backward()
            self.optimizer.step()
            yield self.shares


class Uneven(Contestant):
    def __init__(self, budget, **options):
        super().__init__(**options)
        self.budget = budget
        self.uneven = ata.torch.Uneven(self.model, budget)

    def train(self, images, steps):
        sampler = self.uneven.sampler(steps * self.budget, shuffle=False)
        for step in self.uneven.steps(DataLoader(images, batch_sampler=sampler, collate_fn=lambda batch: batch)):
            self.optimizer.zero_grad()
            for inputs, labels in step:
                self.uneven.backward(F.cross_entropy(self.model(inputs), labels))
            self.optimizer.step()
            yield step.shares


def say(what):
    """Reports progress."""
    if dist.get_rank() == 0:
        print(what, file=sys.stderr, flush=True)


def measured(training, steps):
    """The seconds and the shares of each of the next steps, as its rank sees them."""
    times, shares = [], []
    dist.barrier()
    last = time.perf_counter()
    for of_step in itertools.islice(training, steps):
        now = time.perf_counter()
        times.append(now - last)
        shares.append(list(of_step))
        last = now
    return {"seconds": times, "shares": shares}


def in_turn(trainings, steps):
    """The same of contestants that take turns of a few steps each, so that all meet the same disturbances."""
    found = {name: {"seconds": [], "shares": []} for name in trainings}
    for turn in range(steps // TURN):
        say(f"turn {turn + 1} of {steps // TURN}: {', '.join(trainings)}")
        for name, training in trainings.items():
            for what, values in measured(training, TURN).items():
                found[name][what] += values
    return found


def mean_shares(found, budget):
    """The mean of shares that were learned, in whole samples."""
    means = [statistics.mean(shares) for shares in zip(*found["shares"][LEARNING:])]
    shares = [round(mean) for mean in means]
    shares[0] += budget - sum(shares)
    return shares


def swap(groups, quotas, period_us):
    """Gives the first rank the quota of the last one, and the other way round."""
    if dist.get_rank() == 0:
        for group, quota in ((groups[0], quotas[-1]), (groups[-1], quotas[0])):
            quota_us = round(quota * period_us)
            if (group / "cpu.max").exists():
                (group / "cpu.max").write_text(f"{quota_us} {period_us}")
            else:
                (group / "cpu.cfs_quota_us").write_text(str(quota_us))
    dist.barrier()


def rank_main(rank, folder, groups, options):
    torch.set_num_threads(1)
    world, budget, steps = len(options.quotas), options.samples, options.steps
    dist.init_process_group("gloo", f"file://{folder}/store", datetime.timedelta(minutes=5), world, rank)
    images = Images()
    every = 10 * (LEARNING + steps)
    even, by_hand, uneven, by_hand_anew = (
        contestant.train(images, every)
        for contestant in (
            ByHand(parts(budget, [1] * world)),
            ByHand(parts(budget, options.quotas)),
            Uneven(budget),
            ByHand(parts(budget, [options.quotas[-1], *options.quotas[1:-1], options.quotas[0]])),
        )
    )
    (groups[rank] / "cgroup.procs").write_text(str(os.getpid()))
    say("first steps, even shares, and Uneven learns")
    for training in (even, by_hand, by_hand_anew):
        measured(training, FIRST)
    found = {"even": measured(even, TURN)}
    frozen = ByHand(mean_shares(measured(uneven, 2 * LEARNING), budget)).train(images, every)
    found |= in_turn({"by hand": by_hand, "Uneven": uneven, "Uneven's, set by hand": frozen}, steps)
    swap(groups, options.quotas, options.period_ms * 1000)
    say("speeds were swapped, and Uneven learns")
    found["by hand as before, after the swap"] = measured(by_hand, TURN)
    swapped = measured(uneven, 2 * LEARNING)
    frozen = ByHand(mean_shares(swapped, budget)).train(images, every)
    after = {"by hand anew": by_hand_anew, "Uneven": uneven, "Uneven's, set by hand": frozen}
    found |= {f"{name}, after the swap": run for name, run in in_turn(after, steps).items()}
    found["swapped"] = swapped
    say("steps in double precision")
    found["losses"] = losses(SAMPLES_IN_DOUBLE, options.quotas)
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def losses(budget, quotas):
    """The final losses of the three kinds of steps on the same samples, in double precision."""
    images = Images(torch.float64)
    shares = {"even": parts(budget, [1] * len(quotas)), "by hand": parts(budget, quotas)}
    contestants = {name: ByHand(own, dtype=torch.float64) for name, own in shares.items()}
    contestants["Uneven"] = Uneven(budget, dtype=torch.float64)
    before = {"before": contestants["even"].loss(images)}
    for contestant in contestants.values():
        for _ in contestant.train(images, IN_DOUBLE):
            pass
    parameters = [torch.nn.utils.parameters_to_vector(each.net.parameters()) for each in contestants.values()]
    furthest = max((parameters[0] - other).abs().max().item() for other in parameters[1:])
    return before | {"furthest": furthest} | {name: each.loss(images) for name, each in contestants.items()}


def parts(budget, weights):
    """Shares in proportion to the weights; the first gets the remainder."""
    shares = [int(budget * weight / sum(weights)) for weight in weights]
    shares[0] += budget - sum(shares)
    return shares


def report(found, options):
    losses = found.pop("losses")
    print(f"quotas {options.quotas} of {options.period_ms} ms, {options.samples} samples a step, gloo, one thread each")
    print(f"{'':38} s per step  median  samples of each rank in the last step")
    swapped = found.pop("swapped")["seconds"]
    means = {name: statistics.mean(run["seconds"]) for name, run in found.items()}
    for name, run in found.items():
        shares = " ".join(map(str, run["shares"][-1]))
        print(f"{name:38} {means[name]:10.4f} {statistics.median(run['seconds']):7.4f}  {shares}")
    for when, by_hand in (("", "by hand"), (", after the swap", "by hand anew")):
        best = min(means[by_hand + when], means["Uneven's, set by hand" + when])
        print(f"Uneven / {by_hand}{when}: {means['Uneven' + when] / means[by_hand + when]:.3f}")
        print(f"Uneven / the better of the two sets by hand{when}: {means['Uneven' + when] / best:.3f}")
    anew = means["by hand anew, after the swap"]
    after = statistics.mean(swapped[FOLLOWING:LEARNING])
    print(f"steps {FOLLOWING + 1} to {LEARNING} after the swap / by hand anew: {after / anew:.3f}")
    print(f"by hand as before / by hand anew: {means['by hand as before, after the swap'] / anew:.3f}")
    print("Uneven's first steps after the swap, in s:", " ".join(f"{seconds:.2f}" for seconds in swapped[:14]))
    furthest = losses.pop("furthest")
    print(f"loss in double before the first step: {losses.pop('before'):.12f}")
    print(f"after {IN_DOUBLE} steps:", " ".join(f"{name} {loss:.12f}" for name, loss in losses.items()))
    print(f"they differ by at most {max(losses.values()) - min(losses.values()):.1e}, and parameters by {furthest:.1e}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quotas", type=lambda text: [float(part) for part in text.split(",")], default="0.8,0.4,0.2,0.1")
    parser.add_argument("--samples", type=int, default=368, help="of a step, on all ranks")
    parser.add_argument("--steps", type=int, default=60, help="counted per contestant, in turns of ten")
    parser.add_argument("--period-ms", type=int, default=10, help="in which a rank gets its quota")
    parser.add_argument("--json", type=Path, help="where to write each step's seconds and shares")
    return parser.parse_args()


def main():
    options = arguments()
    if sys.platform != "linux" or os.geteuid():
        sys.exit("it sets CPU quotas with cgroups, which needs Linux and root")
    for each in SIGNALS:
        signal.signal(each, stop)
    os.environ.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    ddp.PERIOD_US = options.period_ms * 1000
    with Quotas(options.quotas) as groups, tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, (folder, groups, options), nprocs=len(options.quotas))
        found = json.loads(Path(folder, "found.json").read_text())
    if options.json:
        options.json.write_text(json.dumps(found))
    report(found, options)


if __name__ == "__main__":
    main()
