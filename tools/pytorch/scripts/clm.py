"""Causal language modelling with Hugging Face's Accelerate, in which padding has no label."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

# uneven: import ata.torch

IGNORED, EPOCHS = -100, 2


def sentences():
    """Of unequal length. Some are prompts only, of which nothing is learned."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(2, 12, (96,), generator=generator).tolist()
    words = [torch.randint(50, (length,), generator=generator).tolist() for length in lengths]
    return [
        (each, [IGNORED] * len(each) if number % 48 in range(18, 24) else each) for number, each in enumerate(words)
    ]


def collate(examples):
    """Pads to the longest of a batch."""
    longest = max(len(words) for words, _ in examples)
    batch = {"input_ids": [], "attention_mask": [], "labels": []}
    for words, labels in examples:
        padding = longest - len(words)
        batch["input_ids"].append(words + [0] * padding)
        batch["attention_mask"].append([1] * len(words) + [0] * padding)
        batch["labels"].append(labels + [IGNORED] * padding)
    return {key: torch.tensor(rows) for key, rows in batch.items()}


accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
dataset = sentences()
sizes = {"vocab_size": 50, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
config = GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
loader = DataLoader(dataset, batch_size=24 // accelerator.num_processes, collate_fn=collate)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = get_linear_schedule_with_warmup(optimizer, 2 * accelerator.num_processes, EPOCHS * len(loader))
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
# uneven: uneven = ata.torch.Uneven(model, budget=24, weight=lambda batch: (batch["labels"][:, 1:] != IGNORED).sum())
# uneven: loader = DataLoader(dataset, batch_sampler=uneven.sampler(dataset, shuffle=False), collate_fn=collate)

model.train()
for epoch in range(EPOCHS):
    # uneven: for batch in uneven.batches(loader):
    for batch in loader:  # plain
        with accelerator.accumulate(model):
            outputs = model(**batch)
            accelerator.backward(outputs.loss)  # plain
            # uneven: accelerator.backward(uneven.weigh(outputs.loss))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
torch.save(accelerator.unwrap_model(model).state_dict(), "model.pt")
accelerator.end_training()
