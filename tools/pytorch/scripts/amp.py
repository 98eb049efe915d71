"""A loop for mixed precision: a compiled model, a gradient scaler, and gradients of two batches for each step."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

# uneven: import ata.torch

ACCUMULATED = 2
is_on_gpu = torch.cuda.is_available()

dist.init_process_group("gloo")
torch.manual_seed(0)
inputs = torch.randn(96, 16)
dataset = TensorDataset(inputs, inputs[:, :5].argmax(1))
net = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 5))
model = DDP(torch.compile(net, backend="aot_eager"))
# uneven: uneven = ata.torch.Uneven(model, budget=24)
sampler = DistributedSampler(dataset, shuffle=False)
loader = DataLoader(dataset, batch_size=24 // dist.get_world_size(), sampler=sampler)  # plain
# uneven: loader = DataLoader(dataset, batch_sampler=uneven.sampler(dataset, shuffle=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cuda", enabled=is_on_gpu)

for epoch in range(3):
    sampler.set_epoch(epoch)
    # uneven: for number, (x, y) in enumerate(uneven.batches(loader)):
    for number, (x, y) in enumerate(loader):  # plain
        is_last = (number + 1) % ACCUMULATED == 0
        with contextlib.nullcontext() if is_last else model.no_sync():
            with torch.autocast("cuda", enabled=is_on_gpu):
                loss = nn.functional.cross_entropy(model(x), y) / ACCUMULATED
            scaler.scale(loss).backward()  # plain
            # uneven: scaler.scale(uneven.weigh(loss)).backward()
        if is_last:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
torch.save(model.module.state_dict(), "model.pt")
dist.destroy_process_group()
