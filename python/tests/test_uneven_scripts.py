"""Uneven steps of scripts as people write them, against the same steps in one process. Rank 1 has few samples or none."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader, WeightedRandomSampler  # noqa: E402

import ata.torch  # noqa: E402
from ata.torch.units import check_normalisation  # noqa: E402
from ranks import run  # noqa: E402

BUDGET, SAMPLES, EPOCHS, UNIT = 24, 100, 2, 6
IGNORED = -100
SHARES = ["fta:means=1/3", "fta:means=1/99", "fta:means=99/1"]


class Sentences(torch.utils.data.Dataset[dict[str, Any]]):
    """Of unequal length, some of which have no label at all."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(number)
        words = torch.randint(20, (8,), generator=generator)
        labels = torch.where(torch.arange(8) < number % 5, (words * 7 + 1) % 4, IGNORED)
        return {"words": words, "labels": labels, "images": torch.randn(6, generator=generator, dtype=torch.float64)}


def tokens(model: nn.Module, batch: dict[str, Any]) -> torch.Tensor:
    """A mean over tokens, which is not a number if there are none."""
    counts = batch["labels"] != IGNORED
    scores = model(batch["words"]).log_softmax(2).gather(2, batch["labels"].clamp(min=0).unsqueeze(2)).squeeze(2)
    return -(scores * counts).sum() / counts.sum()


def count_tokens(batch: dict[str, Any]) -> torch.Tensor:
    return (batch["labels"] != IGNORED).sum()


def images(model: nn.Module, batch: dict[str, Any]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch["images"]), (batch["images"].sum(1) > 0).long())


def bags(model: nn.Module, batch: dict[str, Any]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch["words"]), batch["words"][:, 0] % 4)


