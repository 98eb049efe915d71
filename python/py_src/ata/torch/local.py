"""Steps that ranks of unequal speed take by themselves, and the mean of their parameters after each round."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.distributed_c10d import PrefixStore, Store, _get_default_store
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Sampler

from ata._core import Scheduler, outer_rate
from ata.torch.clock import WARM_UP

# The part of its share that a rank leaves to whoever is first: a rank that slows down in a round holds up the others for less.
LEFT_TO_ALL = 1 / 4

# The steps per rank of the first round, and the most steps of a round, by default: as for `ata coordinator --local-steps auto`.
FIRST, MOST = 8, 960

# How often a rank asks for data in a round. The last of what it has asked for in an epoch, it computes while others wait.
REQUESTS = 8


class Sent(NamedTuple):
    """The end of a round, until the differences of all ranks have arrived.

    Attributes:
        own: This rank's parameters and buffers.
        difference: What they were before, minus what they are. The sum takes its place.
        exchange: What makes the sum.
        outer_lr: The rate of the step along the sum.
    """

    own: torch.Tensor
    difference: torch.Tensor
    exchange: dist.Work
    outer_lr: float


def limits(steps: int | str, ranks: int) -> tuple[int, int]:
    """The least and the largest number of steps of a round."""
    name, _, given = str(steps).partition(":")
    chooses = name == "auto" and (given.isdecimal() or str(steps) == "auto")
    if not chooses and not isinstance(steps, int):
        raise ValueError(f"steps={steps!r}: expected a number, 'auto', or 'auto:240' for another largest number")
    most = int(given or MOST) if chooses else int(steps)
    if most < ranks:
        raise ValueError(f"steps={steps}: expected at least one for each of {ranks} ranks")
    return (min(FIRST * ranks, most) if chooses else most), most


class Counter:
    """A number in the ranks' store, of which each rank takes the next parts."""

    def __init__(self, store: Store, thread: ThreadPoolExecutor, name: str) -> None:
        self._store, self._thread, self._name = store, thread, name
        self._asked: Future[range] | None = None

    def ask(self, number: int = 1) -> None:
        """Asks for the next part ahead, because the store may be far away."""
        if self._asked is None:
            self._asked = self._thread.submit(self._take, number)

    def take(self, number: int = 1) -> range:
        """The part that was asked for, or else so many numbers, counted from 0."""
        self.ask(number)
        assert self._asked is not None
        part, self._asked = self._asked.result(), None
        return part

    def _take(self, number: int) -> range:
        end = self._store.add(self._name, number)
        return range(end - number, end)


class NextBatchSampler(Sampler[list[int]]):
    """Hands out each sample once per epoch, for `DataLoader(dataset, batch_sampler=...)`: the next batch to the rank that asks next.

    Attributes:
        epoch: The next epoch, from 0.
    """

    def __init__(self, local: Local, samples: Sized | int, batch_size: int, *, shuffle: bool, seed: int) -> None:
        self.epoch = 0
        self._local = local
        self._samples = samples if isinstance(samples, int) else len(samples)
        self._batch_size = batch_size
        self._shuffle, self._seed = shuffle, seed
        if self._samples < 1 or batch_size < 1:
            raise ValueError(f"{self._samples} samples in batches of {batch_size}: expected at least 1")

    def set_epoch(self, epoch: int) -> None:
        """Begins with this epoch next, as `DistributedSampler.set_epoch`."""
        self.epoch = epoch

    def __len__(self) -> int:
        """The batches of an epoch, of all ranks together."""
        return len(range(0, self._samples, self._batch_size))

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(self._seed + self.epoch)
        order = torch.randperm(self._samples, generator=generator) if self._shuffle else torch.arange(self._samples)
        self.epoch += 1
        return self._batches(order, self._local._begin_epoch())

    def _batches(self, order: torch.Tensor, counter: Counter) -> Iterator[list[int]]:
        batches = order.split(self._batch_size)
        while True:
            part = counter.take(self._local._request)
            counter.ask(self._local._request)
            if part.start >= len(batches):
                return
            for batch in batches[part.start : part.stop]:
                yield batch.tolist()


