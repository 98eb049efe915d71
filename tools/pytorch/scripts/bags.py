"""Classification of texts by an EmbeddingBag with sparse gradients, and a moving average of the weights."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, DistributedSampler

# uneven: import ata.torch


class TextClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.EmbeddingBag(80, 8, sparse=True)
        self.fc = nn.Linear(8, 4)

    def forward(self, text, offsets):
        return self.fc(self.embedding(text, offsets))


def texts():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 9, (100,), generator=generator).tolist()
    return [torch.randint(80, (length,), generator=generator) for length in lengths]


def collate_batch(batch):
    labels = torch.tensor([int(text[0]) % 4 for text in batch])
    offsets = torch.tensor([0] + [len(text) for text in batch[:-1]]).cumsum(0)
    return labels, torch.cat(batch), offsets


dist.init_process_group("gloo")
torch.manual_seed(0)
dataset = texts()
model = DDP(TextClassifier())
average = AveragedModel(model.module, multi_avg_fn=get_ema_multi_avg_fn(0.9))
of_words = torch.optim.SparseAdam(model.module.embedding.parameters(), lr=0.02)
of_rest = torch.optim.Adam(model.module.fc.parameters(), lr=0.02)
# uneven: uneven = ata.torch.Uneven(model, budget=24)
sampler = DistributedSampler(dataset, shuffle=False)
loader = DataLoader(dataset, 24 // dist.get_world_size(), sampler=sampler, collate_fn=collate_batch)  # plain
# uneven: loader = DataLoader(dataset, batch_sampler=uneven.sampler(dataset, shuffle=False), collate_fn=collate_batch)

for epoch in range(3):
    sampler.set_epoch(epoch)
    # uneven: for label, text, offsets in uneven.batches(loader):
    for label, text, offsets in loader:  # plain
        of_words.zero_grad()
        of_rest.zero_grad()
        loss = nn.functional.cross_entropy(model(text, offsets), label)
        loss.backward()  # plain
        # uneven: uneven.backward(loss)
        of_words.step()
        of_rest.step()
        average.update_parameters(model.module)
torch.save({"model": model.module.state_dict(), "average": average.module.state_dict()}, "model.pt")
dist.destroy_process_group()
