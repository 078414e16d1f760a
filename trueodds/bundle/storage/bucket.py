"""Models that are published in a bucket: `s3://bucket/prefix` in place of a folder, with the same files.

A bucket has no locks and renames nothing, so two things differ from a folder. A version is published once its card lies
there, which is uploaded last. And the audit log decides: its conditional write is the moment at which a change happens,
and the role files (`default`, `shadow`) are written after it, for those who read or copy the bucket with other tools.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from trueodds import calibrators
from trueodds.bundle.audit_log import FILE as LOG
from trueodds.bundle.bundle import CALIBRATOR, CARD, Bundle, BundleError
from trueodds.bundle.card import Card
from trueodds.bundle.contents import IDENTITY, Key, Listing
from trueodds.bundle.storage.objects import BucketError, ChangedError, Objects
from trueodds.bundle.storage.snapshot import Snapshot
from trueodds.bundle.storage.storage import Storage, T, Verb
from trueodds.bundle.storage.whole import copy, is_whole, keep
from trueodds.calibrators import Calibrator

VARIABLE = "TRUEODDS_MODELS_CACHE"
TRIES = 12
"""Attempts at a change while others change the same model. Pauses grow to a second."""
FRESH_SECONDS = 1.0
"""Seconds for which a listing is reused, so that one command sees one consistent state."""
ASIDE = ".fetching-"
"""Beginning of the names of folders that are being fetched."""


class Bucket(Storage):
    """The models under a URL. `path` is this machine's cache of the versions that were fetched.

    Who answers or shadows is decided by the audit logs, which are written on the condition that nobody else has written
    them since they were read.
    """

    notice_seconds = 60.0

    def __init__(self, url: str, cache: Path) -> None:
        super().__init__(cache, url.rstrip("/"), url.rstrip("/"))
        self._objects = Objects(self.place)
        self._last: Snapshot | None = None
        self._looked = float("-inf")

    def list(self) -> Listing:
        return self._snapshot().listing(self.place)

    def read(self, key: Key) -> tuple[Card, Calibrator]:
        """The two files are all that is fetched for it."""
        place = "/".join(key)
        files = self._objects.read([f"{place}/{file}" for file in (CARD, CALIBRATOR)])
        file = CARD
        try:
            card = Card.model_validate_json(files[f"{place}/{file}"])
            file = CALIBRATOR
            return card, calibrators.from_json(json.loads(files[f"{place}/{file}"]))
        except KeyError:
            raise BundleError(f"{self.place}/{place}/{file} is missing") from None
        except ValueError as error:
            first = str(error).partition("\n")[0]
            raise BundleError(f"{self.place}/{place}/{file}: {first}; publish the bundle again") from None

    def write(self, model: str | None, verb: Verb[T]) -> T:
        for tried in range(TRIES):
            snapshot = self._snapshot(fresh=True)
            answer, steps = verb(snapshot.listing(self.place))
            after = {name: data for name, data in steps if data is not None and name.endswith((IDENTITY, LOG))}
            try:
                # The log of the models before a model's: done twice, naming the same model once more changes nothing.
                for name in sorted(after, key=lambda name: (name.count("/"), name)):
                    self._commit(name, after[name], snapshot)
                self._write_roles()
            except ChangedError:
                time.sleep(random.uniform(0, min(1.0, 0.05 * 2**tried)))
            else:
                return answer
        raise BucketError(f"{self.place}: others have changed the same model {TRIES} times meanwhile; try again")

    def upload(self, source: Bundle) -> Path:
        """Upload a bundle, its card last. What a publisher that was killed has left is completed."""
        key = source.card.name, source.version
        there = self._snapshot(fresh=True).files(key)
        for file in source.files:
            path = source.directory / file
            # An object is there as a whole or not at all.
            if file not in there or there[file].size != path.stat().st_size:
                self._objects.upload(path, "/".join((*key, file)))

        if not is_whole(self.folder(key), key):
            self._keep(key, lambda aside: copy(source, aside))
        return self.folder(key)

    def fetch(self, key: Key) -> Path:
        """The folder of a version, fetched now if it is not there, or no longer what it was."""
        if (self.folder(key) / CARD).exists() and is_whole(self.folder(key), key):
            return self.folder(key)
        snapshot = self._current()
        if key[1] not in snapshot.models.get(key[0], ()):
            raise BucketError(f"{'/'.join(key)} was not fetched before, and {self.place} cannot be read now")

        def download(aside: Path) -> None:
            for file in snapshot.files(key):
                self._objects.download("/".join((*key, file)), aside / file)

        try:
            self._keep(key, download)
        except (BundleError, FileNotFoundError) as error:
            cure = "publish it again; if that does not help, delete it there and publish it once more"
            raise BundleError(f"{error}: half-uploaded or altered; {cure}") from None
        return self.folder(key)

    def revision(self, key: Key) -> tuple[tuple[str, str], ...]:
        return self._current().revision(key)

    def check_writable(self) -> None:
        name = ".writable"
        self._objects.delete(name)
        self._objects.put(name, b"", None)
        self._objects.delete(name)

    def _current(self) -> Snapshot:
        """The bucket as it is now, or as near to now as is asked for."""
        return self._snapshot()

    def _snapshot(self, *, fresh: bool = False) -> Snapshot:
        """The last one, unless it is older than a second or a fresh one is asked for."""
        if self._last is None or fresh or time.monotonic() - self._looked >= FRESH_SECONDS:
            self._last = Snapshot.take(self._objects, self._last)
            self._looked = time.monotonic()
        return self._last

    def _commit(self, name: str, data: bytes, snapshot: Snapshot) -> None:
        """Write an audit log, or the identity, that nobody else has written since.

        Raises:
            ChangedError: somebody has.
            BucketError: the store ignores the condition.
        """
        self._objects.put(name, data, snapshot.entries.get(name))
        if name == IDENTITY and self._objects.ignores_conditions(name):
            raise BucketError(
                f"{self.place}: this store ignores the conditions of writes (If-None-Match), so that two publishers"
                " could overwrite each other; publish to a folder, or to a store of a release that has them"
            )

    def _write_roles(self) -> None:
        """Let the role files follow the logs; whoever is last finds nothing more to do.

        Raises:
            ChangedError: others keep changing them.
        """
        for _ in range(TRIES):
            snapshot = self._snapshot(fresh=True)
            settled = snapshot.settled()
            other = [name for name in settled if settled[name] != snapshot.texts.get(name)]
            gone = [name for name in snapshot.texts if name not in settled]
            if not other and not gone:
                return
            for name in other:
                try:
                    self._objects.put(name, settled[name], snapshot.entries.get(name))
                except ChangedError:
                    break
            for name in gone:
                self._objects.delete(name)

    def _keep(self, key: Key, fill: Callable[[Path], None]) -> None:
        target = self.folder(key)
        target.parent.mkdir(parents=True, exist_ok=True)
        keep(target, key, fill, prefix=ASIDE, place="/".join((self.place, *key)))


def cache_of(url: str, cache: Path | None = None) -> Path:
    """The folder of one bucket's models in `cache`: TRUEODDS_MODELS_CACHE, or trueodds in the user's cache folder."""
    if cache is None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        cache = Path(os.environ.get(VARIABLE) or Path(home) / "trueodds")
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", url.partition("://")[2]).strip("-.")[:60]
    return cache / f"{readable}-{sha256(url.rstrip('/').encode()).hexdigest()[:8]}"
