"""Changing the published models of a bucket: the verbs of `ModelFolder`, each tried again where another came first."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

from trueodds import calibrators
from trueodds.bundle import locks
from trueodds.bundle.audit_log import FILE as LOG
from trueodds.bundle.audit_log import AuditLogError, Change, Reason
from trueodds.bundle.bucket.objects import Bucket, BucketError, ChangedError
from trueodds.bundle.bucket.snapshot import Snapshot
from trueodds.bundle.bucket.versions import cache_of, fetch
from trueodds.bundle.bundle import CALIBRATOR, CARD, BundleError
from trueodds.bundle.card import Card
from trueodds.bundle.contents import DEFAULT, IDENTITY, SHADOW, Contents, Key, Role
from trueodds.bundle.copying import copy_bundle, loaded
from trueodds.bundle.model_folder import ModelFolder
from trueodds.bundle.shadows import Slot
from trueodds.calibrators import Calibrator
from trueodds.files import read_json

TRIES = 12
"""Of a change, while others change the same model. Pauses grow to a second."""
FRESH_SECONDS = 1.0
"""In which several questions are answered from one listing: what a command says of one moment is of one moment."""

T = TypeVar("T")


@dataclass(frozen=True)
class BucketModels(ModelFolder):
    """The models that are published under s3://bucket/prefix. `path` is the cache of versions that were fetched.

    A version is there once its card is, which is uploaded last. Who answers or shadows is decided by the audit logs,
    which are written on the condition that nobody else has written them since they were read.
    """

    NOTICE_SECONDS: ClassVar[float] = 60.0
    url: str = ""
    _bucket: Bucket = field(init=False, repr=False, compare=False)
    _seen: list[tuple[float, Snapshot]] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_bucket", Bucket(self.url))

    @classmethod
    def of(cls, url: str) -> BucketModels:
        """With this machine's cache."""
        return cls(cache_of(url), url.rstrip("/"))

    # What is there.

    @property
    def place(self) -> str:
        return self.url

    @property
    def given(self) -> str:
        return self.url

    def exists(self) -> bool:
        """Whether something lies there; a bucket has no empty folders."""
        return bool(self._snapshot().entries)

    def check_writable(self) -> None:
        name = ".writable"
        self._bucket.delete(name)
        self._bucket.put(name, b"", None)
        self._bucket.delete(name)

    def contents(self) -> Contents:
        return self._read(lambda models: models.contents())

    def names(self) -> list[str]:
        return self._read(lambda models: models.names())

    def versions(self, name: str) -> list[str]:
        return self._read(lambda models: models.versions(name))

    def version_of(self, name: str, role: Role) -> str | None:
        return self._read(lambda models: models.version_of(name, role))

    def default(self) -> Path:
        """Where the version that answers calls that name no model lies in the cache, or will."""
        key = self._read(lambda models: models.default()).parts[-2:]
        return self.path.joinpath(*key)

    def default_model(self) -> str | None:
        return self._read(lambda models: models.default_model())

    def changes(self, name: str | None = None) -> list[Change]:
        return self._read(lambda models: models.changes(name))

    def since_ms(self, name: str, slot: Slot) -> int:
        return self._read(lambda models: models.since_ms(name, slot))

    def version_folder(self, name: str, version: str) -> Path:
        """The folder of a published version, fetched if need be."""
        self._read(lambda models: models.version_folder(name, version))
        return self.fetch((name, version))

    def fetch(self, key: Key) -> Path:
        return fetch(self._bucket, self._snapshot(), key, self.path)

    def revision(self, key: Key) -> tuple[tuple[str, str], ...]:
        return self._snapshot().revision(key)

    def summary(self, name: str, version: str) -> tuple[Card, Calibrator]:
        """As its card and its calibrator say, which are all that is fetched for that."""
        with tempfile.TemporaryDirectory(prefix="trueodds-") as temporary:
            folder = Path(temporary)
            try:
                for file in (CARD, CALIBRATOR):
                    self._bucket.download(f"{name}/{version}/{file}", folder / file)
                card = Card.model_validate_json((folder / CARD).read_bytes())
                return card, calibrators.from_json(read_json(folder / CALIBRATOR))
            except (ValueError, FileNotFoundError) as error:
                first = str(error).partition("\n")[0].replace(temporary, f"{self.url}/{name}/{version}")
                raise BundleError(first) from None

    # What changes it.

    def publish(
        self,
        bundle: str | Path,
        role: Literal["default", "shadow"] | None = DEFAULT,
        *,
        displace: bool = False,
        unnamed: bool = False,
        why: str = "published",
        who: str | None = None,
    ) -> Path:
        """Upload a bundle, its card last, and give it a role as `ModelFolder.publish` does.

        What a publisher that was killed has left is completed. Returns the version's folder in the cache.

        Raises:
            BundleError: the bundle is damaged.
            BucketError: the bucket cannot be written; what was uploaded is not listed before its card is there.
        """
        Reason.of(why, who)
        source = loaded(bundle)
        key = source.card.name, source.version
        there = self._snapshot(fresh=True).files(key)
        for file in source.files:
            path = source.directory / file
            # An object is there as a whole or not at all.
            if file not in there or there[file].size != path.stat().st_size:
                self._bucket.upload(path, "/".join((*key, file)))
        folder = self.path.joinpath(*key)
        if not folder.exists():
            copy_bundle(source, folder)
        self.appoint(*key, role, displace=displace, unnamed=unnamed, why=why, who=who)
        return folder

    def appoint(
        self,
        name: str,
        version: str,
        role: Literal["default", "shadow"] | None,
        *,
        displace: bool = False,
        unnamed: bool = False,
        why: str = "",
        who: str | None = None,
    ) -> None:
        self._change(lambda m: m.appoint(name, version, role, displace=displace, unnamed=unnamed, why=why, who=who))

    def promote(
        self, name: str, version: str, *, why: str = "", who: str | None = None, beside: str | None = None
    ) -> None:
        self._change(lambda models: models.promote(name, version, why=why, who=who, beside=beside))

    def roll_back(self, name: str, *, why: str = "", who: str | None = None) -> str:
        return self._change(lambda models: models.roll_back(name, why=why, who=who))

    def shadow(
        self,
        name: str,
        version: str,
        *,
        slot: Slot = SHADOW,
        why: str = "",
        who: str | None = None,
        since_ms: int | None = None,
        beside: str | None = None,
    ) -> None:
        self._change(lambda m: m.shadow(name, version, slot=slot, why=why, who=who, since_ms=since_ms, beside=beside))

    def withdraw(self, name: str, slot: Slot = SHADOW, *, why: str = "", who: str | None = None) -> None:
        self._change(lambda models: models.withdraw(name, slot, why=why, who=who))

    def set_default(self, name: str, *, why: str = "", who: str | None = None) -> str:
        return self._change(lambda models: models.set_default(name, why=why, who=who))

    def roll_back_default(self, *, why: str = "", who: str | None = None) -> str:
        return self._change(lambda models: models.roll_back_default(why=why, who=who))

    def identify(self) -> str:
        return self._change(lambda models: models.identify())

    def lock(self, name: str, purpose: str, wait: Callable[[], object] | None = None) -> AbstractContextManager[None]:
        """Hold a model against other processes of this machine. Another machine's are not seen: what they change here
        meanwhile is in the log, and is not lost.
        """
        self._read(lambda models: models.versions(name))  # there is such a model
        self.path.mkdir(parents=True, exist_ok=True)
        return locks.lock(self.path / f".{name}.{purpose}.lock", wait)

    def _snapshot(self, *, fresh: bool = False) -> Snapshot:
        """The last one, unless it is older than a second or a fresh one is asked for."""
        known = self._seen[-1] if self._seen else None
        if known and not fresh and time.monotonic() - known[0] < FRESH_SECONDS:
            return known[1]
        snapshot = Snapshot.take(self._bucket, known[1] if known else None)
        self._seen[:] = [(time.monotonic(), snapshot)]
        return snapshot

    @contextmanager
    def _laid_out(self, snapshot: Snapshot) -> Iterator[ModelFolder]:
        """A folder with the models as they were then; errors name the bucket in its place."""
        with tempfile.TemporaryDirectory(prefix="trueodds-models-") as temporary:
            folder = Path(temporary) / "models"
            snapshot.lay_out(folder)
            try:
                yield ModelFolder(folder)
            except (BundleError, AuditLogError) as error:
                raise type(error)(str(error).replace(str(folder), self.url)) from None

    def _read(self, question: Callable[[ModelFolder], T]) -> T:
        with self._laid_out(self._snapshot()) as models:
            return question(models)

    def _change(self, verb: Callable[[ModelFolder], T]) -> T:
        """What a verb answers once its change is in the bucket.

        Raises:
            BucketError: the bucket cannot be read or written, or others have changed the same all the time.
        """
        for tried in range(TRIES):
            snapshot = self._snapshot(fresh=True)
            before = snapshot.settled()
            with self._laid_out(snapshot) as models:
                answer = verb(models)
                names = [p.relative_to(models.path).as_posix() for p in models.path.rglob("*") if p.is_file()]
                after = {name: (models.path / name).read_bytes() for name in names}
            try:
                # The log of the models before a model's: done twice, naming the same model once more changes nothing.
                for name in sorted(after, key=lambda name: (name.count("/"), name)):
                    if name.endswith((IDENTITY, LOG)) and after[name] != before.get(name, b""):
                        self._commit(name, after[name], snapshot)
                self._write_roles()
            except ChangedError:
                time.sleep(random.uniform(0, min(1.0, 0.05 * 2**tried)))
            else:
                return answer
        raise BucketError(f"{self.url}: others have changed the same model {TRIES} times meanwhile; try again")

    def _commit(self, name: str, data: bytes, snapshot: Snapshot) -> None:
        """Write an audit log, or the identity, that nobody else has written since.

        Raises:
            ChangedError: somebody has.
            BucketError: the store ignores the condition.
        """
        self._bucket.put(name, data, snapshot.entries.get(name))
        if name == IDENTITY and self._bucket.ignores_conditions(name):
            raise BucketError(
                f"{self.url}: this store ignores the conditions of writes (If-None-Match), so that two publishers could"
                " overwrite each other; publish to a folder, or to a store of a release that has them"
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
                    self._bucket.put(name, settled[name], snapshot.entries.get(name))
                except ChangedError:
                    break
            for name in gone:
                self._bucket.delete(name)
