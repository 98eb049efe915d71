"""Uneven steps with transformers' Trainer on two ranks, against the plain Trainer in one process."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from torch import nn  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments  # noqa: E402

import ata.torch  # noqa: E402
from ranks import run  # noqa: E402

# An epoch has four steps of 24 samples and one of 4.
SAMPLES, EPOCHS, MICRO_BATCH, ACCUMULATION, STEPS = 100, 2, 4, 3, 10
BUDGET = 2 * MICRO_BATCH * ACCUMULATION
CHECKPOINT = 7
IGNORED = -100
SHARES = ["fta:means=1/3", "fta:means=1/99", "fta:means=99/1"]


class Sentences(torch.utils.data.Dataset[dict[str, Any]]):
    """Of unequal length, some of which have no label at all. Each also has a label of its own."""

    def __init__(self, is_for_tokens: bool) -> None:
        self.is_for_tokens = is_for_tokens
        self.seen: list[int] = []

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> dict[str, Any]:
        if number >= SAMPLES:
            raise IndexError(number)
        self.seen.append(number)
        words = torch.randint(20, (8,), generator=torch.Generator().manual_seed(number))
        labels = torch.where(torch.arange(8) < number % 7, words, IGNORED) if self.is_for_tokens else words.sum() % 3
        return {"input_ids": words, "labels": labels}


class Classifier(nn.Module):
    """Returns a mean over samples, whatever Trainer counts."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(20, 4), nn.Linear(4, 3)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.head(self.words(input_ids).mean(1).tanh())
        return {"logits": logits} if labels is None else {"loss": mean(logits, labels), "logits": logits}


class Forgetful(Classifier):
    """Is told the number of items and makes nothing of it."""

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None, **_: Any) -> dict[str, torch.Tensor]:
        return super().forward(input_ids, labels)


def mean(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits, labels)


def language_model() -> nn.Module:
    sizes = {"vocab_size": 20, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))
    # Theirs computes in single precision.
    model.loss_function = mean_over_tokens
    return model


def mean_over_tokens(logits: Any, labels: Any, num_items_in_batch: Any = None, **_: Any) -> torch.Tensor:
    scores, labels = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    if num_items_in_batch is None:
        return nn.functional.cross_entropy(scores, labels)
    return nn.functional.cross_entropy(scores, labels, reduction="sum") / num_items_in_batch


def of_function(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs["logits"], labels, reduction="sum") / num_items_in_batch


