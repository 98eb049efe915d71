"""Tests of ata.torch.Local: ranks that train by themselves, and average their parameters."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ata.torch
import ranks
from ata.torch.local import limits
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

SAMPLES = 96
BATCH = 2


def digest(model: nn.Module) -> list[float]:
    return torch.cat([each.detach().reshape(-1).double() for each in model.state_dict().values()]).tolist()


def train(rank: int, pauses: list[float], loader: dict[str, Any]) -> dict[str, Any]:
    """Trains for two epochs."""
    torch.manual_seed(rank)
    inputs = torch.arange(SAMPLES, dtype=torch.float64).reshape(-1, 1) / SAMPLES
    model = nn.Sequential(
        nn.Linear(1, 4, dtype=torch.float64),
        nn.BatchNorm1d(4, dtype=torch.float64),
        nn.Linear(4, 1, dtype=torch.float64),
    )
    local = ata.torch.Local(model, steps=12)
    begun = digest(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = DataLoader(TensorDataset(inputs), batch_sampler=local.sampler(SAMPLES, BATCH), **loader)
    taken: list[list[float]] = []
    for _ in range(2):
        own: list[float] = []
        for (x,) in local.batches(data):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), 2 * x).backward()
            optimizer.step()
            own += x.reshape(-1).tolist()
            time.sleep(pauses[rank])
        taken.append(own)
    return {"begun": begun, "ended": digest(model), "taken": taken, "tasks": local.tasks}


@pytest.mark.parametrize(
    ("pauses", "loader"), [([0.0, 0.0], {}), ([0.0, 0.002, 0.004], {}), ([0.0, 0.004], {"num_workers": 2})]
)
def test_each_sample_is_somebodys_once_per_epoch_and_ranks_agree(pauses: list[float], loader: dict[str, Any]) -> None:
    results = ranks.run(len(pauses), train, pauses, loader)
    for epoch in range(2):
        seen = sorted(round(value * SAMPLES) for result in results for value in result["taken"][epoch])
        assert seen == list(range(SAMPLES))
    for result in results:
        assert result["begun"] == results[0]["begun"], "rank 0's parameters"
        assert result["ended"] == results[0]["ended"] != result["begun"]
        assert result["tasks"] == 2 * SAMPLES // BATCH


def in_rounds(rank: int, options: dict[str, Any], pauses: list[float], rounds: int, slower: int = 0) -> dict[str, Any]:
    """Goes through endless streams. `slower`: from this round on, rank 0 takes ten times as long."""

    class Stream(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return iter(lambda: torch.tensor([float(rank)]), None)

    model = nn.Linear(1, 1, bias=False)
    local = ata.torch.Local(model, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    taken: list[list[int]] = []
    weights = [model.weight.item()]
    for number in range(rounds):
        for _ in local.batches(DataLoader(Stream(), batch_size=1), rounds=1):
            optimizer.zero_grad()
            (model.weight.sum() * -(1 + rank)).backward()
            optimizer.step()
            time.sleep(pauses[rank] * (10 if rank == 0 and slower and number >= slower else 1))
        taken.append([int(local.metrics()[f"local/steps_rank{each}"]) for each in range(len(pauses))])
        weights.append(model.weight.item())
    return {"taken": taken, "weights": weights}


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_parameters_move_to_the_mean_weighted_by_steps(momentum: float) -> None:
    options = {"steps": 10, "outer_lr": 0.5, "outer_momentum": momentum}
    for result in ranks.run(2, in_rounds, options, [0.0, 0.003], 4):
        velocity, weight = 0.0, result["weights"][0]
        for of_round, after in zip(result["taken"], result["weights"][1:], strict=True):
            assert sum(of_round) == 10
            # Each step of rank r adds 1 + r; what is subtracted from the parameters is the negative mean.
            mean = -sum(steps * steps * (1 + rank) for rank, steps in enumerate(of_round)) / 10
            velocity = momentum * velocity + mean
            weight -= 0.5 * (mean + momentum * velocity)
            assert after == pytest.approx(weight, rel=1e-5)


class Slow:
    """An exchange that has ended only for those who wait for it."""

    def __init__(self, work: Any) -> None:
        self.wait = work.wait

    def is_completed(self) -> bool:
        return False


def ahead(rank: int, overlap: bool) -> dict[str, Any]:
    """Takes three rounds of ten steps, while the exchange of the last round takes as long as possible."""
    all_reduce = torch.distributed.all_reduce

    def slowly(tensor: Any, **options: Any) -> Any:
        work = all_reduce(tensor, **options)
        return Slow(work) if options.get("async_op") else work

    torch.distributed.all_reduce = slowly
    model = nn.Linear(1, 1, bias=False)
    local = ata.torch.Local(model, steps=10, outer_lr=1.0, overlap=overlap)
    weights: list[list[float]] = [[], [], []]
    begun = model.weight.item()
    for _ in local.batches(itertools.repeat(0), rounds=3):
        weights[local.tasks // 10].append(model.weight.item())
        model.weight.data += 1.0 + rank
    return {"begun": begun, "weights": weights, "ended": model.weight.item()}


@pytest.mark.parametrize("overlap", [True, False])
def test_steps_that_are_taken_while_differences_travel_count_once(overlap: bool) -> None:
    results = ranks.run(2, ahead, overlap)
    weight = results[0]["begun"]
    own = [weight, weight]
    for number in range(3):
        steps = [len(result["weights"][number]) for result in results]
        assert sum(steps) == 10
        for rank, result in enumerate(results):
            for step, found in enumerate(result["weights"][number]):
                begun = own[rank] if overlap else weight
                assert found == pytest.approx(begun + step * (1 + rank), rel=1e-5), f"rank {rank}, round {number}"
        own = [weight + taken * (1 + rank) for rank, taken in enumerate(steps)]
        weight += sum(taken * taken * (1 + rank) for rank, taken in enumerate(steps)) / 10
    for result in results:
        assert result["ended"] == pytest.approx(weight, rel=1e-5) and result["ended"] == results[0]["ended"]


def in_16_bits(rank: int) -> list[float]:
    """Takes a step of 1 + 2^-9 in each of 16 rounds. Half of it has no value in 8 bits of precision."""
    model = nn.Linear(1, 1, bias=False)
    local = ata.torch.Local(model, steps=2, outer_lr=1.0, dtype=torch.bfloat16, policy="uta")
    begun = model.weight.item()
    for _ in local.batches(itertools.repeat(0), rounds=16):
        model.weight.data += 1.0 + 2.0**-9
    return [begun, model.weight.item()]


def test_what_is_rounded_off_is_sent_later() -> None:
    for begun, ended in ranks.run(2, in_16_bits):
        # Each round rounds off 2^-9, and what was rounded off is sent once it is 2^-7.
        assert ended - begun == pytest.approx(16 * (1.0 + 2.0**-9), abs=2.0**-7)


def test_fast_ranks_take_more_steps() -> None:
    result = ranks.run(2, in_rounds, {"steps": 40}, [0.005, 0.05], 8)[0]
    assert all(sum(of_round) == 40 for of_round in result["taken"])
    # Without what was learned, shares stay equal: 15 and 15 are owned, and 10 left to all.
    assert result["taken"][-1][0] > 28


def test_others_take_steps_of_a_rank_that_slows_down_in_a_round() -> None:
    result = ranks.run(2, in_rounds, {"steps": 40}, [0.005, 0.005], 6, 5)[0]
    # Shares are about equal, of which a quarter is for the faster one.
    assert result["taken"][5][1] > result["taken"][5][0]


def short(rank: int) -> int:
    """A stream that ends on one rank after three batches."""
    model = nn.Linear(1, 1)
    local = ata.torch.Local(model, steps=4)
    batches = [torch.ones(1, 1)] * (3 if rank == 0 else 1000)
    return sum(1 for _ in local.batches(batches))


def test_streams_end_with_the_first() -> None:
    taken = ranks.run(2, short)
    assert taken[0] == 3 and taken[1] < 1000


def saved(rank: int) -> list[Any]:
    model = nn.Linear(1, 1)
    local = ata.torch.Local(model, steps=8, outer_lr=1.0, outer_momentum=0.5)
    for _ in local.batches([torch.ones(1, 1)] * 1000, rounds=3):
        model.weight.data += 1.0
    state, parameters = local.state_dict(), digest(model)
    model.weight.data += 100.0
    again = ata.torch.Local(model, steps=8, outer_lr=1.0, outer_momentum=0.5)
    model.weight.data -= 100.0
    again.load_state_dict(state)
    kept = again.state_dict()
    results: list[Any] = [kept["tasks"], torch.equal(kept["velocity"], state["velocity"])]
    for _ in again.batches([torch.ones(1, 1)] * 1000, rounds=1):
        pass
    # Nobody moved but for the momentum: the mean is where all are.
    moved = digest(model)[0] - parameters[0]
    return [*results, moved == pytest.approx(-0.25 * float(state["velocity"][0]), rel=1e-4)]


def test_a_run_goes_on_from_its_state() -> None:
    assert ranks.run(2, saved) == [[24, True, True]] * 2


@pytest.mark.parametrize("steps", ["many", "auto:", "auto:-4", "autos", "automatic:9", "auto:9:9", 2, "auto:2", 2.5])
def test_what_is_no_number_of_steps_is_refused(steps: int | str) -> None:
    with pytest.raises(ValueError, match=r"steps=.*: expected"):
        limits(steps, 3)


def test_a_round_has_a_number_of_steps_or_limits_for_it() -> None:
    assert [limits(steps, 3) for steps in (60, "auto", "auto:100", "auto:9")] == [(60, 60), (24, 960), (24, 100), (9, 9)]


def refusals(rank: int) -> list[str]:
    model = nn.Linear(1, 1)
    found = []
    for make in (
        lambda: ata.torch.Local(model, steps=1),
        lambda: ata.torch.Local(model, outer_lr=0.0),
        lambda: ata.torch.Local(model, outer_momentum=1.0),
        lambda: ata.torch.Local(model, dtype=torch.int8),
        lambda: ata.torch.Local(model, policy="cmab-lcb"),
        lambda: ata.torch.Local(nn.parallel.DistributedDataParallel(model)),
        lambda: ata.torch.Local(model).sampler(0, 1),
        lambda: ata.torch.Local(model).sampler(10, 0),
    ):
        try:
            make()
        except (TypeError, ValueError) as error:
            found.append(str(error))
    return found


def test_what_cannot_be_is_refused() -> None:
    expected = [
        "steps=1",
        "outer_lr=0.0",
        "outer_momentum=1.0",
        "dtype=torch.int8",
        "its own number",
        "synchronizes",
        "0 samples",
        "batches of 0",
    ]
    for found in ranks.run(2, refusals):
        assert len(found) == len(expected) and all(part in text for part, text in zip(expected, found, strict=True)), (
            found
        )
