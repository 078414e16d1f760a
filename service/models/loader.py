"""Loading published folders into engines. Every check comes first, one bundle at a time, off the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.errors import ENDING
from service.models.engine import Engine, Find
from service.models.label_engine import OWN_WORDING, AnyEngine, LabelEngine, LabelModel, load_model
from service.models.model import INLINE_SECONDS, ONE_CORE_SECONDS, Model, available_cores
from service.settings import Settings
from service.store import Store, StoreError
from service.telemetry.metrics import Telemetry
from trueodds.bundle import CALIBRATOR, CARD, MODEL, MODEL_CARD, BucketError, BundleError, Key, load_bundle
from trueodds.bundle.storage.storage import Storage
from trueodds.inputs import KINDS

RETRY_SECONDS = 30.0
"""Pause before a bundle is tried again that failed for reasons outside its files (memory, file handles)."""

Stamps = tuple[tuple[int, int, int] | None, ...]
Signature = tuple[Stamps, tuple[tuple[str, str], ...]]
"""Identity of a bundle's files. If it differs, somebody has changed them."""

BUCKET_RETRY_SECONDS = 5.0
"""Pause before a bundle that could not be fetched is tried again."""

log = logging.getLogger("trueodds")


@dataclass(frozen=True)
class RefusedBundle:
    """Bundle that failed to load."""

    reason: str
    signature: Signature
    again: float
    """Monotonic time from which it is tried again even if its files are unchanged."""


