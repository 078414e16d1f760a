"""Serves the application in one process, or in several that share a socket."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from pathlib import Path

from starlette.types import ASGIApp
from uvicorn.supervisors import multiprocess

from service.http.connections import ConnectionLimits
from service.http.routing import direct
from service.http.server import Config, Server, narrow
from service.settings import Settings
from service.store import open_store
from trueodds.files import write_text
from trueodds.processes.lazy import spare_old_objects

SHARED_METRICS = "PROMETHEUS_MULTIPROC_DIR"
APP = "service.cli.serving:worker_app"


class AnnouncingServer(Server):
    """Server that prints its URL once it is listening."""

    def __init__(self, config: Config, url: str, url_file: Path | None) -> None:
        super().__init__(config)
        self._url, self._url_file = url, url_file

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            try:
                _announce(self._url, self._url_file)
            except OSError:  # standard output is closed, or the disk is full
                await self.shutdown(sockets)
                raise


class Worker(multiprocess.Process):
    """Worker process that runs our server class."""

    config: Config

    @property
    def server(self) -> Server:
        if self._server is None:
            self._server = Server(self.config)
        assert isinstance(self._server, Server)
        return self._server


multiprocess.Process = Worker  # type: ignore[misc]  # uvicorn's supervisor looks the class up under this name


class Workers(multiprocess.Multiprocess):
    """Supervisor of the worker processes. It prints the URL once one listens, and replaces each worker that dies."""

    def __init__(self, config: Config, listening: socket.socket, url: str, url_file: Path | None) -> None:
        super().__init__(config, sockets=[listening])
        self._url, self._url_file = url, url_file
        self.started = False

    def init_processes(self) -> None:
        super().init_processes()
        first = self.processes[0]
        while not self.started and not self.should_exit.is_set() and first.process.is_alive():
            self.handle_signals()
            self.started = first.wait_until_ready(1.0, self.should_exit)
        if not self.started:
            self.should_exit.set()
            return
        try:
            _announce(self._url, self._url_file)
        except OSError:
            self.terminate_all()
            self.join_all()
            raise

    def terminate_all(self) -> None:
        """End the workers. They still answer connections that wait; later connections are refused."""
        for listening in self.sockets:
            narrow(listening)
            listening.close()
        super().terminate_all()


def serve_alone(settings: Settings, listening: socket.socket) -> int:
    """Serve in this process until it is stopped, and return the exit status."""
    from service.app import create_app

    server = AnnouncingServer(_config(direct(create_app(settings)), settings), _url(listening), settings.url_file)
    server.run(sockets=[listening])
    return 0 if server.started else 1


def serve_many(settings: Settings, options: dict[str, str], listening: socket.socket) -> int:
    """Serve in several processes until they are stopped, and return the exit status.

    They read their settings from the environment and count metrics in shared files.
    """
    os.environ |= {f"TRUEODDS_{name.upper()}": str(value) for name, value in options.items()}
    from service.telemetry import worker_files  # its file locks do not exist on Windows, where one process serves

    with worker_files.shared_folder() as folder:
        os.environ[SHARED_METRICS] = str(folder)
        workers = Workers(_config(APP, settings), listening, _url(listening), settings.url_file)
        workers.run()
    return 0 if workers.started else 1


def worker_app() -> ASGIApp:
    """Create the app of one worker. The worker ends when its parent dies; otherwise it would keep the port."""
    spare_old_objects()
    from service.app import create_app
    from service.telemetry import worker_files
    from trueodds.processes import binding

    folder = Path(os.environ[SHARED_METRICS])
    worker_files.hold(folder)
    worker_files.sign_in(folder)
    if parent := multiprocessing.parent_process():
        binding.die_with_parent(signal.SIGTERM, parent.pid or 0)
    return direct(create_app())


def _config(app: ASGIApp | str, settings: Settings) -> Config:
    return Config(
        app,
        limits=ConnectionLimits.of(settings),
        factory=app == APP,
        ws="none",
        interface="asgi3",
        workers=settings.workers,
        root_path=settings.root_path,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # the client's address is not used; saves 20 us per request
        timeout_graceful_shutdown=8,
    )


async def check_store(settings: Settings) -> None:
    """Open and close the store, so that a problem is one line here and not a traceback of the server."""
    await (await open_store(settings.store, read_only=settings.read_only)).close()


def _announce(url: str, url_file: Path | None) -> None:
    print(f"TrueOdds is serving on {url}", f"  report  {url}/calibration-report", sep="\n")
    print(f"  docs    {url}/docs", flush=True)
    if url_file:
        write_text(url_file, url + "\n")


def listen(host: str, port: int) -> socket.socket:
    """Open the socket on which the service listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=2048)
    # Accepted connections inherit this option. asyncio sets it only on sockets made with an explicit protocol number.
    # Without it, every answer waits 40 ms for the client's delayed acknowledgement of its header.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{reachable}:{port}"
