"""Image classification with a small residual network and batch normalisation, a warm-up and a step schedule."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

# uneven: import ata.torch


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def train_one_epoch(model, criterion, optimizer, scheduler, loader):
    model.train()
    # uneven: for step in uneven.steps(loader):
    for images, target in loader:  # plain
        optimizer.zero_grad()
        # uneven: for images, target in step:
        output = model(images)  # deeper
        loss = criterion(output, target)  # deeper
        loss.backward()  # plain
        # uneven:     uneven.backward(loss)
        optimizer.step()
        scheduler.step()


dist.init_process_group("gloo")
torch.manual_seed(0)
images = torch.randn(96, 3, 12, 12)
dataset = TensorDataset(images, images.mean((2, 3)).argmax(1))
net = nn.Sequential(Block(3, 8, 1), Block(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3))
model = DistributedDataParallel(net)
# uneven: uneven = ata.torch.Uneven(model, budget=24, unit=6)

sampler = DistributedSampler(dataset, shuffle=False)
loader = DataLoader(dataset, batch_size=24 // dist.get_world_size(), sampler=sampler)  # plain
# uneven: loader = DataLoader(dataset, batch_sampler=uneven.sampler(dataset, shuffle=False))
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
later = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, later], [3])

for epoch in range(2):
    sampler.set_epoch(epoch)
    train_one_epoch(model, criterion, optimizer, scheduler, loader)
torch.save(model.module.state_dict(), "model.pt")
dist.destroy_process_group()
