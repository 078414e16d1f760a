"""Foreign models in a process with limits: a damaged file may end its reader, never the caller."""

from __future__ import annotations

import base64
import importlib
import pickle
import signal
import tempfile
from pathlib import Path

from trueodds.errors import UserError
from trueodds.processes import limited

SECONDS, SHARE = 120.0, 0.75
"""Longest time of a step without progress, and the largest share of the machine's memory."""


class ForeignModelError(UserError, RuntimeError):
    """A model was refused, or the process that read it met a limit or died."""


def call(function: str, *arguments: object, model: str) -> None:
    """Calls `function` (`module:name`) in a process with limits, which writes its results to files.

    Args:
        function: Its arguments are pickled.
        model: What an error calls the model.

    Raises:
        ForeignModelError: the function's own error, a limit that was met, or the death of the process.
    """
    memory = int(SHARE * limited.memory_of_machine())
    word = base64.b64encode(pickle.dumps(arguments)).decode()
    with tempfile.TemporaryDirectory(prefix="trueodds-foreign-") as folder:
        refusal = Path(folder) / "refusal"
        end = limited.run(f"{__name__}:main", [function, word, str(refusal)], limited.ProcessLimits(SECONDS, memory))
        if end.status == 0:
            return
        if refusal.exists():
            raise ForeignModelError(refusal.read_text(encoding="utf-8"))
    what = end.step or f"reading {model}"
    if end.limit:
        limit = f"{SECONDS:g} s without progress" if end.limit == "seconds" else f"{memory / 1e9:.3g} GB of memory"
        raise ForeignModelError(f"{what} took more than {limit}, the limit; give a smaller model or fewer rows")
    why = signal.Signals(-end.status).name if end.status < 0 else f"status {end.status}"
    raise ForeignModelError(
        f"{what} ended its process ({why}); {model} breaks the library that reads it: export it again"
    )


def main(function: str, word: str, refusal: str) -> int:
    """Calls the function in the process that `call` starts."""
    module, _, name = function.partition(":")
    try:
        getattr(importlib.import_module(module), name)(*pickle.loads(base64.b64decode(word)))
    except (UserError, OSError) as error:
        Path(refusal).write_text(str(error), encoding="utf-8")
        return 1
    return 0
