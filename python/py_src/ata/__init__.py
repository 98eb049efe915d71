"""ata divides the work of each training step among machines of unequal speed.

- `main` trains a problem on ata's own cluster, with gradients that Python computes: a `Problem` in numpy, an
  `ata.torch.Problem`, or an `ata.jax.Problem`.
- `Scheduler` decides how many tasks each worker computes, in a training loop of any kind.
- `ata.torch.Uneven` does so for the ranks of PyTorch's DistributedDataParallel; it is imported only if it is asked for.
"""

from ata._core import Scheduler, __version__, policies
from ata.command import main
from ata.problem import Measurement, Problem

__all__ = ["Measurement", "Problem", "Scheduler", "__version__", "main", "policies"]
