"""A disk that is full for a while: a small tmpfs if this user may mount one, else a limit on the size of files."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.faults.ledger import Ledger, LostError
from benchmarks.faults.process import Service

BALLAST = "ballast"


class SmallFileSystem:
    """A tmpfs. Writes fail with ENOSPC while the ballast is there."""

    def fill(self, service: Service) -> None:
        with (service.folder / BALLAST).open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(b"\0" * 4096)

    def free(self, service: Service) -> None:
        (service.folder / BALLAST).unlink()


class FileLimit:
    """RLIMIT_FSIZE of the running service. Writes beyond the current end of its files fail with EFBIG."""

    def fill(self, service: Service) -> None:
        largest = max(path.stat().st_size for path in service.folder.glob("store.sqlite*"))
        self._set(service, largest + 4096)

    def free(self, service: Service) -> None:
        self._set(service, resource.RLIM_INFINITY)

    def _set(self, service: Service, limit: int) -> None:
        resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


@contextlib.contextmanager
def tmpfs(folder: Path, megabytes: int = 48) -> Iterator[Path]:
    """Mount a tmpfs on `folder` for the block.

    Raises:
        PermissionError: This user may not mount.
    """
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PermissionError(f"cannot mount a tmpfs (only root may): {error}") from None
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_and_free(service: Service, ledger: Ledger, disk: SmallFileSystem | FileLimit, times: int) -> dict[str, int]:
    """Fill the disk under load until calls are refused, free it until they succeed, restart, and check, `times` times.

    Raises:
        LostError: Something acknowledged is lost, no 503 came, or no success within ten seconds of free space.
    """
    done = {"filled": 0, "recovered": 0, "live_while_full": 0}
    if not service.running():
        service.start().until(200)
    client = service.client()
    for _ in range(times):
        with ledger.load(service):
            time.sleep(0.3)
            refused = ledger.counts["predict_503"] + 10
            disk.fill(service)
            _until(lambda: ledger.counts["predict_503"], refused, "refused calls")
            done["filled"] += 1
            done["live_while_full"] += client.get("/health/live").status == 200
            if client.get("/calibration-report").status != 200:
                raise LostError("the report cannot be read while the disk is full")
            disk.free(service)
            answered = len(ledger.probabilities) + 10
            _until(lambda: len(ledger.probabilities), answered, "answers with free space")
            done["recovered"] += 1
        ledger.settle(service)
        client.close()
        service.kill()
        service.start().until(200)
        client = service.client()
        ledger.settle(service)
    client.close()
    return done


def may_mount() -> bool:
    """Return whether `tmpfs` may succeed."""
    return os.geteuid() == 0


def _until(count: Callable[[], int], wanted: int, what: str, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while (found := count()) < wanted:
        if time.monotonic() > deadline:
            raise LostError(f"{found} {what} after {seconds} s, expected {wanted}")
        time.sleep(0.01)