class Loader:
    """Loaded engines, changes of their files, and refused bundles."""

    def __init__(self, settings: Settings, store: Store, telemetry: Telemetry, find: Find, models: Storage) -> None:
        """Make a loader. `models` is the storage of the published versions."""
        self.engines: dict[Key, AnyEngine] = {}
        self.refused: dict[Key, RefusedBundle] = {}
        self.altered: dict[Key, str] = {}
        """Loaded versions whose files have changed since, with the differences."""
        self._seen: dict[Key, Signature] = {}
        """Identities of the files of loaded versions when their content was last checked."""
        self._settings, self._store, self._telemetry, self._find = settings, store, telemetry, find
        self._models = models
        cores = max(1, available_cores() // settings.workers)
        self._threads, self._adapt = settings.threads or cores, settings.threads is None
        self._inline_seconds = INLINE_SECONDS if cores > 1 else ONE_CORE_SECONDS
        self._one = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()

    async def load(self, key: Key) -> AnyEngine | None:
        """Return the engine of a published version, or None if it is refused.

        A refused bundle is tried again when one of its files changes.
        """
        if (engine := self.engines.get(key)) is not None:
            return engine
        async with self._one:
            if (engine := self.engines.get(key)) is not None:
                return engine
            known = self.refused.get(key)
            stamp = await asyncio.to_thread(self._stamp, key)
            if known and known.signature == stamp and time.monotonic() < known.again:
                return None
            try:
                folder = await asyncio.to_thread(self._models.fetch, key)
                model = await asyncio.to_thread(
                    load_model,
                    folder,
                    self._threads,
                    adapt=self._adapt,
                    inline_seconds=self._inline_seconds,
                    providers=self._settings.providers,
                )
                engine = await self._start(model, key)
            except BundleError as error:
                self._refuse(key, str(error), stamp, float("inf"))
            except BucketError as error:
                self._refuse(key, str(error), stamp, time.monotonic() + BUCKET_RETRY_SECONDS)
            except StoreError as error:
                self._refuse(key, str(error), stamp, 0.0)
            except ENDING:
                raise
            except BaseException as error:
                if not known:
                    log.exception("loading %s/%s failed", *key)
                self._refuse(key, f"loading it failed: {error}", stamp, time.monotonic() + RETRY_SECONDS)
            else:
                self.refused.pop(key, None)
                self.engines[key] = engine
                self._seen[key] = await asyncio.to_thread(self._stamp, key)
                self._telemetry.load("loaded")
                return engine
            return None

    async def look_again(self) -> None:
        """Compare the files of loaded versions with the loaded content: by their stamps, then by their hashes.

        The content in memory stays valid whatever happens to the files, and continues to answer.
        """
        folders = {key: self._models.folder(key) for key in self.engines}
        stamps = await asyncio.to_thread(lambda: {key: self._stamp(key) for key in folders})
        for key, stamp in stamps.items():
            if stamp == self._seen.get(key):
                continue
            try:
                problem = await asyncio.to_thread(_difference, folders[key], key)
            except OSError as error:  # the content is unknown: try again next time
                self.altered[key] = f"{folders[key]} cannot be read: {error}"
                continue
            self._seen[key] = stamp
            if problem:
                self.altered[key] = problem
            else:
                self.altered.pop(key, None)
        for key in (self.altered.keys() | self._seen.keys()) - self.engines.keys():
            self.altered.pop(key, None)
            self._seen.pop(key, None)

    def end(self, closing: Coroutine[Any, Any, None]) -> None:
        """Close an engine or shadow in the background. `close` waits for it."""
        task = asyncio.create_task(closing)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Close every engine after its requests are answered."""
        async with self._one:
            for engine in self.engines.values():
                self.end(engine.close())
            self.engines.clear()
        await asyncio.gather(*self._ending)

    async def _start(self, model: Model | LabelModel, key: Key) -> AnyEngine:
        if (content := (model.bundle.card.name, model.bundle.version)) != key:
            raise BundleError(
                f"the folder is {'/'.join(key)}, but its content is {'/'.join(content)}; publish it again"
            )
        chosen, beside = self._settings, (self._store, self._telemetry, self._find)
        limits: dict[str, Any] = {"max_batch": chosen.max_batch, "max_waiting": chosen.max_waiting}
        engine: AnyEngine
        await self._check_questions(model)
        if isinstance(model, LabelModel):
            engine = LabelEngine(model, *beside, **limits, alpha=chosen.alarm_alpha)
        else:
            engine = Engine(model, *beside, **limits, audit_share=chosen.audit_share)
        await engine.start()
        return engine

    async def _check_questions(self, model: Model | LabelModel) -> None:
        """Check that no other model that this service runs has a question of the same name.

        `tagger-rain` may be a model, or the label rain of the model tagger. Their answers would be counted together.

        Raises:
            BundleError: One has, or the model has the name of such a question.
        """
        own, is_of_labels = model.bundle.card.name, isinstance(model, LabelModel)
        names = {one.model for one in model.questions()} if isinstance(model, LabelModel) else {own}
        taken = {
            one.of.model: f"a label of {one.of.served}"
            for one in await self._store.read_questions()
            if one.of.wording == OWN_WORDING and one.of.served != own
        }
        for engine in self.engines.values():
            if engine.key[0] == own:
                continue
            if isinstance(engine, LabelEngine):
                taken |= {one.model: f"a label of {engine.key[0]}" for one in engine.questions}
            else:
                taken[engine.key[0]] = "a model"
        if clash := next((name for name in sorted(names) if name in taken), None):
            which = f"has the label question {clash}" if is_of_labels else "has this name"
            problem = f"{clash} is the name of {taken[clash]}, and {own} {which}"
            raise BundleError(f"{problem}; publish this model under another name, or without that label")

    def _stamp(self, key: Key) -> Signature:
        return signature(self._models.folder(key)), self._models.revision(key)

    def _refuse(self, key: Key, reason: str, stamp: Signature, again: float) -> None:
        if key not in self.refused or self.refused[key].reason != reason:
            self._telemetry.load("refused")
        self.refused[key] = RefusedBundle(reason, stamp, again)


def _difference(folder: Path, key: Key) -> str:
    """Return how a bundle's files differ from those of the version; "" if they do not.

    Raises:
        OSError: A file exists but cannot be read.
    """
    try:
        bundle = load_bundle(folder)
    except BundleError as error:
        return str(error)
    content = bundle.card.name, bundle.version
    return "" if content == key else f"{bundle.directory} holds {'/'.join(content)}"


def signature(folder: Path) -> Stamps:
    """Return a signature that changes when one of a bundle's files does."""
    beside = [name for kind in KINDS for name in kind.beside]
    return tuple(_stamp(folder / name) for name in (MODEL, CALIBRATOR, MODEL_CARD, CARD, *beside))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
