"""Process of a confined reader. `trueodds.processes.confined` starts it and sends it one file after the other."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import IO, Any

import numpy.typing as npt

from trueodds.processes import binding
from trueodds.processes import memory as memory_
from trueodds.processes.pieces import LENGTHS, ConfinedError, Piece, pack


def main(function: str, parent: str, memory: str) -> None:
    """Read one file after the other until the parent closes the pipe."""
    binding.die_with_parent(signal.SIGKILL, int(parent))
    for number in (signal.SIGINT, signal.SIGTERM):  # to the whole group; the parent may still be answering
        signal.signal(number, _ignore)
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("r+b") as nowhere:  # a library's own input and output must not mix with messages
        os.dup2(nowhere.fileno(), 0)
        os.dup2(nowhere.fileno(), 1)
    try:
        module, _, name = function.partition(":")
        read: Callable[..., Iterable[Piece]] = getattr(importlib.import_module(module), name)
    except ImportError as error:
        _answer(target, {"code": "missing", "message": str(error)})
        return
    gc.collect()
    gc.freeze()  # objects of the imports are not examined again after every file
    _confine(limit := int(memory))
    _answer(target, {})
    while head := source.read(LENGTHS.size):
        of_options, of_body = LENGTHS.unpack(head)
        options = json.loads(source.read(of_options))
        _read(read, source.read(of_body), options, target, limit)
        gc.collect()
        memory_.give_back()


def _read(
    read: Callable[..., Iterable[Piece]], body: bytes, options: Mapping[str, Any], target: IO[bytes], memory: int
) -> None:
    try:
        for piece in read(body, **options):
            _answer(target, {"piece": piece.head}, piece.arrays)
        end = {}
    except ConfinedError as error:
        end = {"code": error.code, "message": error.message}
    except MemoryError:
        end = {"code": "memory", "message": f"reading it takes more than {memory // 2**20:,} MiB of memory, the limit"}
    except BrokenPipeError:
        raise
    except Exception as error:
        end = {"code": "failed", "message": f"{type(error).__name__}: {str(error)[:1000]}"}
    _answer(target, end)


def _answer(target: IO[bytes], head: dict[str, Any], arrays: Iterable[npt.NDArray[Any]] = ()) -> None:
    for part in pack(head, arrays):
        target.write(part)
    target.flush()


def _confine(memory: int) -> None:
    """Limit the memory beyond that in use, and forbid writing files and core dumps."""
    import resource  # not on Windows, where the service does not run

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with contextlib.suppress(OSError, ValueError):  # without /proc (macOS) the limit would be a guess
        taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = taken * os.sysconf("SC_PAGE_SIZE") + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _ignore(number: int, frame: FrameType | None) -> None:
    """Ignore a signal. A handler is used instead of SIG_IGN, which programs started by a reader would inherit."""
