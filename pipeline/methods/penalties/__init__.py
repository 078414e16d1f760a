"""Calibration penalties: functions `penalty(logits_NC, labels_N, **options) -> scalar` to add to a primary loss.

Shapes: N rows, C classes, B bins. float64 gives float64; half precision is computed in float32. No penalty copies a
value from the device, loops over rows or classes, or forms N x C x C values.
"""

from pipeline.methods.penalties.averages import dca, mdca
from pipeline.methods.penalties.beta import beta_joint
from pipeline.methods.penalties.bins import brier_reliability, dece, sb_ece, soft_histogram
from pipeline.methods.penalties.cumulative import ks
from pipeline.methods.penalties.kernels import mmce, sece
from pipeline.methods.penalties.logit import cpc, margin
from pipeline.methods.penalties.uncertainty import avuc, avuc_gs, entropy, s_avuc

__all__ = [
    "avuc",
    "avuc_gs",
    "beta_joint",
    "brier_reliability",
    "cpc",
    "dca",
    "dece",
    "entropy",
    "ks",
    "margin",
    "mdca",
    "mmce",
    "s_avuc",
    "sb_ece",
    "sece",
    "soft_histogram",
]
