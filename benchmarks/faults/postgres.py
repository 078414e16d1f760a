"""A temporary PostgreSQL cluster on a free port of this machine, which is deleted at the end."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import psutil

USER = "trueodds"
AT_ONCE = 20
"""Schemas that one process makes."""


def missing() -> str:
    """Return why PostgreSQL cannot be started here, or an empty text if it can."""
    if binaries() is None:
        return "PostgreSQL is not installed (Debian: apt-get install postgresql)"
    if os.geteuid() == 0 and _account() is None:
        return "PostgreSQL refuses to run as root, and there is no account postgres or nobody"
    return ""


def binaries() -> Path | None:
    """Return the folder of initdb and postgres."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("initdb")
    folders = [path.parent for path in reversed(programs)] + ([Path(on_path).resolve().parent] if on_path else [])
    return next((folder for folder in folders if (folder / "postgres").exists()), None)


def _account() -> pwd.struct_passwd | None:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


class Cluster:
    """A real cluster: `start`, `stop` and `kill` are real, and data survive them as PostgreSQL guarantees."""

    def __init__(self, primary: Cluster | None = None) -> None:
        """Prepare the cluster. `primary` is the cluster that it follows as a hot standby by streaming replication."""
        folder = binaries()
        assert folder is not None
        self._binaries = folder
        self._account = _account() if os.geteuid() == 0 else None
        # Not below the caller's own folder: that may be closed to other accounts.
        self.folder = Path(tempfile.mkdtemp(prefix="trueodds-postgres-"))
        if self._account:
            os.chown(self.folder, self._account.pw_uid, self._account.pw_gid)
        self._data, self.port = self.folder / "data", _free_port()
        if primary:
            where = ("-h", "127.0.0.1", "-p", str(primary.port), "-U", USER)
            copying = ("--write-recovery-conf", "--checkpoint=fast", "--no-sync")
            self._run("pg_basebackup", "-D", str(self._data), *where, *copying)
        else:
            how = ("-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
            self._run("initdb", "-D", str(self._data), *how)
        self._process: subprocess.Popen[bytes] | None = None
        self._count, self._made = 0, 0
        self.start()

    def start(self) -> None:
        """Start, and return once it answers."""
        # Full durability, as in production: it is killed.
        options = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": self.folder}
        options |= {"max_connections": 50, "shared_buffers": "16MB", "logging_collector": "off"}
        command = [str(self._binaries / "postgres"), "-D", str(self._data)]
        command += [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._as_account())
        deadline = time.monotonic() + 30
        ready = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER]
        while subprocess.run(ready, check=False).returncode != 0:
            assert self._process.poll() is None and time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.02)

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop: SIGINT is PostgreSQL's fast shutdown, SIGQUIT stops at once, as in a crash."""
        if self._process:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None

    def kill(self) -> None:
        """Send SIGKILL to the postmaster alone. Its children notice and end without writing anything."""
        assert self._process
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        self._process.wait(30)
        self._process = None
        psutil.wait_procs(children, 30)  # a new one refuses to start beside them

    def database(self) -> str:
        """Return the URL of a new, empty schema, which serves as a separate database.

        Schemas are made in advance: a process of psql takes 100 ms, and a schema one.
        """
        if self._count == self._made:
            self._made += AT_ONCE
            names = (f"test_{k}" for k in range(self._count + 1, self._made + 1))
            where = ("-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", "postgres")
            self._run("psql", "-q", *where, "-c", "".join(f"CREATE SCHEMA {name};" for name in names))
        self._count += 1
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres?search_path=test_{self._count}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def follows(self, primary: str) -> str:
        """Return the URL, on this cluster, of a database of the primary."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{primary.rpartition('/')[2]}"

    def remove(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *options: str) -> None:
        command = [str(self._binaries / program), *options]
        subprocess.run(command, check=True, capture_output=True, timeout=60, **self._as_account())

    def _as_account(self) -> dict[str, Any]:
        place: dict[str, Any] = {"cwd": str(self.folder)}
        return place | ({"user": self._account.pw_uid, "group": self._account.pw_gid} if self._account else {})


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])
