"""An autoencoder as a LightningModule."""

import os

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

# uneven: from ata.torch.lightning import UnevenCallback


class Autoencoder(LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 64))

    def training_step(self, batch, index):
        (x,) = batch
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=3e-3)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=self.trainer.max_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
devices = {"accelerator": "cpu", "strategy": "ddp", "devices": int(os.environ["LOCAL_WORLD_SIZE"])}
options = {"max_steps": 10, "gradient_clip_val": 0.5, "use_distributed_sampler": False, **devices, **quiet}
torch.manual_seed(0)
dataset = TensorDataset(torch.randn(100, 64))
module = Autoencoder()
trainer = Trainer(**options)  # plain
# uneven: callback = UnevenCallback(budget=24)
# uneven: trainer = Trainer(**options, callbacks=[callback])
sampler = DistributedSampler(dataset, trainer.world_size, trainer.global_rank, shuffle=False)
loader = DataLoader(dataset, batch_size=24 // trainer.world_size, sampler=sampler)  # plain
# uneven: loader = DataLoader(dataset, batch_sampler=callback.sampler(dataset, shuffle=False))
trainer.fit(module, loader)
torch.save(module.state_dict(), "model.pt")
