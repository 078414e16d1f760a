"""The machine of a run: its processor or GPU, the versions of the libraries that compute, and the code's commit."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

from trueodds.errors import ConfigError

COMMIT = "TRUEODDS_COMMIT"
"""Environment variable with the commit of the code, for code outside its checkout, such as an unpacked archive."""
DIGITS = re.compile("[0-9a-f]{7,40}")
"""Pattern of a commit: the first of its hexadecimal digits, or all."""


def processor(device: str = "cpu") -> str:
    """Return the name of what computes: the GPU if there is one and `device` may use it, else the CPU's model name."""
    if device != "cpu":
        from pipeline.nets.sizes import gpu_name  # loads torch

        if (name := gpu_name(device)) is not None:
            return name
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine(device: str = "cpu") -> dict[str, str]:
    """Return the processor of a net on `device`, and the versions. Another one of either may round sums differently."""
    return {"processor": processor(device), "python": platform.python_version(), "torch": version("torch")}


def commit_of(home: Path) -> tuple[str | None, bool]:
    """Return the commit of the code in a folder, and whether files differ from it.

    The variable COMMIT comes first. Without it and without git, the commit is None.

    Raises:
        ConfigError: The variable has no commit, such as the name of a branch, which would name other code tomorrow.
    """
    if named := os.environ.get(COMMIT):
        if not DIGITS.fullmatch(named):
            raise ConfigError(f"{COMMIT} is {named!r}; give 7 to 40 digits of the commit, as `git log` prints them")
        return named, False
    try:
        done = subprocess.run(
            ["git", "-C", str(home), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return None, False
    name, _, dirty = done.stdout.strip().partition("-")
    return name or None, bool(dirty)
