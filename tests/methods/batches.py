"""Batches to hold losses against their twins."""

from __future__ import annotations

import torch
from torch import Tensor


def batch(classes: int, rows: int = 6, scale: float = 2.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Gaussian logits (float64) and uniform labels."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(0, classes, (rows,), generator=generator)
