"""The results of benchmarks: their options, their folder, and the circumstances that each one records."""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pipeline.studies.machine import commit_of, processor
from trueodds.cli.arguments import whole_number

RESULTS = Path(__file__).parent / "results"


def options_parser(about: str | None, out: Path | None = None) -> argparse.ArgumentParser:
    """Return a parser with the help text `about`, and with --out if the result goes to the file `out` by default."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if out is not None:
        parser.add_argument("--out", type=Path, default=out, help="file of the result (default: %(default)s)")
    return parser


def whole_from(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers from `least` on."""
    return whole_number(least, sys.maxsize, f"a whole number from {least} on")


def circumstances(*packages: str) -> dict[str, Any]:
    """Return the command that runs, the versions of Python and of packages, the commit, and the processor.

    The command is without --out, and an absolute path in it is FOLDER: the place of a file is no circumstance.
    """
    words = sys.argv[1:]
    if "--out" in words:
        at = words.index("--out")
        words = words[:at] + words[at + 2 :]
    words = ["FOLDER" if Path(word).is_absolute() else word for word in words]
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
    name, changed = commit_of(Path.cwd())
    return "unknown" if name is None else name[:9] + "-dirty" * changed


def write(path: Path, result: dict[str, Any]) -> None:
    """Write a result and print its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"written to {path}")


def conclude(
    path: Path | None, markdown: Callable[[dict[str, Any]], str], *, packages: Sequence[str], **measured: Any
) -> None:
    """Write what was measured with its circumstances, and print its table and its summary. Without a path, only print.

    Args:
        path: The file of the result.
        markdown: The benchmark's function from its result to a table.
        packages: The packages whose versions the result records.
        **measured: The entries of the result.
    """
    result = {**circumstances(*packages), **measured}
    if path is not None:
        write(path, result)
    print(markdown(result))
    if "summary" in result:
        print(json.dumps(result["summary"], indent=1))


class Run:
    """A run of a benchmark that records its time: the wall time since this object was made."""

    def __init__(self) -> None:
        self._started = time.perf_counter()

    @property
    def seconds(self) -> float:
        """The seconds so far."""
        return round(time.perf_counter() - self._started, 1)

    def say(self, *words: object) -> None:
        """Print progress after the seconds so far, to standard error."""
        print(f"{self.seconds:6.1f} s", *words, file=sys.stderr, flush=True)

    def finish(
        self,
        path: Path | None,
        markdown: Callable[[dict[str, Any]], str],
        *,
        packages: Sequence[str] = ("numpy", "scipy"),
        **measured: Any,
    ) -> None:
        """Conclude the run as `conclude` does; the result also records the seconds."""
        conclude(path, markdown, packages=packages, seconds=self.seconds, **measured)
