"""A bucket of models as it is at one moment: its listing, its small files, and the roles as its audit logs say."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

from trueodds.bundle.audit_log import FILE as LOG
from trueodds.bundle.audit_log import AuditLogError, Change, log_of, parse, role_of
from trueodds.bundle.bundle import CALIBRATOR, CARD, MODEL, MODEL_CARD
from trueodds.bundle.contents import DEFAULT, IDENTITY, NAME, ROLES, Key, Listing
from trueodds.bundle.storage.objects import BucketError, Entry, Objects
from trueodds.inputs import KINDS

BUNDLE_FILES = (MODEL, CALIBRATOR, MODEL_CARD, *(name for kind in KINDS for name in kind.beside), CARD)
"""All that a bundle may consist of, the card last."""
TRIES = 20
"""Of a listing and of reading what it lists, while others write."""
_SMALL = re.compile(f"{DEFAULT}|{re.escape(IDENTITY)}|{re.escape(LOG)}|{NAME}/(?:{'|'.join(ROLES)}|{re.escape(LOG)})")
_CARD = re.compile(f"({NAME})/({NAME})/{re.escape(CARD)}")


@dataclass(frozen=True)
class Snapshot:
    """A listing, with the contents of the small files in it."""

    entries: dict[str, Entry]
    texts: dict[str, bytes]

    @classmethod
    def take(cls, objects: Objects, known: Snapshot | None = None) -> Snapshot:
        """One listing, and a request for each small file that `known` does not have as it is now.

        Raises:
            BucketError: the bucket cannot be read, or is written all the time.
        """
        entries = objects.list()
        for _ in range(TRIES):
            small = {name for name in entries if _SMALL.fullmatch(name)}
            same = {n for n in small if known and n in known.texts and known.entries.get(n) == entries[n]}
            if same == small:
                return cls(entries, {name: known.texts[name] for name in small} if known else {})
            read = objects.read(small - same)
            texts = {name: known.texts[name] for name in same} | read if known else read
            # What was read belongs to the listing only if nobody has written meanwhile: the next one tells.
            known, entries = cls(entries, texts), objects.list()
        raise BucketError(f"{objects.url} has changed {TRIES} times while it was read")

    @property
    def models(self) -> dict[str, frozenset[str]]:
        """The published versions of each model. Without its card a version is none."""
        versions = defaultdict[str, set[str]](set)
        for name in self.texts:
            if "/" in name:
                versions[name.partition("/")[0]] |= set()
        for match in map(_CARD.fullmatch, self.entries):
            if match:
                versions[match[1]].add(match[2])
        return {name: frozenset(mine) for name, mine in versions.items()}

    def listing(self, place: str) -> Listing:
        """The models, with the roles as the audit logs say."""

        def modified(name: str) -> float:
            return self.entries[name if name in self.entries else f"{name}/{CARD}"].modified

        return Listing(place, self.models, self.settled().get, modified, exists=bool(self.entries))

    def files(self, key: Key) -> dict[str, Entry]:
        """The files of a version that are there."""
        names = {name: "/".join((*key, name)) for name in BUNDLE_FILES}
        return {name: self.entries[path] for name, path in names.items() if path in self.entries}

    def revision(self, key: Key) -> tuple[tuple[str, str], ...]:
        """Changes when one of a version's objects does."""
        return tuple((name, entry.etag) for name, entry in self.files(key).items())

    def settled(self) -> dict[str, bytes]:
        """The small files with the roles as the audit logs say, where there are logs that can be read.

        A publisher that ended between the log and the role file has made its change all the same.
        """
        texts = dict(self.texts)
        for name in {path.partition("/")[0] for path in self.texts if "/" in path}:
            for role in ROLES:
                after = [c.after for c in self._changes(log_of(name)) if role_of(c.action) == role]
                if after and after[-1] is not None:
                    texts[f"{name}/{role}"] = f"{after[-1]}\n".encode()
                elif after:
                    texts.pop(f"{name}/{role}", None)
        named = texts.get(DEFAULT, b"").decode(errors="replace").strip().partition("/")
        # A publisher may have ended after it named a model here and before it let a version of it answer.
        for model in [*(c.after for c in reversed(self._changes(log_of(None)))), named[0]]:
            if answering := texts.get(f"{model}/{DEFAULT}"):
                texts[DEFAULT] = f"{model}/".encode() + answering
                break
        return texts

    def _changes(self, name: str) -> list[Change]:
        try:
            return parse(self.texts.get(name, b""), name)
        except AuditLogError:  # whoever reads the log says so; until it is repaired, the role files decide
            return []
