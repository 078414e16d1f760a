"""The loop from labels to a shadow: the evidence about the candidate that waits, a new fit where none does."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.recalibrate import observed
from pipeline.recalibrate.choice import Choice, choose, origin_of, settings_of, write_candidate
from pipeline.recalibrate.client import AnswerError, Client, Labelled
from pipeline.recalibrate.comparison import Comparison, compare
from pipeline.recalibrate.observed import ObservedModel
from pipeline.recalibrate.request import WHY, FewLabelsError, Outcome, Recalibration
from pipeline.recalibrate.state import LOCK, ModelState, check_folder
from pipeline.recalibrate.turns import candidate_number
from pipeline.trial import try_bundle
from trueodds.bundle import DEFAULT, Bundle, BundleError, BusyError

POLL_SECONDS = 2.0

Call = Callable[..., Any]
"""Calls a step: call(function, *arguments). A flow makes it a task."""


def directly(step: Callable[..., Any], *arguments: Any) -> Any:
    """Call a step as it is."""
    return step(*arguments)


def recalibrate(request: Recalibration, call: Call = directly) -> Outcome:
    """Compare the candidate that waits, if one does; otherwise fit one on the live labels and publish it as the shadow.

    Nothing is promoted unless `request.promote` is "now", and nothing is withdrawn: see `compare`.
    The candidate may be a calibrator or a retrained net that was published as the shadow. A calibrator that still waits
    after as many fresh labels as it was fitted on is replaced by a new fit; its version stays. One process at a
    time works on a model: while another one does, nothing is done. Of a model that another server serves the calibrator
    is written to `request.out`, if it is better.

    Raises:
        FewLabelsError: fewer than 200 labels.
        BundleError: no such model or version, or somebody uses its shadow for another net.
        AnswerError: the service is away, refuses, or has labels of other classes.
        ConfigError, FitError: see `choose`.
    """
    if model := ObservedModel.of(request):
        return observed.recalibrate(request, model, call)
    check_folder(request)
    name = request.model_name()
    try:
        with request.models.lock(name, LOCK):
            outcome = _judge_or_fit(request, ModelState.of(request), call)
    except BusyError:
        served = request.models.version_of(name, DEFAULT) or ""
        words = f"Another recalibration of {name} is at work; this one leaves it to that."
        return Outcome("nothing", name, served, None, words)
    return _wait(request, outcome, call) if outcome.status == "published" else outcome


def _judge_or_fit(request: Recalibration, state: ModelState, call: Call) -> Outcome:
    name, served = state.name, state.served.version
    if request.version not in (None, served):
        words = f"{name}/{request.version} no longer answers, {served} does: nothing to recalibrate."
        return Outcome("nothing", name, served, None, words)
    if state.shadow and request.promote != "now":
        origin = origin_of(state.shadow.card)
        if origin is None or (origin[0] == served and not state.is_retrained):
            outcome = _judge(request, state, call)
            used_up = origin is not None and outcome.comparison is not None and outcome.comparison.labels >= origin[1]
            if not used_up:
                return outcome
            request.say(outcome.words)
    return _fit(request, state, call)


def judge(request: Recalibration, call: Call = directly) -> Outcome:
    """Compare the model's shadow with what answers, on labels of answers given since. A person decides about it.

    A recalibrated shadow is compared on all labels of what answers, by the logits that both share; a retrained net on
    those answers that the service has scored with both, and so is a model that another server serves.

    Raises:
        BundleError: no shadow, or one of other inputs or classes.
        AnswerError: see `recalibrate`.
    """
    if model := ObservedModel.of(request):
        return observed.judge(request, model, call)
    check_folder(request)
    name = request.model_name()
    waiting = "another recalibration of it is at work: waiting"
    with request.models.lock(name, LOCK, lambda: request.say(waiting)):
        state = ModelState.of(request)
        if state.shadow is None:
            raise BundleError(
                f"{name} has no shadow to judge; trueodds recalibrate makes one, and publish --role shadow another"
            )
        outcome = _judge(request, state, call)
    return _wait(request, outcome, call)


def _fit(request: Recalibration, state: ModelState, call: Call) -> Outcome:
    name, served = state.name, state.served
    rows: Labelled = call(fetch_labels, request.client, name, served, request.labels)
    FewLabelsError.check(len(rows), f"{name}/{served.version}")
    settings = settings_of(served.card)
    choice: Choice = call(
        choose,
        served.calibrator,
        rows.logits_NC,
        rows.labels_N,
        request.candidates,
        settings,
        served.card.positive_class(),
    )
    if not choice.better:
        words = f"Nothing published: {choice.rows:,} labels cannot tell the served calibrator from the best candidate."
        if state.shadow is not None:
            words += f" {name}/{state.shadow.version} stays the shadow."
        return Outcome("kept", name, served.version, None, words, choice)
    version: str = call(publish_candidate, request, state, choice, rows)
    lower = f"{choice.best.name}: NLL {choice.gain:.4f} nats a label lower"
    if request.promote == "now":
        if state.shadow is not None and origin_of(state.shadow.card) is not None:
            request.models.withdraw(name, why="a newer fit answers", who=request.who)
        request.models.promote(name, version, why=request.reason(lower), who=request.who)
        return Outcome("promoted", name, served.version, version, f"{name}/{version} answers now. {lower}.", choice)
    words = (
        f"{name}/{version} is published as the shadow, {lower} on held-out labels. Labels of answers given from now on"
        f" are the evidence: trueodds judge. {_commands(name, version)}"
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
    return rows if since_ms is None else rows.created_since(since_ms)


def publish_candidate(request: Recalibration, state: ModelState, choice: Choice, rows: Labelled) -> str:
    """Publish the chosen calibrator as a version, and make it the shadow unless it will answer at once."""
    with tempfile.TemporaryDirectory(prefix="trueodds-recalibrate-") as folder:
        bundle = write_candidate(state.served, choice, Path(folder) / "bundle")
        if note := try_bundle(bundle.directory):
            request.say(note)
        version = request.models.publish(bundle.directory, None).name
    if request.promote != "now":
        # The fit knows no answer given later, by the service's clock; nor one of its own rows, whatever the clocks say.
        since_ms = max(time.time_ns() // 1_000_000 + rows.ahead_ms, int(rows.created_ms_N.max()) + 1)
        why = request.reason(f"recalibrated on {choice.rows:,} labels")
        request.models.shadow(state.name, version, why=why, who=request.who, since_ms=since_ms)
    return version


def _judge(request: Recalibration, state: ModelState, call: Call) -> Outcome:
    name, served, candidate = state.name, state.served, state.shadow
    assert candidate is not None
    version = candidate.version
    if (candidate.card.input, candidate.card.classes) != (served.card.input, served.card.classes):
        raise BundleError(
            f"{name}/{version} takes other inputs or has other classes than {served.version}, so it cannot shadow it;"
            f" end that: trueodds shadow {name} none"
        )
    paired = version if state.is_retrained else None
    rows: Labelled = call(fetch_labels, request.client, name, served, None, state.since_ms, paired)
    rules = replace(request.rules, candidate=candidate_number(request.models.changes(name), version))
    both = (served.calibrator, candidate.calibrator)
    comparison: Comparison = call(
        compare, *both, rows.logits_NC, rows.labels_N, rows.shadow_logits_NC, rules, rows.propensities_N
    )
    words = f"{name}/{version} stays the shadow. {comparison.words()} {WHY} {_commands(name, version)}"
    return Outcome("waits", name, served.version, version, words, comparison=comparison)


def _commands(name: str, version: str) -> str:
    """What a person may type."""
    return f"Promote it: trueodds promote {name} {version}. End it: trueodds shadow {name} none"


def _wait(request: Recalibration, outcome: Outcome, call: Call) -> Outcome:
    """The outcome after waiting for a verdict; the lock is free between two looks."""
    end = time.monotonic() + request.wait_seconds
    while not (outcome.comparison and outcome.comparison.enough) and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, POLL_SECONDS))
        with request.models.lock(outcome.model, LOCK, lambda: None):
            state = ModelState.of(replace(request, model=outcome.model))
            if state.shadow is None or state.shadow.version != outcome.candidate:
                words = f"{outcome.model}/{outcome.candidate} is no longer the shadow: somebody else decided."
                return replace(outcome, status="nothing", served=state.served.version, words=words, comparison=None)
            judged = replace(_judge(request, state, call), choice=outcome.choice)
        outcome = replace(judged, status=outcome.status)
    return outcome
