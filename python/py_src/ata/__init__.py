"""ata divides the work of each training step among machines of unequal speed.

- `Scheduler` decides how many tasks each worker computes, in a training loop of any kind.
- `ata.torch.Uneven` does so for the ranks of PyTorch's DistributedDataParallel; it is imported only if it is asked for.
"""

from ata._core import Scheduler, __version__, policies

__all__ = ["Scheduler", "__version__", "policies"]
