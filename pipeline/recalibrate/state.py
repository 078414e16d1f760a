"""The model that is recalibrated as it is now, and whether the service follows the folder that it lies in."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pipeline.recalibrate.observed import ObservedModel
from pipeline.recalibrate.request import LEAST_LABELS, DisagreementError, Recalibration
from trueodds.bundle import DEFAULT, MODEL, SLOTS, VARIABLE, Bundle, BundleError, Slot

LOCK = "recalibrate"


@dataclass(frozen=True)
class Candidate:
    """A version under judgement."""

    slot: Slot
    bundle: Bundle
    since_ms: int
    """Answers given from then on count: see `PublishedModels.since_ms`."""


@dataclass(frozen=True)
class ModelState:
    """The version of a model that answers, and those that are judged beside it."""

    name: str
    served: Bundle
    candidates: dict[Slot, Candidate] = field(default_factory=dict)

    def has_another_net(self, bundle: Bundle) -> bool:
        """Whether a bundle's net is not the served one, so that its logits are not those of what answers."""
        return bundle.card.files[MODEL] != self.served.card.files[MODEL]

    @classmethod
    def of(cls, request: Recalibration) -> ModelState:
        """The state of the model that a recalibration is about.

        Raises:
            BundleError: nothing answers for the model, or what is named cannot be loaded.
        """
        models, name = request.models, request.model_name()
        served = models.version_of(name, DEFAULT)
        if served is None:
            raise BundleError(f"no version answers for {name} in {models.given_place}; name one: trueodds promote")
        candidates: dict[Slot, Candidate] = {}
        for slot in SLOTS:
            if (version := models.version_of(name, slot)) is not None:
                bundle = Bundle.load(models.version_folder(name, version))
                candidates[slot] = Candidate(slot, bundle, models.since_ms(name, slot))
        return cls(name, Bundle.load(models.version_folder(name, served)), candidates)


def check_folder(request: Recalibration) -> None:
    """Make sure that what is published into the model folder reaches the service.

    Raises:
        DisagreementError: the service serves another folder.
        CallError: it does not answer.
        BundleError: there is no such folder.
    """
    models = request.models
    if not models.exists():
        raise BundleError(
            f"there is no model directory {models.place}; name the service's own: --models, or {VARIABLE}"
        )
    identity, end = models.identify(), time.monotonic() + models.storage.notice_seconds
    while (served := request.client.versions().folder) != identity:
        if served is not None or time.monotonic() > end:
            raise DisagreementError(
                f"the service at {request.client.url} serves another model directory than {models.place}, so"
                " nothing that is done there would reach it. Name the service's own: --models, or"
                f" {VARIABLE} (of Prefect's worker: set it and `make prefect` again)"
            )
        time.sleep(0.25)


def rehearse(request: Recalibration) -> str:
    """Everything that a recalibration needs, tried without changing what is served; says what was seen.

    Raises:
        DisagreementError: as `check_folder`.
        CallError: the service does not answer, or refuses the key.
        BundleError: no such folder or model, or the model's folder holds no whole bundle.
        OSError: the model folder cannot be written.
    """
    if model := ObservedModel.of(request):
        version = model.version(request.version)
        rows = len(request.client.labelled(model.name, version, last=request.labels))
        words = f"rehearsed: another server serves {model.name}, so nothing is published"
        return f"{words}. {_rows_words(f'{model.name}/{version}', rows)}"
    check_folder(request)
    state = ModelState.of(request)
    with request.models.lock(state.name, LOCK, lambda: None):
        pass
    rows = len(request.client.labelled(state.name, state.served.version, last=request.labels))
    words = f"rehearsed: {request.client.url} serves {request.models.place}, which can be written"
    return f"{words}. {_rows_words(f'{state.name}/{state.served.version}', rows)}"


def _rows_words(version: str, rows: int) -> str:
    return f"Labelled answers of {version} for a fit: {rows:,} (at least {LEAST_LABELS})"
