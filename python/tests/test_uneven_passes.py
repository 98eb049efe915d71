"""Steps of several backward passes, models and optimizers, against the same in one process. Rank 1 has few samples or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import ata.torch  # noqa: E402
from ranks import run  # noqa: E402

BUDGET, SAMPLES, EPOCHS = 24, 100, 2
SHARES = ["fta:means=1/3", "fta:means=1/99", "fta:means=99/1"]

cross_entropy = nn.functional.cross_entropy
Backward = Callable[..., None]


def sample(number: int) -> torch.Tensor:
    return torch.randn(6, generator=torch.Generator().manual_seed(number), dtype=torch.float64)


DATA = [sample(number) for number in range(SAMPLES)]


class Networks:
    """Two models, each with an optimizer."""

    def __init__(self, wrap: Callable[[nn.Module], nn.Module]) -> None:
        torch.manual_seed(1)
        self.models = [
            wrap(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, outputs)).double()) for outputs in (6, 1)
        ]
        self.optimizers = [torch.optim.AdamW(model.parameters(), lr=0.01) for model in self.models]

    def discriminate(self, batch: torch.Tensor) -> torch.Tensor:
        """The loss of the second network, which tells samples from what the first one makes of noise."""
        generator, discriminator = self.models
        fake = generator(batch.flip(1)).detach()
        return (discriminator(fake) - discriminator(batch)).mean()

    def generate(self, batch: torch.Tensor) -> torch.Tensor:
        generator, discriminator = self.models
        return -discriminator(generator(batch.flip(1))).mean()


def in_one_body(networks: Networks, batches: Iterator[torch.Tensor], backward: Backward) -> None:
    """Two optimizers in turn, on the same batch."""
    for batch in batches:
        for number, loss in ((1, networks.discriminate), (0, networks.generate)):
            for optimizer in networks.optimizers:
                optimizer.zero_grad()
            backward(loss(batch))
            networks.optimizers[number].step()


def in_two_loops(networks: Networks, steps: Iterator[Any], backward: Backward) -> None:
    """The same with micro-batches: each optimizer has a loop of its own."""
    for step in steps:
        for number, loss in ((1, networks.discriminate), (0, networks.generate)):
            for optimizer in networks.optimizers:
                optimizer.zero_grad()
            for batch in step:
                backward(loss(batch))
            networks.optimizers[number].step()


def in_two_passes(networks: Networks, steps: Iterator[Any], backward: Backward) -> None:
    """One optimizer and two losses, of which each has its own backward pass."""
    model, optimizer = networks.models[0], networks.optimizers[0]
    for step in steps:
        optimizer.zero_grad()
        for batch in step:
            backward(model(batch).square().mean())
            backward((model(batch.flip(1)) - 1).abs().mean())
        optimizer.step()


def train(rank: int, kind: str, policy: str, options: dict[str, Any]) -> list[dict[str, torch.Tensor]]:
    networks = Networks(DistributedDataParallel)
    models: dict[str, Any] = {"models": networks.models} if kind != "passes" else {"model": networks.models[0]}
    uneven = ata.torch.Uneven(**models, budget=BUDGET, policy=policy, **options)
    loader = DataLoader(DATA, batch_sampler=uneven.sampler(DATA, seed=5))  # type: ignore[arg-type]
    for _ in range(EPOCHS):
        if kind == "body":
            in_one_body(networks, uneven.batches(loader), uneven.backward)
        elif kind == "loops":
            in_two_loops(networks, uneven.steps(loader), uneven.backward)
        else:
            in_two_passes(networks, uneven.steps(loader), uneven.backward)
    return [model.module.state_dict() for model in networks.models]


def alone(kind: str) -> list[dict[str, torch.Tensor]]:
    networks = Networks(lambda model: model)
    for epoch in range(EPOCHS):
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(5 + epoch))
        batches = iter([torch.stack([DATA[number] for number in numbers]) for numbers in order.split(BUDGET)])
        if kind == "passes":
            in_two_passes(networks, ([batch] for batch in batches), torch.Tensor.backward)
        else:
            in_one_body(networks, batches, torch.Tensor.backward)
    return [model.state_dict() for model in networks.models]


@pytest.mark.parametrize("policy", SHARES)
@pytest.mark.parametrize(
    ("kind", "options"),
    [("body", {}), ("loops", {}), ("loops", {"micro_batch": 5}), ("passes", {}), ("passes", {"micro_batch": 5})],
)
def test_steps_of_several_passes_are_those_of_one_process(kind: str, options: dict[str, Any], policy: str) -> None:
    expected = alone(kind)
    for found in run(2, train, kind, policy, options):
        for mine, other in zip(found, expected, strict=True):
            for key, tensor in other.items():
                assert torch.allclose(mine[key], tensor, rtol=0, atol=1e-11), (key, mine[key], tensor)


def sharded(rank: int, policy: str) -> list[bool]:
    """Whether parameters stay numbers, where the loss of a sample that does not count is none."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    torch.distributed.fsdp.fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    uneven = ata.torch.Uneven(model, BUDGET, policy=policy, weight=lambda batch: (batch[:, 0] > 0).sum())
    for batch in uneven.batches(DataLoader(DATA, batch_sampler=uneven.sampler(DATA))):  # type: ignore[arg-type]
        optimizer.zero_grad()
        counts = batch[:, 0] > 0
        counts &= torch.tensor(rank == 0)
        uneven.backward((model(batch)[:, 0] * counts).sum() / counts.sum())
        optimizer.step()
    return [bool(each.full_tensor().isfinite().all()) for each in model.parameters()]


