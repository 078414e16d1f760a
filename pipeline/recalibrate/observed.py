"""Models that another server serves: nothing is published, a calibrator is written to a file that is taken to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.recalibrate.choice import Choice, choose
from pipeline.recalibrate.comparison import Comparison, compare
from pipeline.recalibrate.request import FewLabelsError, Judged, Outcome, Recalibration
from pipeline.recalibrate.turns import pair_number
from trueodds.bundle import SHADOW
from trueodds.bundle.contents import shadow_of
from trueodds.calibrators import Identity
from trueodds.client import Client, Labelled
from trueodds.errors import ConfigError, unknown
from trueodds.files import FileError, write_json

Call = Callable[..., Any]
"""Calls a step: call(function, *arguments). A flow makes it a task."""


@dataclass(frozen=True)
class ObservedModel:
    """A model whose answers another server sends to the service."""

    name: str
    versions: tuple[str, ...]
    """In the order of their first answers."""
    shadows: tuple[str, ...]
    """Versions that say what they would have answered, in that order."""

    @classmethod
    def of(cls, request: Recalibration) -> ObservedModel | None:
        """The model that is named, if another server serves it; a version of both is of the service.

        Raises:
            CallError: the service does not answer, or not as TrueOdds does.
        """
        if request.model is None:
            return None
        known = request.client.versions()
        versions = known.observed.get(request.model, ())
        is_published = request.model in {one.model for one in known.models}
        if not versions or (is_published and request.version not in versions):
            return None
        return cls(request.model, versions, known.observed.get(shadow_of(request.model), ()))

    def version(self, name: str | None) -> str:
        """The version that is named, else the newest.

        Raises:
            ConfigError: there is none of that name.
        """
        return _one(self.name, "version", name, self.versions)

    def shadow(self, name: str | None) -> str:
        """The shadow that is named, else the newest.

        Raises:
            ConfigError: the model has none, or none of that name.
        """
        if not self.shadows:
            cure = "send what a version beside it would have answered, with the same ids: POST /observe?shadow=true"
            raise ConfigError(f"{self.name} has no shadow to judge; {cure}")
        return _one(self.name, "shadow", name, self.shadows)


def recalibrate(request: Recalibration, model: ObservedModel, call: Call) -> Outcome:
    """Fit a calibrator on the live labels of a version, and write it to the request's file if it is better.

    Raises:
        FewLabelsError: fewer than 200 labels.
        CallError: the service refuses, or knows of its answers only what was predicted.
        ConfigError, FitError: see `choose`.
    """
    version = model.version(request.version)
    rows: Labelled = call(fetch_labels, request.client, model.name, version, request.labels)
    FewLabelsError.check(len(rows), f"{model.name}/{version}")
    choice: Choice = call(choose, Identity(), rows.logits_NC, rows.labels_N, request.candidates)
    if not choice.better:
        words = f"Nothing written: {choice.rows:,} labels cannot tell the answers as they are from the best candidate."
        return Outcome("kept", model.name, version, None, words, choice)
    words = f"{choice.best.name}: NLL {choice.gain:.4f} nats a label lower on held-out labels."
    if request.out is not None:
        _write(request.out, choice)
        words += (
            f" {request.out} holds it; where {model.name} is served, calibrators.from_json restores it and takes logits"
            " (of probabilities their logarithms: trueodds.logits_of)."
        )
    return Outcome("fitted", model.name, version, None, words, choice)


def judge(request: Recalibration, model: ObservedModel, call: Call) -> Outcome:
    """Compare what a shadow would have answered with what was answered, on all labels of answers that both gave.

    The evidence holds if the shadow was made without these labels.

    Raises:
        CallError: as `recalibrate`.
        ConfigError: an unknown version or shadow, no shadow, or the slot of a calibrator.
    """
    if request.slot not in (None, SHADOW):
        raise ConfigError(f"slot is {request.slot!r}; {model.name} is served elsewhere and has a shadow only")
    version, shadow = model.version(request.version), model.shadow(request.shadow)
    rows: Labelled = call(fetch_labels, request.client, model.name, version, None, shadow)
    same = Identity()
    number = pair_number(model.versions.index(version), model.shadows.index(shadow))
    rules = replace(request.rules, candidate=number)
    comparison: Comparison = call(
        compare, same, same, rows.logits_NC, rows.labels_N, rows.shadow_logits_NC, rules, rows.propensities_N
    )
    words = (
        f"{model.name}/{shadow} beside {version}. {comparison.words()} Nothing changes here: promote it, or take it"
        f" away, where {model.name} is served."
    )
    return Outcome("waits", model.name, version, shadow, words, judged=(Judged(SHADOW, shadow, comparison),))


def fetch_labels(client: Client, name: str, version: str, last: int | None, shadow: str | None = None) -> Labelled:
    """The labelled answers of a version; with `shadow`, those that this one has answered as well."""
    return client.labelled(name, version, last=last, shadow=shadow)


def _one(model: str, what: str, name: str | None, known: tuple[str, ...]) -> str:
    if name is not None and name not in known:
        raise unknown(f"{what} of {model}", name, known)
    return name or known[-1]


def _write(out: Path, choice: Choice) -> None:
    try:
        write_json(out, choice.calibrator.to_json())
    except OSError as error:
        raise FileError(f"{out} cannot be written: {error.strerror}; name another file: --out") from None