class Local:
    """Lets each rank train by itself, and averages parameters once in many steps, for slow links and unequal ranks.

    A round has `steps` steps of all ranks together, of which each takes as many as it is fast. Then all go on from about the mean of their
    parameters, weighted by steps. In a script for one process, three lines change::

        local = ata.torch.Local(model)
        loader = DataLoader(dataset, batch_sampler=local.sampler(dataset, batch_size=16))
        for images, labels in local.batches(loader):
            optimizer.zero_grad()
            loss_function(model(images), labels).backward()
            optimizer.step()

    The optimizer's state stays with its rank. Buffers are averaged like parameters. After `batches`, parameters are the same on all ranks:
    evaluate and save then. All ranks must create this object, and go through `batches` alike.

    Args:
        model: The module, which no other library synchronizes. All ranks begin with rank 0's parameters and buffers.
        steps: Steps of a round, of all ranks together. With more, less is sent, and less is learned from each sample. With `"auto"`, ranks
            compute for nine tenths of the time: from 8 steps per rank to 960, or M with `"auto:M"`.
        outer_lr: How far the parameters move to the mean; 1 is all the way. The default is 1 - outer_momentum, times a factor from 1 for
            one rank to 2 for many equal ones.
        outer_momentum: Nesterov momentum of these moves, from 0 to less than 1.
        overlap: Whether ranks go on with the next round while differences travel.
        dtype: The type in which differences travel, such as `torch.bfloat16`; what is rounded off is added to the next. By default as they are.
        policy: What decides on the shares, as `NAME` or `NAME:key=value,...`; see `ata.policies()`.
        seed: Seed of the decisions.
        group: The ranks; all by default.

    Attributes:
        tasks: The steps that all ranks have taken, up to the last round. Let learning rates follow these.

    Raises:
        ValueError: If an argument is not possible.
        TypeError: If ranks share gradients or parameters of the model already.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        steps: int | str = "auto",
        outer_lr: float | None = None,
        outer_momentum: float = 0.0,
        overlap: bool = True,
        dtype: torch.dtype | None = None,
        policy: str = "ata-auto",
        seed: int = 0,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        bare = getattr(model, "_orig_mod", model)
        if isinstance(bare, (DistributedDataParallel, FSDPModule)):
            raise TypeError(f"{type(bare).__name__} synchronizes each step: pass the module itself to Local")
        if dtype is not None and not dtype.is_floating_point:
            raise ValueError(f"dtype={dtype}: expected a type of floating-point numbers")
        if not ((outer_lr is None or outer_lr > 0.0) and 0.0 <= outer_momentum < 1.0):
            raise ValueError(
                f"outer_lr={outer_lr}, outer_momentum={outer_momentum}: expected more than 0, and 0 to less than 1"
            )
        ranks = dist.get_process_group_ranks(group)
        least, most = limits(steps, len(ranks))
        self.tasks = 0
        self._rank, self._ranks = dist.get_rank(group), len(ranks)
        self._group = group
        # For numbers on the host, whatever the device.
        hosts = dist.new_group(ranks, backend="gloo", use_local_synchronization=True)
        assert isinstance(hosts, dist.ProcessGroup), "this rank is in the group"
        self._hosts = hosts
        self._store = PrefixStore(f"ata.Local/{ranks}/{next(INSTANCES)}", _get_default_store())
        self._thread = ThreadPoolExecutor(1, "ata.Local")
        self._rounds = self._epochs = 0
        self._is_sampled = False
        self._taken: list[int] = []
        self._seconds: list[float] = []
        # Every rank has one, which gets the same times and so decides the same.
        self._scheduler = Scheduler(self._ranks, least, policy, seed=seed, most=most)
        self._shares = self._scheduler.next()
        if sum(self._shares) != least:
            raise ValueError(f"policy '{policy}' chooses its own number of steps, but a round has {least}")
        trained = [each for each in bare.parameters() if each.requires_grad]
        buffers = [each for each in bare.buffers() if each.dtype is not torch.bool and not each.is_complex()]
        self._tensors = [*trained, *buffers]
        self._lengths = [each.numel() for each in self._tensors]
        self._trained = sum(each.numel() for each in trained)
        self._outer_lr, self._outer_momentum, self._overlap, self._dtype = outer_lr, outer_momentum, overlap, dtype
        # What was rounded off from this rank's last difference.
        self._rounded: torch.Tensor | float = 0.0
        self._sent: Sent | None = None
        # When it began, how long the last one took while this rank went on, and how long this rank waited at the end of the last round.
        self._sent_at = self._exchange_s = self._waited_s = 0.0
        # The parameters and buffers with which the round began.
        self._base = self._vector()
        dist.broadcast(self._base, ranks[0], group=group)
        self._load()
        self._velocity = torch.zeros_like(self._base[: self._trained]) if outer_momentum else None

    def sampler(
        self, samples: Sized | int, batch_size: int, *, shuffle: bool = True, seed: int = 0
    ) -> NextBatchSampler:
        """The batch sampler for a data set or a number of samples. Which rank gets which batch of an epoch depends on their speeds."""
        return NextBatchSampler(self, samples, batch_size, shuffle=shuffle, seed=seed)

    def batches(self, loader: Iterable[Any], *, rounds: int | None = None) -> Iterator[Any]:
        """The batches that this rank computes, until the epoch ends or after so many rounds. The body of the loop is one step.

        `loader` uses a `sampler` of this object. Any other one is this rank's own, such as a stream; the loop ends when that of one rank does.
        """
        self._is_sampled = False
        batches, is_last = iter(loader), False
        for _ in itertools.count() if rounds is None else range(rounds):
            taken, has_ended, began, skipped = 0, False, self._now(), WARM_UP if self._rounds == 0 else 0
            allowed = self._allowed()
            while is_last or next(allowed):
                try:
                    batch = next(batches)
                except StopIteration:
                    has_ended = True
                    break
                yield batch
                self._arrive(waits=False)
                taken += 1
                if taken == skipped:
                    began = self._now()
            if self._end(taken, max(0, taken - skipped), self._now() - began, has_ended):
                # Every batch of the epoch is somebody's. What others have left, they compute now.
                if is_last or not self._is_sampled:
                    break
                is_last = True
        self._arrive()

    def metrics(self) -> dict[str, float]:
        """For a logger: the steps of each rank in the last whole round, and the seconds that each computed."""
        metrics = {f"local/steps_rank{rank}": float(taken) for rank, taken in enumerate(self._taken)}
        return metrics | {f"local/seconds_rank{rank}": seconds for rank, seconds in enumerate(self._seconds)}

    def state_dict(self) -> dict[str, Any]:
        """The ranks' speeds, the count of steps, and the momentum. Save model and optimizer as well."""
        return {
            "scheduler": self._scheduler.state_dict(),
            "tasks": self.tasks,
            "velocity": self._velocity,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a `state_dict`, the same on all ranks. Load the model before."""
        self._scheduler.load_state_dict(state["scheduler"])
        self._shares = self._scheduler.next()
        self.tasks = state["tasks"]
        if self._velocity is not None and state["velocity"] is not None:
            self._velocity.copy_(state["velocity"])
        self._base, self._sent = self._vector(), None

    def _begin_epoch(self) -> Counter:
        self._is_sampled = True
        self._epochs += 1
        return Counter(self._store, self._thread, f"epoch {self._epochs}")

    @property
    def _request(self) -> int:
        """The batches for which this rank asks at once."""
        return max(1, self._shares[self._rank] // REQUESTS)

    def _allowed(self) -> Iterator[bool]:
        """Whether this rank takes another step, again and again: as many as it has for itself, and then some of those that are left to all."""
        left = [int(share * LEFT_TO_ALL) for share in self._shares]
        share = self._shares[self._rank]
        pool = Counter(self._store, self._thread, f"round {self._rounds}")
        # What a slow rank asks for before it can begin, others might have done by then.
        is_ahead = share * self._ranks >= self._scheduler.budget
        for step in itertools.count(1):
            is_own = step <= share - left[self._rank]
            allowed = is_own or (share > 0 and pool.take().start < sum(left))
            if allowed and is_ahead and step >= share - left[self._rank]:
                pool.ask()
            yield allowed

    def _end(self, taken: int, measured: int, seconds: float, has_ended: bool) -> bool:
        """Ends a round. Returns whether the data of any rank have ended."""
        self._arrive()
        began = perf_counter()
        own = [taken, measured, seconds, has_ended, self._waited_s, self._exchange_s]
        numbers = torch.zeros(self._ranks, len(own), dtype=torch.float64)
        numbers[self._rank] = torch.tensor(own, dtype=torch.float64)
        dist.all_reduce(numbers, group=self._hosts)
        for rank, (steps, of_rank) in enumerate(numbers[:, 1:3].tolist()):
            if steps > 0 and of_rank > 0.0:
                self._scheduler.observe(rank, int(steps), of_rank)
        if self._rounds:
            # Whoever comes last waits for the link only.
            self._scheduler.observe_exchange(float(numbers[:, 4].min()), float(numbers[:, 5].max()))
        steps_of_ranks = [int(each) for each in numbers[:, 0]]
        total = sum(steps_of_ranks)
        if total == self._scheduler.budget:
            self._taken, self._seconds = steps_of_ranks, numbers[:, 2].tolist()
        if total:
            of_shares = (1.0 - self._outer_momentum) * outer_rate(steps_of_ranks)
            self._send(taken / total, of_shares if self._outer_lr is None else self._outer_lr)
        self._waited_s = perf_counter() - began
        self.tasks += total
        self._rounds += 1
        self._shares = self._scheduler.next()
        return bool(numbers[:, 3].any())

    @torch.no_grad()
    def _send(self, weight: float, outer_lr: float) -> None:
        """Begins to add up the ranks' differences, in which this one's has so much weight."""
        own = self._vector()
        exact = (self._base - own).mul_(weight).add_(self._rounded)
        difference = exact.to(self._dtype or exact.dtype)
        if self._dtype is not None:
            self._rounded = exact - difference
        self._sent_at = perf_counter()
        self._sent = Sent(own, difference, dist.all_reduce(difference, group=self._group, async_op=True), outer_lr)
        if not self._overlap:
            self._arrive()

    @torch.no_grad()
    def _arrive(self, *, waits: bool = True) -> None:
        """Moves parameters to the ranks' mean, and buffers on it, once all differences have arrived. Steps taken meanwhile stay steps."""
        if self._sent is None or not (waits or self._sent.exchange.is_completed()):
            return
        own, difference, exchange, outer_lr = self._sent
        exchange.wait()
        difference = difference.to(self._base.dtype)
        if self._overlap:
            self._exchange_s = perf_counter() - self._sent_at
        move = difference[: self._trained]
        if self._velocity is not None:
            self._velocity.mul_(self._outer_momentum).add_(move)
            move.add_(self._velocity, alpha=self._outer_momentum)
        move.mul_(outer_lr)
        self._base -= difference
        self._load(self._vector() - own)
        self._sent = None

    @torch.no_grad()
    def _vector(self) -> torch.Tensor:
        kind = torch.float64 if any(each.dtype == torch.float64 for each in self._tensors) else torch.float32
        return torch.cat([each.detach().reshape(-1).to(kind) for each in self._tensors])

    @torch.no_grad()
    def _load(self, ahead: torch.Tensor | float = 0.0) -> None:
        """Writes the round's parameters and buffers, and the steps that this rank is ahead of them, into the module."""
        for tensor, values in zip(self._tensors, (self._base + ahead).split(self._lengths), strict=True):
            tensor.copy_((values if tensor.is_floating_point() else values.round()).view_as(tensor))

    def _now(self) -> float:
        if self._base.is_cuda:
            torch.cuda.synchronize(self._base.device)
        return perf_counter()


# All ranks create their objects in the same order.
INSTANCES = itertools.count()
