"""Fine-tuning of BERT for classification: a frozen body with low-rank adapters, and a head."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import BertConfig, BertForSequenceClassification, get_cosine_schedule_with_warmup

# uneven: import ata.torch


class Adapted(nn.Module):
    """A linear layer that stays, with a change of low rank."""

    def __init__(self, layer, rank=2):
        super().__init__()
        self.layer = layer
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


class Sentences(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, number):
        words = torch.randint(1, 60, (10,), generator=torch.Generator().manual_seed(number))
        mask = (torch.arange(10) < 4 + number % 6).long()
        return {"input_ids": words * mask, "attention_mask": mask, "labels": words[0] % 3}


dist.init_process_group("gloo")
torch.manual_seed(0)
dataset = Sentences()
sizes = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
net = BertForSequenceClassification(BertConfig(**sizes, **no_dropout, max_position_embeddings=16, num_labels=3))
for parameter in net.bert.parameters():
    parameter.requires_grad_(False)
for layer in net.bert.encoder.layer:
    layer.attention.self.query = Adapted(layer.attention.self.query)
    layer.attention.self.value = Adapted(layer.attention.self.value)
model = DDP(net, find_unused_parameters=True)
optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=5e-3)
scheduler = get_cosine_schedule_with_warmup(optimizer, 2, 10)
# uneven: uneven = ata.torch.Uneven(model, budget=24)
sampler = DistributedSampler(dataset, shuffle=False)
loader = DataLoader(dataset, batch_size=24 // dist.get_world_size(), sampler=sampler)  # plain
# uneven: loader = DataLoader(dataset, batch_sampler=uneven.sampler(dataset, shuffle=False))

for epoch in range(2):
    sampler.set_epoch(epoch)
    model.train()
    # uneven: for batch in uneven.batches(loader):
    for batch in loader:  # plain
        outputs = model(**batch)
        outputs.loss.backward()  # plain
        # uneven: uneven.backward(outputs.loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
torch.save(model.module.state_dict(), "model.pt")
dist.destroy_process_group()
