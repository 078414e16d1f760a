"""An application called without sockets: its lifespan on an event loop in a thread, synchronous calls into it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import httpx
from fastapi import FastAPI

T = TypeVar("T")


class Client:
    """Synchronous calls into an application whose event loop runs in a thread; use as a context manager."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._lifespan = app.router.lifespan_context(app)
        transport = httpx.ASGITransport(app)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://service", timeout=30)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(120)

    def __enter__(self) -> Client:
        self._thread.start()
        self.run(self._lifespan.__aenter__())
        return self

    def __exit__(self, *error: object) -> None:
        self.run(self.http.aclose())
        self.run(self._lifespan.__aexit__(None, None, None))
        self.run(self.loop.shutdown_default_executor())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def get(self, url: str, **options: Any) -> httpx.Response:
        return self.run(self.http.get(url, **options))

    def post(self, url: str, **options: Any) -> httpx.Response:
        return self.run(self.http.post(url, **options))

    def delete(self, url: str, **options: Any) -> httpx.Response:
        return self.run(self.http.delete(url, **options))

    def read(self, url: str, status: int = 200, **query: Any) -> Any:
        """The JSON of a GET, which must have the status."""
        return content_of(self.get(url, params=query or None), status)

    def send(self, url: str, body: Any, status: int = 200, **query: Any) -> Any:
        """The JSON of a POST, which must have the status."""
        return content_of(self.post(url, json=body, params=query or None), status)

    def refusal(self, url: str, body: Any, status: int = 422, **query: Any) -> str:
        """The words of a POST that must be refused."""
        return str(self.send(url, body, status, **query)["error"]["message"])

    def predict(self, instances: Any) -> list[dict[str, Any]]:
        """The predictions of a call that must succeed."""
        predictions: list[dict[str, Any]] = self.send("/predict", {"instances": instances})["predictions"]
        return predictions

    def label(self, rows: list[dict[str, Any]]) -> dict[str, int]:
        """The counts of a feedback call that must succeed."""
        counts: dict[str, Any] = self.send("/feedback", {"labels": rows})
        assert counts.pop("import_id")
        return counts

    def report(self, **query: Any) -> dict[str, Any]:
        report: dict[str, Any] = self.read("/calibration-report", **query)
        return report


def content_of(answer: httpx.Response, status: int = 200) -> Any:
    """The JSON of an answer, which must have the status."""
    assert answer.status_code == status, answer.text
    return answer.json()
