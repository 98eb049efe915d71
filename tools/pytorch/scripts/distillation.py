"""Distillation: a student learns from labels and from a teacher that does not change."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

# uneven: import ata.torch

TEMPERATURE, SHARE_OF_TEACHER = 2.0, 0.7


def network(width):
    return nn.Sequential(nn.Conv2d(1, width, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(width * 9, 6))


dist.init_process_group("gloo")
torch.manual_seed(0)
images = torch.randn(100, 1, 8, 8)
dataset = TensorDataset(images, images[:, 0, :6, 0].argmax(1))
teacher = nn.Sequential(nn.BatchNorm2d(1), network(16)).eval()
student = DDP(network(3))
# uneven: uneven = ata.torch.Uneven(student, budget=24)
sampler = DistributedSampler(dataset, shuffle=False)
train_loader = DataLoader(dataset, batch_size=24 // dist.get_world_size(), sampler=sampler)  # plain
# uneven: train_loader = DataLoader(dataset, batch_sampler=uneven.sampler(dataset, shuffle=False))
optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)

for epoch in range(3):
    student.train()
    running_loss = 0.0
    # uneven: for inputs, labels in uneven.batches(train_loader):
    for inputs, labels in train_loader:  # plain
        optimizer.zero_grad()
        with torch.no_grad():
            teacher_logits = teacher(inputs)
        student_logits = student(inputs)
        soft_targets = F.softmax(teacher_logits / TEMPERATURE, dim=-1)
        soft = F.log_softmax(student_logits / TEMPERATURE, dim=-1)
        soft_loss = F.kl_div(soft, soft_targets, reduction="batchmean") * TEMPERATURE**2
        loss = SHARE_OF_TEACHER * soft_loss + (1 - SHARE_OF_TEACHER) * F.cross_entropy(student_logits, labels)
        loss.backward()  # plain
        # uneven: uneven.backward(loss)
        optimizer.step()
        running_loss += loss.item()
torch.save(student.module.state_dict(), "model.pt")
dist.destroy_process_group()
