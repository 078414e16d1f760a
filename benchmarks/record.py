"""The results of benchmarks: their options, their folder, and the circumstances that each one records."""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def options_parser(about: str | None, out: Path | None = None) -> argparse.ArgumentParser:
    """Return a parser with the help text `about`, and with --out if the result goes to the file `out` by default."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if out is not None:
        parser.add_argument("--out", type=Path, default=out, help="file of the result (default: %(default)s)")
    return parser


def circumstances(*packages: str) -> dict[str, Any]:
    """Return the command that runs, the versions of Python and of packages, the commit, and the processor.

    The command is without --out, because the file's place is no circumstance.
    """
    words = sys.argv[1:]
    if "--out" in words:
        at = words.index("--out")
        words = words[:at] + words[at + 2 :]
    spec = sys.modules["__main__"].__spec__
    module = spec.name.removesuffix(".__main__") if spec is not None else sys.argv[0]
    return {
        "command": shlex.join(["python", "-m", module, *words]),
        "versions": {"python": platform.python_version(), **{name: installed(name) for name in packages}},
        "commit": commit(),
        "processor": processor(),
    }


def installed(name: str) -> str | None:
    """Return a package's version, or None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def commit() -> str:
    """Return the commit of the checkout, with a mark if files differ from it."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def processor() -> str:
    """Return the CPU's model name from the kernel."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def write(path: Path, result: dict[str, Any]) -> None:
    """Write a result and print its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {path}")
