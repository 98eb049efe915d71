"""Compares twelve training scripts in the shapes of well-known ones with what they become under ata.torch.Uneven.

    pip install torch lightning accelerate transformers webdataset ata
    python tools/pytorch/scripts.py [NAME...]

Each file in `scripts/` is a script for DistributedDataParallel. Marks in it say what is different with Uneven:
a line that ends in `# plain` is left out, the code after `# uneven:` is a line, and one that ends in `# deeper` is
indented by four more.

The plain script runs in one process, with whole batches of 24 samples. With Uneven, the script runs on two ranks,
which share the samples of a step 3:1, or of which one gets all. Everything is in double precision, on CPUs over gloo.
In the table:

- lines: how many changed, regardless of indentation, and how many were added that import;
- steps: of each optimizer;
- moved: how far training moved the parameter that moved furthest;
- 3:1, all:0, 0:all: the largest distance of a parameter, on any rank, from that of the plain script in one process;
- DDP: that of the plain script on two ranks with even shares.

The exit code is 1 if a distance with Uneven is above 1e-9 (or what a note below the table says), if the numbers of
steps are different, or if more than five lines changed.
"""

import argparse
import collections
import difflib
import importlib
import io
import json
import multiprocessing
import os
import runpy
import socket
import sys
import tarfile
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DistributedSampler

import ata.torch
from ata.torch.lightning import UnevenCallback

SCRIPTS = Path(__file__).with_name("scripts")
BUDGET, MOST_LINES = 24, 5
# The samples of each rank in a step, and the policy that decides on them.
SHARES = {"3:1": (18, 6), "all:0": (24, 0), "0:all": (0, 24)}
POLICIES = {"3:1": "fta:means=1/3", "all:0": "fta:means=1/99", "0:all": "fta:means=99/1"}
TOLERANCE, TOLERANCES = 1e-9, {"clm": 1e-6}
# Ranks of the plain script.
PLAIN_RANKS = {"classification": 4}
# The plain script does something else on two ranks: it normalises 12 samples together, or draws 12 from each stream.
NOT_ON_TWO = ("classification", "stream")
# What only one of several plain ranks has to know.
BUFFERS = ("running_mean", "running_var")
# Far longer than a script takes. One that takes longer waits for another rank forever.
TIMEOUT_S = 60
# Imported once, for all ranks, because that takes longer than training.
LIBRARIES = ("accelerate", "torch._dynamo", "webdataset")
LIBRARIES += ("transformers.models.bert.modeling_bert", "transformers.models.gpt2.modeling_gpt2")
NOTES = {
    "classification": "the plain script runs on four ranks, each of which normalises 6 samples together, as Uneven "
    "does in each unit of 6. Running means are not compared, because DDP keeps those of rank 0",
    "clm": "up to 1e-6, because Transformers computes the losses of language models in single precision",
    "stream": "the one process reads a shard of the samples that the two ranks draw from theirs, in the order of steps",
}


def versions(source):
    """The plain script, and the one with Uneven."""
    plain, uneven = [], []
    for line in source.splitlines():
        code = line.lstrip()
        indent = line[: len(line) - len(code)]
        if code.startswith("# uneven: "):
            uneven.append(indent + code.removeprefix("# uneven: "))
        elif line.endswith("  # plain"):
            plain.append(line.removesuffix("  # plain"))
        else:
            plain.append(line.removesuffix("  # deeper"))
            uneven.append("    " * line.endswith("  # deeper") + plain[-1])
    return "\n".join(plain) + "\n", "\n".join(uneven) + "\n"


def changed_lines(plain, uneven):
    """How many lines were changed, added or removed, and how many were added that import."""
    before, after = ([line.strip() for line in text.splitlines()] for text in (plain, uneven))
    changed = imports = 0
    for kind, i, j, k, m in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            importing = sum(line.startswith(("import ", "from ")) for line in after[k:m])
            changed += max(j - i, m - k - importing)
            imports += importing
    return changed, imports