class Partly(nn.Module):
    """Has a layer that no sample uses."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.used(inputs)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[..., torch.Tensor], dict[str, Any], dict[str, Any]]] = {
    "tokens": (lambda: nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 4)), tokens, {"weight": count_tokens}, {}),
    "tokens in parts": (
        lambda: nn.Sequential(nn.Embedding(20, 4), nn.Linear(4, 4)),
        tokens,
        {"weight": count_tokens, "micro_batch": 2},
        {},
    ),
    "batch norm": (
        lambda: nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)),
        images,
        {"unit": UNIT},
        {},
    ),
    "sparse": (lambda: nn.Sequential(nn.EmbeddingBag(20, 4, sparse=True), nn.Linear(4, 4)), bags, {}, {}),
    "unused": (Partly, images, {}, {"find_unused_parameters": True}),
}


def optimizer_of(model: nn.Module, name: str) -> torch.optim.Optimizer:
    # SGD takes sparse gradients.
    if name == "sparse":
        return torch.optim.SGD(model.parameters(), lr=0.1)
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def made(name: str) -> nn.Module:
    torch.manual_seed(1)
    return MODELS[name][0]().double()


def train(rank: int, name: str, policy: str) -> dict[str, torch.Tensor]:
    _, loss, options, of_ddp = MODELS[name]
    model = DistributedDataParallel(made(name), **of_ddp)
    optimizer = optimizer_of(model, name)
    uneven = ata.torch.Uneven(model, BUDGET, policy=policy, **options)
    loader = DataLoader(Sentences(), batch_sampler=uneven.sampler(Sentences(), seed=5))
    for _ in range(EPOCHS):
        for step in uneven.steps(loader):
            optimizer.zero_grad()
            for batch in step:
                uneven.backward(loss(model, batch))
            optimizer.step()
    return model.module.state_dict()


def alone(name: str) -> dict[str, torch.Tensor]:
    """The same steps in one process. Those of batch norm are of units, as of so many ranks."""
    _, loss, options, _ = MODELS[name]
    model = made(name)
    optimizer = optimizer_of(model, name)
    for epoch in range(EPOCHS):
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(5 + epoch))
        for numbers in order.split(BUDGET):
            optimizer.zero_grad()
            units = numbers.split(options.get("unit", BUDGET))
            begun = {key: buffer.clone() for key, buffer in model.named_buffers()}
            ended: list[dict[str, torch.Tensor]] = []
            for unit in units:
                for key, buffer in model.named_buffers():
                    buffer.copy_(begun[key])
                batch = torch.utils.data.default_collate([Sentences()[int(number)] for number in unit])
                (loss(model, batch) * (len(unit) / len(numbers))).backward()
                ended.append({key: buffer.clone() for key, buffer in model.named_buffers()})
            for key, buffer in model.named_buffers():
                mean = sum((each[key].double() for each in ended[1:]), ended[0][key].double()) / len(units)
                buffer.copy_(mean)
            optimizer.step()
    return model.state_dict()


@pytest.mark.parametrize("policy", SHARES)
@pytest.mark.parametrize("name", MODELS)
def test_a_script_ends_as_in_one_process(name: str, policy: str) -> None:
    expected = alone(name)
    for found in run(2, train, name, policy):
        for key, tensor in expected.items():
            assert torch.allclose(found[key].double(), tensor.double(), rtol=0, atol=1e-11), (key, found[key], tensor)


def mistakes(rank: int) -> list[str]:
    texts = []

    def refused(act: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        with pytest.raises((TypeError, ValueError, RuntimeError)) as raised:
            act(*arguments, **options)
        texts.append(str(raised.value))

    def first_step(model: nn.Module, **options: Any) -> None:
        uneven = ata.torch.Uneven(DistributedDataParallel(model), BUDGET, **options)
        next(iter(uneven.steps(DataLoader(Sentences(), batch_sampler=uneven.sampler(Sentences())))))

    refused(first_step, made("batch norm"))
    # DistributedDataParallel takes it on GPUs only.
    refused(check_normalisation, [nn.SyncBatchNorm.convert_sync_batchnorm(made("batch norm"))], UNIT)
    refused(first_step, nn.InstanceNorm1d(6, affine=True, track_running_stats=True))
    refused(first_step, made("unused"), unit=5)
    refused(first_step, made("unused"), unit=6, micro_batch=6)
    refused(ata.torch.Uneven, DistributedDataParallel(made("unused"), static_graph=True), BUDGET)
    refused(ata.torch.Uneven, budget=BUDGET)
    refused(ata.torch.Uneven, models=[made("unused")], budget=BUDGET)
    uneven = ata.torch.Uneven(DistributedDataParallel(made("unused")), BUDGET, micro_batch=6)
    refused(uneven.batches, DataLoader(Sentences(), batch_sampler=uneven.sampler(Sentences())))
    # A layer that uses what it has learned is no obstacle, nor is a compiled model.
    frozen = made("batch norm")
    frozen[1].eval()
    first_step(frozen)
    model = DistributedDataParallel(made("tokens"))
    uneven = ata.torch.Uneven(torch.compile(model), BUDGET)
    loader = DataLoader(Sentences(), batch_sampler=uneven.sampler(Sentences()))
    batches = uneven.batches(loader)
    assert len(batches) == len(loader) > 1
    for batch in batches:
        scores = tokens(model, batch)
        uneven.backward(scores * 0, retain_graph=True)
        refused(uneven.backward, scores)
        refused(uneven.backward, tokens(model.module, batch))
        return texts
    return texts


def test_what_would_be_wrong_is_refused() -> None:
    for texts in run(2, mistakes):
        expected = [
            "'1' is a BatchNorm1d, whose result would depend on the shares: pass Uneven(unit=16)",
            "'1' is a SyncBatchNorm",
            "is a InstanceNorm1d, whose result would depend on the shares",
            "unit=5: expected a divisor of the budget of 24",
            "unit=6: expected a divisor of the budget of 24 samples, and no micro_batch",
            "static_graph=True",
            "expected Uneven(model, budget) or Uneven(models=",
            "models is for DistributedDataParallel, not for Partly",
            "use `for step in uneven.steps(loader)`",
            "no forward pass of the DistributedDataParallel since the last backward pass",
            "call it, and not its module",
        ]
        assert len(texts) == len(expected)
        assert all(part in text for part, text in zip(expected, texts, strict=True)), "\n".join(texts)


class Stream(torch.utils.data.IterableDataset[Any]):
    """Each rank reads a stream of its own, of which rank 1's is short."""

    def __init__(self, rank: int) -> None:
        self.numbers = range(1000) if rank == 0 else range(1000, 1040)

    def __iter__(self) -> Any:
        return (Sentences()[number] | {"number": number} for number in self.numbers)


