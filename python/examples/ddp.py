"""DistributedDataParallel with uneven shares. Run: torchrun --nproc-per-node 2 examples/ddp.py"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import ata.torch


def main() -> None:
    dist.init_process_group("gloo")  # nccl on GPUs
    torch.manual_seed(0)
    inputs = torch.randn(2048, 16)
    dataset = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    uneven = ata.torch.Uneven(model, budget=128)
    loader = DataLoader(dataset, batch_sampler=uneven.sampler(dataset))
    for epoch in range(2):
        for x, y in uneven.batches(loader):
            optimizer.zero_grad()
            time.sleep(len(x) * 0.0002 * (1 + 2 * dist.get_rank()))  # rank 1 is three times as slow
            loss = nn.functional.mse_loss(model(x), y)
            uneven.backward(loss)
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}")
    if dist.get_rank() == 0:
        print(uneven.report())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
