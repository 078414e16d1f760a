"""Recalibration of what is served: live labels -> a new calibrator -> a version beside the served one -> its promotion.

The net stays the same file, so the logits that the service has stored score any calibrator exactly. A recalibrated
version is published without answering (as the model's shadow) and takes over when labels of answers given later say
that it is better: see `weigh`. MODELS/<name>/history.jsonl keeps who answered when and why, for the way back.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pipeline import history, publishing
from pipeline.bundle import DEFAULT, MODEL, SHADOW, Bundle, BundleError
from pipeline.config import ConfigError
from pipeline.errors import UserError
from pipeline.recalibrate.choice import Choice, Line, choose, origin_of, write
from pipeline.recalibrate.client import AnswerError, AwayError, Client, Labelled, client_of
from pipeline.recalibrate.evidence import Evidence, weigh

__all__ = [
    "AnswerError",
    "AwayError",
    "Choice",
    "Client",
    "Evidence",
    "FewLabelsError",
    "Labelled",
    "Line",
    "Outcome",
    "Recalibration",
    "choose",
    "client_of",
    "judge",
    "recalibrate",
    "weigh",
    "write",
]

LABELS = 10_000
LEAST_LABELS = 200
POLL_SECONDS = 2.0
LOCK = "recalibrate"

Promote = Literal["now", "evidence", "never"]
Do = Callable[..., Any]
"""Calls a step: do(function, *arguments). A flow makes it a task."""


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
        history.check_reason(self.why, self.who)


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
class _Place:
    """A model's folder as it is now."""

    name: str
    served: Bundle
    shadow: Bundle | None
    since_ms: int
    """Answers given from then on were not known to the shadow's fit."""

    @property
    def candidate(self) -> Bundle | None:
        """The shadow, if it is the served net with another calibrator."""
        same = self.shadow is not None and self.shadow.card.files[MODEL] == self.served.card.files[MODEL]
        return self.shadow if same else None


def recalibrate(asked: Recalibration, do: Do = lambda step, *given: step(*given)) -> Outcome:
    """Judge the candidate that waits, if one does; otherwise fit one on the live labels and publish it.

    A candidate that is still open after as many fresh labels as it was fitted on is replaced by a new fit. One process
    at a time works on a model, so that two triggers make one candidate.

    Raises:
        FewLabelsError: fewer than 200 labels.
        BundleError: no such model or version, or somebody uses its shadow for another net.
        AnswerError: the service is away, refuses, or has labels of other classes.
        ConfigError, FitError: see `choose`.
    """
    name = _name(asked)
    with history.alone(asked.models / name, LOCK, lambda: asked.say("another recalibration of it is at work: waiting")):
        place = _place(asked, name)
        if (gone := _replaced(asked, place)) is not None:
            return gone
        origin = origin_of(place.shadow.card) if place.shadow else None
        if place.shadow and origin is None and asked.promote != "now":
            raise BundleError(
                f"{name} is shadowed by {place.shadow.version}, which recalibration did not make; end that first:"
                f" python -m pipeline shadow {name} none"
            )
        if place.candidate and origin and origin[0] == place.served.version and asked.promote != "now":
            outcome = _judge(asked, place, do)
            used_up = outcome.evidence is not None and outcome.evidence.labels >= origin[1]
            if outcome.what == "promoted" or (outcome.what == "open" and not used_up):
                return outcome
            asked.say(outcome.words)
        outcome = _fit(asked, place, do)
    return _waited(asked, outcome, do) if outcome.what == "published" and asked.promote == "evidence" else outcome


def judge(asked: Recalibration, do: Do = lambda step, *given: step(*given)) -> Outcome:
    """Weigh the model's shadow against what answers, on labels of answers given since; promote or withdraw it.

    Raises:
        BundleError: no shadow, or one with another net.
        AnswerError: see `recalibrate`.
    """
    name = _name(asked)
    with history.alone(asked.models / name, LOCK, lambda: asked.say("another recalibration of it is at work: waiting")):
        place = _place(asked, name)
        if place.shadow is None:
            raise BundleError(f"{name} has no shadow to judge; python -m pipeline recalibrate makes one")
        if place.candidate is None:
            raise BundleError(
                f"{name}/{place.shadow.version} has another net than {place.served.version}, whose logits say nothing"
                f" of it; compare the reports: /calibration-report?model={name}~shadow"
            )
        outcome = _judge(asked, place, do)
    return _waited(asked, outcome, do) if outcome.what == "open" and asked.promote == "evidence" else outcome


def _name(asked: Recalibration) -> str:
    if asked.model:
        return publishing.find_model(asked.models, asked.model).name
    return publishing.find_default(asked.models).parent.name


def _place(asked: Recalibration, name: str) -> _Place:
    version = publishing.role(asked.models, name, DEFAULT)
    if version is None:
        raise BundleError(f"no version answers for {name} in {asked.models}; name one: python -m pipeline promote")
    folder = asked.models / name
    named = publishing.role(asked.models, name, SHADOW)
    shadow, since_ms = None, 0
    if named is not None:
        shadow = Bundle.load(publishing.find(asked.models, name, named))
        since_ms = int((folder / SHADOW).stat().st_mtime * 1000)  # unless the history knows better
        for change in history.read(folder):
            if change.what == "shadow" and change.after == named:
                since_ms = change.since_ms or int(datetime.fromisoformat(change.when).timestamp() * 1000)
    return _Place(name, Bundle.load(publishing.find(asked.models, name, version)), shadow, since_ms)


