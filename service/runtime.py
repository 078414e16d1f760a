"""The parts that live as long as the application: the store, the models, the metrics."""

from __future__ import annotations

import asyncio
from typing import TypeVar, cast

from fastapi import Request

from service.errors import ServiceError
from service.models.engine import Engine
from service.models.registry import Registry
from service.settings import Settings
from service.store import Store, StoreError, open_store
from service.store.rows import Version
from service.telemetry.metrics import Telemetry
from trueodds.bundle.contents import is_shadow

PING_SECONDS = 3.0

T = TypeVar("T")


class Runtime:
    """Opened and closed by the application's lifespan."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.telemetry = settings, Telemetry()
        self._store: Store | None = None
        self._registry: Registry | None = None

    async def open(self) -> None:
        """Open the store and load the models that are there; what comes later is found within a second.

        A service that only reads loads none.

        Raises:
            StoreError: the store cannot be opened.
        """
        chosen = self.settings
        self._store = await open_store(
            chosen.store, chosen.database_connections, read_only=chosen.read_only, matures=chosen.matures
        )
        self._registry = Registry(chosen, self._store, self.telemetry, self.answered_by)
        if chosen.read_only:
            self._registry.reason = "this service only reads, so it loads no model (--read-only)"
        else:
            await self._registry.open()

    async def close(self) -> None:
        """Answer what is queued, then close the store."""
        if self._registry:
            await self._registry.close()
        if self._store:
            await self._store.close()

    @property
    def store(self) -> Store:
        return _opened(self._store)

    @property
    def registry(self) -> Registry:
        return _opened(self._registry)

    @property
    def engine(self) -> Engine:
        """The engine that answers when nothing is named; raises ServiceError 503, with the reason, while none does."""
        return self.registry.default

    async def check_store(self) -> None:
        """Raises StoreError where the store cannot be written now, or read by a service that only reads."""
        try:
            async with asyncio.timeout(PING_SECONDS):
                await self.store.ping()
        except TimeoutError:
            raise StoreError(f"the store has not answered for {PING_SECONDS:g} s") from None

    async def mature(self, version: Version) -> None:
        """Count what has matured by now, before answers of the version are read; a service that only reads cannot."""
        if version.maturity is not None and not self.settings.read_only:
            await self.store.mature()

    async def answered_by(self, model: str, version: str) -> Version:
        """The version that stored answers are of, whether it is loaded or not.

        Raises:
            StoreError: the store does not know it.
        """
        for known in await self.store.read_versions():
            if known.key == (model, version):
                return known
        raise StoreError(f"the store holds answers of {model}/{version} and does not know that version")

    async def version(self, model: str | None, version: str | None) -> Version:
        """The version that is asked for; of several, the served one, else the newest.

        Raises:
            ServiceError: 404 listing the known ones; 503 while there are none at all.
        """
        known = await self.store.read_versions()
        if not known:
            raise ServiceError(503, "not_ready", f"no predictions yet: {self.registry.reason}", retry_after=1)
        fitting = [v for v in known if model in (None, v.model) and version in (None, v.version)]
        if not fitting:
            names = ", ".join(f"{v.model}/{v.version}" for v in known)
            code = "unknown_version" if model in (None, *(v.model for v in known)) else "unknown_model"
            raise ServiceError(404, code, f"there is no {model or '*'}/{version or '*'}; known are {names}")
        fitting.sort(key=lambda v: not is_shadow(v.model))
        served = self.registry.served(model)
        return next((v for v in fitting if v.key == served), fitting[-1])


def runtime_of(request: Request) -> Runtime:
    """The runtime of the application that serves a request."""
    return cast(Runtime, request.app.state.runtime)


def _opened(part: T | None) -> T:
    if part is None:
        raise ServiceError(503, "not_ready", "the service is starting", retry_after=1)
    return part
