"""Where a net is trained, and so that the CPU repeats itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from trueodds.errors import ConfigError


def device_of(name: str, *, fixed_sizes: bool) -> torch.device:
    """The device that `training.device` names.

    fixed_sizes: batches come in few shapes, so that CUDA's convolutions are timed once for each; others would be timed
    again and again.

    Raises:
        ConfigError: it is not there.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is 'cuda', but torch sees no CUDA device; use device: auto or cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        torch.backends.cudnn.benchmark = fixed_sizes
        torch.set_float32_matmul_precision("high")
    return torch.device(name)


@contextmanager
def repeatable(device: torch.device, threads: int) -> Iterator[None]:
    """Deterministic algorithms on the CPU, and so many threads (0: torch's choice)."""
    before = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    torch.use_deterministic_algorithms(device.type == "cpu")
    # On by default in this mode, to show reads of memory never written: 10 to 20% of a step for nothing here.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # not in its stubs
    torch.set_num_threads(threads or before[1])
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.set_num_threads(before[1])
