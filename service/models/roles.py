"""Which engines answer and which are scored beside them, while the folder of models changes."""

from __future__ import annotations

from collections.abc import Collection

from service.models.engine import Engine
from service.models.loader import Loader
from service.models.shadow import Shadow
from trueodds.bundle import Contents, Key
from trueodds.bundle.contents import PublishedModel


class Roles:
    """The loaded engines in their roles; an engine keeps its role until the one that is meant to have it is loaded."""

    def __init__(self, loader: Loader, max_waiting: int) -> None:
        """`max_waiting`: inputs that may wait for a shadow."""
        self.default: Engine | None = None
        """Who answers when nothing is named."""
        self.defaults: dict[str, Engine] = {}
        """Who answers for a model."""
        self.shadows: dict[str, Shadow] = {}
        self._loader, self._max_waiting = loader, max_waiting

    def switch(self, contents: Contents) -> None:
        """Let what is meant to answer do so where it is loaded; where it is not, what answers now goes on."""
        engines = self._loader.engines
        if contents.default in engines:
            self.default = engines[contents.default]
        for model, published in contents.models.items():
            engine = engines.get((model, published.default or ""))
            if engine:
                self.defaults[model] = engine
            self._follow(model, engines.get((model, published.shadow or "")))
        for key in [key for key in engines if key not in contents]:
            self._end_role(engines[key])
            self._end(key)
        for model in [m for m in self.shadows if m not in self.defaults]:
            self.drop_shadow(model)

    def end_idle(self, meant: Collection[Key], most: int) -> None:
        """End those without a role that were used longest ago, but for `most` of them."""
        answering = [*self.defaults.values(), self.default]
        engines = self._loader.engines.items()
        idle = [key for key, engine in engines if key not in meant and engine not in answering]
        for key in idle[: max(0, len(idle) - most)]:
            self._end(key)

    def drop_shadow(self, model: str) -> None:
        if shadow := self.shadows.pop(model, None):
            for engine in self._loader.engines.values():
                if engine.shadow is shadow:
                    engine.shadow = None
            self._loader.end(shadow.close())

    def misfit(self, model: str, published: PublishedModel) -> str:
        """Why the shadow of a model is not one, a sentence; "" where it is, or where either is not loaded."""
        followed = self.defaults.get(model)
        shadow = self._loader.engines.get((model, published.shadow or ""))
        if shadow is None or followed is None or _alike(shadow, followed):
            return ""
        return (
            f"{model}/{published.shadow} cannot shadow {followed.version.version}: it takes other inputs or has other"
            " classes"
        )

    def _follow(self, model: str, shadow: Engine | None) -> None:
        """Let `shadow` see what the model's default answers."""
        followed, now = self.defaults.get(model), self.shadows.get(model)
        if shadow is None or followed is None or shadow is followed or not _alike(shadow, followed):
            self.drop_shadow(model)
        elif now is None or now.version.version != shadow.version.version:
            self.drop_shadow(model)
            self.shadows[model] = shadow.shadowing(self._max_waiting)
            self.shadows[model].start()
        for engine in self._loader.engines.values():
            if engine.version.model == model:
                engine.shadow = self.shadows.get(model) if engine is followed else None

    def _end_role(self, engine: Engine) -> None:
        if self.default is engine:
            self.default = None
        if self.defaults.get(engine.version.model) is engine:
            del self.defaults[engine.version.model]

    def _end(self, key: Key) -> None:
        self._loader.end(self._loader.engines.pop(key).close())


def _alike(one: Engine, other: Engine) -> bool:
    """Whether the inputs and labels of one are those of the other."""
    return one.input == other.input and one.version.classes == other.version.classes
