"""Hugging Face Accelerate with uneven shares. Run: torchrun --nproc-per-node 2 examples/accelerate_ddp.py"""

import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ata.torch


def main() -> None:
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    torch.manual_seed(0)
    inputs = torch.randn(2048, 16)
    dataset = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    # The loader is not prepared: its samples are divided already.
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.01))

    uneven = ata.torch.Uneven(model, budget=128)
    loader = DataLoader(dataset, batch_sampler=uneven.sampler(dataset))
    for epoch in range(2):
        for step in uneven.steps(loader):
            optimizer.zero_grad()
            for batch in step:
                x, y = (tensor.to(accelerator.device) for tensor in batch)
                time.sleep(len(x) * 0.0002 * (1 + 2 * accelerator.process_index))  # rank 1 is three times as slow
                loss = nn.functional.mse_loss(model(x), y)
                accelerator.backward(uneven.weigh(loss))
            optimizer.step()
        accelerator.print(f"epoch {epoch}: shares {step.shares}, loss {loss.item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
