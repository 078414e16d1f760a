"""A bucket's models for a service, cached on this machine and served while the bucket cannot be reached."""

from __future__ import annotations

import logging
import shutil
import time
from dataclasses import replace
from pathlib import Path

from trueodds.bundle.contents import Listing
from trueodds.bundle.storage.bucket import ASIDE, Bucket, Snapshot
from trueodds.bundle.storage.folder import Folder
from trueodds.bundle.storage.locks import lock
from trueodds.bundle.storage.objects import BucketError
from trueodds.files import write_bytes
from trueodds.processes.choices import ROLES

_ABANDONED_SECONDS = 24 * 3600.0
"""Age of an unfinished fetch after which it is removed."""

log = logging.getLogger("trueodds")


class CachedBucket(Bucket):
    """A bucket that is listed once in `seconds`. In between, answers come from memory or from the cache.

    The cache is a folder of models in their last known state. Several processes of one machine may share it. Calls wait
    for the network.
    """

    def __init__(self, url: str, cache: Path, seconds: float) -> None:
        super().__init__(url, cache)
        self.seconds = seconds

    def list(self) -> Listing:
        """Return the bucket's listing at the time when it could last be read.

        Raises:
            OSError: The cache cannot be written or read.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with lock(self.path / ".lock", wait=lambda: None):
            if time.monotonic() - self._looked >= self.seconds:
                self._look()
                self._looked = time.monotonic()
            listing = self._last.listing(self.place) if self._last.entries else Folder(self.path).list()
        problem = ""
        if self.away:
            kept = "the versions fetched before are served" if listing.models else "and nothing was fetched before"
            problem = f"{self.away}; {kept}"
        return replace(listing, place=self.place, problem=problem)

    def _current(self) -> Snapshot:
        return self._last

    def _look(self) -> None:
        """Read the bucket and update the cache. If this fails, `away` holds the reason."""
        try:
            snapshot = Snapshot.take(self._objects, self._last)
            if not any(snapshot.models.values()) and Folder(self.path).list().models:
                raise BucketError(f"{self.place} no longer holds a published version")
        except BucketError as error:
            self.away = str(error)
            return
        if not self._last.entries:
            self._remove_leftovers()
        self._lay_out(snapshot)
        self._last = snapshot
        if self.away:
            log.warning("%s can be read again", self.place)
        self.away = ""

    def _remove_leftovers(self) -> None:
        """Remove unfinished fetches of killed processes, if they began a day ago or earlier."""
        for aside in self.path.glob(f"*/{ASIDE}*"):
            if time.time() - aside.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(aside, ignore_errors=True)

    def _lay_out(self, snapshot: Snapshot) -> None:
        """Make the cache match the bucket, with the roles of the audit logs and a folder for each version.

        Folders of versions that are not fetched yet are empty. Unchanged files are not touched.
        """
        here, models, by_logs = Folder(self.path).list().models, snapshot.models, snapshot.by_logs
        for name, versions in models.items():
            for folder in (self.path / name, *(self.path / name / version for version in versions)):
                folder.mkdir(exist_ok=True)
        for name, versions in here.items():
            gone = [self.path / name / version for version in versions - models.get(name, frozenset())]
            for folder in gone if name in models else [self.path / name]:
                shutil.rmtree(folder, ignore_errors=True)
        for name, data in by_logs.items():
            if not (path := self.path / name).exists() or path.read_bytes() != data:
                write_bytes(path, data)
        for name in (*ROLES, *(f"{model}/{role}" for model in models for role in ROLES)):
            if name not in by_logs:
                (self.path / name).unlink(missing_ok=True)
