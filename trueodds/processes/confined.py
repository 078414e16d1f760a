"""Readers of foreign binary formats in their own processes: a file may kill its reader, but never the caller.

On a damaged file a C++ parser may abort, crash, loop or fill the memory, and no exception can be caught. `Readers` runs
a function of a module in a few processes with limits of time and memory. They start at the first use, stay warm, end
with this process, and are replaced at once when they die.

    readers = Readers("package.module:read", count=2, seconds=30.0, memory=2**29)
    for piece in readers.read(body, rows=2000):    # calls read(body, rows=2000) in the process
        piece.head, piece.arrays

The function yields `Piece`s, and refuses a file with `ConfinedError` (`trueodds.processes.pieces`). Its module should
import little, because every process imports it. Pieces arrive as JSON and plain numbers, whose sizes are checked. So
nothing that a reader sends can run code here.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import numpy.typing as npt

from trueodds.processes.pieces import LENGTHS, ConfinedError, Piece, unpack

LARGEST = 256 * 1024**2
"""Largest piece in bytes."""
START_SECONDS = 60.0
"""Time limit in seconds for the start of a process; it covers the module's imports on a busy machine."""
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR", "TZ", "VIRTUAL_ENV")
"""Environment variables that a reader gets. Passwords and keys of this process stay here."""
ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Environment variables of every reader: threads and memory pools reserve more address space than they use."""
_PROGRAM = "import sys; from trueodds.processes import confined_process; confined_process.main(*sys.argv[1:])"
_starter = ThreadPoolExecutor(1, "confined")
"""Thread that starts every process. Linux ends a process together with the thread that started it."""


class Readers:
    """Pool of processes that run one function. It is thread-safe; `read` blocks until one of them is free."""

    def __init__(
        self, function: str, *, count: int = 1, seconds: float, memory: int, start_seconds: float = START_SECONDS
    ) -> None:
        """Set up the pool. No process starts yet.

        Args:
            function: `module:name` of the function.
            count: Largest number of processes.
            seconds: Time limit of one file. It counts only while this process waits for the reader.
            memory: Address space in bytes that a reader may use beyond that of its imports.
            start_seconds: Time limit of the start of a process.
        """
        self._free: queue.LifoQueue[_Reader] = queue.LifoQueue()
        self._all = [_Reader(function, seconds, memory, start_seconds) for _ in range(count)]
        for reader in self._all:
            self._free.put(reader)

    def read(self, body: bytes, **options: Any) -> Generator[Piece]:
        """Yield the pieces of a file. `options` are JSON values, which the function gets as keywords.

        A process that is older than this call may die because of an earlier file or an outside signal. Then a fresh
        process reads the file once more, unless pieces of it have been yielded.

        Raises:
            ConfinedError: The function refused the file, the process died, or a limit was reached.
        """
        reader = self._free.get()
        try:
            given, was_fresh = 0, reader.is_fresh
            try:
                for piece in reader.pieces(body, options):
                    given += 1
                    yield piece
            except ConfinedError as error:
                if error.code != "died" or was_fresh or given:
                    raise
                yield from reader.pieces(body, options)
        finally:
            self._free.put(reader)

    def close(self) -> None:
        """End all processes permanently. A file that is being read fails."""
        for reader in self._all:
            reader.close()
        free = []
        with contextlib.suppress(queue.Empty):
            while True:
                free.append(self._free.get_nowait())
        for reader in free:  # `read` ends those that are in use
            reader.end()
            self._free.put(reader)

    @property
    def pids(self) -> list[int]:
        """Ids of the running processes."""
        return [reader.pid for reader in self._all if reader.pid is not None]


class _Reader:
    """One process, which starts when it is needed and is replaced when it has died."""

    def __init__(self, function: str, seconds: float, memory: int, start_seconds: float) -> None:
        self._function, self._seconds, self._memory, self._start_seconds = function, seconds, memory, start_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = self._closed = False
        self._left = 0.0  # seconds that are left of the limit
        self._served = 0

    @property
    def is_fresh(self) -> bool:
        """Whether the process that reads next has read nothing before."""
        return not self._served

    @property
    def pid(self) -> int | None:
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def pieces(self, body: bytes, options: Mapping[str, Any]) -> Generator[Piece]:
        whole = False
        try:
            self._prepare()
            self._served += 1
            self._left = self._seconds
            self._send(json.dumps(options).encode(), body)
            while True:
                head, arrays = self._receive()
                if "piece" not in head:
                    break
                yield Piece(head["piece"], arrays)
            whole = True
            _check_refusal(head)
        finally:
            if not whole:  # it died, or the caller stopped: the rest of its work is not needed
                self.end()
                with contextlib.suppress(ConfinedError):  # the next file reports it
                    self._start()

    def close(self) -> None:
        """Kill the process and start no other."""
        self._closed = True
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """Kill the process."""
        process, self._process = self._process, None
        self._ready, self._served = False, 0
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):  # unsent bytes are not needed
                    _open_pipe(pipe).close()

    def _start(self) -> None:
        """Begin to start a process; `_prepare` waits for it."""
        words = [sys.executable, "-P", "-c", _PROGRAM, self._function, str(os.getpid()), str(self._memory)]
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment |= ALONE | {"PYTHONPATH": os.pathsep.join(folder or str(Path.cwd()) for folder in sys.path)}
        try:
            if self._closed:
                raise RuntimeError("the readers are closed")
            self._process = process = _starter.submit(_process, words, environment).result()
        except (OSError, RuntimeError) as error:
            raise ConfinedError("start", f"the process that reads it cannot be started: {error}") from None
        for pipe in (process.stdin, process.stdout):
            os.set_blocking(_open_pipe(pipe).fileno(), False)

    def _prepare(self) -> None:
        """Wait for a process that has finished its imports."""
        if self._process is not None and self._process.poll() is not None:
            self.end()
        if self._process is None:
            self._start()
        if not self._ready:
            self._left = self._start_seconds
            try:
                head, _ = self._receive()
            except ConfinedError as error:
                raise ConfinedError("start", f"the process that reads it does not start: {error}") from None
            _check_refusal(head)
            self._ready = True

    def _send(self, *parts: bytes) -> None:
        pipe = _open_pipe(self._running.stdin).fileno()
        for part in (LENGTHS.pack(*map(len, parts)), *parts):
            view = memoryview(part)
            while view:
                self._wait(pipe, select.POLLOUT)
                try:
                    view = view[os.write(pipe, view) :]
                except BrokenPipeError:
                    raise self._death() from None

    def _receive(self) -> tuple[dict[str, Any], list[npt.NDArray[Any]]]:
        of_json, of_arrays = LENGTHS.unpack(self._bytes(LENGTHS.size))
        if of_json + of_arrays > LARGEST:
            message = f"a part of the file takes {of_json + of_arrays:,} bytes; the limit is {LARGEST:,}"
            raise ConfinedError("size", message)
        try:
            return unpack(self._bytes(of_json), self._bytes(of_arrays))
        except (ValueError, TypeError, RecursionError):  # a file has overwritten memory of the process
            raise ConfinedError("died", "the reader sent an invalid message") from None

    def _bytes(self, count: int) -> bytearray:
        pipe, taken = _open_pipe(self._running.stdout).fileno(), bytearray(count)
        view = memoryview(taken)
        while view:
            self._wait(pipe, select.POLLIN)
            if not (read := os.readv(pipe, [view])):
                raise self._death()
            view = view[read:]
        return taken

    def _wait(self, pipe: int, event: int) -> None:
        look = select.poll()
        look.register(pipe, event)
        started = time.monotonic()
        came = look.poll(max(0.0, 1000 * self._left))
        self._left -= time.monotonic() - started
        if not came:
            limit = self._seconds if self._ready else self._start_seconds
            raise ConfinedError("time", f"reading takes more than {limit:g} s, the limit")

    def _death(self) -> ConfinedError:
        status = self._running.wait()
        why = signal.Signals(-status).name if status < 0 else f"status {status}"
        return ConfinedError("died", f"the process that read it ended ({why})")

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ConfinedError("start", "the readers are closed")
        return self._process


def _check_refusal(head: Mapping[str, Any]) -> None:
    if "code" in head:
        raise ConfinedError(str(head["code"]), str(head.get("message")))


def _process(words: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    ends, nowhere = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(words, stdin=ends, stdout=ends, stderr=nowhere, bufsize=0, env=environment)


def _open_pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
