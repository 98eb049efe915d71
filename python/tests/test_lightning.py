"""Uneven steps with Lightning."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("lightning")

from lightning.pytorch import LightningModule, Trainer  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from ata.torch.lightning import UnevenCallback  # noqa: E402
from ranks import run  # noqa: E402
from test_torch import BUDGET, alone, data, network  # noqa: E402


class Module(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = network()
        self.largest = 0

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        inputs, labels, _ = batch
        self.largest = max(self.largest, len(inputs))
        return nn.functional.cross_entropy(self.net(inputs), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def fit(rank: int, policy: str, accumulated: int, most: int | None) -> tuple[float, dict[str, str], list[int], int]:
    uneven = UnevenCallback(BUDGET, policy=policy, micro_batch=most)
    loader = DataLoader(data(), batch_sampler=uneven.sampler(data(), seed=5))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=3,
        accumulate_grad_batches=accumulated,
        callbacks=[uneven],
        use_distributed_sampler=False,
        **quiet,
    )
    module = Module()
    trainer.fit(module, loader)
    inputs, labels, _ = data().tensors
    loss = nn.functional.cross_entropy(module.net(inputs), labels).item()
    assert trainer.global_step == 3 * 5
    return loss, uneven.state_dict(), uneven.shares, module.largest


@pytest.mark.parametrize(
    ("policy", "accumulated", "most"),
    [
        ("fta:means=1/3", 1, None),
        ("fta:means=1/99", 1, None),
        ("ata-auto", 1, None),
        ("fta:means=1/3", 3, None),
        ("fta:means=99/1", 4, None),
        # No more than 16 samples of 24 on a rank, whatever the policy would have.
        ("fta:means=1/99", 2, 8),
    ],
)
def test_steps_are_those_on_the_mean_loss(policy: str, accumulated: int, most: int | None) -> None:
    loss, _ = alone(3)
    for found, state, shares, largest in run(2, fit, policy, accumulated, most):
        assert abs(found - loss) < 1e-9
        assert "ata_scheduler" in state and sum(shares) == 4
        assert most is None or largest <= most
