"""The device that a net is trained on, and repeatable results on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from trueodds.errors import ConfigError


def device_of(name: str, *, fixed_sizes: bool) -> torch.device:
    """Return the device that `training.device` names.

    If `fixed_sizes`, batches have few shapes, and CUDA times its convolutions once for each. With many shapes it would
    time them again and again, so timing is then off.

    Raises:
        ConfigError: There is no such device.
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
def repeatable(device: torch.device, threads: int, *, is_compiled: bool = False) -> Iterator[None]:
    """Use deterministic algorithms on the CPU and this number of threads (0: torch's choice) inside the block.

    If `is_compiled`, the code that torch.compile makes is deterministic too. This loads its compiler, for seconds.
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    switch = torch.use_deterministic_algorithms if is_compiled else _switch_deterministic
    switch(device.type == "cpu")
    # This mode also fills new memory by default, to reveal reads of memory never written: 10 to 20% of a step.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # not in its stubs
    torch.set_num_threads(threads or before[1])
    try:
        yield
    finally:
        switch(before[0])
        torch.set_num_threads(before[1])


def _switch_deterministic(is_on: bool) -> None:
    """Switch deterministic algorithms of eager code, like torch.use_deterministic_algorithms."""
    torch.set_deterministic_debug_mode("error" if is_on else "default")