def test_a_loss_that_does_not_count_may_be_no_number() -> None:
    assert all(all(found) for found in run(2, sharded, "fta:means=1/99"))


def late(rank: int) -> str:
    """A second pass in a step in which rank 1 has no samples, after steps that had one."""
    model = DistributedDataParallel(nn.Linear(6, 1).double())
    uneven = ata.torch.Uneven(model, BUDGET, policy="fta:means=1/99")
    loader = DataLoader(DATA, batch_sampler=uneven.sampler(DATA))  # type: ignore[arg-type]
    for number, step in enumerate(uneven.steps(loader)):
        for batch in step:
            uneven.backward(model(batch).mean())
            if number == 3:
                with pytest.raises(RuntimeError) as raised:
                    uneven.backward(model(batch).mean())
                return str(raised.value)
        if number == 3:
            return "nothing to compute"
    return "no fourth step"


def test_a_pass_that_a_rank_without_samples_does_not_expect_is_refused() -> None:
    first, second = run(2, late)
    assert "a second backward pass, in a step in which a rank has no samples" in first and "models=[model]" in first
    assert second == "nothing to compute"


def of_lists(rank: int, splits: bool) -> tuple[str, int]:
    """Batches of one object, which only `split` can divide."""
    model = DistributedDataParallel(nn.Linear(6, 1).double())

    def split(batch: dict[str, Any], sizes: list[int]) -> list[Any]:
        found, begin = [], 0
        for size in sizes:
            found.append({"text": "x", "rows": batch["rows"][begin : begin + size]})
            begin += size
        return found

    options = {"split": split} if splits else {}
    uneven = ata.torch.Uneven(model, BUDGET, policy="fta:means=1/3", micro_batch=4, **options)
    loader = DataLoader(
        DATA,  # type: ignore[arg-type]
        batch_sampler=uneven.sampler(DATA),
        collate_fn=lambda rows: {"text": "x", "rows": torch.stack(rows)},
    )
    largest = 0
    try:
        for step in uneven.steps(loader):
            for batch in step:
                largest = max(largest, len(batch["rows"]))
                uneven.backward(model(batch["rows"]).mean())
    except TypeError as error:
        return str(error), largest
    return "", largest


def test_a_batch_of_any_kind_is_split_by_a_function() -> None:
    assert all(text == "" and 0 < largest <= 4 for text, largest in run(2, of_lists, True))
    for text, largest in run(2, of_lists, False):
        assert (
            "{text: str of 1, rows: a tensor of shape [" in text and "Uneven also takes a function, split=..." in text and largest == 0
        )
