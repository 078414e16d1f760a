"""Runs code on foreign models in a process with limits, so that a damaged file ends only that process."""

from __future__ import annotations

import importlib
import signal
import tempfile
from pathlib import Path

from trueodds.errors import UserError
from trueodds.processes import limited
from trueodds.processes.limited import SECONDS, SHARE, ProcessLimits


class ForeignModelError(UserError, RuntimeError):
    """A model was refused, or the process that read it met a limit or crashed."""


def call(function: str, *arguments: object, model: str) -> None:
    """Call a function in a process with limits. The function writes its results to files.

    Args:
        function: The function as `module:name`.
        *arguments: Its arguments, which are pickled.
        model: Name of the model in messages.

    Raises:
        ForeignModelError: The function raised an error, met a limit, or its process crashed.
    """
    memory = int(SHARE * limited.memory_of_machine())
    with tempfile.TemporaryDirectory(prefix="trueodds-foreign-") as folder:
        refusal = Path(folder) / "refusal"
        end = limited.run(f"{__name__}:main", [function, arguments, refusal], ProcessLimits(SECONDS, memory))
        if end.status == 0:
            return
        if refusal.exists():
            raise ForeignModelError(refusal.read_text(encoding="utf-8"))
    step = end.step or f"reading {model}"
    if end.limit:
        limit = f"{SECONDS:g} s without progress" if end.limit == "seconds" else f"{memory / 1e9:.3g} GB of memory"
        raise ForeignModelError(f"{step} took more than {limit}, the limit; give a smaller model or fewer rows")
    why = signal.Signals(-end.status).name if end.status < 0 else f"status {end.status}"
    raise ForeignModelError(
        f"{step} crashed its process ({why}): {model} breaks the library that reads it; export the model again"
    )


def main(function: str, arguments: tuple[object, ...], refusal: Path) -> int:
    """Call the function in the process that `call` starts.

    Returns:
        The exit status: 1 if the function raised an error, whose message is then in the file `refusal`.
    """
    module, _, name = function.partition(":")
    try:
        getattr(importlib.import_module(module), name)(*arguments)
    except (UserError, OSError) as error:
        refusal.write_text(str(error), encoding="utf-8")
        return 1
    return 0
