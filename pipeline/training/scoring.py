"""A trained network on images that are of no split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from pipeline.data.dataset import DataSet
from pipeline.data.raw import Inputs
from pipeline.nets.net import Net
from pipeline.nets.text import WordNet
from pipeline.training.batches import Batches
from pipeline.training.machine.device import device_of, repeatable

ROWS = 500


def scorer(net: Net, data: DataSet) -> Callable[[Inputs], npt.NDArray[np.float32]]:
    """Rows of the data set's kind -> logits N x K, by the net in eval mode, normalised as the training rows were.

    On CUDA where it is there; on the CPU the same rows give the same bytes.
    """
    device = device_of("auto", fixed_sizes=not isinstance(net, WordNet))
    net = net.to(device).eval()

    def score(rows: Inputs) -> npt.NDArray[np.float32]:
        labels_N = np.zeros(len(rows), np.int64)  # a batch has some; nothing reads them
        batches = Batches.of(replace(data, arrays={"test": (rows, labels_N)}), "test", device)
        with repeatable(device, 0), torch.inference_mode():
            logits = [net(inputs).cpu() for inputs, _ in batches.ordered(ROWS)]
        logits_NK: npt.NDArray[np.float32] = torch.cat(logits).numpy()
        return logits_NK

    return score
