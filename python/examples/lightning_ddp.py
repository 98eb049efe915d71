"""Lightning with uneven shares, on two processes. Run: python examples/lightning_ddp.py"""

import time

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ata.torch.lightning import UnevenCallback

TWO_RANKS = {"accelerator": "cpu", "devices": 2, "strategy": "ddp", "enable_checkpointing": False}


class Regression(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        x, y = batch
        time.sleep(len(x) * 0.0002 * (1 + 2 * self.global_rank))  # rank 1 is three times as slow
        return nn.functional.mse_loss(self.net(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main() -> None:
    inputs = torch.randn(2048, 16)
    dataset = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    uneven = UnevenCallback(budget=128)
    loader = DataLoader(dataset, batch_sampler=uneven.sampler(dataset))
    trainer = Trainer(max_epochs=2, callbacks=[uneven], use_distributed_sampler=False, logger=False, **TWO_RANKS)
    trainer.fit(Regression(), loader)
    print(f"shares of the last step: {uneven.shares}")


if __name__ == "__main__":
    main()
