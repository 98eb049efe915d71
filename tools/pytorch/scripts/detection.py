"""A detector that takes lists of images of unequal size and, for each, a dictionary of boxes and labels."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

# uneven: import ata.torch


class Shapes(Dataset):
    """Images of unequal size with one to three boxes."""

    def __len__(self):
        return 100

    def __getitem__(self, number):
        generator = torch.Generator().manual_seed(number)
        image = torch.randn(3, 8 + number % 5, 8 + number % 3, generator=generator)
        boxes = torch.rand(1 + number % 3, 4, generator=generator)
        return image, {"boxes": boxes, "labels": torch.randint(4, (len(boxes),), generator=generator)}


def collate_fn(batch):
    return tuple(zip(*batch))


class Detector(nn.Module):
    """Three queries per image, of which the first ones are to find its boxes."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.boxes, self.classes = nn.Linear(8, 12), nn.Linear(8, 12)

    def forward(self, images, targets):
        box_losses, class_losses = [], []
        for image, target in zip(images, targets):
            features = self.backbone(image[None])
            found = len(target["boxes"])
            boxes, scores = self.boxes(features).view(3, 4)[:found], self.classes(features).view(3, 4)[:found]
            box_losses.append(nn.functional.smooth_l1_loss(boxes, target["boxes"]))
            class_losses.append(nn.functional.cross_entropy(scores, target["labels"]))
        return {"loss_box": torch.stack(box_losses).mean(), "loss_class": torch.stack(class_losses).mean()}


dist.init_process_group("gloo")
torch.manual_seed(0)
dataset = Shapes()
model = DDP(Detector())
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
# uneven: uneven = ata.torch.Uneven(model, budget=24)
sampler = DistributedSampler(dataset, shuffle=False)
loader = DataLoader(dataset, 24 // dist.get_world_size(), sampler=sampler, collate_fn=collate_fn)  # plain
# uneven: loader = DataLoader(dataset, batch_sampler=uneven.sampler(dataset, shuffle=False), collate_fn=collate_fn)

for epoch in range(2):
    sampler.set_epoch(epoch)
    # uneven: for images, targets in uneven.batches(loader):
    for images, targets in loader:  # plain
        images = [image.to("cpu") for image in images]
        targets = [{key: value.to("cpu") for key, value in target.items()} for target in targets]
        loss_dict = model(images, targets)
        losses = sum(loss for loss in loss_dict.values())
        optimizer.zero_grad()
        losses.backward()  # plain
        # uneven: uneven.backward(losses)
        optimizer.step()
torch.save(model.module.state_dict(), "model.pt")
dist.destroy_process_group()
