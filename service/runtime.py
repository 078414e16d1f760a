"""What lives as long as the application: the store, the engine once there is a model, and the search for one."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging

from pipeline.bundle import BundleError, find_default
from service.engine import Engine
from service.errors import ServiceError
from service.model import Model
from service.records import Version
from service.remembering import keep_house
from service.settings import Settings
from service.store import Store, open_store
from service.telemetry import Telemetry

LOOK_SECONDS = 1.0

log = logging.getLogger("trueodds")


class Runtime:
    """Opened and closed by the application's lifespan."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.telemetry = settings, Telemetry()
        self._store: Store | None = None
        self._engine: Engine | None = None
        self._reason = "the service is starting"
        self._looking: asyncio.Task[None] | None = None
        self._housekeeping: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the store and try to load the default model; without one, look again every second.

        Raises:
            StoreError: the store cannot be opened.
        """
        self._store = await open_store(self.settings.store, self.settings.database_connections)
        self._housekeeping = asyncio.create_task(keep_house(self._store, self.settings))
        if not await self._try_to_load():
            log.warning("not ready: %s", self._reason)
            self._looking = asyncio.create_task(self._keep_looking())

    async def close(self) -> None:
        """Answer what is queued, then close the store."""
        for task in (self._looking, self._housekeeping):
            if task:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if self._engine:
            await self._engine.close()
        if self._store:
            await self._store.close()

    @property
    def store(self) -> Store:
        if self._store is None:
            raise ServiceError(503, "not_ready", self._reason, retry_after=1)
        return self._store

    @property
    def engine(self) -> Engine:
        """The engine.

        Raises:
            ServiceError: 503 with the reason while no model is loaded.
        """
        if self._engine is None:
            raise ServiceError(503, "not_ready", f"not ready: {self._reason}", retry_after=1)
        return self._engine

    async def version(self, model: str | None, version: str | None) -> Version:
        """The version that is asked for; of several, the served one, else the newest.

        Raises:
            ServiceError: 404 listing the known ones; 503 while there are none at all.
        """
        known = await self.store.read_versions()
        if not known:
            raise ServiceError(503, "not_ready", f"no predictions yet: {self._reason}", retry_after=1)
        fitting = [v for v in known if model in (None, v.model) and version in (None, v.version)]
        if not fitting:
            names = ", ".join(f"{v.model}/{v.version}" for v in known)
            raise ServiceError(
                404, "unknown_version", f"there is no {model or '*'}/{version or '*'}; known are {names}"
            )
        served = self._engine.version if self._engine else None
        return next(
            (v for v in fitting if served and (v.model, v.version) == (served.model, served.version)), fitting[-1]
        )

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            before = self._reason
            if await self._try_to_load():
                return
            if self._reason != before:
                log.warning("not ready: %s", self._reason)

    async def _try_to_load(self) -> bool:
        settings = self.settings
        try:
            model = await asyncio.to_thread(lambda: Model.load(find_default(settings.models), settings.threads))
            engine = Engine(
                model, self.store, self.telemetry, max_batch=settings.max_batch, max_waiting=settings.max_waiting
            )
            await engine.start()
        except BundleError as error:
            self._reason = str(error)
            return False
        except Exception as error:  # a model that cannot be loaded for any other reason: say so and look again
            if (reason := f"loading a model failed: {error}") != self._reason:
                log.exception("loading a model failed")
            self._reason = reason
            return False
        self._engine, self._reason = engine, ""
        # Full collections walk the 90,000 objects that importing made, 50 ms each: measured p99 at 32 clients 60 ms
        # with them, 10 to 18 ms without.
        gc.collect()
        gc.freeze()
        return True
