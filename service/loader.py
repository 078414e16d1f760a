"""From a published folder to an engine: every check first, one bundle at a time, off the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from pipeline.bundle import BundleError
from service.catalogue import Key, Signature, signature
from service.engine import Engine, Find
from service.model import Model, available_cores
from service.settings import Settings
from service.store import Store, StoreError
from service.telemetry import Telemetry

RETRY_SECONDS = 30.0
"""Until a bundle that failed for a reason outside its files (memory, file handles) is tried again."""

log = logging.getLogger("trueodds")


@dataclass(frozen=True)
class Refused:
    """A bundle that was tried and is not served."""

    reason: str
    signature: Signature
    again: float
    """Monotonic time from which it is tried again though its files are the same."""


class Loader:
    """The engines that are loaded, and the bundles that were refused."""

    def __init__(self, settings: Settings, store: Store, telemetry: Telemetry, find: Find) -> None:
        self.engines: dict[Key, Engine] = {}
        self.refused: dict[Key, Refused] = {}
        self._settings, self._store, self._telemetry, self._find = settings, store, telemetry, find
        self._threads = settings.threads or max(1, available_cores() // settings.workers)
        self._adapt = settings.threads is None
        self._one = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()

    async def load(self, key: Key) -> Engine | None:
        """The engine of a published version; None where it is refused.

        A refused bundle is looked at again when one of its files changes.
        """
        if (engine := self.engines.get(key)) is not None:
            return engine
        async with self._one:
            if (engine := self.engines.get(key)) is not None:
                return engine
            folder, known = self._settings.models.joinpath(*key), self.refused.get(key)
            stamp = await asyncio.to_thread(signature, folder)
            if known and known.signature == stamp and time.monotonic() < known.again:
                return None
            try:
                model = await asyncio.to_thread(Model.load, folder, self._threads, adapt=self._adapt)
                engine = await self._start(model, key)
            except BundleError as error:
                self._refuse(key, str(error), stamp, float("inf"))
            except StoreError as error:
                self._refuse(key, str(error), stamp, 0.0)
            except Exception as error:
                if not known:
                    log.exception("loading %s/%s failed", *key)
                self._refuse(key, f"loading it failed: {error}", stamp, time.monotonic() + RETRY_SECONDS)
            else:
                self.refused.pop(key, None)
                self.engines[key] = engine
                self._telemetry.load("loaded")
                return engine
            return None

    def end(self, closing: Coroutine[Any, Any, None]) -> None:
        """Close something in the background; `close` waits for it."""
        task = asyncio.create_task(closing)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Close every engine, each once its requests are answered."""
        async with self._one:
            for engine in self.engines.values():
                self.end(engine.close())
            self.engines.clear()
        await asyncio.gather(*self._ending)

    async def _start(self, model: Model, key: Key) -> Engine:
        if (found := (model.version.model, model.version.version)) != key:
            raise BundleError(f"the folder is {'/'.join(key)}, its content is {'/'.join(found)}; publish it again")
        limits = {"max_batch": self._settings.max_batch, "max_waiting": self._settings.max_waiting}
        engine = Engine(model, self._store, self._telemetry, self._find, **limits)
        await engine.start()
        return engine

    def _refuse(self, key: Key, reason: str, stamp: Signature, again: float) -> None:
        if key not in self.refused or self.refused[key].reason != reason:
            self._telemetry.load("refused")
        self.refused[key] = Refused(reason, stamp, again)
