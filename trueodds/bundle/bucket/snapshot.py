"""The small files of a bucket's models as they are at one moment, and as a folder that PublishedModels reads."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from trueodds.bundle.audit_log import FILE as LOG
from trueodds.bundle.audit_log import AuditLogError, Change, parse, role_of
from trueodds.bundle.bucket.objects import Bucket, BucketError, Entry
from trueodds.bundle.bundle import CALIBRATOR, CARD, MODEL, MODEL_CARD
from trueodds.bundle.card import NAME
from trueodds.bundle.contents import DEFAULT, IDENTITY, ROLES, Key, names_in
from trueodds.files import naming
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
    def take(cls, bucket: Bucket, known: Snapshot | None = None) -> Snapshot:
        """One listing, and a request for each small file that `known` does not have as it is now.

        Raises:
            BucketError: the bucket cannot be read, or is written all the time.
        """
        entries = bucket.list()
        for _ in range(TRIES):
            small = {name for name in entries if _SMALL.fullmatch(name)}
            same = {n for n in small if known and n in known.texts and known.entries.get(n) == entries[n]}
            if same == small:
                return cls(entries, {name: known.texts[name] for name in small} if known else {})
            read = bucket.read(small - same)
            texts = {name: known.texts[name] for name in same} | read if known else read
            # What was read belongs to the listing only if nobody has written meanwhile: the next one tells.
            known, entries = cls(entries, texts), bucket.list()
        raise BucketError(f"{bucket.url} has changed {TRIES} times while it was read")

    @property
    def versions(self) -> dict[Key, float]:
        """Published versions and when each card was uploaded, in Unix seconds. Without its card there is none."""
        cards = {match: entry for name, entry in self.entries.items() if (match := _CARD.fullmatch(name))}
        return {(match[1], match[2]): entry.modified for match, entry in cards.items()}

    def files(self, key: Key) -> dict[str, Entry]:
        """The files of a version that are there."""
        names = {name: "/".join((*key, name)) for name in BUNDLE_FILES}
        return {name: self.entries[path] for name, path in names.items() if path in self.entries}

    def revision(self, key: Key) -> tuple[tuple[str, str], ...]:
        """Changes when one of a version's objects does."""
        return tuple((name, entry.etag) for name, entry in self.files(key).items())

    def lay_out(self, folder: Path) -> None:
        """Make `folder` what the bucket holds, the roles as the audit logs say, with a folder for each version.

        Those of versions are empty where nothing was fetched into them. What is the same is not touched.
        """
        folder.mkdir(parents=True, exist_ok=True)
        versions = self.versions
        names = {name for name, _ in versions} | {name.partition("/")[0] for name in self.texts if "/" in name}
        for name in names:
            (folder / name).mkdir(exist_ok=True)
        for (name, version), modified in versions.items():
            if not (path := folder / name / version).exists():
                path.mkdir()
                os.utime(path, (modified, modified))  # versions are listed in their order
        for name in names_in(folder):
            for version in names_in(folder / name):
                if (name, version) not in versions:
                    shutil.rmtree(folder / name / version, ignore_errors=True)
            if name not in names:
                shutil.rmtree(folder / name, ignore_errors=True)
        settled = self.settled()
        for name, data in settled.items():
            _write(folder / name, data)
        for place in ("", *(f"{name}/" for name in names)):
            for role in ROLES:
                if f"{place}{role}" not in settled:
                    (folder / f"{place}{role}").unlink(missing_ok=True)

    def settled(self) -> dict[str, bytes]:
        """The small files with the roles as the audit logs say, where there are logs that can be read.

        A publisher that ended between the log and the role file has made its change all the same.
        """
        texts = dict(self.texts)
        for name in {path.partition("/")[0] for path in self.texts if "/" in path}:
            for role in ROLES:
                after = [c.after for c in self._changes(f"{name}/{LOG}") if role_of(c.action) == role]
                if after and after[-1] is not None:
                    texts[f"{name}/{role}"] = f"{after[-1]}\n".encode()
                elif after:
                    texts.pop(f"{name}/{role}", None)
        named = texts.get(DEFAULT, b"").decode(errors="replace").strip().partition("/")
        # A publisher may have ended after it named a model here and before it let a version of it answer.
        for model in [*(c.after for c in reversed(self._changes(LOG))), named[0]]:
            if answering := texts.get(f"{model}/{DEFAULT}"):
                texts[DEFAULT] = f"{model}/".encode() + answering
                break
        return texts

    def _changes(self, name: str) -> list[Change]:
        try:
            return parse(self.texts.get(name, b""), name)
        except AuditLogError:  # whoever reads the log says so; until it is repaired, the role files decide
            return []


def _write(path: Path, data: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == data:
            return
    aside = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        with naming(path, aside):
            aside.write_bytes(data)
            aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