def rank_main(script, folder, rank, world, port, policy):
    """Runs a script as torchrun would."""
    os.chdir(folder)
    with open("output.txt", "w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "scripts"}
    os.environ |= {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "GLOO_SOCKET_IFNAME": "lo"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    if policy:
        # The default, so that no line of a script is about it.
        for each in (ata.torch.Uneven, UnevenCallback):
            each.__init__.__kwdefaults__["policy"] = policy
    elif world in PLAIN_RANKS.values():
        DistributedSampler.__iter__ = in_blocks
    steps, begun = collections.Counter(), {}

    def before(optimizer, *_):
        if optimizer not in begun:
            parameters = [each for group in optimizer.param_groups for each in group["params"]]
            begun[optimizer] = [(each, each.detach().clone()) for each in parameters]

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(lambda optimizer, *_: steps.update([optimizer]))
    code = 1
    try:
        runpy.run_path(str(script), run_name="__main__")
        moved = max((each - first).abs().max().item() for pairs in begun.values() for each, first in pairs)
        Path("found.json").write_text(json.dumps({"steps": max(steps.values()), "moved": moved}))
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # not waiting for ranks that wait for this one


def in_blocks(sampler):
    """Of each step, a block for each rank, as Uneven divides them. DistributedSampler deals them like cards."""
    blocks = torch.arange(len(sampler.dataset)).split(BUDGET // sampler.num_replicas)
    return iter(torch.cat(blocks[sampler.rank :: sampler.num_replicas]).tolist())


def run(script, folder, world, policy=None):
    """What each rank of a script found. If one fails or waits forever, this raises RuntimeError."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folders = [folder / str(rank) for rank in range(world)]
    arguments = [(script, at, rank, world, port, policy) for rank, at in enumerate(folders)]
    ranks = [multiprocessing.get_context("fork").Process(target=rank_main, args=each) for each in arguments]
    for each in ranks:
        each.start()
    end = time.monotonic() + TIMEOUT_S
    while None in (codes := [each.exitcode for each in ranks]) and not any(codes) and time.monotonic() < end:
        time.sleep(0.02)
    for each in ranks:
        each.kill()
        each.join()
    if any(codes):
        # Others fail as a result of the first.
        failed = next(rank for rank, code in enumerate(codes) if code)
        raise RuntimeError(f"rank {failed} failed:\n" + (folders[failed] / "output.txt").read_text()[-3000:])
    if None in codes:
        raise RuntimeError(f"it hangs: exit codes after {TIMEOUT_S} s are {codes}")
    found = [json.loads((at / "found.json").read_text()) for at in folders]
    return [each | {"model": flat(torch.load(at / "model.pt"))} for each, at in zip(found, folders)]


def flat(state, prefix=""):
    """The tensors of state dicts in dicts."""
    found = {}
    for key, value in state.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def distance(expected, ranks):
    """That of the parameters that are furthest apart, on any rank. It is not a number if one is not."""
    furthest = []
    for rank in ranks:
        assert expected["model"].keys() == rank["model"].keys()
        for key, tensor in expected["model"].items():
            if not key.endswith(BUFFERS):
                furthest.append((tensor.double() - rank["model"][key].double()).abs().max())
    return torch.stack(furthest).max().item()


def folder_for(name, parent, world, shares):
    """One with a folder for each rank, in which the script finds its data."""
    folder = Path(tempfile.mkdtemp(dir=parent))
    for rank in range(world):
        (folder / str(rank)).mkdir()
        if name == "stream":
            write_shards(folder / str(rank) / "shards", world, shares)
    return folder


def write_shards(folder, world, shares):
    """Two shards of 96 samples, one for each rank; for one process, a shard of all that they draw."""
    folder.mkdir()
    shards = [range(96), range(1000, 1096)]
    if world == 1:
        # A stream ends when one rank has too few.
        steps = range(min(96 // share for share in shares if share))
        shards = [
            [each for step in steps for shard, n in zip(shards, shares) for each in shard[step * n : step * n + n]]
        ]
    for number, numbers in enumerate(shards):
        with tarfile.open(folder / f"train-{number}.tar", "w") as shard:
            for each in numbers:
                inputs = torch.randn(8, generator=torch.Generator().manual_seed(each), dtype=torch.float64)
                contents = {"input.json": json.dumps(inputs.tolist()), "label.cls": str(int(inputs[:4].argmax()))}
                for ending, text in contents.items():
                    member = tarfile.TarInfo(f"{each:04}.{ending}")
                    member.size = len(text)
                    shard.addfile(member, io.BytesIO(text.encode()))


def compare(name, parent):
    """The line of the table for a script, and what is wrong with it."""
    plain, uneven = versions((SCRIPTS / f"{name}.py").read_text())
    scripts = {"plain": parent / f"{name}_plain.py", "uneven": parent / f"{name}_uneven.py"}
    scripts["plain"].write_text(plain)
    scripts["uneven"].write_text(uneven)

    def run_on(kind, world, samples, policy=None):
        return run(scripts[kind], folder_for(name, parent, world, samples), world, policy)

    lines, imports = changed_lines(plain, uneven)
    wrong = [f"{name}: {lines} lines changed"] if lines > MOST_LINES else []
    distances, expected = [], None
    for shares, samples in SHARES.items():
        # What the ranks draw from their streams depends on the shares.
        if expected is None or name == "stream":
            expected = run_on("plain", PLAIN_RANKS.get(name, 1), samples)[0]
        try:
            ranks = run_on("uneven", 2, samples, POLICIES[shares])
        except RuntimeError as error:
            wrong.append(f"{name}, {shares}: {error}")
            distances.append("failed")
            continue
        found = distance(expected, ranks)
        distances.append(f"{found:.1e}")
        if not found <= TOLERANCES.get(name, TOLERANCE):
            wrong.append(f"{name}, {shares}: a parameter is {found:.1e} away")
        if any(rank["steps"] != expected["steps"] for rank in ranks):
            wrong.append(f"{name}, {shares}: {[rank['steps'] for rank in ranks]} steps instead of {expected['steps']}")
    even = "" if name in NOT_ON_TWO else f"{distance(expected, run_on('plain', 2, samples)):.1e}"
    return [name, f"{lines} + {imports}", expected["steps"], f"{expected['moved']:.1e}", *distances, even], wrong


def main():
    names = sorted(path.stem for path in SCRIPTS.glob("*.py"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; by default, all")
    parser.add_argument("--keep", type=Path, help="a new folder, for both versions of the scripts and what they write")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"unknown: {', '.join(unknown)}")
    warnings.simplefilter("ignore")
    for library in LIBRARIES:
        importlib.import_module(library)
    names = options.names or names
    form = "{:15} {:>5} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8}"
    print(form.format("script", "lines", "steps", "moved", *SHARES, "DDP"), flush=True)
    wrong = []
    with tempfile.TemporaryDirectory() as temporary:
        parent = options.keep or Path(temporary)
        parent.mkdir(exist_ok=True)
        for name in names:
            row, found = compare(name, parent)
            print(form.format(*row), flush=True)
            wrong += found
    print(*(f"{name}: {note}" for name, note in NOTES.items() if name in names), *wrong, sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
