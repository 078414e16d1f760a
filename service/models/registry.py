"""Registry of the served models. It follows the MODELS directory, checks new bundles, and switches without a pause."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Iterable, Iterator
from itertools import chain

from service.errors import ENDING, ServiceError
from service.models.engine import Engine, Find
from service.models.label_engine import REFUSED, AnyEngine, LabelEngine
from service.models.loader import Loader
from service.models.model_schemas import ROLES, Answering, Models, PublishedModel, PublishedVersion, Role, State
from service.models.roles import Roles
from service.settings import Settings
from service.store import Store
from service.store.rows import Version
from service.telemetry.metrics import Telemetry
from trueodds.bundle import Contents, Key
from trueodds.bundle.published import open_storage
from trueodds.texts import quotes, short

LOOK_SECONDS = 1.0
START_SECONDS = 10.0
"""Time after which the service listens even if it is still fetching its models."""
YOUNG_OBJECTS = 10_000
"""Number of new objects after which the garbage collector looks for cycles.

Objects of requests are freed by reference counts. Collecting at every 700 objects took 4% of the event loop's time and
found nothing. At this number 32 clients never start it.
"""

log = logging.getLogger("trueodds")


class Registry:
    """Engines of every model's default, shadow and recalibrated version, and of requests that name no model.

    Other versions are loaded on request, and the `max_pinned` used last stay loaded. A served version is replaced only
    by a bundle that has passed every check.
    """

    def __init__(self, settings: Settings, store: Store, telemetry: Telemetry, find: Find) -> None:
        self._settings = settings
        self._models = open_storage(settings.models, settings.bundle, settings.models_cache, settings.models_seconds)
        self._store = store
        self._contents = Contents()
        self._loader = Loader(settings, store, telemetry, find, self._models)
        self._engines = self._loader.engines
        """Engines. Those that are pinned are in the order of their last use."""
        self._roles = Roles(self._loader, settings.max_waiting)
        self.reason = "the service is starting"
        """Reason why no model answers yet, or why the intended one does not."""
        self._said: set[str] = set()
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Load the published models, then follow the directory."""
        first = asyncio.create_task(self.look())
        await asyncio.wait({first}, timeout=START_SECONDS)  # a bucket may be slow or hang
        # Full collections visit the 90,000 objects of the imports, 50 ms each. The p99 with 32 clients was 60 ms with
        # them, and 10 to 18 ms without.
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS, 10, 10)
        self._looking = asyncio.create_task(self._keep_looking(first))

    async def close(self) -> None:
        """Answer all queued requests, then stop."""
        if self._looking:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        for place in list(self._roles.shadows):
            self._roles.drop_shadow(place)
        await self._loader.close()

    @property
    def away(self) -> bool:
        """Whether the last attempt to read the models' bucket failed."""
        return bool(self._models.away)

    @property
    def default(self) -> AnyEngine:
        """Engine that answers requests that name no model.

        Raises:
            ServiceError: 503 with the reason while there is none.
        """
        if self._roles.default is None:
            raise ServiceError(503, "not_ready", f"not ready: {self.reason}", retry_after=1)
        return self._roles.default

    async def engine(self, model: str | None = None, version: str | None = None) -> Engine:
        """Return the engine of a model of exclusive classes; see `answering`.

        Raises:
            ServiceError: As `answering`; 422 for a model of independent labels.
        """
        found = await self.answering(model, version)
        if isinstance(found, LabelEngine):
            names = quotes([question.name for question in found.questions], 5)
            raise ServiceError(422, "multi_label", REFUSED.format(model=found.key[0], questions=names))
        return found

    async def answering(self, model: str | None = None, version: str | None = None) -> AnyEngine:
        """Return the engine of a model, for its default version or the named one. It is loaded if necessary.

        Raises:
            ServiceError: 404 for an unknown model or version; 503, with the reason, if it cannot be served.
        """
        if model is None:
            if version is None:
                return self.default
            model = self.default.key[0]
        if version is None and model in self._roles.defaults:
            return self._roles.defaults[model]
        published = self._contents.models.get(model)
        if published is None:
            known = ", ".join(self._contents.models) or "none yet"
            message = f"unknown model {short(model)}; published are {known}"
            raise ServiceError(404, "unknown_model", message + await self._observed_hint(model, version))
        if version is None:
            raise self._not_ready(model, published.default)
        if version not in published.versions:
            known = ", ".join(sorted(published.versions))
            message = f"unknown version {short(version)} of {model}; published are {known}"
            raise ServiceError(404, "unknown_version", message + await self._observed_hint(model, version))
        return await self._pin((model, version))

    def served_version(self, model: str | None = None) -> Key | None:
        """Return the version that answers for a model, a label's question, or requests that name none."""
        engine = self._roles.defaults.get(model) if model else self._roles.default
        if engine or model is None:
            return engine.key if engine else None
        of_labels = (one for one in self._roles.defaults.values() if isinstance(one, LabelEngine))
        return next((of.key for one in of_labels for of in one.questions if of.model == model), None)

    def served_labels(self, model: str | None = None) -> LabelEngine | None:
        """Return the engine of a model, or of the default one, if it answers with independent labels."""
        engine = self._roles.defaults.get(model) if model else self._roles.default
        return engine if isinstance(engine, LabelEngine) else None

    def names(self) -> list[str]:
        """Return the published models."""
        return list(self._contents.models)

    def versions(self, model: str) -> list[str]:
        """Return the published versions of a model that are not refused."""
        published = self._contents.models.get(model)
        return sorted(v for v in published.versions if (model, v) not in self._loader.refused) if published else []

    def is_published(self, model: str, version: str) -> bool:
        """Return whether such a bundle is published, loaded or refused."""
        return (model, version) in self._contents

    def intended_versions(self) -> Iterator[tuple[str, str, str, bool]]:
        """Yield model, version, role and whether it is loaded, for everything that should be loaded."""
        for key, roles in self._meant().items():
            for role in roles:
                yield (*key, role, key in self._engines)
        for key in self._engines.keys() - self._meant().keys():
            yield (*key, "pinned", True)

    def file_changes(self) -> Iterator[tuple[str, str, bool]]:
        """Yield model, version, and whether its files have changed since, for every loaded version."""
        for key in self._engines:
            yield (*key, key in self._loader.altered)

    def models(self, stored_versions: Iterable[Version]) -> Models:
        """Return the answer of GET /models: all models with versions, roles, and reasons of refusals.

        `stored_versions` are the versions with answers in the store, including those on other servers.
        """
        observed: dict[str, list[str]] = {}
        for version in stored_versions:
            if version.is_observed:
                observed.setdefault(version.model, []).append(version.version)
        models = [self._model_row(model) for model in self._contents.models]
        default = self._roles.default.key if self._roles.default else None
        answering: Answering | None = {"model": default[0], "version": default[1]} if default else None
        folder = self._contents.identity
        return {
            "default": answering,
            "folder": folder,
            "models": models,
            "observed": [{"model": model, "versions": versions} for model, versions in observed.items()],
            "problems": self._problems(),
        }

    def _model_row(self, model: str) -> PublishedModel:
        meant, versions = self._meant(), list[PublishedVersion]()
        for version in sorted(self._contents.models[model].versions):
            key, refused = (model, version), self._loader.refused.get((model, version))
            state: State = "loaded" if key in self._engines else "refused" if refused else "published"
            reason = refused.reason if refused else None
            if altered := self._loader.altered.get(key):
                state, reason = "altered", _altered_text(altered)
            roles = sorted(meant.get(key, ()))
            row: PublishedVersion = {"version": version, "state": state, "meant_as": roles, "reason": reason}
            if (engine := self._engines.get(key)) and engine.card.act_alone:
                row["act_alone"] = engine.card.act_alone
            versions.append(row)
        now, (shadow, recalibrated) = self._roles.defaults.get(model), self._roles.beside(model)
        return {
            "model": model,
            "default": now.key[1] if now else None,
            "shadow": shadow,
            "recalibrated": recalibrated,
            "versions": versions,
        }

    def _problems(self) -> list[str]:
        refused = [f"{'/'.join(key)} is refused: {r.reason}" for key, r in self._loader.refused.items()]
        altered = [f"{'/'.join(key)} {_altered_text(how)}" for key, how in self._loader.altered.items()]
        misfits = [self._roles.misfits(model, published) for model, published in self._contents.models.items()]
        return [*self._contents.problems, *refused, *altered, *chain.from_iterable(misfits)]

    async def look(self) -> None:
        """Look at the directory once: load new versions, switch to them, close removed ones."""
        try:
            contents = await asyncio.to_thread(self._models.contents)
            if not contents.models and self._engines and not await asyncio.to_thread(self._models.path.is_dir):
                raise OSError(f"{self._models.path} has disappeared")  # a volume that may come back
        except OSError as error:
            problem = f"the models cannot be read, so the loaded versions stay in use: {error}"
            self._say({problem})
            if self._roles.default is None:
                self.reason = problem
            return
        self._contents = contents
        for key in [key for key in self._loader.refused if key not in contents]:
            del self._loader.refused[key]
        for key in self._meant():
            await self._loader.load(key)
        self._roles.switch(contents)
        self._end_idle_pins()
        refused = self._loader.refused.get(contents.default) if contents.default else None
        self.reason = refused.reason if refused else next(iter(contents.problems), "")
        await self._loader.look_again()
        self._say(set(self._problems()))

    async def _keep_looking(self, look: asyncio.Task[None]) -> None:
        while True:
            try:
                await look
            except ENDING:
                raise
            except BaseException:
                log.exception("looking for models failed; it is tried again")
            await asyncio.sleep(LOOK_SECONDS)
            look = asyncio.create_task(self.look())

    def _meant(self) -> dict[Key, set[Role]]:
        """Return the versions that should be loaded, with their roles; the overall default comes first."""
        wanted: dict[Key, set[Role]] = {}
        if self._contents.default:
            wanted.setdefault(self._contents.default, set()).add("default")
        for model, published in self._contents.models.items():
            for role in ROLES:
                if (version := getattr(published, role)) is not None:
                    wanted.setdefault((model, version), set()).add(role)
        return wanted

    async def _pin(self, key: Key) -> AnyEngine:
        engine = await self._loader.load(key)
        if engine is None:
            raise self._not_ready(*key)
        if key not in self._meant():
            self._engines[key] = self._engines.pop(key)  # most recently used
            self._end_idle_pins()
        return engine

    def _end_idle_pins(self) -> None:
        self._roles.end_idle(self._meant(), self._settings.max_pinned)

    async def _observed_hint(self, model: str, version: str | None) -> str:
        """Return a hint if the version is on another server, which only sends its answers here; else ""."""
        of_model = [v for v in await self._store.read_versions() if v.is_observed and v.model == model]
        if not any(version in (None, known.version) for known in of_model):
            return ""
        return ". It runs on another server: send requests there, and its answers to POST /observe"

    def _not_ready(self, model: str, version: str | None) -> ServiceError:
        if version is None:
            reason = f"MODELS/{model}/default names no version; publish one, or name a version in the request"
        else:
            refused = self._loader.refused.get((model, version))
            reason = refused.reason if refused else "it is being loaded"
        return ServiceError(503, "not_ready", f"{model}/{version or '*'} is not ready: {reason}", retry_after=1)

    def _say(self, problems: set[str]) -> None:
        """Log the problems that are new."""
        for problem in sorted(problems - self._said):
            log.warning("%s", problem)
        self._said = problems


def _altered_text(how: str) -> str:
    cure = "restore the files, or publish it again"
    return f"was altered on disk after it was loaded; it still answers, but a restart would refuse it: {how}; {cure}"
