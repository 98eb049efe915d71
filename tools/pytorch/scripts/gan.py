"""A generative adversarial network: two models, two optimizers, and a backward pass for each."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

# uneven: import ata.torch

dist.init_process_group("gloo")
torch.manual_seed(0)
# The noise is part of the data, so that it does not depend on the number of ranks.
angles = torch.rand(100) * 6.28
dataset = TensorDataset(torch.stack([angles.cos(), angles.sin()], 1), torch.randn(100, 4))
generator = DDP(nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 2)))
discriminator = DDP(nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)))
# uneven: uneven = ata.torch.Uneven(models=[generator, discriminator], budget=24)
sampler = DistributedSampler(dataset, shuffle=False)
loader = DataLoader(dataset, batch_size=24 // dist.get_world_size(), sampler=sampler)  # plain
# uneven: loader = DataLoader(dataset, batch_sampler=uneven.sampler(dataset, shuffle=False))
criterion = nn.BCEWithLogitsLoss()
optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))

for epoch in range(2):
    sampler.set_epoch(epoch)
    # uneven: for real, noise in uneven.batches(loader):
    for real, noise in loader:  # plain
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        # The discriminator first, on real and on made-up points.
        discriminator.zero_grad()
        fake = generator(noise)
        loss_real = criterion(discriminator(real), ones)
        loss_fake = criterion(discriminator(fake.detach()), zeros)
        loss_d = (loss_real + loss_fake) / 2
        loss_d.backward()  # plain
        # uneven: uneven.backward(loss_d)
        optimizer_d.step()
        # Then the generator, which wants its points to be taken for real ones.
        generator.zero_grad()
        loss_g = criterion(discriminator(fake), ones)
        loss_g.backward()  # plain
        # uneven: uneven.backward(loss_g)
        optimizer_g.step()
torch.save({"g": generator.module.state_dict(), "d": discriminator.module.state_dict()}, "model.pt")
dist.destroy_process_group()
