"""A real HTTP server on a free port that writes down what it is told: the receiving end of webhooks."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

import psutil

from tests.local_server import LocalServer, QuietHandler


@dataclass
class Call:
    method: str
    path: str
    headers: dict[str, str]
    body: Any
    began: float
    ended: float = 0.0


@dataclass
class Hook(LocalServer):
    """Use as a context manager. `answers` are the statuses of the next calls, then 204; each may take `seconds`.

    While `gate` is not set, calls wait for their answer.
    """

    answers: list[int] = field(default_factory=list)
    seconds: float = 0.0
    reply: Any = None
    """JSON to answer with."""
    gate: threading.Event = field(default_factory=threading.Event)
    calls: list[Call] = field(default_factory=list)

    def __enter__(self) -> Self:
        hook = self
        self.gate.set()

        class Handler(QuietHandler):
            def _answer(self) -> None:
                length = int(self.headers.get("content-length", 0))
                body = json.loads(self.rfile.read(length)) if length else None
                headers = {k.lower(): v for k, v in self.headers.items()}
                call = Call(self.command, self.path, headers, body, time.monotonic())
                hook.calls.append(call)
                status = hook.answers.pop(0) if hook.answers else 200 if hook.reply is not None else 204
                time.sleep(hook.seconds)
                hook.gate.wait()
                call.ended = time.monotonic()
                content = json.dumps(hook.reply).encode() if hook.reply is not None else b""
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                with contextlib.suppress(ConnectionError):  # the caller has died meanwhile
                    self.end_headers()
                    self.wfile.write(content)

            do_GET = do_POST = _answer

        return self.serve(Handler)

    def __exit__(self, *error: object) -> None:
        self.gate.set()
        super().__exit__(*error)

    @property
    def url(self) -> str:
        return f"{super().url}/hook"


def has_ended(pid: int) -> bool:
    """Return whether there is no such process, or one that nobody has reaped."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def until(enough: Callable[[], object], state: Callable[[], object] = str, seconds: float = 300) -> None:
    """Wait for something to be true, as long as a busy machine needs.

    Args:
        enough: Says whether it is true.
        state: Describes what there is instead. Asked only after the time is over.
        seconds: The time.

    Raises:
        AssertionError: it never was.
    """
    deadline = time.monotonic() + seconds
    while not enough():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain\n{state()}")
        time.sleep(0.02)
