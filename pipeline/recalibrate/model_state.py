"""The current state of the model to recalibrate, and the check that the service serves the same folder."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from pipeline.recalibrate.observed import RemoteModel
from pipeline.recalibrate.request import LEAST_LABELS, DisagreementError, Recalibration
from trueodds.bundle import DEFAULT, MODEL, SLOTS, Bundle, BundleError, LabelBundle, Slot, load_bundle
from trueodds.processes.choices import MODELS

LOCK = "recalibrate"


@dataclass(frozen=True)
class JudgedVersion:
    """A version under judgement."""

    slot: Slot
    bundle: Bundle | LabelBundle
    since_ms: int
    """Time from which answers count; see `PublishedModels.since_ms`."""


@dataclass(frozen=True)
class ModelState:
    """The served version of a model, and the versions judged beside it."""

    name: str
    served: Bundle | LabelBundle
    candidates: dict[Slot, JudgedVersion] = field(default_factory=dict)

    def has_another_net(self, bundle: Bundle | LabelBundle) -> bool:
        """Return whether a bundle has another net than the served version, and therefore other logits."""
        return bundle.card.files[MODEL] != self.served.card.files[MODEL]

    @classmethod
    def of(cls, request: Recalibration) -> ModelState:
        """Return the state of the model that a recalibration is about.

        Raises:
            BundleError: The model has no served version, or a version cannot be loaded.
        """
        models, name = request.models, request.model_name()
        served = models.version_of(name, DEFAULT)
        if served is None:
            raise BundleError(f"{name} has no served version in {models.given_place}; choose one: trueodds promote")
        candidates: dict[Slot, JudgedVersion] = {}
        for slot in SLOTS:
            if (version := models.version_of(name, slot)) is not None:
                bundle = load_bundle(models.version_folder(name, version))
                candidates[slot] = JudgedVersion(slot, bundle, models.since_ms(name, slot))
        return cls(name, load_bundle(models.version_folder(name, served)), candidates)


def check_folder(request: Recalibration) -> None:
    """Check that models published in the model directory reach the service.

    Raises:
        DisagreementError: The service serves another folder.
        CallError: The service does not answer.
        BundleError: There is no such folder.
    """
    models = request.models
    if not models.exists():
        raise BundleError(f"there is no model directory {models.place}; give the service's own: --models, or {MODELS}")
    identity, end = models.identify(), time.monotonic() + models.storage.notice_seconds
    while (served := request.client.versions().folder) != identity:
        if served is not None or time.monotonic() > end:
            raise DisagreementError(
                f"the service at {request.client.url} serves another model directory than {models.place}, so"
                " it would not see any change there. Give the service's own: --models, or"
                f" {MODELS} (for Prefect's worker: set it and repeat `make prefect`)"
            )
        time.sleep(0.25)


def rehearse(request: Recalibration) -> str:
    """Check everything that a recalibration needs without changing the served version, and return what was found.

    Raises:
        DisagreementError: The service serves another folder.
        CallError: The service does not answer, or refuses the key.
        BundleError: There is no such folder or model, or the model's bundle is not complete.
        OSError: The model folder cannot be written.
    """
    if model := RemoteModel.of(request):
        model.check(request, waits=False)
        version = model.version(request.version)
        rows = len(request.client.labelled(model.name, version, last=request.labels))
        words = f"rehearsed: another server serves {model.name}, so nothing is published"
        return f"{words}. {_rows_words(f'{model.name}/{version}', rows)}"
    check_folder(request)
    state = ModelState.of(request)
    with request.models.lock(state.name, LOCK, lambda: None):
        pass
    of_labels = isinstance(state.served, LabelBundle)
    read = request.client.label_truths if of_labels else request.client.labelled
    rows = len(read(state.name, state.served.version, last=request.labels))
    words = f"rehearsed: {request.client.url} serves {request.models.place}, which can be written"
    return f"{words}. {_rows_words(f'{state.name}/{state.served.version}', rows)}"


def _rows_words(version: str, rows: int) -> str:
    """Return the number of labelled answers in words."""
    return f"Labelled answers of {version} for a fit: {rows:,} (at least {LEAST_LABELS})"
