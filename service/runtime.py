"""Objects that live as long as the application: the store, the models, the metrics."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import TypeVar

from fastapi import Request

from service.errors import ServiceError
from service.models.label_engine import OWN_WORDING, REFUSED
from service.models.registry import Registry
from service.settings import Settings
from service.store import Store, StoreError, open_store
from service.store.decision_rows import QuestionVersion
from service.store.rows import Version
from service.telemetry.metrics import Telemetry
from trueodds.bundle.contents import is_shadow
from trueodds.reports.schemas import ClassShares
from trueodds.texts import quotes

PING_SECONDS = 3.0

T = TypeVar("T")


class Runtime:
    """Store, models and metrics of a running application. Its lifespan opens and closes them."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.telemetry = settings, Telemetry()
        self._store: Store | None = None
        self._registry: Registry | None = None
        self._input_key = b""
        self.shares_of_last_day: dict[tuple[str, str], tuple[float, int, ClassShares | None]] = {}
        """Last estimate of each version's class shares, and its monotonic time. Metrics read it again."""

    async def open(self) -> None:
        """Open the store and load the published models. Later versions are noticed within a second.

        A read-only service loads no model.

        Raises:
            StoreError: The store cannot be opened.
        """
        chosen = self.settings
        self._store = await open_store(
            chosen.store, chosen.database_connections, read_only=chosen.read_only, matures=chosen.matures
        )
        self._registry = Registry(chosen, self._store, self.telemetry, self.answered_by)
        if chosen.read_only:
            self._registry.reason = "this service is read-only (--read-only) and loads no model"
        else:
            await self._registry.open()

    async def close(self) -> None:
        """Answer the queued requests, then close the store."""
        if self._registry:
            await self._registry.close()
        if self._store:
            await self._store.close()

    @property
    def store(self) -> Store:
        return _require_open(self._store)

    @property
    def registry(self) -> Registry:
        return _require_open(self._registry)

    async def input_key(self) -> bytes:
        """Return the key of the hashes of inputs: the setting's, or the one that the store has made and keeps."""
        if not self._input_key:
            key = self.settings.input_key or await self.store.secret("input", secrets.token_hex(32))
            self._input_key = key.encode()
        return self._input_key

    async def check_store(self) -> None:
        """Raise StoreError if the store cannot be written. For a read-only service: if it cannot be read."""
        try:
            async with asyncio.timeout(PING_SECONDS):
                await self.store.ping()
        except TimeoutError:
            raise StoreError(f"the store has not responded for {PING_SECONDS:g} s") from None

    async def mature(self, version: Version) -> None:
        """Count the answers whose window has closed, so that a read sees them. A read-only service does nothing."""
        if version.maturity is not None and not self.settings.read_only:
            await self.store.mature()

    async def answered_by(self, model: str, version: str) -> Version:
        """Return the version that gave stored answers, whether it is loaded or not.

        Raises:
            StoreError: The store does not have this version.
        """
        for known in await self.store.read_versions():
            if known.key == (model, version):
                return known
        raise StoreError(f"the store holds answers of {model}/{version} but no entry for that version")

    async def version(self, model: str | None, version: str | None) -> Version:
        """Return the version that a request selects. Of several matches, prefer the served one, then the newest.

        Raises:
            ServiceError: 404 if no version matches, with a list of the known ones; 503 while the store has no version;
                422 for a model of independent labels.
        """
        known = await self.store.read_versions()
        fitting = [v for v in known if model in (None, v.model) and version in (None, v.version)]
        await self._check_classes(model, version, fitting)
        if not known:
            raise ServiceError(503, "not_ready", f"no predictions yet: {self.registry.reason}", retry_after=1)
        if not fitting:
            names = ", ".join(f"{v.model}/{v.version}" for v in known)
            code = "unknown_version" if model in (None, *(v.model for v in known)) else "unknown_model"
            raise ServiceError(404, code, f"there is no {model or '*'}/{version or '*'}; known are {names}")
        fitting.sort(key=lambda v: not is_shadow(v.model))
        served = self.registry.served_version(model)
        return next((v for v in fitting if v.key == served), fitting[-1])

    async def _check_classes(self, model: str | None, version: str | None, fitting: Sequence[Version]) -> None:
        """Check that a request does not select a model of independent labels.

        A name may be that of such a model now, and of one with exclusive classes before or after.

        Args:
            model: Name of the model; None is the served one.
            version: Its version; None is any.
            fitting: Stored versions that fit. A model of independent labels has none of its own name.

        Raises:
            ServiceError: It does. Each of its labels is a question with a report of its own.
        """
        engine, asked = self.registry.served_labels(model), list[QuestionVersion]()
        if engine is not None:
            own = {question.model for question in engine.questions}
            if version is None or all(one.model in own for one in fitting):
                asked = engine.questions
        elif not fitting:
            stored = [one.of for one in await self.store.read_questions()]
            asked = [of for of in stored if of.wording == OWN_WORDING and of.served == model]
        if asked:
            names = quotes([of.name for of in asked if of.version == asked[-1].version], 5)
            raise ServiceError(422, "multi_label", REFUSED.format(model=asked[-1].served, questions=names))


def runtime_of(request: Request) -> Runtime:
    """Return the runtime of the application that handles a request."""
    runtime: Runtime = request.scope["app"].state.runtime
    return runtime


def _require_open(part: T | None) -> T:
    if part is None:
        raise ServiceError(503, "not_ready", "the service is starting", retry_after=1)
    return part
