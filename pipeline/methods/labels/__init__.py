"""Changes to labels and batches: label smoothing and mixup. They combine with any primary loss (`focal+smoothing`)."""

from pipeline.methods.labels.mixup import Mixup
from pipeline.methods.labels.smoothing import ClassSmoothing, ConfidenceSmoothing, Smoothing

__all__ = ["ClassSmoothing", "ConfidenceSmoothing", "Mixup", "Smoothing"]