def _replaced(asked: Recalibration, place: _Place) -> Outcome | None:
    now = place.served.version
    if asked.version in (None, now):
        return None
    words = f"{place.name}/{asked.version} no longer answers, {now} does: nothing to recalibrate."
    return Outcome("nothing", place.name, now, None, words)


def _fit(asked: Recalibration, place: _Place, do: Do) -> Outcome:
    name, served = place.name, place.served
    rows: Labelled = do(fetch_labels, asked.client, name, served, asked.labels)
    if len(rows) < LEAST_LABELS:
        raise FewLabelsError(
            f"{name}/{served.version} has {len(rows):,} labelled answers; at least {LEAST_LABELS} are needed. Send"
            " labels to POST /feedback"
        )
    choice: Choice = do(choose, served, rows.logits_NC, rows.labels_N, asked.candidates)
    if not choice.better:
        if place.shadow and origin_of(place.shadow.card):
            publishing.set_shadow(asked.models, name, None, why="the served calibrator is as good", who=asked.who)
        words = f"Nothing published: {choice.rows:,} labels cannot tell the served calibrator from the best candidate."
        return Outcome("kept", name, served.version, None, words, choice)
    version: str = do(publish_candidate, asked, place, choice, rows)
    lower = f"{choice.best.name}: NLL {choice.gain:.4f} nats a label lower"
    if asked.promote == "now":
        if place.shadow and origin_of(place.shadow.card):
            publishing.set_shadow(asked.models, name, None, why="a newer fit answers", who=asked.who)
        publishing.promote(asked.models, name, version, why=_because(asked, lower), who=asked.who)
        return Outcome("promoted", name, served.version, version, f"{name}/{version} answers now. {lower}.", choice)
    words = (
        f"{name}/{version} is published as the shadow, {lower} on held-out labels. Labels of answers given from now on"
        f" decide: python -m pipeline judge. Or promote it: python -m pipeline promote {name} {version}"
    )
    return Outcome("published", name, served.version, version, words, choice)


def fetch_labels(client: Client, name: str, served: Bundle, last: int | None, since_ms: int | None = None) -> Labelled:
    """The labelled answers of the served version.

    Raises:
        AnswerError: they are of another number of classes than its card names, or as `Client.labelled`.
    """
    rows = client.labelled(name, served.version, last=last, since_ms=since_ms)
    classes = len(served.card.classes)
    if len(rows) and rows.logits_NC.shape[1] != classes:
        raise AnswerError(
            f"the service's labels of {name}/{served.version} are of {rows.logits_NC.shape[1]} classes, its card in"
            f" {served.directory} names {classes}: not the same model; is --models the service's own folder?"
        )
    return rows if since_ms is None else rows.given_since(since_ms)


def publish_candidate(asked: Recalibration, place: _Place, choice: Choice, rows: Labelled) -> str:
    """Publish the chosen calibrator as a version, and make it the shadow unless it will answer at once."""
    with tempfile.TemporaryDirectory(prefix="trueodds-recalibrate-") as aside:
        write(place.served, choice, Path(aside) / "bundle")
        version = publishing.publish(Path(aside) / "bundle", asked.models, default=False).name
    if asked.promote != "now":
        # The fit knows no answer given later, by the service's clock; nor one of its own rows, whatever the clocks say.
        since_ms = max(time.time_ns() // 1_000_000 + rows.ahead_ms, int(rows.created_ms_N.max()) + 1)
        why = _because(asked, f"recalibrated on {choice.rows:,} labels")
        publishing.set_shadow(asked.models, place.name, version, why=why, who=asked.who, since_ms=since_ms)
    return version


def _judge(asked: Recalibration, place: _Place, do: Do) -> Outcome:
    name, served, candidate = place.name, place.served, place.candidate
    assert candidate is not None
    rows: Labelled = do(fetch_labels, asked.client, name, served, None, place.since_ms)
    found: Evidence = do(weigh, served.calibrator, candidate.calibrator, rows.logits_NC, rows.labels_N)
    version, said = candidate.version, found.words()
    both = (name, served.version, version)
    if found.verdict == "better" and asked.promote != "never":
        publishing.promote(asked.models, name, version, why=_because(asked, said), who=asked.who)
        return Outcome("promoted", *both, f"{name}/{version} answers now. {said}", evidence=found)
    if found.verdict == "worse" and asked.promote != "never":
        publishing.set_shadow(asked.models, name, None, why=_because(asked, said), who=asked.who)
        return Outcome("withdrawn", *both, f"{name}/{version} is withdrawn: it is worse. {said}", evidence=found)
    return Outcome("open", *both, f"{name}/{version} stays the shadow. {said}", evidence=found)


def _waited(asked: Recalibration, outcome: Outcome, do: Do) -> Outcome:
    """The outcome after waiting for evidence; the lock is free between two looks."""
    end = time.monotonic() + asked.wait_seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, POLL_SECONDS))
        with history.alone(asked.models / outcome.model, LOCK):
            place = _place(asked, outcome.model)
            if place.candidate is None or place.candidate.version != outcome.candidate:
                words = f"{outcome.model}/{outcome.candidate} is no longer the shadow: somebody else decided."
                return Outcome("nothing", outcome.model, place.served.version, outcome.candidate, words, outcome.choice)
            now = _judge(asked, place, do)
        if now.what != "open":
            return Outcome(now.what, now.model, now.served, now.candidate, now.words, outcome.choice, now.evidence)
        outcome = Outcome(
            outcome.what, *(now.model, now.served, now.candidate, now.words), outcome.choice, now.evidence
        )
    return outcome


def _because(asked: Recalibration, words: str) -> str:
    return f"{asked.why}: {words}" if asked.why else words
