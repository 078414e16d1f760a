"""The rows of all processes that train one net, for losses that are not means over rows."""

from __future__ import annotations

import torch
from torch import Tensor, distributed


def gathered(logits_NC: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and labels of every process's batch, in their order; of a single process its own.

    A calibration error of a part of the rows is not a part of the calibration error: the bias is larger. Gradients flow
    back to the process whose rows they are, summed over the processes, so that their mean, which is what
    DistributedDataParallel takes, is the gradient by all rows. The processes' batches are of one size.
    """
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1:
        return logits_NC, labels_N
    from torch.distributed.nn.functional import all_gather

    labels = [torch.empty_like(labels_N) for _ in range(distributed.get_world_size())]
    distributed.all_gather(labels, labels_N)
    return torch.cat(all_gather(logits_NC)), torch.cat(labels)
