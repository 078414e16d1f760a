"""Models that are published in a bucket: `s3://bucket/prefix` in place of a folder, with the same files.

A bucket has no locks and renames nothing, so two things differ from a folder. A version is published once its card lies
there, which is uploaded last. And the audit log decides: its conditional write is the moment at which a change happens,
and the role files (`default`, `shadow`) are written after it, for those who read or copy the bucket with other tools.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from trueodds import calibrators
from trueodds.bundle.audit_log import FILE as LOG
from trueodds.bundle.audit_log import AuditLogError, Change, log_of, parse, role_of
from trueodds.bundle.bundle import CALIBRATOR, CARD, MODEL, MODEL_CARD, Bundle, BundleError
from trueodds.bundle.card import Card
from trueodds.bundle.contents import DEFAULT, IDENTITY, NAME, ROLES, Key, Listing
from trueodds.bundle.storage.objects import BucketError, ChangedError, Entry, Objects
from trueodds.bundle.storage.storage import Storage, T, Verb
from trueodds.bundle.storage.whole import copy, is_whole, keep
from trueodds.calibrators import Calibrator
from trueodds.inputs import KINDS

VARIABLE = "TRUEODDS_MODELS_CACHE"
TRIES = 12
"""Attempts at a change while others change the same model. Pauses grow to a second."""
FRESH_SECONDS = 1.0
"""Seconds for which a listing is reused, so that one command sees one consistent state."""
READINGS = 20
"""Attempts at a listing and at reading what it lists, while others write."""
ASIDE = ".fetching-"
"""Beginning of the names of folders that are being fetched."""
BUNDLE_FILES = (MODEL, CALIBRATOR, MODEL_CARD, *(name for kind in KINDS for name in kind.beside), CARD)
"""Files that a bundle may consist of, the card last."""
_SMALL = re.compile(f"{DEFAULT}|{re.escape(IDENTITY)}|{re.escape(LOG)}|{NAME}/(?:{'|'.join(ROLES)}|{re.escape(LOG)})")
_CARD = re.compile(f"({NAME})/({NAME})/{re.escape(CARD)}")


@dataclass(frozen=True)
class Snapshot:
    """A bucket's listing, with the contents of the small files in it."""

    entries: dict[str, Entry]
    texts: dict[str, bytes]

    @classmethod
    def take(cls, objects: Objects, known: Snapshot) -> Snapshot:
        """Take one listing, and request each small file that `known` does not have as it is now.

        Raises:
            BucketError: the bucket cannot be read, or is written all the time.
        """
        entries = objects.list()
        for _ in range(READINGS):
            small = {name for name in entries if _SMALL.fullmatch(name)}
            texts = {n: known.texts[n] for n in small & known.texts.keys() if known.entries.get(n) == entries[n]}
            if texts.keys() == small:
                return cls(entries, texts)
            texts |= objects.read(small - texts.keys())
            # What was read belongs to the listing only if nobody has written meanwhile: the next one tells.
            known, entries = cls(entries, texts), objects.list()
        raise BucketError(f"{objects.url} has changed {READINGS} times while it was read")

    @cached_property
    def models(self) -> dict[str, frozenset[str]]:
        """Published versions of each model. Without its card a version is none."""
        models: dict[str, set[str]] = {name: set() for name in self._with_texts()}
        for match in filter(None, map(_CARD.fullmatch, self.entries)):
            models.setdefault(match[1], set()).add(match[2])
        return {name: frozenset(versions) for name, versions in models.items()}

    def listing(self, place: str) -> Listing:
        """List the models, with the roles as the audit logs say."""

        def modified(name: str) -> float:
            return self.entries[name if name in self.entries else f"{name}/{CARD}"].modified

        return Listing(place, self.models, self.settled.get, modified, exists=bool(self.entries))

    def files(self, key: Key) -> dict[str, Entry]:
        """Return the files of a version that exist."""
        names = {name: "/".join((*key, name)) for name in BUNDLE_FILES}
        return {name: self.entries[path] for name, path in names.items() if path in self.entries}

    @cached_property
    def settled(self) -> dict[str, bytes]:
        """Small files with the roles as the audit logs say, where there are logs that can be read.

        A publisher that ended between the log and the role file has made its change all the same.
        """
        texts = dict(self.texts)
        for name in self._with_texts():
            by_role = {role_of(change.action): change.after for change in self._changes(name)}
            for role, version in by_role.items():
                if version is None:
                    texts.pop(f"{name}/{role}", None)
                else:
                    texts[f"{name}/{role}"] = f"{version}\n".encode()
        named = texts.get(DEFAULT, b"").decode(errors="replace").strip().partition("/")
        # A publisher may have ended after it named a model here and before it let a version of it answer.
        for model in [*(c.after for c in reversed(self._changes(None))), named[0]]:
            if answering := texts.get(f"{model}/{DEFAULT}"):
                texts[DEFAULT] = f"{model}/".encode() + answering
                break
        return texts

    def _with_texts(self) -> set[str]:
        return {path.partition("/")[0] for path in self.texts if "/" in path}

    def _changes(self, model: str | None) -> list[Change]:
        try:
            return parse(self.texts.get(log_of(model), b""), log_of(model))
        except AuditLogError:  # whoever reads the log says so; until it is repaired, the role files decide
            return []


