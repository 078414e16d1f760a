"""The machine of a run: its processor, and the versions of the libraries that compute."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path


def processor() -> str:
    """Return the CPU's model name from the kernel."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine() -> dict[str, str]:
    """Return the processor and the versions. Another one of either may round sums differently."""
    return {"processor": processor(), "python": platform.python_version(), "torch": version("torch")}
