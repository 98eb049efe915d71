"""LoRA, of which only adapters travel: python examples/lora.py up, and then python examples/lora.py sample runs/NAME"""

import sys
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

import ata
import ata.torch

FILE = next(file for file in [Path("text.txt"), Path(__file__)] if file.exists())
TEXT = torch.frombuffer(bytearray(FILE.read_bytes()), dtype=torch.uint8).long()  # a byte is a token


def adapted() -> torch.nn.Module:
    """A small Llama with random weights, the same on every machine, and adapters. Use from_pretrained(...) for a real one."""
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=256, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4)
    return get_peft_model(LlamaForCausalLM(config), LoraConfig(r=16, target_modules="all-linear"))


def sample(model: torch.nn.Module) -> str:
    """What the model writes."""
    return bytes(model.generate(TEXT[None, :16], max_new_tokens=80, pad_token_id=0)[0].tolist()).decode(errors="replace")


if __name__ == "__main__":
    model = adapted()
    if "sample" in sys.argv:
        print("before:", sample(model))
        model.load_state_dict(load_file(Path(sys.argv[-1]) / "model.safetensors"), strict=False)
        print("after: ", sample(model))
        sys.exit()
    pieces = TEXT[: len(TEXT) // 64 * 64].view(-1, 64)
    forward = lambda model, batch: (model(input_ids=batch, labels=batch).loss, None)  # noqa: E731
    problem = ata.torch.Problem(model, pieces, lambda loss, _: loss, forward=forward, name="lora")
    ata.main(problem, budget=16, task_batch=4, optimizer="adamw", lr=1e-2, iterations=200)
