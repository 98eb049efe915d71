"""transformers' Trainer with uneven shares. Run: torchrun --nproc-per-node 2 examples/trainer_ddp.py"""

import time

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

import ata.torch


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if torch.distributed.is_initialized():
            time.sleep(len(x) * 0.0002 * (1 + 2 * torch.distributed.get_rank()))  # rank 1 is three times as slow
        return {"loss": nn.functional.mse_loss(self.net(x), labels)}


class UnevenTrainer(ata.torch.UnevenTrainer, Trainer):
    pass


def main() -> None:
    cpu = {} if torch.cuda.is_available() else {"use_cpu": True, "ddp_backend": "gloo"}
    quiet = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "logging_steps": 16}
    args = TrainingArguments("trainer_ddp", per_device_train_batch_size=64, num_train_epochs=2, **cpu, **quiet)
    inputs = torch.randn(2048, 16)
    dataset = [{"x": x, "labels": x.sum(0, keepdim=True)} for x in inputs]
    trainer = UnevenTrainer(Regression(), args, train_dataset=dataset)
    trainer.train()
    if trainer.uneven and trainer.is_world_process_zero():
        print({name: value for name, value in trainer.uneven.metrics().items() if "samples" in name})


if __name__ == "__main__":
    main()