class Bucket(Storage):
    """Models under a URL. `path` is this machine's cache of the versions that were fetched.

    Who answers or shadows is decided by the audit logs, which are written on the condition that nobody else has written
    them since they were read.
    """

    notice_seconds = 60.0

    def __init__(self, url: str, cache: Path) -> None:
        super().__init__(cache, url.rstrip("/"), url.rstrip("/"))
        self._objects = Objects(self.place)
        self._last = Snapshot({}, {})
        self._looked = float("-inf")

    def list(self) -> Listing:
        return self._snapshot().listing(self.place)

    def read(self, key: Key) -> tuple[Card, Calibrator]:
        """Fetch the two files, and no others."""
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
        """Return the folder of a version. It is fetched now if it is not there, or damaged."""
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
        return tuple((name, entry.etag) for name, entry in self._current().files(key).items())

    def check_writable(self) -> None:
        name = ".writable"
        self._objects.delete(name)
        self._objects.put(name, b"", None)
        self._objects.delete(name)

    def _current(self) -> Snapshot:
        """Return the bucket as it is now, or as it was when it was last looked at."""
        return self._snapshot()

    def _snapshot(self, *, fresh: bool = False) -> Snapshot:
        """Return the last one, unless it is older than a second or a fresh one is asked for."""
        if fresh or time.monotonic() - self._looked >= FRESH_SECONDS:
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
        """Let the role files follow the logs. The last of several writers finds nothing to do.

        Raises:
            ChangedError: others keep changing them.
        """
        for _ in range(TRIES):
            snapshot = self._snapshot(fresh=True)
            other = snapshot.settled.items() - snapshot.texts.items()
            gone = snapshot.texts.keys() - snapshot.settled.keys()
            if not other and not gone:
                return
            with contextlib.suppress(ChangedError):
                for name, data in sorted(other):
                    self._objects.put(name, data, snapshot.entries.get(name))
            for name in sorted(gone):
                self._objects.delete(name)

    def _keep(self, key: Key, fill: Callable[[Path], None]) -> None:
        target = self.folder(key)
        target.parent.mkdir(parents=True, exist_ok=True)
        keep(target, key, fill, prefix=ASIDE, place="/".join((self.place, *key)))


def cache_of(url: str, cache: Path | None = None) -> Path:
    """Return a bucket's folder in `cache`, by default TRUEODDS_MODELS_CACHE, or trueodds in the user's cache folder."""
    if cache is None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        cache = Path(os.environ.get(VARIABLE) or Path(home) / "trueodds")
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", url.partition("://")[2]).strip("-.")[:60]
    return cache / f"{readable}-{sha256(url.rstrip('/').encode()).hexdigest()[:8]}"
