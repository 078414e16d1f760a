"""A bucket that is down, refuses, hangs or holds half a bundle, and publishers that are killed, under load."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from benchmarks.faults.ledger import Ledger
from benchmarks.faults.process import ROOT, Service
from trueodds.bundle import CARD, Bundle

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment
    from werkzeug.serving import BaseWSGIServer

URL = "s3://bucket/some/models"
KINDS = ("away", "denies", "hangs", "half a bundle", "publisher killed")
_DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


class Store:
    """moto's S3 on a free port of this machine with one empty bucket, which can be made to fail."""

    def __init__(self) -> None:
        self.fault: Literal["", "denies", "hangs"] = ""
        self.puts_left: int | None = None
        """Number of writes that are answered before the others hang; None: all."""
        self.requests: list[str] = []
        self._released, self._one = threading.Event(), threading.Lock()
        self._app: Any = DomainDispatcherApplication(create_backend_app)
        self._server: BaseWSGIServer | None = None
        self.port = 0
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.start()
        self.call("POST", "/moto-api/reset")  # its objects are of the whole process
        self.call("PUT", "/bucket")

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        self.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        if environ["REQUEST_METHOD"] == "PUT" and self.puts_left is not None:
            self.puts_left -= 1
            if self.puts_left < 0:
                self._released.wait(60)
        if self.fault == "hangs":
            self._released.wait(60)
        if self.fault == "denies":
            start_response("403 Forbidden", [("Content-Type", "application/xml")])
            return [_DENIED]
        with self._one:  # moto compares and writes in two steps, S3 in one
            answer: list[bytes] = list(self._app(environ, start_response))
        return answer

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment with which a process finds the store."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Send one request of the store's own. Raises OSError if it is refused."""
        headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request"}
        url = f"http://127.0.0.1:{self.port}{path}"
        with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method), timeout=30) as answer:
            data: bytes = answer.read()
            return data

    def start(self) -> None:
        """Start to answer on the same port as before."""
        self._released.clear()
        self._server = make_server("127.0.0.1", self.port, self, threaded=True)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Close the port. Stored objects stay."""
        self._released.set()
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def heal(self) -> None:
        """Answer everything again."""
        self.fault, self.puts_left = "", None
        self._released.set()
        if self._server is None:
            self.start()
        self._released.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def publisher(store: Store, cache: Path, bundle: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start `trueodds publish` as a process."""
    command = [sys.executable, "-m", "pipeline", "publish", "--models", URL, "--bundle", str(bundle), *options]
    environment = {**os.environ, **store.environment, "TRUEODDS_MODELS_CACHE": str(cache), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def served(service: Service) -> str:
    """Return the served version."""
    return str(service.until(200).json()["version"])


def until_problem(service: Service, *, there: bool, seconds: float = 60) -> None:
    """Wait until /health/ready reports that the bucket is down, or no longer reports it.

    Raises:
        RuntimeError: The report did not come.
    """
    end = time.monotonic() + seconds
    while ("problem" in service.get("/health/ready").json()) is not there:
        if time.monotonic() > end:
            raise RuntimeError(f"the bucket {'is away' if there else 'is back'}: {service.get('/models').body!r}")
        time.sleep(0.05)


def interrupt(
    service: Service, ledger: Ledger, store: Store, bundles: tuple[Path, Path], cache: Path, times: int, seed: int = 0
) -> dict[str, int]:
    """Cause each fault `times` times under load, restart from the cache, and check the ledger after each.

    Raises:
        LostError: Something acknowledged is lost or counts twice.
        RuntimeError: The wrong version answers, or the service does not report the fault.
    """
    rng, done = random.Random(seed), dict.fromkeys(KINDS, 0)
    versions = [Bundle.load(bundle).version for bundle in bundles]
    _published(store, cache, bundles[0])
    service.start().until(200)
    for turn in range(times):
        for kind in KINDS:
            answering = served(service)
            with ledger.load(service):
                if kind in ("away", "denies", "hangs"):
                    store.stop() if kind == "away" else setattr(store, "fault", kind)
                    until_problem(service, there=True)
                elif kind == "half a bundle":
                    store.call("PUT", f"/bucket/some/models/{ledger_name(bundles[0])}/half/model.onnx", b"half")
                    store.call("PUT", f"/bucket/some/models/{ledger_name(bundles[0])}/broken/{CARD}", b"{")
                else:
                    store.puts_left = rng.randrange(6)
                    process = publisher(store, cache, bundles[versions.index(answering) ^ 1])
                    end = time.monotonic() + 30
                    while store.puts_left >= 0 and process.poll() is None and time.monotonic() < end:
                        time.sleep(0.01)
                    process.kill()
                    process.communicate()
                time.sleep(0.5)
            if kind in ("away", "denies"):
                service.kill()
                service.start().until(200)  # from its cache
            if kind != "publisher killed" and served(service) != answering:
                raise RuntimeError(f"{kind}: {served(service)} answers, not {answering}")
            store.heal()
            until_problem(service, there=False)
            ledger.settle(service)
            done[kind] += 1
        # A kill may have come before or after the change: publishing again completes it either way.
        wanted = turn % 2 ^ 1
        _published(store, cache, bundles[wanted])
        end = time.monotonic() + 20
        while served(service) != versions[wanted]:
            if time.monotonic() > end:
                raise RuntimeError(
                    f"{served(service)} answers, not {versions[wanted]}: {service.get('/models').body!r}"
                )
            time.sleep(0.05)
    return done


def ledger_name(bundle: Path) -> str:
    """Return the model of a bundle."""
    return Bundle.load(bundle).card.name


def _published(store: Store, cache: Path, bundle: Path) -> None:
    process = publisher(store, cache, bundle)
    printed, _ = process.communicate(timeout=60)
    if process.returncode:
        raise RuntimeError(printed.decode(errors="replace"))
