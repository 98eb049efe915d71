"""Training on a stream of tar shards with WebDataset. Each rank reads shards of its own."""

from pathlib import Path

import torch
import torch.distributed as dist
import webdataset as wds
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

# uneven: import ata.torch


def to_tensors(sample):
    return torch.tensor(sample["input.json"], dtype=torch.get_default_dtype()), int(sample["label.cls"])


dist.init_process_group("gloo")
torch.manual_seed(0)
shards = sorted(map(str, Path("shards").glob("*.tar")))
dataset = wds.WebDataset(shards, nodesplitter=wds.split_by_node, shardshuffle=False).decode().map(to_tensors)
model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
# uneven: uneven = ata.torch.Uneven(model, budget=24, unit=6)
loader = DataLoader(dataset, batch_size=24 // dist.get_world_size(), drop_last=True)  # plain
# uneven: loader = DataLoader(dataset, batch_size=6, drop_last=True)

for epoch in range(2):
    # uneven: for step in uneven.stream(loader):
    for inputs, labels in loader:  # plain
        optimizer.zero_grad()
        # uneven: for inputs, labels in step:
        loss = nn.functional.cross_entropy(model(inputs), labels)  # deeper
        loss.backward()  # plain
        # uneven:     uneven.backward(loss)
        optimizer.step()
torch.save(model.module.state_dict(), "model.pt")
dist.destroy_process_group()
