"""Calibration penalties, each `penalty(logits_NC, labels_N, **options) -> scalar`, added to a primary loss.

Shapes: N samples, C classes, B bins. float64 in, float64 out; half precision is raised to float32. None reads a value
back from the device, loops over samples or classes, or forms N x C x C values.
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
