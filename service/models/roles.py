"""Roles of the loaded engines: which ones answer and which ones shadow, while the folder of models changes."""

from __future__ import annotations

from collections.abc import Collection

from service.models.engine import Engine
from service.models.label_engine import AnyEngine, LabelEngine
from service.models.loader import Loader
from service.models.shadow import Shadow
from trueodds.bundle import MODEL, SLOTS, Contents, Key, Slot
from trueodds.bundle.contents import ModelRoles

Place = tuple[str, Slot]
"""Model and slot of a shadow."""


class Roles:
    """Loaded engines by role. An engine keeps its role until its successor is loaded."""

    def __init__(self, loader: Loader, max_waiting: int) -> None:
        """Make the roles. `max_waiting` is the number of inputs that may wait for a shadow."""
        self.default: AnyEngine | None = None
        """Engine that answers requests that name no model."""
        self.defaults: dict[str, AnyEngine] = {}
        """Engine that answers for each model."""
        self.shadows: dict[Place, Shadow] = {}
        self._judged_labels: dict[Place, str] = {}
        """Recalibrated versions of models of independent labels. They are judged by the logits of the default alone."""
        self._loader, self._max_waiting = loader, max_waiting

    def switch(self, contents: Contents) -> None:
        """Give each role to the intended engine if it is loaded; otherwise the current one keeps it."""
        engines = self._loader.engines
        if contents.default in engines:
            self.default = engines[contents.default]
        for model, published in contents.models.items():
            engine = engines.get((model, published.default or ""))
            if engine:
                self.defaults[model] = engine
            for slot in SLOTS:
                self._follow((model, slot), engines.get((model, getattr(published, slot) or "")))
        for key in [key for key in engines if key not in contents]:
            self._end_role(engines[key])
            self._end(key)
        for place in [place for place in self.shadows if place[0] not in self.defaults]:
            self.drop_shadow(place)
        for place in [place for place in self._judged_labels if place[0] not in self.defaults]:
            del self._judged_labels[place]

    def end_idle(self, meant: Collection[Key], most: int) -> None:
        """Close the least recently used engines without a role, except `most` of them."""
        answering = [*self.defaults.values(), self.default]
        engines = self._loader.engines.items()
        idle = [key for key, engine in engines if key not in meant and engine not in answering]
        for key in idle[: max(0, len(idle) - most)]:
            self._end(key)

    def beside(self, model: str) -> list[str | None]:
        """Return the versions that shadow a model's default, by slot."""
        found = ((self.shadows.get((model, slot)), self._judged_labels.get((model, slot))) for slot in SLOTS)
        return [shadow.version.version if shadow else of_labels for shadow, of_labels in found]

    def drop_shadow(self, place: Place) -> None:
        if shadow := self.shadows.pop(place, None):
            for engine in self._loader.engines.values():
                if shadow in engine.shadows:
                    engine.shadows.remove(shadow)
            self._loader.end(shadow.close())

    def misfits(self, model: str, contents: ModelRoles) -> list[str]:
        """Return a sentence for each loaded shadow or recalibrated version that does not fit the model's default."""
        followed = self.defaults.get(model)
        texts = []
        for slot in SLOTS:
            shadow = self._loader.engines.get((model, getattr(contents, slot) or ""))
            if shadow is not None and followed is not None and (why := _unlike(shadow, followed, slot)):
                words = "cannot shadow" if slot == "shadow" else "is not a recalibration of"
                texts.append(f"{model}/{shadow.key[1]} {words} {followed.key[1]}: {why}")
        return texts

    def _follow(self, place: Place, shadow: AnyEngine | None) -> None:
        """Let `shadow` score the inputs that the model's default answers."""
        model, slot = place
        followed, now = self.defaults.get(model), self.shadows.get(place)
        fits = shadow is not None and followed is not None and not _unlike(shadow, followed, slot)
        if fits and isinstance(shadow, LabelEngine) and shadow is not followed:
            self._judged_labels[place] = shadow.key[1]
        else:
            self._judged_labels.pop(place, None)
        if not fits or shadow is followed or not isinstance(shadow, Engine):
            self.drop_shadow(place)
        elif now is None or now.version.version != shadow.version.version:
            self.drop_shadow(place)
            self.shadows[place] = shadow.shadowing(slot, self._max_waiting)
            self.shadows[place].start()
        for engine in self._loader.engines.values():
            if engine.key[0] == model:
                beside = [self.shadows[model, s] for s in SLOTS if (model, s) in self.shadows]
                engine.shadows = beside if engine is followed else []

    def _end_role(self, engine: AnyEngine) -> None:
        if self.default is engine:
            self.default = None
        if self.defaults.get(engine.key[0]) is engine:
            del self.defaults[engine.key[0]]

    def _end(self, key: Key) -> None:
        self._loader.end(self._loader.engines.pop(key).close())


def _unlike(one: AnyEngine, other: AnyEngine, slot: Slot) -> str:
    """Return why one engine cannot be judged beside another: inputs, classes or, for a calibrator, the net; else ""."""
    if isinstance(one, LabelEngine) and isinstance(other, LabelEngine):
        if slot != "recalibrated":
            return "a model of independent labels has no shadows; publish it without --role shadow"
        if one.input != other.input or one.card.classes != other.card.classes:
            return "it takes other inputs or has other labels"
        return "it has another net" if one.card.files[MODEL] != other.card.files[MODEL] else ""
    if isinstance(one, LabelEngine) or isinstance(other, LabelEngine):
        return "one has independent labels and the other exclusive classes"
    if one.input != other.input or one.version.classes != other.version.classes:
        return "it takes other inputs or has other classes"
    return "it has another net" if slot == "recalibrated" and one.card.files[MODEL] != other.card.files[MODEL] else ""
