"""PyTorch with machines of unequal speed.

- `Problem` is a model, data and a loss, which ata's own cluster trains: see `ata.main`. `Shards` makes data for it from streams.
- `Uneven` gives each rank of `torch.distributed` as many samples of a step as it is fast. It wraps a model that is `DistributedDataParallel` or was sharded by `fully_shard`.
- `Local` lets ranks train by themselves, and averages their parameters once in many steps.
- `ShareSampler`, which `Uneven.sampler` returns, hands out each sample once per epoch.
- `UnevenTrainer` does so for transformers' `Trainer`, and `ata.torch.lightning` has a callback for Lightning.
"""

try:
    import torch.distributed
except ImportError as error:
    raise ImportError("ata.torch needs PyTorch: pip install torch") from error

from ata.torch.local import Local
from ata.torch.problem import Problem
from ata.torch.sampler import ShareSampler
from ata.torch.shards import Shards
from ata.torch.step import Step
from ata.torch.transformers import UnevenTrainer
from ata.torch.uneven import Uneven

__all__ = ["Local", "Problem", "ShareSampler", "Shards", "Step", "Uneven", "UnevenTrainer"]
