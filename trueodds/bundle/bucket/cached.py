"""A bucket's models for a service: what was seen and fetched stays on this machine, and is served while it is away."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from trueodds.bundle.bucket.objects import Bucket, BucketError
from trueodds.bundle.bucket.snapshot import Snapshot
from trueodds.bundle.bucket.versions import clear_abandoned, fetch
from trueodds.bundle.contents import Contents, Key
from trueodds.bundle.locks import lock

log = logging.getLogger("trueodds")


@dataclass
class CachedModels:
    """Read as `trueodds.bundle.PublishedModels` is; the bucket is listed once in `seconds`.

    `path` is the cache, which several processes of one machine may share. Calls wait for the network.
    """

    url: str
    path: Path
    seconds: float
    away: str = field(default="", init=False)
    """Why the bucket could not be read when it was last looked at; "" where it could."""
    _snapshot: Snapshot | None = field(default=None, init=False, repr=False)
    _looked: float = field(default=float("-inf"), init=False, repr=False)

    def __post_init__(self) -> None:
        self._bucket = Bucket(self.url)

    def contents(self) -> Contents:
        """All models, versions and roles, as they were when the bucket could last be read.

        Raises:
            OSError: the cache cannot be written or read.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with lock(self.path / ".lock", wait=lambda: None):
            if time.monotonic() - self._looked >= self.seconds:
                self._look()
                self._looked = time.monotonic()
            contents = Contents.read(self.path)
        problems = [text.replace(str(self.path), self.url) for text in contents.problems]
        if self.away:
            kept = "what was fetched before is served" if contents.models else "and nothing of it was fetched before"
            problems.insert(0, f"{self.away}; {kept}")
        return replace(contents, problems=tuple(problems))

    def folder(self, key: Key) -> Path:
        """Where a version of the contents lies, or will."""
        return self.path.joinpath(*key)

    def fetch(self, key: Key) -> Path:
        """The folder of a version, fetched now if need be.

        Raises:
            BundleError: what lies in the bucket is not the version that it says.
            BucketError: it is not here, and the bucket cannot be read.
            OSError: it cannot be written here.
        """
        return fetch(self._bucket, self._snapshot or Snapshot({}, {}), key, self.path)

    def revision(self, key: Key) -> tuple[tuple[str, str], ...]:
        """Changes when one of a version's objects does."""
        return self._snapshot.revision(key) if self._snapshot else ()

    def _look(self) -> None:
        try:
            snapshot = Snapshot.take(self._bucket, self._snapshot)
            if not snapshot.versions and Contents.read(self.path).models:
                raise BucketError(f"{self.url} holds no published version any more")
        except BucketError as error:
            self.away = str(error)
            return
        if self._snapshot is None:
            clear_abandoned(self.path)
        snapshot.lay_out(self.path)
        self._snapshot = snapshot
        if self.away:
            log.warning("%s can be read again", self.url)
        self.away = ""
