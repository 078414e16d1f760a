"""Outputs of a net for the rows of a split, in eval mode."""

from __future__ import annotations

import torch

from pipeline.methods.batch import Batch
from pipeline.nets.net import Net
from pipeline.training.batches import Batches

ROWS = {"cpu": 128, "cuda": 500}
"""Rows in one forward pass.

On a CPU there are as many as in a training step, so that measuring takes no more memory than
training. (500 rows took a tenth more memory and no less time.)
"""


def outputs(net: Net, batches: Batches, progress: float = 1.0) -> Batch:
    """Return a whole split as one batch, rows in order, with features and logits, without gradients.

    It does not use inference mode, because autograd refuses tensors made in it. The net is left in eval mode.
    """
    net.eval()
    with torch.no_grad():
        parts = [
            (net.features(inputs), labels_N)
            for inputs, labels_N in batches.in_order(ROWS[batches.labels_N.device.type])
        ]
        logits_NC = torch.cat([net.answers(features_ND) for features_ND, _ in parts])
    features_ND, labels_N = (torch.cat(part) for part in zip(*parts, strict=True))
    return Batch(
        logits=logits_NC, targets=labels_N, labels=labels_N, features=features_ND, head=net.head, progress=progress
    )
