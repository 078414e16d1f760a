"""Serve the models of a folder of published bundles.

python -m service key: make a key.  python -m service replay: send a data set to a running service, drift and all.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import socket
import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError
from uvicorn.supervisors import Multiprocess

from service.http import keys
from service.http.limits import LimitedHTTP
from service.settings import Settings
from service.store import StoreError, open_store

SHARED_METRICS = "PROMETHEUS_MULTIPROC_DIR"
APP = "service.__main__:worker_app"


class Server(uvicorn.Server):
    """Says where it listens, once it does."""

    def __init__(self, config: uvicorn.Config, url: str, url_file: Path | None) -> None:
        super().__init__(config)
        self._url, self._url_file = url, url_file

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            _announce(self._url, self._url_file)


class Workers(Multiprocess):
    """Says where it listens, once one of its processes does; each is replaced when it dies."""

    def __init__(self, config: uvicorn.Config, listening: socket.socket, url: str, url_file: Path | None) -> None:
        super().__init__(config, sockets=[listening])
        self._url, self._url_file = url, url_file
        self.started = False

    def init_processes(self) -> None:
        super().init_processes()
        first = self.processes[0]
        while not self.started and not self.should_exit.is_set() and first.process.is_alive():
            self.handle_signals()
            self.started = first.wait_until_ready(1.0, self.should_exit)
        if self.started:
            _announce(self._url, self._url_file)
        else:
            self.should_exit.set()


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; queued requests are answered first. Returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    if argv == ["key"]:
        return _make_key()
    if argv[:1] == ["replay"]:
        from service.replay.command import main as replay  # its HTTP client is not the service's affair

        return replay(argv[1:])
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    given = vars(_parser().parse_args(argv))
    try:
        settings = Settings(**given)
    except ValidationError as error:
        for found in error.errors():
            name = ".".join(map(str, found["loc"]))
            secret = name.endswith(("_key", "_webhook"))  # a key given in place of its hash, or a URL with a token
            value = "" if secret else f" = {found['input']!r}"
            print(
                f"{name}{value}: {found['msg']} (--{name.replace('_', '-')} or TRUEODDS_{name.upper()})",
                file=sys.stderr,
            )
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn repeats the signal once it has shut down in order
    try:
        if settings.url_file and not settings.url_file.parent.is_dir():
            raise NotADirectoryError(f"url_file = {settings.url_file}: there is no folder {settings.url_file.parent}")
        asyncio.run(_check_store(settings.store))
    except (StoreError, NotADirectoryError) as error:
        print(error, file=sys.stderr)
        return 1
    try:
        listening = _listen(settings.host, settings.port)
    except OSError as error:
        print(f"cannot listen on {settings.host}:{settings.port}: {error}. --port 0 takes a free port", file=sys.stderr)
        return 1
    with contextlib.suppress(KeyboardInterrupt):
        return _serve_alone(settings, listening) if settings.workers == 1 else _serve_many(settings, given, listening)
    return 0


def _serve_alone(settings: Settings, listening: socket.socket) -> int:
    from service.app import create_app

    server = Server(_config(create_app(settings)), _url(listening), settings.url_file)
    server.run(sockets=[listening])
    return 0 if server.started else 1


def _serve_many(settings: Settings, given: dict[str, str], listening: socket.socket) -> int:
    """The workers read the settings from the environment and count in files that they share."""
    os.environ |= {f"TRUEODDS_{name.upper()}": str(value) for name, value in given.items()}
    from service.telemetry import worker_files  # its locks are not to be had on Windows, where one process serves

    with worker_files.shared_folder() as folder:
        os.environ[SHARED_METRICS] = str(folder)
        workers = Workers(_config(APP, settings.workers), listening, _url(listening), settings.url_file)
        workers.run()
    return 0 if workers.started else 1


def worker_app() -> FastAPI:
    """What each of several workers serves; it ends in order when its parent is gone, which else would keep the port."""
    from service.app import create_app
    from service.telemetry import worker_files
    from trueodds import processes

    worker_files.hold(Path(os.environ[SHARED_METRICS]))
    if parent := multiprocessing.parent_process():
        processes.die_with_parent(signal.SIGTERM, parent.pid or 0)
    return create_app()


def _config(app: object, workers: int = 1) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        factory=app == APP,
        http=LimitedHTTP,
        ws="none",
        workers=workers,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # nobody asks who the client is; 20 us a request
        timeout_graceful_shutdown=8,
    )


def _make_key() -> int:
    key, hashed = keys.make()
    print(f"key     {key}", f"sha256  {hashed}", sep="\n")
    print("Give the key to those who call; tell the service the sha256 only, for example", file=sys.stderr)
    print(f"  TRUEODDS_PREDICT_KEY={hashed} python -m service", file=sys.stderr)
    return 0


async def _check_store(store: str) -> None:
    """Open and close it, so that a store that cannot be used is one line here and no traceback in the server."""
    await (await open_store(store)).close()


def _parser() -> argparse.ArgumentParser:
    """One option per setting; those not given stay with the environment and the defaults."""
    parser = argparse.ArgumentParser("python -m service", description=__doc__, argument_default=argparse.SUPPRESS)
    for name, setting in Settings.model_fields.items():
        default = "none" if setting.default in (None, "", ()) else setting.default
        text = f"{setting.description} (default: {default}; TRUEODDS_{name.upper()})"
        parser.add_argument(f"--{name.replace('_', '-')}", help=text, metavar=name.rpartition("_")[2].upper())
    return parser


def _announce(url: str, url_file: Path | None) -> None:
    print(f"TrueOdds is serving on {url}", f"  report  {url}/calibration-report", sep="\n")
    print(f"  docs    {url}/docs", flush=True)
    if url_file:
        aside = url_file.with_name(url_file.name + ".part")
        aside.write_text(url + "\n", encoding="utf-8")
        aside.replace(url_file)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=2048)
    # Accepted connections inherit it. asyncio sets it only on sockets made with an explicit protocol number, and
    # without it every answer waits 40 ms for the client's delayed acknowledgement of its header.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{reachable}:{port}"


if __name__ == "__main__":
    sys.exit(main())
