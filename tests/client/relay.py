"""A real HTTP server between a client and the service that answers for it, or loses its answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import httpx

from tests.local_server import LocalServer, QuietHandler

TLS = httpx.create_ssl_context()
"""Read once: a request without it reads all certificates anew."""


@dataclass
class Refuse:
    """Answer with this status, without asking the service."""

    status: int = 503
    retry_after: str | None = None
    body: bytes = b'{"error": {"code": "queue_full", "message": "too much is waiting"}}'


@dataclass
class Lose:
    """Ask the service, and cut the connection in place of its answer."""


@dataclass
class Relay(LocalServer):
    """Use as a context manager. What happens to the next requests is in `plan`; after that all are passed on."""

    service: str
    plan: list[Refuse | Lose] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Path and request id of each."""

    def __enter__(self) -> Self:
        relay = self

        class Handler(QuietHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                relay.requests.append((self.path.partition("?")[0], self.headers["x-request-id"]))
                step = relay.plan.pop(0) if relay.plan else None
                if isinstance(step, Refuse):
                    headers = {"retry-after": step.retry_after} if step.retry_after else {}
                    self._answer(step.status, step.body, headers)
                    return
                address, headers = relay.service + self.path, dict(self.headers)
                answer = httpx.request(self.command, address, headers=headers, content=body, timeout=20, verify=TLS)
                if isinstance(step, Lose):
                    self.close_connection = True
                else:
                    self._answer(answer.status_code, answer.content, {"content-type": answer.headers["content-type"]})

            def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_DELETE = _handle

        return self.serve(Handler)