class Own(Trainer):
    """With a loss of its own, of which Trainer knows nothing."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        outputs = model(input_ids=inputs["input_ids"])
        loss = mean(outputs["logits"], inputs["labels"]) + outputs["logits"].square().mean()
        return (loss, outputs) if return_outputs else loss


class UnevenTrainer(ata.torch.UnevenTrainer, Trainer):
    pass


class UnevenOwn(ata.torch.UnevenTrainer, Own):
    pass


class OwnUneven(ata.torch.UnevenTrainer, Trainer):
    compute_loss = Own.compute_loss


# The model, the trainers of one process and of two, and their options.
CASES: dict[str, tuple[Callable[[], nn.Module], type, type, dict[str, Any]]] = {
    "samples": (Classifier, Trainer, UnevenTrainer, {}),
    "samples, last left out": (Classifier, Trainer, UnevenTrainer, {"dataloader_drop_last": True, "max_steps": 6}),
    "forgetful": (Forgetful, Trainer, UnevenTrainer, {"data_seed": 3}),
    "tokens": (language_model, Trainer, UnevenTrainer, {"include_num_input_tokens_seen": "all"}),
    "function": (Classifier, Trainer, UnevenTrainer, {"compute_loss_func": of_function}),
    "own": (Classifier, Own, UnevenOwn, {}),
    "own after": (Classifier, Own, OwnUneven, {}),
}


def trainer(name: str, folder: Path, kind: type, seed: int = 1, **options: Any) -> Any:
    model, _, _, more = CASES[name]
    torch.manual_seed(seed)
    quiet = {"report_to": "none", "disable_tqdm": True, "use_cpu": True}
    of_trainer = {key: options.pop(key) for key in ("uneven_kwargs", "callbacks") if key in options}
    more = {"logging_steps": 2, "save_strategy": "no"} | more | options
    if "compute_loss_func" in more:
        of_trainer["compute_loss_func"] = more.pop("compute_loss_func")
    args = TrainingArguments(folder, **quiet, num_train_epochs=EPOCHS, learning_rate=0.02, weight_decay=0.1, **more)
    data = Sentences(model is language_model)
    evaluated = torch.utils.data.Subset(data, range(BUDGET))
    return kind(model().double(), args, train_dataset=data, eval_dataset=evaluated, **of_trainer)


def result(trained: Any) -> dict[str, Any]:
    parameters = {key: tensor.clone() for key, tensor in trained.model.state_dict().items()}
    losses = [entry.get("loss", entry.get("eval_loss")) for entry in trained.state.log_history[:-1]]
    state = trained.state
    return {
        "parameters": parameters,
        "losses": losses,
        "counts": [state.global_step, state.max_steps, state.epoch, state.num_input_tokens_seen],
        "best": state.best_global_step,
    }


@functools.cache
def alone(name: str, folder: Path, **options: Any) -> dict[str, Any]:
    """What the plain Trainer of one process ends with. Over tokens it accumulates; of means over samples, it would then
    weigh a smaller last one as much as the others."""
    parts = ACCUMULATION if name == "tokens" else 1
    sizes = {"per_device_train_batch_size": BUDGET // parts, "gradient_accumulation_steps": parts}
    one = trainer(name, folder / "one", CASES[name][1], **sizes, **options)
    one.train()
    return result(one)


def of_two(name: str, folder: Path, policy: str, **options: Any) -> Any:
    sizes = {"per_device_train_batch_size": MICRO_BATCH, "gradient_accumulation_steps": ACCUMULATION}
    options = {"ddp_backend": "gloo", "uneven_kwargs": {"policy": policy}} | options
    return trainer(name, folder / "two", CASES[name][2], **sizes, **options)


def check(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for key, tensor in expected["parameters"].items():
        distance = (found["parameters"][key] - tensor).abs().max().item()
        assert distance < 1e-10, (key, distance)
    # Trainer adds them up in single precision.
    assert found["losses"] == pytest.approx(expected["losses"], rel=1e-5)
    assert found["counts"] == expected["counts"]


def all_cases(rank: int, folder: Path, policy: str) -> dict[str, dict[str, Any]]:
    results = {}
    for name in CASES:
        # Workers take seconds to start.
        workers = int(name == "own" and policy == SHARES[0])
        two = of_two(name, folder, policy, dataloader_num_workers=workers)
        two.train()
        results[name] = result(two)
        samples = [two.uneven.metrics()[f"uneven/samples_rank{each}"] for each in range(2)]
        assert policy == "fta:means=1/3" or 0.0 in samples, samples
    return results


@pytest.mark.parametrize("policy", SHARES)
def test_parameters_and_losses_are_those_of_one_process(policy: str, tmp_path: Path) -> None:
    for found in run(2, all_cases, tmp_path, policy):
        for name in CASES:
            check(found[name], alone(name, tmp_path))


CHECKED: dict[str, Any] = {
    "eval_strategy": "steps",
    "eval_steps": CHECKPOINT,
    "per_device_eval_batch_size": MICRO_BATCH,
}
CHECKED |= {"save_strategy": "steps", "save_steps": CHECKPOINT, "logging_steps": 1}
# The one with the larger loss, which is not the last.
BEST = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "greater_is_better": True}


def resumed(rank: int, folder: Path, policy: str) -> list[dict[str, Any]]:
    """A run with evaluations and checkpoints, and one that goes on from a checkpoint with other parameters."""
    first = of_two("tokens", folder, policy, **CHECKED, **BEST)
    first.train()
    again = of_two("tokens", folder, policy, seed=2, **CHECKED)
    checkpoint = folder / "two" / f"checkpoint-{CHECKPOINT}"
    again.train(resume_from_checkpoint=str(checkpoint))
    speeds = json.loads((checkpoint / "uneven.json").read_text())
    # A decision may hold for several steps.
    decided = json.loads(speeds["ata_scheduler"])["next_iteration"]
    assert 1 < decided <= CHECKPOINT + 1
    assert rank or decided <= again.uneven.iteration <= STEPS
    return [result(first), result(again)]


@pytest.mark.parametrize("policy", SHARES)
def test_a_run_goes_on_in_the_middle_of_an_epoch(policy: str, tmp_path: Path) -> None:
    best, last = alone("tokens", tmp_path, **CHECKED, **BEST), alone("tokens", tmp_path, **CHECKED)
    for whole, continued in run(2, resumed, tmp_path, policy):
        assert whole["best"] == best["best"] == CHECKPOINT
        check(whole, best)
        check(continued, last)


class Stop(TrainerCallback):
    def __init__(self, last: int) -> None:
        self.last = last

    def on_train_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
        # Lengths were measured before.
        train_dataloader.dataset.seen.clear()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop |= state.global_step == self.last


def order(rank: int, folder: Path) -> tuple[list[int], list[int]]:
    """The samples that this rank reads, grouped by length, in a whole run and in one that is continued."""

    def seen(last: int, **arguments: Any) -> list[int]:
        options = {"train_sampling_strategy": "group_by_length", "save_strategy": "steps", "save_steps": CHECKPOINT}
        two = of_two("samples", folder, "fta:means=1/3", callbacks=[Stop(last)], **options)
        two.train(**arguments)
        return list(two.train_dataset.seen)

    begun = seen(CHECKPOINT)
    return seen(STEPS), begun + seen(STEPS, resume_from_checkpoint=str(folder / "two" / f"checkpoint-{CHECKPOINT}"))


def test_a_sampler_of_trainers_own_is_continued(tmp_path: Path) -> None:
    (one, one_again), (two, two_again) = run(2, order, tmp_path)
    assert one == one_again and two == two_again
    assert sorted(one + two) == sorted(list(range(SAMPLES)) * EPOCHS)


class Endless(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return (Sentences(False)[number] for number in itertools.count())


class OwnLoader(UnevenTrainer):
    def get_train_dataloader(self) -> Any:
        return Trainer.get_train_dataloader(self)


class Normalised(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))


def refusals(rank: int, folder: Path) -> list[str]:
    texts = []

    def refused(change: Callable[[Any], None] = lambda _: None, kind: type = UnevenTrainer, **options: Any) -> None:
        two = trainer("samples", folder, kind, ddp_backend="gloo", **options)
        change(two)
        with pytest.raises((ValueError, RuntimeError)) as raised:
            two.train()
        texts.append(str(raised.value))

    refused(lambda two: setattr(two, "train_dataset", Endless()), max_steps=3)
    for name in ["is_fsdp_enabled", "is_deepspeed_enabled"]:
        refused(lambda two, name=name: setattr(two, name, True))
    refused(lambda two: setattr(two.args, "gradient_accumulation_steps", 2))
    refused(accelerator_config={"split_batches": True})
    refused(accelerator_config={"dispatch_batches": True})
    refused(auto_find_batch_size=True)
    refused(lambda two: setattr(two.args, "optim", "lomo"))
    refused(train_sampling_strategy="batch_rebalance")
    refused(ddp_static_graph=True)
    refused(kind=OwnLoader)
    CASES["samples"] = (Normalised, Trainer, UnevenTrainer, {})
    # Evaluation leaves the model in a mode in which Uneven would accept it.
    refused(eval_on_start=True, max_steps=2)
    return texts


def test_what_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    expected = [
        "train_dataset",
        "fsdp",
        "deepspeed",
        "gradient_accumulation_steps",
        "split_batches",
        "dispatch_batches",
    ]
    expected += [
        "auto_find_batch_size",
        "lomo",
        "batch_rebalance",
        "static_graph",
        "get_train_dataloader",
        "BatchNorm1d",
    ]
    for texts in run(2, refusals, tmp_path):
        assert len(texts) == len(expected)
        assert all(part in text for part, text in zip(expected, texts, strict=True)), "\n".join(texts)


def test_one_process_has_the_plain_trainer(tmp_path: Path) -> None:
    sizes = {"per_device_train_batch_size": BUDGET // ACCUMULATION, "gradient_accumulation_steps": ACCUMULATION}
    found = trainer("tokens", tmp_path, UnevenTrainer, **sizes)
    found.train()
    assert found.uneven is None
    check(result(found), alone("tokens", tmp_path))
