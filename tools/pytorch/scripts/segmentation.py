"""Segmentation with a small U-Net, in which the pixels of rare classes count more."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

# uneven: import ata.torch


def twice(inputs, outputs):
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.down1, self.down2, self.bottom = twice(1, 4), twice(4, 8), twice(8, 16)
        self.up2, self.up1 = nn.ConvTranspose2d(16, 8, 2, 2), nn.ConvTranspose2d(8, 4, 2, 2)
        self.join2, self.join1 = twice(16, 8), twice(8, 4)
        self.out = nn.Conv2d(4, classes, 1)

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(nn.functional.max_pool2d(first, 2))
        bottom = self.bottom(nn.functional.max_pool2d(second, 2))
        second = self.join2(torch.cat([self.up2(bottom), second], 1))
        return self.out(self.join1(torch.cat([self.up1(second), first], 1)))


class Discs(Dataset):
    """Pictures with a disc of unequal size, and in some a dot."""

    def __len__(self):
        return 100

    def __getitem__(self, number):
        generator = torch.Generator().manual_seed(number)
        y, x = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
        mask = ((x - 8) ** 2 + (y - 8) ** 2 < (number % 7) ** 2).long()
        mask[: number % 3, :2] = 2
        return mask + torch.randn(1, 16, 16, generator=generator), mask


dist.init_process_group("gloo")
torch.manual_seed(0)
dataset = Discs()
model = DDP(UNet(3))
class_weights = torch.tensor([0.2, 1.0, 5.0])
criterion = nn.CrossEntropyLoss(weight=class_weights)
# uneven: uneven = ata.torch.Uneven(model, budget=24, weight=lambda batch: class_weights[batch[1]].sum())
sampler = DistributedSampler(dataset, shuffle=False)
loader = DataLoader(dataset, batch_size=24 // dist.get_world_size(), sampler=sampler)  # plain
# uneven: loader = DataLoader(dataset, batch_sampler=uneven.sampler(dataset, shuffle=False))
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)

for epoch in range(2):
    sampler.set_epoch(epoch)
    # uneven: for images, masks in uneven.batches(loader):
    for images, masks in loader:  # plain
        loss = criterion(model(images), masks)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # plain
        # uneven: uneven.backward(loss)
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
torch.save(model.module.state_dict(), "model.pt")
dist.destroy_process_group()
