"""Recalibration of what is served: live labels -> a new calibrator -> a version beside the served one -> its promotion.

The net stays the same file, so the logits that the service has stored score any calibrator exactly. A recalibrated
version is published without answering (as the model's shadow) and takes over when labels of answers given later say
that it is better: see `weigh`. MODELS/<name>/history.jsonl keeps who answered when and why, for the way back.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.recalibrate.choice import Choice, Line, choose, origin_of, write
from pipeline.recalibrate.client import AnswerError, AwayError, Client, Labelled, client_of
from pipeline.recalibrate.evidence import Evidence, weigh
from pipeline.recalibrate.place import (
    LABELS,
    LEAST_LABELS,
    LOCK,
    FewLabelsError,
    Outcome,
    Place,
    Recalibration,
    check_folder,
    model_of,
    place_of,
    rehearse,
)
from trueodds.bundle import audit_log, model_folder, publishing
from trueodds.bundle.bundle import DEFAULT, Bundle, BundleError

__all__ = [
    "AnswerError",
    "AwayError",
    "Choice",
    "Client",
    "Evidence",
    "FewLabelsError",
    "LABELS",
    "LEAST_LABELS",
    "Labelled",
    "Line",
    "Outcome",
    "Recalibration",
    "check_folder",
    "choose",
    "client_of",
    "judge",
    "model_of",
    "recalibrate",
    "rehearse",
    "weigh",
    "write",
]

POLL_SECONDS = 2.0

Do = Callable[..., Any]
"""Calls a step: do(function, *arguments). A flow makes it a task."""


def recalibrate(asked: Recalibration, do: Do = lambda step, *given: step(*given)) -> Outcome:
    """Judge the candidate that waits, if one does; otherwise fit one on the live labels and publish it.

    What waits may be a calibrator or a retrained net that was published as the shadow. One that is still open after as
    many fresh labels as it was fitted on (a net: as a fit would take) is replaced by a new fit. One process at a time
    works on a model: while another one does, nothing is done.

    Raises:
        FewLabelsError: fewer than 200 labels.
        BundleError: no such model or version, or somebody uses its shadow for another net.
        AnswerError: the service is away, refuses, or has labels of other classes.
        ConfigError, FitError: see `choose`.
    """
    check_folder(asked)
    name = model_of(asked)
    try:
        with audit_log.alone(asked.models / name, LOCK):
            outcome = _recalibrate(asked, place_of(asked, name), do)
    except audit_log.BusyError:
        served = model_folder.role(asked.models, name, DEFAULT) or ""
        words = f"Another recalibration of {name} is at work; this one leaves it to that."
        return Outcome("nothing", name, served, None, words)
    return _waited(asked, outcome, do) if outcome.what == "published" and asked.promote == "evidence" else outcome


def _recalibrate(asked: Recalibration, place: Place, do: Do) -> Outcome:
    if (replaced := _replaced(asked, place)) is not None:
        return replaced
    if place.shadow and asked.promote != "now":
        origin = origin_of(place.shadow.card)
        if origin is None or (origin[0] == place.served.version and not place.is_retrained):
            outcome = _judge(asked, place, do)
            used_up = outcome.evidence is not None and outcome.evidence.labels >= (
                origin[1] if origin else asked.labels
            )
            if outcome.what == "promoted" or (outcome.what == "open" and not used_up):
                return outcome
            asked.say(outcome.words)
    return _fit(asked, place, do)


def judge(asked: Recalibration, do: Do = lambda step, *given: step(*given)) -> Outcome:
    """Weigh the model's shadow against what answers, on labels of answers given since; promote or withdraw it.

    A recalibrated shadow is weighed on all labels of what answers, by the logits that both share; a retrained net on
    those answers that the service has scored with both.

    Raises:
        BundleError: no shadow, or one of other inputs or classes.
        AnswerError: see `recalibrate`.
    """
    check_folder(asked)
    name = model_of(asked)
    waiting = "another recalibration of it is at work: waiting"
    with audit_log.alone(asked.models / name, LOCK, lambda: asked.say(waiting)):
        place = place_of(asked, name)
        if place.shadow is None:
            raise BundleError(
                f"{name} has no shadow to judge; python -m pipeline recalibrate makes one, and publish --role shadow"
                " another"
            )
        outcome = _judge(asked, place, do)
    return _waited(asked, outcome, do) if outcome.what == "open" and asked.promote == "evidence" else outcome


def _replaced(asked: Recalibration, place: Place) -> Outcome | None:
    now = place.served.version
    if asked.version in (None, now):
        return None
    words = f"{place.name}/{asked.version} no longer answers, {now} does: nothing to recalibrate."
    return Outcome("nothing", place.name, now, None, words)


def _fit(asked: Recalibration, place: Place, do: Do) -> Outcome:
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


def fetch_labels(
    client: Client,
    name: str,
    served: Bundle,
    last: int | None,
    since_ms: int | None = None,
    shadow: str | None = None,
) -> Labelled:
    """The labelled answers of the served version; with `shadow`, those that this version has scored as well.

    Raises:
        AnswerError: they are of another number of classes than its card names, or as `Client.labelled`.
    """
    rows = client.labelled(name, served.version, last=last, since_ms=since_ms, shadow=shadow)
    classes = len(served.card.classes)
    if len(rows) and rows.logits_NC.shape[1] != classes:
        raise AnswerError(
            f"the service's labels of {name}/{served.version} are of {rows.logits_NC.shape[1]} classes, its card in"
            f" {served.directory} names {classes}: not the same model; is --models the service's own folder?"
        )
    return rows if since_ms is None else rows.given_since(since_ms)


def publish_candidate(asked: Recalibration, place: Place, choice: Choice, rows: Labelled) -> str:
    """Publish the chosen calibrator as a version, and make it the shadow unless it will answer at once."""
    with tempfile.TemporaryDirectory(prefix="trueodds-recalibrate-") as aside:
        write(place.served, choice, Path(aside) / "bundle")
        version = publishing.publish(Path(aside) / "bundle", asked.models, None).name
    if asked.promote != "now":
        # The fit knows no answer given later, by the service's clock; nor one of its own rows, whatever the clocks say.
        since_ms = max(time.time_ns() // 1_000_000 + rows.ahead_ms, int(rows.created_ms_N.max()) + 1)
        why = _because(asked, f"recalibrated on {choice.rows:,} labels")
        publishing.set_shadow(asked.models, place.name, version, why=why, who=asked.who, since_ms=since_ms)
    return version


def _judge(asked: Recalibration, place: Place, do: Do) -> Outcome:
    name, served, candidate = place.name, place.served, place.shadow
    assert candidate is not None
    if (candidate.card.input, candidate.card.classes) != (served.card.input, served.card.classes):
        raise BundleError(
            f"{name}/{candidate.version} takes other inputs or has other classes than {served.version}, so it cannot"
            f" shadow it; end that: python -m pipeline shadow {name} none"
        )
    paired = candidate.version if place.is_retrained else None
    rows: Labelled = do(fetch_labels, asked.client, name, served, None, place.since_ms, paired)
    found: Evidence = do(
        weigh, served.calibrator, candidate.calibrator, rows.logits_NC, rows.labels_N, rows.shadow_logits_NC
    )
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
        with audit_log.alone(asked.models / outcome.model, LOCK, lambda: None):
            place = place_of(asked, outcome.model)
            if place.shadow is None or place.shadow.version != outcome.candidate:
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