def stream(rank: int, policy: str) -> tuple[list[list[int]], dict[str, torch.Tensor]]:
    model = DistributedDataParallel(made("batch norm"))
    optimizer = optimizer_of(model, "batch norm")
    uneven = ata.torch.Uneven(model, BUDGET, policy=policy, unit=UNIT)
    seen = []
    for step in uneven.stream(DataLoader(Stream(rank), batch_size=UNIT, drop_last=True)):
        optimizer.zero_grad()
        seen.append([])
        for batch in step:
            # A rank without samples computes some that do not count, until it knows how often others compute theirs.
            seen[-1] += batch["number"].tolist() if step.samples else []
            uneven.backward(images(model, batch))
        optimizer.step()
        if len(seen) == 9:
            break
    metrics = uneven.metrics()
    assert metrics[f"uneven/samples_rank{rank}"] == len(seen[-1])
    measured = len(uneven.report().times)
    assert ("uneven/seconds_rank0" in metrics) == (measured > 0 and policy != "fta:means=1/99")
    return seen, model.module.state_dict()


@pytest.mark.parametrize(
    ("policy", "steps", "least"), [("fta:means=1/3", 6, 6), ("uta", 3, 12), ("fta:means=1/99", 9, 0)]
)
def test_each_rank_draws_its_units_from_its_own_stream(policy: str, steps: int, least: int) -> None:
    (first, one), (second, other) = run(2, stream, policy)
    assert len(first) == len(second) == steps
    assert all(len(mine) == BUDGET - least and len(others) == least for mine, others in zip(first, second, strict=True))
    assert sum(first, []) == list(range(steps * (BUDGET - least)))
    assert sum(second, []) == list(range(1000, 1000 + steps * least))
    assert all(torch.equal(one[key], other[key]) for key in one)


def own_sampler(seed: int) -> WeightedRandomSampler:
    return WeightedRandomSampler([1.0] * 50 + [3.0] * 50, 90, generator=torch.Generator().manual_seed(seed))


def order(rank: int, kind: str, stopped_after: int | None) -> list[list[int]]:
    """The samples that this rank gets in each step, where the run is continued in the middle of an epoch."""
    samples: Any = Sentences()
    if kind == "own":
        samples = own_sampler(7 + rank)
    options = {"drop_last": kind == "drop_last"}
    seen: list[list[int]] = []
    state: dict[str, int] = {}

    def go_on(most: int | None) -> None:
        model = DistributedDataParallel(nn.Linear(6, 1))
        uneven = ata.torch.Uneven(model, BUDGET, policy="fta:means=1/3")
        sampler = uneven.sampler(samples, seed=3, **options)
        if state:
            sampler.load_state_dict(copy.copy(state))
        loader = DataLoader(list(range(SAMPLES)), batch_sampler=sampler, num_workers=1)  # type: ignore[arg-type]
        while sampler.state_dict()["epoch"] < EPOCHS:
            for step in uneven.steps(loader):
                for batch in step:
                    seen.append(batch.tolist())
                    uneven.backward(model(torch.zeros(1, 6)).sum())
                state.update(sampler.state_dict())
                if most is not None and len(seen) == most:
                    return

    go_on(stopped_after)
    if stopped_after is not None:
        go_on(None)
    return seen


def test_a_run_continues_in_the_middle_of_an_epoch() -> None:
    whole, continued = run(2, order, "plain", None), run(2, order, "plain", 7)
    assert whole == continued
    of_epoch = [sum((steps[:5] for steps in whole), [])]
    assert sorted(number for step in of_epoch[0] for number in step) == list(range(SAMPLES))


def test_the_last_step_may_be_left_out() -> None:
    first, second = run(2, order, "drop_last", None)
    assert len(first) == len(second) == EPOCHS * (SAMPLES // BUDGET)
    assert all(len(mine) + len(others) == BUDGET for mine, others in zip(first, second, strict=True))


def test_a_sampler_of_ones_own_is_that_of_rank_0() -> None:
    ranks = run(2, order, "own", None)
    sampler = own_sampler(7)
    for epoch in range(EPOCHS):
        steps = [slice(4 * epoch, 4 * epoch + 4)] * 2
        found = [
            number for parts in zip(*(seen[at] for seen, at in zip(ranks, steps))) for part in parts for number in part
        ]
        assert found == list(sampler)
