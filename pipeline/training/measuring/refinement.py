"""What temperature scaling leaves of a net's NLL: by it an epoch can be chosen before it is calibrated."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from trueodds.calibrators.temperature import Temperature
from trueodds.sums.inputs import softmax
from trueodds.sums.sums import CalibrationSums


def refinement(logits_NC: Tensor, labels_N: Tensor) -> float:
    """Mean -ln softmax(z / T)_y in nats, T that of the calibrator `temperature` fitted on the same rows.

    An estimate of the refinement error, which calibration cannot lower (Berta et al. 2025, Rethinking Early Stopping:
    Refine, Then Calibrate). One number is fitted, so the rows' optimism about it is slight.
    """
    logits, labels = logits_NC.cpu().numpy(), labels_N.cpu().numpy()
    temperature = Temperature.fit(logits, labels).temperature
    sums = CalibrationSums.from_probabilities(softmax(logits.astype(np.float64) / temperature), labels)
    return sums.total("nll") / sums.n
