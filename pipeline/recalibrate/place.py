"""What is to be recalibrated, and the model directory in which it happens."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

from pipeline.recalibrate.choice import Choice
from pipeline.recalibrate.client import AnswerError, Client
from pipeline.recalibrate.evidence import Evidence
from trueodds.bundle import audit_log, model_folder, publishing
from trueodds.bundle.bundle import DEFAULT, MODEL, SHADOW, Bundle, BundleError
from trueodds.errors import ConfigError, UserError

LOCK = "recalibrate"
LABELS = 10_000
LEAST_LABELS = 200
NOTICE_SECONDS = 5.0
"""In which a service, which looks every second, must have noticed a new model directory's id."""

Promote = Literal["now", "evidence", "never"]


class FewLabelsError(UserError, ValueError):
    """Too few labels to fit a calibrator on."""


@dataclass(frozen=True)
class Recalibration:
    """What to recalibrate, and how far to go.

    Raises:
        ConfigError: fewer than 200 labels, a negative time.
        HistoryError: `why` or `who` is not a plain line.
    """

    client: Client
    models: Path
    model: str | None = None
    """None: the one that answers when nothing is named."""
    version: str | None = None
    """None: the one that answers for the model. Another one has been replaced, and nothing is done."""
    labels: int = LABELS
    """Of those that arrived last, at most."""
    candidates: tuple[str, ...] = ()
    promote: Promote = "evidence"
    wait_seconds: float = 0.0
    """For evidence; what is still open then is left to the next call."""
    why: str = ""
    who: str | None = None
    say: Callable[[str], object] = field(default=lambda words: None, repr=False)

    def __post_init__(self) -> None:
        if self.labels < LEAST_LABELS:
            raise ConfigError(f"labels is {self.labels}; allowed is a whole number from {LEAST_LABELS} on")
        if not self.wait_seconds >= 0:
            raise ConfigError(f"wait is {self.wait_seconds}; allowed is a number of seconds from 0 on")
        audit_log.check_reason(self.why, self.who)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What was done, and what it was decided by."""

    what: Literal["kept", "published", "promoted", "withdrawn", "open", "nothing"]
    """kept: the served calibrator is as good. published, open: a candidate waits for evidence."""
    model: str
    served: str
    candidate: str | None
    words: str
    choice: Choice | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True)
class Place:
    """A model's folder as it is now."""

    name: str
    served: Bundle
    shadow: Bundle | None
    since_ms: int
    """Answers given from then on were not known to the shadow's fit."""

    @property
    def is_retrained(self) -> bool:
        """Whether the shadow has another net, so that its logits are not those of what answers."""
        return self.shadow is not None and self.shadow.card.files[MODEL] != self.served.card.files[MODEL]


def model_of(asked: Recalibration) -> str:
    """The name of the model: the one that is named, else the one that answers when nothing is named.

    Raises:
        BundleError: there is none.
    """
    if asked.model:
        return model_folder.find_model(asked.models, asked.model).name
    return model_folder.find_default(asked.models).parent.name


def place_of(asked: Recalibration, name: str) -> Place:
    """A model's folder as it is now.

    Raises:
        BundleError: nothing answers for the model, or what is named cannot be loaded.
    """
    version = model_folder.role(asked.models, name, DEFAULT)
    if version is None:
        raise BundleError(f"no version answers for {name} in {asked.models}; name one: python -m pipeline promote")
    folder = asked.models / name
    named = model_folder.role(asked.models, name, SHADOW)
    shadow, since_ms = None, 0
    if named is not None:
        shadow = Bundle.load(model_folder.find(asked.models, name, named))
        since_ms = int((folder / SHADOW).stat().st_mtime * 1000)  # unless the history knows better
        for change in audit_log.read(folder):
            if change.what == "shadow" and change.after == named:
                since_ms = change.since_ms or int(datetime.fromisoformat(change.when).timestamp() * 1000)
    return Place(name, Bundle.load(model_folder.find(asked.models, name, version)), shadow, since_ms)


def check_folder(asked: Recalibration) -> None:
    """Make sure that what is published into the model directory reaches the service.

    Raises:
        AnswerError: the service serves another directory, or does not answer.
        BundleError: there is no such directory.
    """
    if not asked.models.is_dir():
        raise BundleError(
            f"there is no model directory {asked.models.resolve()}; name the service's own: --models, or"
            f" {model_folder.VARIABLE}"
        )
    ours, end = publishing.identify(asked.models), time.monotonic() + NOTICE_SECONDS
    while (theirs := asked.client.json("/models").get("folder")) != ours:
        if theirs is not None or time.monotonic() > end:
            raise AnswerError(
                f"the service at {asked.client.url} serves another model directory than {asked.models.resolve()}, so"
                " nothing that is done there would reach it. Name the service's own: --models, or"
                f" {model_folder.VARIABLE} (of Prefect's worker: set it and `make prefect` again)"
            )
        time.sleep(NOTICE_SECONDS / 20)


def rehearse(asked: Recalibration) -> str:
    """Everything that a recalibration needs, tried without changing what is served; says what was found.

    Raises:
        AnswerError: as `check_folder`; the service refuses the key.
        BundleError: no such directory or model, or its folder holds no whole bundle.
        OSError: the model directory cannot be written.
    """
    check_folder(asked)
    place = place_of(asked, model_of(asked))
    with audit_log.alone(asked.models / place.name, LOCK, lambda: None):
        pass
    rows = len(asked.client.labelled(place.name, place.served.version, last=asked.labels))
    return (
        f"rehearsed: {asked.client.url} serves {asked.models.resolve()}, which can be written. Labelled answers of"
        f" {place.name}/{place.served.version} for a fit: {rows:,} (at least {LEAST_LABELS})"
    )
