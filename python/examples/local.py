"""Ranks that train by themselves, and average their parameters after each round. Run: torchrun --nproc-per-node 2 examples/local.py"""

import time

import ata.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    dist.init_process_group("gloo")  # nccl on GPUs
    torch.manual_seed(0)
    inputs = torch.randn(8192, 16)
    dataset = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

    local = ata.torch.Local(model, steps=64)
    loader = DataLoader(dataset, batch_sampler=local.sampler(dataset, batch_size=16))
    for epoch in range(2):
        for x, y in local.batches(loader):
            optimizer.zero_grad()
            time.sleep(0.002 * (1 + 2 * dist.get_rank()))  # rank 1 is three times as slow
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        if dist.get_rank() == 0:
            loss = nn.functional.mse_loss(model(inputs), dataset.tensors[1])
            print(f"epoch {epoch}: loss {loss.item():.4f}, {local.tasks} steps, of the last round {local.metrics()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
