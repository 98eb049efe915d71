"""A character-level GPT with tied embeddings: decay groups, clipped gradients, a cosine schedule."""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

# uneven: import ata.torch

TEXT = "the quick brown fox jumps over the lazy dog, and then the dog sleeps in the sun for a while. " * 2
LETTERS = sorted(set(TEXT))
LENGTH, WIDTH, EPOCHS, RATE = 16, 16, 2, 3e-3


class Characters(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, begin):
        codes = torch.tensor([LETTERS.index(letter) for letter in TEXT[begin : begin + LENGTH + 1]])
        return codes[:-1], codes[1:]


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(len(LETTERS), WIDTH)
        self.positions = nn.Parameter(torch.zeros(1, LENGTH, WIDTH))
        self.block = nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(LETTERS), bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x, targets):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        logits = self.head(self.norm(self.block(self.tokens(x) + self.positions, mask, is_causal=True)))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


dist.init_process_group("gloo")
torch.manual_seed(3)
dataset = Characters()
model = DDP(GPT())
decayed = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
others = [parameter for parameter in model.parameters() if parameter.dim() < 2]
groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95))
# uneven: uneven = ata.torch.Uneven(model, budget=24)
sampler = DistributedSampler(dataset, shuffle=False)
loader = DataLoader(dataset, batch_size=24 // dist.get_world_size(), sampler=sampler)  # plain
# uneven: loader = DataLoader(dataset, batch_sampler=uneven.sampler(dataset, shuffle=False))

steps = 0
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    # uneven: for x, y in uneven.batches(loader):
    for x, y in loader:  # plain
        for group in optimizer.param_groups:
            group["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * steps / 10))
        logits, loss = model(x, y)
        model.zero_grad(set_to_none=True)
        loss.backward()  # plain
        # uneven: uneven.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1
torch.save(model.module.state_dict(), "model.pt")
dist.destroy_process_group()
