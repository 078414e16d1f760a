"""python -m service: serve the default model of a folder of published bundles."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import socket
import sys
from pathlib import Path

import uvicorn
from pydantic import ValidationError

from service.app import create_app
from service.settings import Settings
from service.store import StoreError, open_store


class Server(uvicorn.Server):
    """Says where it listens, once it does."""

    def __init__(self, config: uvicorn.Config, url: str, url_file: Path | None) -> None:
        super().__init__(config)
        self._url, self._url_file = url, url_file

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.started:
            return
        print(f"TrueOdds is serving on {self._url}", f"  report  {self._url}/calibration-report", sep="\n")
        print(f"  docs    {self._url}/docs", flush=True)
        if self._url_file:
            aside = self._url_file.with_name(self._url_file.name + ".part")
            aside.write_text(self._url + "\n", encoding="utf-8")
            aside.replace(self._url_file)


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; queued requests are answered first. Returns the exit status."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    try:
        settings = Settings(**vars(_parser().parse_args(argv)))
    except ValidationError as error:
        for found in error.errors():
            name = ".".join(map(str, found["loc"]))
            print(
                f"{name} = {found['input']!r}: {found['msg']} (--{name.replace('_', '-')} or TRUEODDS_{name.upper()})",
                file=sys.stderr,
            )
        return 2
    try:
        asyncio.run(_check_store(settings.store))
        listening = _listen(settings.host, settings.port)
    except StoreError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"cannot listen on {settings.host}:{settings.port}: {error}. --port 0 takes a free port", file=sys.stderr)
        return 1
    config = uvicorn.Config(create_app(settings), log_level="warning", access_log=False, timeout_graceful_shutdown=8)
    server = Server(config, _url(listening), settings.url_file)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn repeats Ctrl+C once it has shut down in order
        server.run(sockets=[listening])
    return 0 if server.started else 1


async def _check_store(store: str) -> None:
    """Open and close it, so that a store that cannot be used is one line here and no traceback in the server."""
    await (await open_store(store)).close()


def _parser() -> argparse.ArgumentParser:
    """One option per setting; those not given stay with the environment and the defaults."""
    parser = argparse.ArgumentParser("python -m service", description=__doc__, argument_default=argparse.SUPPRESS)
    for name, setting in Settings.model_fields.items():
        text = f"{setting.description} (default: {setting.default}; TRUEODDS_{name.upper()})"
        parser.add_argument(f"--{name.replace('_', '-')}", help=text, metavar=name.rpartition("_")[2].upper())
    return parser


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
