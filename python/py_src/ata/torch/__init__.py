"""PyTorch with machines of unequal speed.

- `Problem` is a model, data and a loss, which ata's own cluster trains: see `ata.main`. `Shards` makes data for it from streams.
- `Uneven` gives each rank of `torch.distributed` as many samples of a step as it is fast. It wraps a model that is `DistributedDataParallel` or was sharded by `fully_shard`.
- `ShareSampler`, which `Uneven.sampler` returns, hands out each sample once per epoch.
- `ata.torch.lightning` has the same as a callback for Lightning.
"""

try:
    import torch.distributed
except ImportError as error:
    raise ImportError("ata.torch needs PyTorch: pip install torch") from error

from ata.torch.problem import Problem
from ata.torch.sampler import ShareSampler
from ata.torch.shards import Shards
from ata.torch.uneven import Step, Uneven

__all__ = ["Problem", "ShareSampler", "Shards", "Step", "Uneven"]
