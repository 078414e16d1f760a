"""A real HTTP server on a free port that writes down what it is told: the receiving end of webhooks."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass
class Call:
    method: str
    path: str
    headers: dict[str, str]
    body: Any
    began: float
    ended: float = 0.0


@dataclass
class Hook:
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

        class Handler(BaseHTTPRequestHandler):
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

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.gate.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/hook"


def until(enough: Callable[[], object], seconds: float = 60) -> None:
    """Wait for something to be true, as long as a busy machine needs.

    Raises:
        AssertionError: it never was.
    """
    deadline = time.monotonic() + seconds
    while not enough():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
