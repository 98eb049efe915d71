"""Runs a function in several processes, as ranks of one process group."""

from __future__ import annotations

import datetime
import os
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

# Far longer than a test takes; a rank that waits for another one for longer has found a deadlock.
TIMEOUT = datetime.timedelta(seconds=60)


def run(world: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `function(rank, *arguments)` returns on each rank. If it raises on one, this raises."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_rank, (world, folder, function, arguments), nprocs=world)
        return [torch.load(f"{folder}/{rank}", weights_only=False) for rank in range(world)]


def _rank(rank: int, world: int, folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    # As torchrun sets them, for libraries that look.
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store", TIMEOUT, world, rank)
    try:
        result = function(rank, *arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # not waiting for ranks that wait for this one
    torch.save(result, f"{folder}/{rank}")
    dist.destroy_process_group()
