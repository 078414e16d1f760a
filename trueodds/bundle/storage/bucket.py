"""Models published in a bucket: `s3://bucket/prefix` instead of a folder, with the same files.

A bucket has no locks and no renames. So two things differ from a folder. A version is published once its card exists;
the card is uploaded last. And the audit log decides the roles: a change happens at the log's conditional write. The
role files (`default`, `shadow`) are written after it, for readers that use other tools.
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
from typing import Any

from trueodds import calibrators
from trueodds.bundle.audit_log import FILE as LOG
from trueodds.bundle.audit_log import AuditLogError, Change, log_of, parse, role_of
from trueodds.bundle.card import Card
from trueodds.bundle.contents import CALIBRATOR, CARD, IDENTITY, MODEL, MODEL_CARD, SETS, BundleError, Key, Listing
from trueodds.bundle.storage.objects import BucketError, ChangedError, Entry, Objects
from trueodds.bundle.storage.storage import Storage, T, Verb
from trueodds.bundle.storage.whole import copy, is_whole, keep
from trueodds.bundle.stored_bundle import StoredBundle
from trueodds.calibrators import Calibrator, MultilabelPlatt
from trueodds.inputs import KINDS
from trueodds.processes.choices import DEFAULT, ROLES
from trueodds.processes.extensions import ExtensionError
from trueodds.texts import NAME

VARIABLE = "TRUEODDS_MODELS_CACHE"
"""Environment variable with the folder of the cache."""
TRIES = 12
"""Attempts at a change while others change the same model. Pauses grow to a second."""
FRESH_SECONDS = 1.0
"""Seconds for which a listing is reused, so that one command sees one consistent state."""
READINGS = 20
"""Attempts at reading a consistent listing while others write."""
ASIDE = ".fetching-"
"""Prefix of folders that are being fetched."""
BUNDLE_FILES = (MODEL, CALIBRATOR, SETS, MODEL_CARD, *(name for kind in KINDS for name in kind.beside), CARD)
"""Possible files of a bundle, the card last."""
_SMALL = re.compile(f"{DEFAULT}|{re.escape(IDENTITY)}|{re.escape(LOG)}|{NAME}/(?:{'|'.join(ROLES)}|{re.escape(LOG)})")
_CARD = re.compile(f"({NAME})/({NAME})/{re.escape(CARD)}")


@dataclass(frozen=True)
class Snapshot:
    """A bucket's listing, with the contents of its small files."""

    entries: dict[str, Entry]
    texts: dict[str, bytes]

    @classmethod
    def take(cls, objects: Objects, earlier: Snapshot) -> Snapshot:
        """Read a listing, and request each small file that `earlier` does not have in its current state.

        Raises:
            BucketError: The bucket cannot be read, or changes all the time.
        """
        entries = objects.list()
        for _ in range(READINGS):
            small = {name for name in entries if _SMALL.fullmatch(name)}
            texts = {n: earlier.texts[n] for n in small & earlier.texts.keys() if earlier.entries.get(n) == entries[n]}
            if texts.keys() == small:
                return cls(entries, texts)
            texts |= objects.read(small - texts.keys())
            # These files belong to the listing only if nobody has written meanwhile. The next listing shows it.
            earlier = cls(entries, texts)
            entries = objects.list()
        raise BucketError(f"{objects.url} has changed {READINGS} times while it was read")

    @cached_property
    def models(self) -> dict[str, frozenset[str]]:
        """Published versions of each model. A version without its card does not count."""
        models: dict[str, set[str]] = {name: set() for name in self._with_texts()}
        for match in filter(None, map(_CARD.fullmatch, self.entries)):
            models.setdefault(match[1], set()).add(match[2])
        return {name: frozenset(versions) for name, versions in models.items()}

    def listing(self, place: str) -> Listing:
        """Return the listing of the models, with the roles as the audit logs define them."""

        def modified_at(name: str) -> float:
            return self.entries[name if name in self.entries else f"{name}/{CARD}"].modified_at

        return Listing(place, self.models, self.by_logs.get, modified_at, exists=bool(self.entries))

    def files(self, key: Key) -> dict[str, Entry]:
        """Return the files of a version that exist."""
        names = {name: "/".join((*key, name)) for name in BUNDLE_FILES}
        return {name: self.entries[path] for name, path in names.items() if path in self.entries}

    @cached_property
    def by_logs(self) -> dict[str, bytes]:
        """Small files, with the roles as the audit logs define them, as far as the logs can be read.

        A publisher that died between the log and the role file has made its change all the same.
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
        # A publisher may have died after it wrote a model here and before a version of the model answered.
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
        except AuditLogError:  # readers of the log report the damage; until its repair, the role files decide
            return []


class Bucket(Storage):
    """Models under a URL. `path` is the cache of fetched versions on this machine.

    The audit logs decide the roles. A log is written only if nobody else has written it since it was read.
    """

    notice_seconds = 60.0

    def __init__(self, url: str, cache: Path) -> None:
        super().__init__(cache, url.rstrip("/"), url.rstrip("/"))
        self._objects = Objects(self.place)
        self._last = Snapshot({}, {})
        self._looked = float("-inf")

    def list(self) -> Listing:
        return self._snapshot().listing(self.place)

    def read(self, key: Key) -> tuple[Card, Calibrator | MultilabelPlatt]:
        """Read card and calibrator, without fetching the other files."""
        place = "/".join(key)
        files = self._objects.read([f"{place}/{file}" for file in (CARD, CALIBRATOR)])
        file = CARD
        try:
            card = Card.model_validate_json(files[f"{place}/{file}"])
            file = CALIBRATOR
            tree = json.loads(files[f"{place}/{file}"])
            return card, MultilabelPlatt.from_json(tree) if card.multilabel else calibrators.from_json(tree)
        except KeyError:
            raise BundleError(f"{self.place}/{place}/{file} is missing") from None
        except ExtensionError as error:
            raise BundleError(f"{self.place}/{place}/{file}: {error}") from None
        except ValueError as error:
            first = str(error).partition("\n")[0]
            raise BundleError(f"{self.place}/{place}/{file}: {first}; publish the bundle again") from None

    def write(self, model: str | None, verb: Verb[T]) -> T:
        for attempt in range(TRIES):
            snapshot = self._snapshot(fresh=True)
            answer, steps = verb(snapshot.listing(self.place))
            after = {name: data for name, data in steps if data is not None and name.endswith((IDENTITY, LOG))}
            try:
                # Write the log of the default model first: repeating it changes nothing.
                for name in sorted(after, key=lambda name: (name.count("/"), name)):
                    self._commit(name, after[name], snapshot)
                self._write_roles()
            except ChangedError:
                time.sleep(random.uniform(0, min(1.0, 0.05 * 2**attempt)))
            else:
                return answer
        raise BucketError(f"{self.place}: others have changed the same model {TRIES} times; try again")

    def upload(self, source: StoredBundle[Any]) -> Path:
        """Upload a bundle, its card last. The upload of a killed publisher is completed."""
        key = source.card.name, source.version
        there = self._snapshot(fresh=True).files(key)
        for file in source.files:
            path = source.directory / file
            # An object is complete or missing.
            if file not in there or there[file].size != path.stat().st_size:
                self._objects.upload(path, "/".join((*key, file)))
        if not is_whole(self.folder(key), key):
            self._keep(key, lambda aside: copy(source, aside))
        return self.folder(key)

    def fetch(self, key: Key) -> Path:
        """Return the folder of a version. It is fetched now if it is missing or damaged."""
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
        """Return the current snapshot of the bucket."""
        return self._snapshot()

    def _snapshot(self, *, fresh: bool = False) -> Snapshot:
        """Return the last snapshot, unless it is older than a second or a fresh one is required."""
        if fresh or time.monotonic() - self._looked >= FRESH_SECONDS:
            self._last = Snapshot.take(self._objects, self._last)
            self._looked = time.monotonic()
        return self._last

    def _commit(self, name: str, data: bytes, snapshot: Snapshot) -> None:
        """Write an audit log, or the identity, if nobody else has written it since.

        Raises:
            ChangedError: Somebody else has written it.
            BucketError: The store ignores the condition.
        """
        self._objects.put(name, data, snapshot.entries.get(name))
        if name == IDENTITY and self._objects.ignores_conditions(name):
            raise BucketError(
                f"{self.place}: this store ignores the conditions of writes (If-None-Match), so that two publishers"
                " could overwrite each other; publish to a folder, or to a store that supports them"
            )

    def _write_roles(self) -> None:
        """Update the role files from the logs. The last of several writers finds nothing to do.

        Raises:
            ChangedError: Others keep changing them.
        """
        for _ in range(TRIES):
            snapshot = self._snapshot(fresh=True)
            other = snapshot.by_logs.items() - snapshot.texts.items()
            gone = snapshot.texts.keys() - snapshot.by_logs.keys()
            if not other and not gone:
                return
            with contextlib.suppress(ChangedError):
                for name, data in sorted(other):
                    self._objects.put(name, data, snapshot.entries.get(name))
            for name in sorted(gone):
                self._objects.delete(name)

    def _keep(self, key: Key, fill: Callable[[Path], None]) -> None:
        """Fill the cache folder of a version."""
        target = self.folder(key)
        target.parent.mkdir(parents=True, exist_ok=True)
        keep(target, key, fill, prefix=ASIDE, place="/".join((self.place, *key)))


def cache_of(url: str, cache: Path | None = None) -> Path:
    """Return a bucket's folder in `cache`. Default: TRUEODDS_MODELS_CACHE, else trueodds in the user's cache folder."""
    if cache is None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        cache = Path(os.environ.get(VARIABLE) or Path(home) / "trueodds")
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", url.partition("://")[2]).strip("-.")[:60]
    return cache / f"{readable}-{sha256(url.rstrip('/').encode()).hexdigest()[:8]}"
